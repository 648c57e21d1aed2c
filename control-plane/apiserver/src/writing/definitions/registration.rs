//! One local APIService for each group and version that definitions serve (upstream's crdregistration and autoregister).

use std::collections::BTreeSet;

use http::Method;
use kinds::resources::{self, Resource};
use serde_json::{Value, json};

use crate::api::Api;
use crate::writing::own;

const LABEL: &str = "kube-aggregator.kubernetes.io/automanaged";

fn wanted(group: &str, version: &str, now: &str) -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": format!("{version}.{group}"), "labels": {LABEL: "true"}},
        "spec": {"group": group, "version": version, "groupPriorityMinimum": 1000, "versionPriority": 100},
        "status": {"conditions": [{"type": "Available", "status": "True", "reason": "Local",
            "message": "Local APIServices are always available", "lastTransitionTime": now}]},
    })
}

/// Makes those that are missing and removes those that nobody needs any more. Whether all is done.
pub(super) async fn run(api: &Api) -> bool {
    let services = resources::find("apiregistration.k8s.io", "v1", "apiservices");
    let services = services.expect("in the table");
    let Ok(collection) = api.collection(services) else {
        return true;
    };
    let live = api.registry.live();
    let custom = live.resources().iter().filter(|r| r.ty.defined().is_some());
    let pairs: BTreeSet<(&str, &str)> = custom
        .map(|r: &std::sync::Arc<Resource>| (r.gv.group, r.gv.version))
        .collect();
    let names: BTreeSet<String> = pairs.iter().map(|(g, v)| format!("{v}.{g}")).collect();
    let mut done = true;
    for (group, version) in pairs {
        if collection.get(&format!("{version}.{group}")).is_none() {
            let service = wanted(group, version, &api.clock.seconds());
            done &= settled(own::write(api, services, Method::POST, "", &service).await);
            done &= settled(condition(api, &service).await);
        }
    }
    for (name, stored) in collection.objects("", None).objects {
        // Only what bears our label is ours to remove.
        if !names.contains(&*name) && stored.mentions(LABEL) {
            let object = stored.value();
            if object["metadata"]["labels"][LABEL] == "true" {
                done &= settled(own::write(api, services, Method::DELETE, "", &object).await);
            }
        }
    }
    done
}

// A new object has no status: that is a second write.
async fn condition(api: &Api, service: &Value) -> crate::status::Result<()> {
    let services = resources::find("apiregistration.k8s.io", "v1", "apiservices");
    let services = services.expect("in the table");
    let name = service["metadata"]["name"].as_str().unwrap_or_default();
    let mut object = api.must_fetch(services, "", name).await?.value();
    object["status"] = service["status"].clone();
    own::write(api, services, Method::PUT, "status", &object).await
}

fn settled(outcome: crate::status::Result<()>) -> bool {
    match outcome {
        Ok(()) => true,
        // Somebody was quicker.
        Err(error) => matches!(error.reason, "AlreadyExists" | "NotFound" | "Conflict"),
    }
}
