//! Changes to the status of a pod.

use std::collections::HashSet;

use serde_json::Value;

use super::pod_annotations;
use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, has, int, items, same_text, text};
use crate::validation::rules::{complain, immutable};

const NOT_NEGATIVE: &str = "must be a non-negative integer";
const STAYS_TERMINATED: &str = "may not be transitioned to non-terminated state";
const ONE_PER_FAMILY: &str = "may specify no more than one IP for each IP family";

/// A changed status.
pub(crate) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    pod_annotations::changes(errors, new, old);
    let path = Path::root("status");
    let (status, before) = (at(new, "status"), at(old, "status"));
    conditions(
        errors,
        &path.child("conditions"),
        items(status, "conditions"),
    );
    if text(at(new, "spec"), "nodeName") != text(at(old, "spec"), "nodeName") {
        errors.forbidden(&path.child("nodeName"), "may not be changed directly");
    }
    nominated_node(errors, &path.child("nominatedNodeName"), new, old);
    let generation = int(status, "observedGeneration");
    if generation < 0 {
        errors.invalid(
            &path.child("observedGeneration"),
            &generation.into(),
            NOT_NEGATIVE,
        );
    }
    let (class, class_before) = (at(status, "qosClass"), at(before, "qosClass"));
    immutable(errors, &path.child("qosClass"), class, class_before);
    let spec = at(old, "spec");
    for (list, containers) in [
        ("containerStatuses", Some("containers")),
        ("initContainerStatuses", Some("initContainers")),
        ("ephemeralContainerStatuses", None),
    ] {
        let may_restart = |name: &str, code: i64| {
            containers.is_some_and(|containers| restarts(spec, containers, name, code))
        };
        transitions(
            errors,
            &path.child(list),
            items(status, list),
            items(before, list),
            may_restart,
        );
    }
    claim_statuses(errors, &path.child("resourceClaimStatuses"), new);
    addresses(
        errors,
        &path.child("podIPs"),
        items(status, "podIPs"),
        items(before, "podIPs"),
    );
    host_addresses(errors, &path, status, before);
}

fn conditions(errors: &mut Errors, path: &Path<'_>, list: &[Value]) {
    for (i, condition) in list.iter().enumerate() {
        let element = path.index(i);
        let generation = int(condition, "observedGeneration");
        if generation < 0 {
            errors.invalid(
                &element.child("observedGeneration"),
                &generation.into(),
                NOT_NEGATIVE,
            );
        }
        let ty = text(condition, "type");
        complain(
            errors,
            &element.child("Type"),
            ty,
            names::qualified_name(ty),
        );
    }
}

fn nominated_node(errors: &mut Errors, path: &Path<'_>, new: &Value, old: &Value) {
    let field = "nominatedNodeName";
    let (node, before) = (
        text(at(new, "status"), field),
        text(at(old, "status"), field),
    );
    if node.is_empty() || node == before {
        return;
    }
    complain(errors, path, node, names::dns1123_subdomain(node));
    if !text(at(old, "spec"), "nodeName").is_empty() {
        errors.forbidden(
            path,
            "may not be set on pods that are already bound to a node",
        );
    }
}

// What has ended stays so, unless the kubelet may start it again.
fn transitions(
    errors: &mut Errors,
    path: &Path<'_>,
    new: &[Value],
    old: &[Value],
    may_restart: impl Fn(&str, i64) -> bool,
) {
    for (i, before) in old.iter().enumerate() {
        let terminated = at(at(before, "state"), "terminated");
        let name = text(before, "name");
        if terminated.is_null() || may_restart(name, int(terminated, "exitCode")) {
            continue;
        }
        let after = new.iter().find(|status| text(status, "name") == name);
        if after.is_some_and(|status| !has(at(status, "state"), "terminated")) {
            errors.forbidden(&path.index(i).child("state"), STAYS_TERMINATED);
        }
    }
}

// Whether a container that ended with this code is started again: its own rules first, then its
// own policy, then the pod's.
fn restarts(spec: &Value, list: &str, name: &str, code: i64) -> bool {
    let restarts_all = ["initContainers", "containers"]
        .iter()
        .flat_map(|list| items(spec, list))
        .flat_map(|container| items(container, "restartPolicyRules"))
        .any(|rule| text(rule, "action") == "RestartAllContainers");
    if restarts_all {
        return true;
    }
    let Some(container) = items(spec, list).iter().find(|c| text(c, "name") == name) else {
        return false;
    };
    let own = text(container, "restartPolicy");
    if !own.is_empty() && matching_rule(container, code).is_some_and(|a| a.starts_with("Restart")) {
        return true;
    }
    match if own.is_empty() {
        text(spec, "restartPolicy")
    } else {
        own
    } {
        "OnFailure" => code != 0,
        "Never" => false,
        _ => true,
    }
}

fn matching_rule(container: &Value, code: i64) -> Option<&str> {
    let matches = |rule: &&Value| {
        let codes = at(rule, "exitCodes");
        let listed = items(codes, "values")
            .iter()
            .any(|value| value.as_i64() == Some(code));
        match text(codes, "operator") {
            "In" => listed,
            "NotIn" => !listed,
            _ => false,
        }
    };
    items(container, "restartPolicyRules")
        .iter()
        .find(matches)
        .map(|rule| text(rule, "action"))
}

fn claim_statuses(errors: &mut Errors, path: &Path<'_>, pod: &Value) {
    let claims = items(at(pod, "spec"), "resourceClaims");
    let statuses = items(at(pod, "status"), "resourceClaimStatuses");
    let claimed: HashSet<&str> = claims.iter().map(|claim| text(claim, "name")).collect();
    let same_name = same_text(statuses, "name");
    for (i, status) in statuses.iter().enumerate() {
        let element = path.index(i);
        let name = text(status, "name");
        if !claimed.contains(name) {
            let detail = "must match the name of an entry in `spec.resourceClaims`";
            errors.invalid(&element.child("name"), &name.into(), detail);
        }
        if same_name[i] {
            errors.duplicate(&element.child("name"), &name.into());
        }
        if has(status, "resourceClaimName") {
            let claim = text(status, "resourceClaimName");
            let path = element.child("resourceClaimName");
            complain(errors, &path, claim, names::dns1123_subdomain(claim));
        }
    }
}

// New addresses are addresses, one of each family; what was stored before is let through.
fn addresses(errors: &mut Errors, path: &Path<'_>, new: &[Value], old: &[Value]) {
    for (i, address) in new.iter().enumerate() {
        let ip = text(address, "ip");
        if !old.iter().any(|before| text(before, "ip") == ip) {
            complain(errors, &path.index(i), ip, names::ip(ip));
        }
    }
    let families: Vec<_> = new
        .iter()
        .map(|address| names::is_ipv6(text(address, "ip")))
        .collect();
    let is_pair = families.len() == 2 && families[0] != families[1];
    if new.len() > 1 && !is_pair {
        errors.invalid(path, &new.into(), ONE_PER_FAMILY);
    }
}

fn host_addresses(errors: &mut Errors, path: &Path<'_>, status: &Value, before: &Value) {
    let list = items(status, "hostIPs");
    let Some(first) = list.first() else { return };
    let path = path.child("hostIPs");
    if text(first, "ip") != text(status, "hostIP") {
        let element = path.index(0);
        errors.invalid(
            &element.child("ip"),
            at(first, "ip"),
            "must be equal to `hostIP`",
        );
    }
    addresses(errors, &path, list, items(before, "hostIPs"));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;

    fn change(policy: &str, old: Value, new: Value) -> String {
        let pod = |status: Value| {
            let containers = json!([{"name": "app"}]);
            json!({"metadata": {}, "spec": {"restartPolicy": policy, "containers": containers}, "status": status})
        };
        told(|e| update(e, &pod(new), &pod(old))).join("|")
    }

    #[test]
    fn ended_containers_stay_ended() {
        let ended = |code: i64| json!({"containerStatuses": [{"name": "app", "state": {"terminated": {"exitCode": code}}}]});
        let running = json!({"containerStatuses": [{"name": "app", "state": {"running": {}}}]});
        let refused = "status.containerStatuses[0].state: Forbidden: may not be transitioned to non-terminated state";
        for (policy, code, expected) in [
            ("Always", 0, ""),
            ("OnFailure", 1, ""),
            ("OnFailure", 0, refused),
            ("Never", 1, refused),
        ] {
            assert_eq!(
                change(policy, ended(code), running.clone()),
                expected,
                "{policy} {code}"
            );
        }
        let ephemeral =
            |state: Value| json!({"ephemeralContainerStatuses": [{"name": "d", "state": state}]});
        assert!(
            change(
                "Always",
                ephemeral(json!({"terminated": {}})),
                ephemeral(json!({"running": {}}))
            )
            .starts_with("status.ephemeralContainerStatuses[0].state: Forbidden")
        );
    }

    #[test]
    fn a_containers_own_policy_and_rules_come_first() {
        let rule = |action: &str| json!([{"action": action, "exitCodes": {"operator": "In", "values": [42]}}]);
        let spec = |own: &str, rules: Value| json!({"restartPolicy": "Always", "containers": [{"name": "a", "restartPolicy": own, "restartPolicyRules": rules}]});
        assert!(restarts(
            &spec("Never", rule("Restart")),
            "containers",
            "a",
            42
        ));
        assert!(!restarts(
            &spec("Never", rule("Restart")),
            "containers",
            "a",
            1
        ));
        assert!(restarts(
            &spec("Never", rule("RestartAllContainers")),
            "containers",
            "a",
            1
        ));
        assert!(!restarts(&spec("Never", json!([])), "containers", "a", 1));
    }

    #[test]
    fn fixed_fields_and_addresses() {
        let cases = [
            (
                json!({"qosClass": "Burstable"}),
                json!({"qosClass": "BestEffort"}),
                "status.qosClass: Invalid value: \"BestEffort\": field is immutable",
            ),
            (
                json!({}),
                json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}]}),
                "",
            ),
            (
                json!({}),
                json!({"podIPs": [{"ip": "x"}]}),
                "status.podIPs[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            ),
            (
                json!({"podIPs": [{"ip": "x"}]}),
                json!({"podIPs": [{"ip": "x"}]}),
                "",
            ),
            (
                json!({}),
                json!({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}),
                "status.podIPs: Invalid value: [{\"ip\":\"10.0.0.1\"},{\"ip\":\"10.0.0.2\"}]: may specify no more than one IP for each IP family",
            ),
            (
                json!({}),
                json!({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.2"}]}),
                "status.hostIPs[0].ip: Invalid value: \"10.0.0.2\": must be equal to `hostIP`",
            ),
            (
                json!({}),
                json!({"conditions": [{"type": "Ready"}, {"type": "example.com/x"}]}),
                "",
            ),
            (
                json!({}),
                json!({"conditions": [{"type": "Ready", "observedGeneration": -1}]}),
                "status.conditions[0].observedGeneration: Invalid value: -1: must be a non-negative integer",
            ),
            (
                json!({}),
                json!({"resourceClaimStatuses": [{"name": "x"}]}),
                "status.resourceClaimStatuses[0].name: Invalid value: \"x\": must match the name of an entry in `spec.resourceClaims`",
            ),
        ];
        for (old, new, expected) in cases {
            assert_eq!(change("Always", old, new.clone()), expected, "{new}");
        }
    }
}
