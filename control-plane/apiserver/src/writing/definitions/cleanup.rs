//! A definition goes after its instances (upstream's `crd_finalizer`).

use extensions::names::{self, FINALIZER};
use serde_json::Value;

use super::{Follower, write_status};
use crate::status::Result;

const CONDITION: &str = "Terminating";

/// What is to be done next for a definition that is going.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    /// Others hold it.
    Nothing,
    /// Say that its instances are being deleted.
    Announce,
    /// Delete them.
    Empty,
    /// It never had any.
    Release,
}

fn next(definition: &Value, served: bool) -> Next {
    let finalizers = definition["metadata"]["finalizers"].as_array();
    if !finalizers.is_some_and(|all| all.iter().any(|f| f == FINALIZER)) {
        return Next::Nothing;
    }
    if !served {
        return Next::Release;
    }
    let mut conditions = definition["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    let reason = conditions
        .find(|c| c["type"] == CONDITION)
        .map(|c| &c["reason"]);
    match reason.and_then(Value::as_str) {
        Some("InstanceDeletionInProgress") => Next::Empty,
        _ => Next::Announce,
    }
}

impl Follower {
    /// Whether nothing is left to do until the definition changes again.
    pub(super) async fn dismiss(&self, name: &str, value: &Value) -> Result<bool> {
        let mut definition = value.clone();
        let now = self.api.clock.seconds();
        let mut say = |status: &str, reason: &str, message: &str| {
            names::set(&mut definition, &now, CONDITION, status, reason, message);
        };
        let resource = self.seen.get(name).and_then(|seen| seen.served.first());
        let (released, done) = match (next(value, resource.is_some()), resource) {
            (Next::Nothing, _) => return Ok(true),
            (Next::Announce, _) => {
                let message = "CustomResource deletion is in progress";
                say("True", "InstanceDeletionInProgress", message);
                (false, true)
            }
            (Next::Empty, Some(resource)) => match self.api.empty(resource).await {
                Ok(0) => {
                    say(
                        "False",
                        "InstanceDeletionCompleted",
                        "removed all instances",
                    );
                    (true, true)
                }
                Ok(_) => return Ok(false),
                Err(error) => {
                    let message = format!("could not issue all deletes: {}", error.message);
                    say("True", "InstanceDeletionFailed", &message);
                    (false, false)
                }
            },
            (Next::Empty | Next::Release, _) => {
                say(
                    "False",
                    "NeverEstablished",
                    "resource was never established",
                );
                (true, true)
            }
        };
        if released && let Some(all) = definition["metadata"]["finalizers"].as_array_mut() {
            all.retain(|f| f != FINALIZER);
        }
        write_status(&self.api, &definition).await?;
        Ok(done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn instances_go_before_their_definition_does() {
        let definition = |finalizers: Value, reason: &str| {
            json!({"metadata": {"finalizers": finalizers},
                "status": {"conditions": [{"type": "Terminating", "reason": reason}]}})
        };
        let held = json!([FINALIZER]);
        let pending = definition(held.clone(), "InstanceDeletionPending");
        assert_eq!(next(&pending, true), Next::Announce);
        assert_eq!(next(&pending, false), Next::Release);
        let running = definition(held, "InstanceDeletionInProgress");
        assert_eq!(next(&running, true), Next::Empty);
        let others = definition(json!(["example.com/mine"]), "InstanceDeletionCompleted");
        assert_eq!(next(&others, true), Next::Nothing);
    }
}
