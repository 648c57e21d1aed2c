//! Whether this node takes a pod that was bound to it: upstream's checks, reasons and messages.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{
    Node, NodeSelectorRequirement, NodeSelectorTerm, Pod, Taint, Toleration,
};

use crate::resources;
use crate::spec;
use crate::status::Ending;

/// What the decision depends on.
pub struct Facts<'a> {
    /// The node as the API server has it.
    pub node: Option<&'a Node>,
    /// What pods may use: thousandths of CPUs, bytes, pieces.
    pub allocatable: &'a BTreeMap<String, i64>,
    /// The pods that run here or will.
    pub others: &'a [&'a Pod],
    /// Patterns of sysctls that are allowed beside the safe ones.
    pub sysctls: &'a [String],
    /// Whether the machine goes down.
    pub shutting_down: bool,
}

const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.ping_group_range",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
];

/// Refuses a pod, or not.
pub fn refuse(pod: &Pod, facts: &Facts<'_>) -> Option<Ending> {
    let (reason, message) = sysctls(pod, facts)
        .or_else(|| system(pod))
        .or_else(|| room(pod, facts.others, facts.allocatable))
        .or_else(|| ports(pod, facts))
        .or_else(|| affinity(pod, facts))
        .or_else(|| taints(pod, facts))
        .or_else(|| shutdown(facts))?;
    Some(Ending {
        reason,
        message: format!("Pod was rejected: {message}"),
        disruption: false,
    })
}

type Refusal = Option<(String, String)>;

fn sysctls(pod: &Pod, facts: &Facts<'_>) -> Refusal {
    let context = spec::spec(pod).security_context.as_ref();
    let listed = context
        .and_then(|c| c.sysctls.as_deref())
        .unwrap_or_default();
    let allowed = |name: &str| {
        let pattern = |p: &String| match p.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => name == p,
        };
        SAFE_SYSCTLS.contains(&name) || facts.sysctls.iter().any(pattern)
    };
    let forbidden = listed
        .iter()
        .map(|s| s.name.replace('/', "."))
        .find(|name| !allowed(name))?;
    let message = format!("forbidden sysctl: {forbidden:?} not allowlisted");
    Some(("SysctlForbidden".to_owned(), message))
}

fn system(pod: &Pod) -> Refusal {
    let os = spec::spec(pod).os.as_ref()?;
    let message = "Failed to admit pod as the OS field doesn't match node OS".to_owned();
    (os.name != "linux").then(|| ("PodOSNotSupported".to_owned(), message))
}

/// What is missing for a pod beside the others, if anything: reason and message.
pub(crate) fn room(pod: &Pod, others: &[&Pod], allocatable: &BTreeMap<String, i64>) -> Refusal {
    let out = |name: &str, requested: i64, used: i64, capacity: i64| {
        let message = format!(
            "Node didn't have enough resource: {name}, requested: {requested}, used: {used}, capacity: {capacity}"
        );
        Some((format!("OutOf{name}"), message))
    };
    for (name, capacity) in allocatable {
        let requested = if name == "pods" {
            1
        } else {
            resources::pod_request(pod, name)
        };
        let used = match name.as_str() {
            "pods" => others.len() as i64,
            _ => others
                .iter()
                .map(|other| resources::pod_request(other, name))
                .sum(),
        };
        if requested > 0 && used + requested > *capacity {
            return out(name, requested, used, *capacity);
        }
    }
    None
}

fn host_ports(pod: &Pod) -> impl Iterator<Item = (String, String, i32)> {
    let host = spec::host_network(pod);
    let ports = spec::containers(pod).flat_map(|(_, c)| c.ports.iter().flatten());
    ports.filter_map(move |port| {
        let number = port
            .host_port
            .or(host.then_some(port.container_port))
            .filter(|n| *n > 0)?;
        let protocol = port.protocol.clone().unwrap_or_else(|| "TCP".to_owned());
        let ip = port.host_ip.clone().filter(|ip| !ip.is_empty());
        Some((ip.unwrap_or_else(|| "0.0.0.0".to_owned()), protocol, number))
    })
}

fn ports(pod: &Pod, facts: &Facts<'_>) -> Refusal {
    let wild = |ip: &str| ip == "0.0.0.0" || ip == "::";
    let taken: Vec<_> = facts
        .others
        .iter()
        .flat_map(|other| host_ports(other))
        .collect();
    let clash = host_ports(pod).any(|(ip, protocol, port)| {
        taken.iter().any(|(other, p, n)| {
            *n == port && *p == protocol && (*other == ip || wild(other) || wild(&ip))
        })
    });
    let message =
        "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports";
    clash.then(|| ("NodePorts".to_owned(), message.to_owned()))
}

fn affinity(pod: &Pod, facts: &Facts<'_>) -> Refusal {
    let node = facts.node?;
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let selector = spec::spec(pod).node_selector.clone().unwrap_or_default();
    let selected = selector
        .iter()
        .all(|(key, value)| labels.get(key) == Some(value));
    let affinity = spec::spec(pod)
        .affinity
        .as_ref()
        .and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| {
        a.required_during_scheduling_ignored_during_execution
            .as_ref()
    });
    let name = node.metadata.name.as_deref().unwrap_or_default();
    let fits =
        required.is_none_or(|r| r.node_selector_terms.iter().any(|t| term(t, &labels, name)));
    let message =
        "Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector";
    (!selected || !fits).then(|| ("NodeAffinity".to_owned(), message.to_owned()))
}

fn term(term: &NodeSelectorTerm, labels: &BTreeMap<String, String>, name: &str) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    // A term that asks for nothing matches nothing.
    let empty = expressions.is_empty() && fields.is_empty();
    let field = BTreeMap::from([("metadata.name".to_owned(), name.to_owned())]);
    !empty
        && expressions.iter().all(|r| holds(r, labels))
        && fields.iter().all(|r| holds(r, &field))
}

fn holds(requirement: &NodeSelectorRequirement, labels: &BTreeMap<String, String>) -> bool {
    let value = labels.get(&requirement.key);
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|v| values.contains(v));
    let number = || {
        let own: i64 = value?.parse().ok()?;
        let given: i64 = values.first()?.parse().ok()?;
        Some(own.cmp(&given))
    };
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number().is_some_and(std::cmp::Ordering::is_gt),
        "Lt" => number().is_some_and(std::cmp::Ordering::is_lt),
        _ => false,
    }
}

fn taints(pod: &Pod, facts: &Facts<'_>) -> Refusal {
    if crate::statics::is_static(pod) {
        return None;
    }
    let taints = facts.node?.spec.as_ref()?.taints.as_deref()?;
    let tolerations = spec::spec(pod).tolerations.as_deref().unwrap_or_default();
    let evicting = taints.iter().filter(|taint| taint.effect == "NoExecute");
    let mut refused = evicting.filter(|taint| !tolerations.iter().any(|t| tolerates(t, taint)));
    let taint = refused.next()?;
    let message = format!(
        "Predicate TaintToleration failed: node(s) had untolerated taint {{{}: {}}}",
        taint.key,
        taint.value.as_deref().unwrap_or_default()
    );
    Some(("TaintToleration".to_owned(), message))
}

fn shutdown(facts: &Facts<'_>) -> Refusal {
    let message = "Pod was rejected as the node is shutting down.";
    facts
        .shutting_down
        .then(|| ("NodeShutdown".to_owned(), message.to_owned()))
}

fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    let matches = |own: &Option<String>, other: &str| {
        own.as_deref().is_none_or(|o| o.is_empty() || o == other)
    };
    let exists = toleration.operator.as_deref() == Some("Exists");
    let value = toleration.value.as_deref().unwrap_or_default();
    matches(&toleration.effect, &taint.effect)
        && matches(&toleration.key, &taint.key)
        && (exists || value == taint.value.as_deref().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn pod(spec: Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"name": "p"}, "spec": spec})).expect("a pod")
    }

    fn asks(cpu: &str) -> Value {
        json!({"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}},
            "ports": [{"containerPort": 80, "hostPort": 8080}]}]})
    }

    fn reason(pod: &Pod, others: &[&Pod]) -> Option<Ending> {
        let node =
            serde_json::from_value(json!({"metadata": {"name": "n", "labels": {"zone": "a"}},
            "spec": {"taints": [{"key": "k", "value": "v", "effect": "NoExecute"}]}}))
            .expect("a node");
        let allocatable = BTreeMap::from([("cpu".to_owned(), 1950), ("pods".to_owned(), 3)]);
        let facts = Facts {
            node: Some(&node),
            allocatable: &allocatable,
            others,
            sysctls: &["net.*".to_owned()],
            shutting_down: false,
        };
        refuse(pod, &facts)
    }

    #[test]
    fn what_does_not_fit_is_refused_in_upstreams_words() {
        let tolerant = |mut spec: Value| {
            spec["tolerations"] = json!([{"operator": "Exists"}]);
            pod(spec)
        };
        let other = tolerant(asks("1900m"));
        let full = reason(&tolerant(asks("100m")), &[&other]).expect("refused");
        assert_eq!(full.reason, "OutOfcpu");
        assert_eq!(
            full.message,
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 100, used: 1900, capacity: 1950"
        );
        let ports = reason(&tolerant(asks("10m")), &[&other]).expect("refused");
        assert_eq!(ports.reason, "NodePorts");
        let mut elsewhere = asks("10m");
        elsewhere["nodeSelector"] = json!({"zone": "b"});
        assert_eq!(
            reason(&tolerant(elsewhere), &[]).expect("refused").reason,
            "NodeAffinity"
        );
        assert_eq!(
            reason(&pod(asks("10m")), &[]).expect("refused").reason,
            "TaintToleration"
        );
        assert_eq!(reason(&tolerant(asks("10m")), &[]), None);
    }

    #[test]
    fn only_safe_and_listed_sysctls_are_taken() {
        for (name, taken) in [
            ("kernel.shm_rmid_forced", true),
            ("net/core/somaxconn", true),
            ("kernel.msgmax", false),
        ] {
            let pod = pod(
                json!({"containers": [], "tolerations": [{"operator": "Exists"}],
                "securityContext": {"sysctls": [{"name": name, "value": "1"}]}}),
            );
            assert_eq!(reason(&pod, &[]).is_none(), taken, "{name}");
        }
    }
}
