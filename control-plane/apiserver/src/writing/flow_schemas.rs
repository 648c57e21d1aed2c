//! Whether the priority level of a flow schema exists is a condition of it, as upstream's controller says it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use http::Method;
use kinds::resources::{self, Resource};
use serde_json::{Value, json};

use crate::api::Api;
use crate::reading::topics::Topic;
use crate::status::Result;
use crate::writing::own;
use crate::writing::rest::set_condition;

const GROUP: &str = "flowcontrol.apiserver.k8s.io";
/// How soon something that failed is tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Follows schemas and levels until the task is ended.
pub(crate) async fn run(api: Arc<Api>) {
    loop {
        let (Ok(schemas), Ok(levels)) = (
            api.collection(resource("flowschemas")),
            api.collection(resource("prioritylevelconfigurations")),
        ) else {
            return;
        };
        let (levels, mut level_changes) = levels.snapshot("", Topic::All);
        let (schemas, mut schema_changes) = schemas.snapshot("", Topic::All);
        let levels: HashSet<&str> = levels.objects.iter().map(|(name, _)| &**name).collect();
        let mut wait = Duration::MAX;
        for (name, schema) in &schemas.objects {
            if let Err(error) = settle(&api, schema.value(), &levels).await {
                tracing::info!(schema = %name, why = error.message, "its condition is not written yet");
                wait = RETRY;
            }
        }
        tokio::select! {
            () = level_changes.changed() => {}
            () = schema_changes.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

fn resource(plural: &str) -> &'static Arc<Resource> {
    resources::find(GROUP, "v1", plural).expect("in the table")
}

async fn settle(api: &Api, mut schema: Value, levels: &HashSet<&str>) -> Result<()> {
    let level = level_of(&schema);
    let condition = dangling(level, levels.contains(level), &api.clock.seconds());
    if says(&schema, &condition) {
        return Ok(());
    }
    set_condition(&mut schema, condition);
    own::write(api, resource("flowschemas"), Method::PUT, "status", &schema).await
}

fn level_of(schema: &Value) -> &str {
    text_at(&schema["spec"]["priorityLevelConfiguration"]["name"])
}

fn text_at(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

/// The condition of a schema whose level is there, or is not.
pub(super) fn dangling(level: &str, exists: bool, now: &str) -> Value {
    let (status, reason, end) = match exists {
        true => ("False", "Found", "and it exists"),
        false => ("True", "NotFound", "but there is no such object"),
    };
    let message = format!(
        "This FlowSchema references the PriorityLevelConfiguration object named {level:?} {end}"
    );
    json!({"type": "Dangling", "status": status, "reason": reason, "message": message,
        "lastTransitionTime": now})
}

/// Whether a schema has a condition already, since whenever.
fn says(schema: &Value, condition: &Value) -> bool {
    let conditions = schema["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let fields = ["type", "status", "reason", "message"];
    conditions.into_iter().any(|present| {
        fields
            .iter()
            .all(|field| present[field] == condition[field])
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_condition_is_said_once() {
        let missing = dangling("x", false, "2026-01-01T00:00:00Z");
        let message = "This FlowSchema references the PriorityLevelConfiguration object named \"x\" but there is no such object";
        assert_eq!(
            (text_at(&missing["status"]), text_at(&missing["message"])),
            ("True", message)
        );
        let schema = json!({"spec": {"priorityLevelConfiguration": {"name": "x"}},
            "status": {"conditions": [missing]}});
        assert_eq!(level_of(&schema), "x");
        assert!(says(&schema, &dangling("x", false, "later")));
        assert!(!says(&schema, &dangling("x", true, "later")));
        assert!(!says(&json!({}), &dangling("x", false, "later")));
    }
}
