//! What a validating policy's expressions make of the types it is about, said in its status (upstream's
//! validatingadmissionpolicy-status-controller).

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kinds::resources::{self, Resource};
use serde_json::{Value, json};

use crate::api::Api;
use crate::reading::topics::Topic;
use crate::status::Result;
use crate::writing::admission::type_warnings;
use crate::writing::own;

/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Follows policies until the task is ended.
pub(crate) async fn run(api: Arc<Api>) {
    let Ok(policies) = api.collection(resource()) else {
        return;
    };
    loop {
        let (listed, mut changes) = policies.snapshot("", Topic::All);
        let mut wait = Duration::MAX;
        for (name, policy) in &listed.objects {
            if let Err(error) = settle(&api, policy.value()).await {
                tracing::info!(policy = %name, why = error.message, "its status is not written yet");
                wait = RETRY;
            }
        }
        tokio::select! {
            () = changes.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn resource() -> &'static Arc<Resource> {
    let found = resources::find(
        "admissionregistration.k8s.io",
        "v1",
        "validatingadmissionpolicies",
    );
    found.expect("in the table")
}

// A spec is looked at once, whoever does so.
async fn settle(api: &Api, mut policy: Value) -> Result<()> {
    let number = |value: &Value| value.as_i64().unwrap_or_default();
    let generation = number(&policy["metadata"]["generation"]);
    if number(&policy["status"]["observedGeneration"]) >= generation {
        return Ok(());
    }
    let warnings = type_warnings(&policy, &api.registry.live());
    policy["status"]["observedGeneration"] = generation.into();
    policy["status"]["typeChecking"] = match warnings.is_empty() {
        true => json!({}),
        false => json!({ "expressionWarnings": warnings }),
    };
    own::write(api, resource(), Method::PUT, "status", &policy).await
}
