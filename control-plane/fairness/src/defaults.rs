//! The schemas and levels every cluster starts with (upstream's mandatory and suggested configuration).

use serde_json::{Value, json};

/// Name, seats in shares, percent lent, queues and hand (none: refuse).
type LevelRow = (&'static str, u32, u32, Option<(u32, u32)>);

const LEVELS: [LevelRow; 7] = [
    ("catch-all", 5, 0, None),
    ("global-default", 20, 50, Some((128, 6))),
    ("leader-election", 10, 0, Some((16, 4))),
    ("node-high", 40, 25, Some((64, 6))),
    ("system", 30, 33, Some((64, 6))),
    ("workload-high", 40, 50, Some((128, 6))),
    ("workload-low", 100, 90, Some((128, 6))),
];
const QUEUE_LENGTH: u32 = 50;

const MASTERS: &str = "g system:masters";
const EVERYBODY: &str = "g system:unauthenticated, g system:authenticated";
const MANAGER: &str = "u system:kube-controller-manager";
const SCHEDULER: &str = "u system:kube-scheduler";
const SYSTEM_ACCOUNTS: &str = "s kube-system";

/// What a schema's rule is about.
#[derive(Clone, Copy)]
enum About {
    Everything,
    Probes,
    Leases,
    NodesAndLeases,
}

/// Name, precedence, level, distinguisher, subjects, what about.
type SchemaRow = (
    &'static str,
    u32,
    &'static str,
    Option<&'static str>,
    &'static [&'static str],
    About,
);

const BY_USER: Option<&str> = Some("ByUser");
const BY_NAMESPACE: Option<&str> = Some("ByNamespace");

#[rustfmt::skip]
const SCHEMAS: [SchemaRow; 11] = [
    ("exempt", 1, "exempt", None, &[MASTERS], About::Everything),
    ("probes", 2, "exempt", None, &[EVERYBODY], About::Probes),
    ("system-leader-election", 100, "leader-election", BY_USER, &[MANAGER, SCHEDULER, SYSTEM_ACCOUNTS], About::Leases),
    ("system-node-high", 400, "node-high", BY_USER, &["g system:nodes"], About::NodesAndLeases),
    ("system-nodes", 500, "system", BY_USER, &["g system:nodes"], About::Everything),
    ("kube-controller-manager", 800, "workload-high", BY_NAMESPACE, &[MANAGER], About::Everything),
    ("kube-scheduler", 800, "workload-high", BY_NAMESPACE, &[SCHEDULER], About::Everything),
    ("kube-system-service-accounts", 900, "workload-high", BY_NAMESPACE, &[SYSTEM_ACCOUNTS], About::Everything),
    ("service-accounts", 9000, "workload-low", BY_USER, &["g system:serviceaccounts"], About::Everything),
    ("global-default", 9900, "global-default", BY_USER, &[EVERYBODY], About::Everything),
    ("catch-all", 10000, "catch-all", BY_USER, &[EVERYBODY], About::Everything),
];

/// The objects, with the plural of each: `prioritylevelconfigurations` first, then `flowschemas`.
pub fn objects() -> Vec<(&'static str, Value)> {
    let exempt =
        json!({"type": "Exempt", "exempt": {"nominalConcurrencyShares": 0, "lendablePercent": 0}});
    let levels = LEVELS.iter().map(|row| (row.0, limited(row)));
    std::iter::once(("exempt", exempt))
        .chain(levels)
        .map(|(name, spec)| ("prioritylevelconfigurations", object(name, spec)))
        .chain(
            SCHEMAS
                .iter()
                .map(|row| ("flowschemas", object(row.0, schema(row)))),
        )
        .collect()
}

fn object(name: &str, spec: Value) -> Value {
    let annotations = json!({"apf.kubernetes.io/autoupdate-spec": "true"});
    json!({"metadata": {"name": name, "generation": 1, "annotations": annotations}, "spec": spec, "status": {}})
}

fn limited((_, shares, lendable, queues): &LevelRow) -> Value {
    let response = match queues {
        None => json!({"type": "Reject"}),
        Some((queues, hand)) => json!({"type": "Queue",
            "queuing": {"queues": queues, "handSize": hand, "queueLengthLimit": QUEUE_LENGTH}}),
    };
    json!({"type": "Limited", "limited": {"nominalConcurrencyShares": shares, "lendablePercent": lendable,
        "limitResponse": response}})
}

fn schema((_, precedence, level, distinguisher, subjects, about): &SchemaRow) -> Value {
    let subjects: Vec<Value> = subjects
        .iter()
        .flat_map(|s| s.split(", "))
        .map(subject)
        .collect();
    let mut rule = rule(*about);
    rule["subjects"] = subjects.into();
    let mut spec = json!({"priorityLevelConfiguration": {"name": level}, "matchingPrecedence": precedence,
        "rules": [rule]});
    if let Some(by) = distinguisher {
        spec["distinguisherMethod"] = json!({"type": by});
    }
    spec
}

fn subject(text: &str) -> Value {
    match text.split_once(' ') {
        Some(("u", name)) => json!({"kind": "User", "user": {"name": name}}),
        Some(("g", name)) => json!({"kind": "Group", "group": {"name": name}}),
        Some((_, namespace)) => {
            json!({"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": "*"}})
        }
        None => Value::Null,
    }
}

fn rule(about: About) -> Value {
    let leases = |verbs: &[&str]| json!({"verbs": verbs, "apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "namespaces": ["*"]});
    match about {
        About::Everything => json!({
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": true,
                "namespaces": ["*"]}],
            "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
        }),
        About::Probes => json!({"nonResourceRules": [
            {"verbs": ["get"], "nonResourceURLs": ["/healthz", "/readyz", "/livez"]}]}),
        About::Leases => json!({"resourceRules": [leases(&["get", "create", "update"])]}),
        About::NodesAndLeases => json!({"resourceRules": [
            {"verbs": ["*"], "apiGroups": [""], "resources": ["nodes", "nodes/status"], "clusterScope": true,
                "namespaces": ["*"]},
            leases(&["*"]),
        ]}),
    }
}
