use serde_json::json;

use super::*;
use crate::validation::cases::told;

#[test]
fn node_affinity_terms_are_checked() {
    let required = |term: Value| json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": [term]}}});
    let at = "a.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
    let expression = |operator: &str, values: Value| json!({"matchExpressions": [{"key": "k", "operator": operator, "values": values}]});
    let cases = [
        (required(expression("In", json!(["v"]))), String::new()),
        (required(expression("Gt", json!(["1"]))), String::new()),
        (
            json!({"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}),
            format!("{at}: Required value: must have at least one node selector term"),
        ),
        (
            required(expression("In", json!([]))),
            format!("{at}[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"),
        ),
        (
            required(expression("Exists", json!(["v"]))),
            format!("{at}[0].matchExpressions[0].values: Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'"),
        ),
        (
            required(expression("Is", json!(["v"]))),
            format!("{at}[0].matchExpressions[0].operator: Invalid value: \"Is\": not a valid selector operator"),
        ),
        (
            required(json!({"matchFields": [{"key": "metadata.uid", "operator": "In", "values": ["n"]}]})),
            format!("{at}[0].matchFields[0].key: Invalid value: \"metadata.uid\": not a valid field selector key"),
        ),
        (
            json!({"nodeAffinity": {PREFERRED: [{"weight": 101, "preference": {}}]}}),
            "a.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution[0].weight: Invalid value: 101: must be in the range 1-100".to_owned(),
        ),
    ];
    for (value, expected) in cases {
        let found = told(|e| affinity(e, &Path::root("a"), &value)).join("|");
        assert_eq!(found, expected, "{value}");
    }
}

#[test]
fn pod_affinity_terms_are_checked() {
    let term = |term: Value| json!({"podAntiAffinity": {REQUIRED: [term]}});
    let at = "a.podAntiAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]";
    let good = json!({"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}});
    let check = |value: Value| told(|e| affinity(e, &Path::root("a"), &value)).join("|");
    assert_eq!(check(term(good)), "");
    assert!(check(term(json!({}))).starts_with(&format!(
        "{at}.topologyKey: Required value: can not be empty|"
    )));
    assert_eq!(
        check(term(
            json!({"topologyKey": "zone", "matchLabelKeys": ["x"]})
        )),
        format!(
            "{at}.matchLabelKeys: Forbidden: must not be specified when labelSelector is not set"
        )
    );
    assert_eq!(
        check(term(json!({
            "topologyKey": "zone", "labelSelector": {}, "matchLabelKeys": ["x"], "mismatchLabelKeys": ["x"]
        }))),
        format!(
            "{at}.matchLabelKeys[0]: Invalid value: \"x\": exists in both matchLabelKeys and mismatchLabelKeys"
        )
    );
    let twice = check(term(json!({
        "topologyKey": "zone", "matchLabelKeys": ["x"],
        "labelSelector": {"matchExpressions": [
            {"key": "x", "operator": "Exists"}, {"key": "x", "operator": "In", "values": ["v"]}
        ]}
    })));
    assert!(
        twice.contains("exists in both matchLabelKeys and labelSelector"),
        "{twice}"
    );
}

#[test]
fn spread_constraints_are_checked() {
    let one = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"});
    let with = |name: &str, value: Value| {
        let mut constraint = one.clone();
        constraint[name] = value;
        told(|e| topology_spread(e, &Path::root("t"), std::slice::from_ref(&constraint))).join("|")
    };
    assert_eq!(with("minDomains", json!(2)), "");
    assert_eq!(
        with("maxSkew", json!(0)),
        "t[0].maxSkew: Invalid value: 0: must be greater than zero"
    );
    assert_eq!(
        with("topologyKey", json!("")),
        "t[0].topologyKey: Required value: can not be empty"
    );
    assert_eq!(
        with("whenUnsatisfiable", json!("x")),
        "t[0].whenUnsatisfiable: Unsupported value: \"x\": supported values: \"DoNotSchedule\", \"ScheduleAnyway\""
    );
    assert_eq!(
        with("nodeTaintsPolicy", json!("x")),
        "t[0].nodeTaintsPolicy: Unsupported value: \"x\": supported values: \"Honor\", \"Ignore\""
    );
    let twice = [one.clone(), one.clone()];
    assert_eq!(
        told(|e| topology_spread(e, &Path::root("t"), &twice)),
        ["t[0].{topologyKey, whenUnsatisfiable}: Duplicate value: \"{zone, DoNotSchedule}\""]
    );
    let soft = json!({"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "minDomains": 1});
    assert_eq!(
        told(|e| topology_spread(e, &Path::root("t"), std::slice::from_ref(&soft))),
        [
            "t[0].minDomains: Invalid value: 1: can only use minDomains if whenUnsatisfiable=DoNotSchedule, not ScheduleAnyway"
        ]
    );
}

#[test]
fn tolerations_are_checked() {
    let cases = [
        (json!({"operator": "Exists"}), ""),
        (
            json!({"key": "k", "value": "v", "effect": "NoSchedule"}),
            "",
        ),
        (
            json!({"key": "k", "operator": "Exists", "value": "v"}),
            "t[0].operator: Invalid value: \"v\": value must be empty when `operator` is 'Exists'",
        ),
        (
            json!({"operator": "Equal"}),
            "t[0].operator: Invalid value: \"Equal\": operator must be Exists when `key` is empty, which means \"match all values and all keys\"",
        ),
        (
            json!({"key": "k", "effect": "NoSchedule", "tolerationSeconds": 1}),
            "t[0].effect: Invalid value: \"NoSchedule\": effect must be 'NoExecute' when `tolerationSeconds` is set",
        ),
        (
            json!({"key": "k", "effect": "x"}),
            "t[0].effect: Unsupported value: \"x\": supported values: \"NoSchedule\", \"PreferNoSchedule\", \"NoExecute\"",
        ),
        (
            json!({"key": "k", "operator": "x"}),
            "t[0].operator: Unsupported value: \"x\": supported values: \"Equal\", \"Exists\"",
        ),
    ];
    for (toleration, expected) in cases {
        let list = [toleration.clone()];
        let found = told(|e| tolerations(e, &Path::root("t"), &list)).join("|");
        assert_eq!(found, expected, "{toleration}");
    }
}

#[test]
fn tolerations_of_running_pods_only_grow() {
    let old = [json!({"key": "k", "effect": "NoExecute", "tolerationSeconds": 1})];
    let later = json!({"key": "k", "effect": "NoExecute", "tolerationSeconds": 9});
    let more = json!({"key": "x", "effect": "NoExecute"});
    let check =
        |new: &[Value]| told(|e| only_added_tolerations(e, &Path::root("t"), new, &old)).join("|");
    assert_eq!(check(&[later, more.clone()]), "");
    assert_eq!(
        check(&[more]),
        "t: Forbidden: existing toleration can not be modified except its tolerationSeconds"
    );
}

#[test]
fn gated_pods_only_narrow_their_nodes() {
    let terms = |expressions: Value| json!({REQUIRED: {"nodeSelectorTerms": [{"matchExpressions": expressions}]}});
    let (a, b) = (
        json!({"key": "a", "operator": "Exists"}),
        json!({"key": "b", "operator": "Exists"}),
    );
    let old = terms(json!([a]));
    let check = |new: Value| told(|e| narrowed(e, &Path::root("n"), &new, &old)).join("|");
    assert_eq!(check(terms(json!([a, b]))), "");
    assert!(
        check(terms(json!([b]))).contains("only additions are allowed (no mutations or deletions)")
    );
    assert!(
        check(json!({}))
            .contains("no additions/deletions to non-empty NodeSelectorTerms list are allowed")
    );
}
