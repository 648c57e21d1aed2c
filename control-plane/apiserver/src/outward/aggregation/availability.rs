//! Whether a server behind this one can be asked: the Available condition, in upstream's words. Pure.

use serde_json::{Value, json};

/// A verdict: status, reason and message of the condition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    pub(crate) status: &'static str,
    pub(crate) reason: &'static str,
    pub(crate) message: String,
}

impl Verdict {
    /// Every check has passed.
    pub(crate) fn passed() -> Verdict {
        Verdict {
            status: "True",
            reason: "Passed",
            message: "all checks passed".into(),
        }
    }

    /// The server does not answer as it should.
    pub(crate) fn silent(url: &str, why: &str) -> Verdict {
        no(
            "FailedDiscoveryCheck",
            format!("failing or missing response from {url}: {why}"),
        )
    }
}

fn no(reason: &'static str, message: String) -> Verdict {
    Verdict {
        status: "False",
        reason,
        message,
    }
}

/// What the objects of the cluster say before anybody is asked; nothing if they say nothing against it.
pub(crate) fn judge(
    (namespace, name, port): (&str, &str, u16),
    service: Option<&Value>,
    slices: &[Value],
) -> Option<Verdict> {
    let of = format!("service/{name} in {namespace:?}");
    let Some(service) = service else {
        return Some(no("ServiceNotFound", format!("{of} is not present")));
    };
    if service["spec"]["type"] != "ClusterIP" {
        return None;
    }
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let Some(found) = { ports }.find(|p| p["port"].as_u64() == Some(port.into())) else {
        let message = format!("{of} is not listening on port {port}");
        return Some(no("ServicePortError", message));
    };
    let port_name = found["name"].as_str().unwrap_or_default();
    if slices.is_empty() {
        let message = format!("cannot find endpointslices for {of}");
        return Some(no("EndpointsNotFound", message));
    }
    let is_ready = |endpoint: &Value| endpoint["conditions"]["ready"] != false;
    let serves = |slice: &Value| {
        let mut ports = slice["ports"].as_array().into_iter().flatten();
        let mut endpoints = slice["endpoints"].as_array().into_iter().flatten();
        ports.any(|p| p["name"].as_str().unwrap_or_default() == port_name)
            && endpoints.any(is_ready)
    };
    (!slices.iter().any(serves)).then(|| {
        let message =
            format!("endpointslices for {of} have no addresses with port name {port_name:?}");
        no("MissingEndpoints", message)
    })
}

/// An APIService with its condition; nothing if it says so already.
pub(crate) fn told(object: &Value, verdict: &Verdict, now: &str) -> Option<Value> {
    let conditions = object["status"]["conditions"].as_array();
    let mut conditions = conditions.cloned().unwrap_or_default();
    let mut condition = json!({"type": "Available", "status": verdict.status, "lastTransitionTime": now,
        "reason": verdict.reason, "message": verdict.message});
    match conditions.iter_mut().find(|c| c["type"] == "Available") {
        Some(old) => {
            if old["status"] == condition["status"] {
                condition["lastTransitionTime"] = old["lastTransitionTime"].clone();
            }
            if *old == condition {
                return None;
            }
            *old = condition;
        }
        None => conditions.push(condition),
    }
    let mut told = object.clone();
    told["status"]["conditions"] = conditions.into();
    Some(told)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_and_messages_are_upstreams() {
        let service = |ports: Value| json!({"spec": {"type": "ClusterIP", "ports": ports}});
        let good = service(json!([{"port": 443, "name": "https"}]));
        let slice = |ready: bool, port: &str| {
            json!({"ports": [{"name": port}], "endpoints": [{"addresses": ["10.0.0.1"],
                "conditions": {"ready": ready}}]})
        };
        let other = service(json!([{"port": 1}]));
        let cases = [
            (
                None,
                vec![],
                "ServiceNotFound",
                "service/x in \"ns\" is not present",
            ),
            (
                Some(&other),
                vec![],
                "ServicePortError",
                "service/x in \"ns\" is not listening on port 443",
            ),
            (
                Some(&good),
                vec![],
                "EndpointsNotFound",
                "cannot find endpointslices for service/x in \"ns\"",
            ),
            (
                Some(&good),
                vec![slice(false, "https"), slice(true, "other")],
                "MissingEndpoints",
                "endpointslices for service/x in \"ns\" have no addresses with port name \"https\"",
            ),
        ];
        for (service, slices, reason, message) in cases {
            let verdict = judge(("ns", "x", 443), service, &slices).expect(reason);
            assert_eq!(
                (verdict.reason, verdict.message.as_str()),
                (reason, message)
            );
        }
        assert_eq!(
            judge(("ns", "x", 443), Some(&good), &[slice(true, "https")]),
            None
        );
        let named = json!({"spec": {"type": "ExternalName", "externalName": "a"}});
        assert_eq!(judge(("ns", "x", 443), Some(&named), &[]), None);
    }

    #[test]
    fn the_time_moves_with_the_status_only() {
        let object = json!({"metadata": {"name": "a"}});
        let first = told(&object, &Verdict::passed(), "t1").expect("new");
        assert_eq!(told(&first, &Verdict::passed(), "t2"), None);
        let silent = told(&first, &Verdict::silent("u", "w"), "t2").expect("other");
        assert_eq!(
            silent["status"]["conditions"][0]["lastTransitionTime"],
            "t2"
        );
        let still = told(&silent, &Verdict::silent("u", "x"), "t3").expect("other words");
        assert_eq!(still["status"]["conditions"][0]["lastTransitionTime"], "t2");
    }
}
