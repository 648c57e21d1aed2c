//! How the parts of the control plane are: the store, and those that are clients of this server.

use http::StatusCode;
use serde_json::{Value, json};

use crate::api::Api;
use crate::call::{Call, Reply};
use crate::outward::components::{self, PARTS};
use crate::status::{ApiError, Result};

/// The store goes by the name upstream gives it.
const STORE: &str = "etcd-0";

/// What a part says that is well, or why it is not.
type Health = std::result::Result<String, String>;

impl Api {
    pub(super) async fn component_statuses(&self, call: &Call) -> Result<Reply> {
        let view = call.view()?;
        let body = match call.path.name.as_deref() {
            Some(name) => {
                let health = self.health_of(name).await;
                let health = health.ok_or_else(|| ApiError::not_listed(&call.resource, name))?;
                let mut one = status(name, health);
                one["kind"] = "ComponentStatus".into();
                one["apiVersion"] = "v1".into();
                view.object(one)
            }
            None => view.made(self.all(call).await?),
        };
        Ok(Reply::new(StatusCode::OK, &view, body))
    }

    // They have no labels: a selector that wants some finds none.
    async fn all(&self, call: &Call) -> Result<Vec<Value>> {
        let asked = call.query.get("labelSelector").unwrap_or_default();
        let selector = kube_kit::selector::LabelSelector::parse(asked)
            .map_err(|error| ApiError::bad_request(error.to_string()))?;
        if !selector.matches(|_| None) {
            return Ok(Vec::new());
        }
        let names = PARTS.iter().map(|part| part.0).chain([STORE]);
        let all = names.map(async |name| Some(status(name, self.health_of(name).await?)));
        let all = futures::future::join_all(all).await;
        Ok(all.into_iter().flatten().collect())
    }

    async fn health_of(&self, name: &str) -> Option<Health> {
        if name == STORE {
            let asked = self.store.revision().await;
            return Some(asked.map(|_| "ok".to_owned()).map_err(|e| e.to_string()));
        }
        let part = PARTS.iter().find(|part| part.0 == name)?;
        Some(components::health(&self.components, *part).await)
    }
}

fn status(name: &str, health: Health) -> Value {
    let (status, message) = match health {
        Ok(message) => ("True", message),
        Err(message) => ("False", message),
    };
    let condition = json!({"type": "Healthy", "status": status, "message": message});
    json!({"metadata": {"name": name}, "conditions": [condition]})
}
