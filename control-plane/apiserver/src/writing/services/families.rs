//! Which families of addresses a service has: upstream's `initIPFamilyFields`. Pure.

use std::net::IpAddr;

use kinds::field::{Errors, Path};
use serde_json::{Value, json};

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    fn other(self) -> Family {
        match self {
            Family::V4 => Family::V6,
            Family::V6 => Family::V4,
        }
    }

    fn named(name: &Value) -> Option<Family> {
        [Family::V4, Family::V6]
            .into_iter()
            .find(|family| name == family.name())
    }
}

pub(super) fn family_of(address: IpAddr) -> Family {
    match address {
        IpAddr::V4(_) => Family::V4,
        IpAddr::V6(_) => Family::V6,
    }
}

pub(super) fn is_headless(service: &Value) -> bool {
    let spec = &service["spec"];
    spec["clusterIP"] == "None" || spec["clusterIPs"][0] == "None"
}

/// Decides the families, in the order of the addresses, and writes them and the policy into the service. `configured` are
/// those that the cluster has ranges of, its own first.
pub(super) fn decide(
    service: &mut Value,
    old: Option<&Value>,
    configured: &[Family],
) -> Result<Vec<Family>, Errors> {
    let selector = service["spec"].get("selector").and_then(Value::as_object);
    let headless = is_headless(service);
    let open = headless && selector.is_none_or(serde_json::Map::is_empty);
    let policy = policy(service, old, open);
    let mut families = asked(service);
    if families.is_empty() {
        families.extend(configured.first());
    }
    // A headless service without a selector may have endpoints of both families, whatever the cluster has.
    if !open {
        check(service, &policy, configured)?;
    }
    let wants_both = match policy.as_str() {
        "RequireDualStack" => true,
        "PreferDualStack" => open || configured.len() > 1,
        _ => false,
    };
    if let (1, Some(first), true) = (families.len(), families.first(), wants_both) {
        families.push(first.other());
    }
    service["spec"]["ipFamilyPolicy"] = policy.into();
    service["spec"]["ipFamilies"] = families.iter().map(|family| family.name()).collect();
    Ok(families)
}

/// What is not said is what it was, or one family; both for a headless service without a selector.
fn policy(service: &Value, old: Option<&Value>, open: bool) -> String {
    let said = |service: &Value| {
        service["spec"]["ipFamilyPolicy"]
            .as_str()
            .map(str::to_owned)
    };
    let unsaid = match open {
        true => "RequireDualStack",
        false => "SingleStack",
    };
    said(service)
        .or_else(|| said(old?))
        .unwrap_or_else(|| unsaid.to_owned())
}

/// The families a service names, or those of the addresses it names.
fn asked(service: &Value) -> Vec<Family> {
    let list = |field: &str| {
        service["spec"][field]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    let mut families: Vec<Family> = list("ipFamilies")
        .iter()
        .filter_map(Family::named)
        .collect();
    let addresses = list("clusterIPs");
    let addresses = addresses.iter().filter_map(|ip| ip.as_str()?.parse().ok());
    families.extend(addresses.skip(families.len()).map(family_of));
    families
}

fn check(service: &Value, policy: &str, configured: &[Family]) -> Result<(), Errors> {
    let mut errors = Errors::default();
    let spec = Path::root("spec");
    if policy == "RequireDualStack" && configured.len() < 2 {
        let why = "this cluster is not configured for dual-stack services";
        errors.invalid(&spec.child("ipFamilyPolicy"), &policy.into(), why);
    }
    let families = service["spec"]["ipFamilies"]
        .as_array()
        .into_iter()
        .flatten();
    for (index, family) in families.enumerate() {
        if Family::named(family).is_some_and(|family| !configured.contains(&family)) {
            let path = spec.child("ipFamilies");
            errors.invalid(&path.index(index), family, "not configured on this cluster");
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(errors),
    }
}

/// Whoever only flips the policy to one family gives up the second address (upstream's
/// `trimFieldsForDualStackDowngrade`).
pub(super) fn trim_downgrade(service: &mut Value, old: &Value) {
    let single = |service: &Value| service["spec"]["ipFamilyPolicy"] == "SingleStack";
    if !single(service) || single(old) {
        return;
    }
    for field in ["clusterIPs", "ipFamilies"] {
        let (new, before) = (&service["spec"][field], &old["spec"][field]);
        if new == before && new.as_array().is_some_and(|list| list.len() > 1) {
            service["spec"][field] = json!([new[0]]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const V4: &[Family] = &[Family::V4];
    const V6: &[Family] = &[Family::V6];
    const BOTH: &[Family] = &[Family::V4, Family::V6];
    const BOTH_6: &[Family] = &[Family::V6, Family::V4];

    #[test]
    fn families_are_what_is_asked_for_and_what_the_cluster_has() {
        let cases = [
            (json!({}), V4, json!(["IPv4"]), "SingleStack"),
            (json!({}), V6, json!(["IPv6"]), "SingleStack"),
            (json!({}), BOTH, json!(["IPv4"]), "SingleStack"),
            (
                json!({"ipFamilyPolicy": "PreferDualStack"}),
                V4,
                json!(["IPv4"]),
                "PreferDualStack",
            ),
            (
                json!({"ipFamilyPolicy": "PreferDualStack"}),
                BOTH,
                json!(["IPv4", "IPv6"]),
                "PreferDualStack",
            ),
            (
                json!({"ipFamilyPolicy": "RequireDualStack"}),
                BOTH_6,
                json!(["IPv6", "IPv4"]),
                "RequireDualStack",
            ),
            (
                json!({"ipFamilyPolicy": "RequireDualStack", "ipFamilies": ["IPv6"]}),
                BOTH,
                json!(["IPv6", "IPv4"]),
                "RequireDualStack",
            ),
            (
                json!({"ipFamilies": ["IPv6"]}),
                BOTH,
                json!(["IPv6"]),
                "SingleStack",
            ),
            (
                json!({"clusterIP": "fd00::1", "clusterIPs": ["fd00::1"]}),
                BOTH,
                json!(["IPv6"]),
                "SingleStack",
            ),
            (
                json!({"clusterIP": "None"}),
                V4,
                json!(["IPv4", "IPv6"]),
                "RequireDualStack",
            ),
            (
                json!({"clusterIP": "None", "ipFamilyPolicy": "SingleStack", "ipFamilies": ["IPv6"]}),
                V4,
                json!(["IPv6"]),
                "SingleStack",
            ),
            (
                json!({"clusterIP": "None", "selector": {"a": "b"}}),
                V4,
                json!(["IPv4"]),
                "SingleStack",
            ),
        ];
        for (spec, configured, families, policy) in cases {
            let mut service = json!({"spec": spec});
            decide(&mut service, None, configured).unwrap_or_else(|e| panic!("{spec}: {e:?}"));
            assert_eq!(service["spec"]["ipFamilies"], families, "{spec}");
            assert_eq!(service["spec"]["ipFamilyPolicy"], policy, "{spec}");
        }
    }

    #[test]
    fn what_the_cluster_does_not_have_is_refused() {
        let cases = [
            (
                json!({"ipFamilyPolicy": "RequireDualStack"}),
                "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not configured for dual-stack services",
            ),
            (
                json!({"ipFamilies": ["IPv6"]}),
                "spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster",
            ),
        ];
        for (spec, message) in cases {
            let refused = decide(&mut json!({"spec": spec}), None, V4).expect_err(message);
            assert_eq!(refused.0[0].to_string(), message);
        }
    }

    #[test]
    fn an_update_goes_up_and_down() {
        let single = json!({"spec": {"clusterIPs": ["10.0.0.9"], "ipFamilies": ["IPv4"],
            "ipFamilyPolicy": "SingleStack"}});
        let mut up = single.clone();
        up["spec"]["ipFamilyPolicy"] = "PreferDualStack".into();
        let families = decide(&mut up, Some(&single), BOTH).expect("both");
        assert_eq!(families, BOTH);
        up["spec"]["clusterIPs"] = json!(["10.0.0.9", "fd00::9"]);
        let mut down = up.clone();
        down["spec"]["ipFamilyPolicy"] = "SingleStack".into();
        trim_downgrade(&mut down, &up);
        assert_eq!(down["spec"]["clusterIPs"], json!(["10.0.0.9"]));
        assert_eq!(decide(&mut down, Some(&up), BOTH).expect("one"), V4);
        let mut unsaid = up.clone();
        unsaid["spec"]["ipFamilyPolicy"] = Value::Null;
        assert_eq!(
            decide(&mut unsaid, Some(&up), BOTH).expect("as before"),
            BOTH
        );
    }
}
