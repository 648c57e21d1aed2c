//! Webhooks as they are configured.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use crate::outward::webhook::Client;
use crate::writing::admission::expressions::{CONDITIONS, Condition, conditions};
use crate::writing::admission::matching::Matcher;
use crate::writing::admission::shape::{items, text};

/// One webhook.
#[derive(Debug)]
pub(super) struct Hook {
    pub(super) name: String,
    pub(super) configuration: String,
    pub(super) matcher: Matcher,
    pub(super) conditions: Vec<Condition>,
    pub(super) fails_closed: bool,
    /// Whether it may be asked about writes that do not happen.
    pub(super) harmless: bool,
    pub(super) reinvoked: bool,
    pub(super) mutates: bool,
    pub(super) timeout: Duration,
    /// `v1` or `v1beta1`, the first of those it understands.
    pub(super) version: &'static str,
    pub(super) client: Arc<Client>,
}

impl Hook {
    /// The webhooks of a configuration. Connections of those that stay where they were are kept.
    pub(super) fn read_all(name: &str, object: &Value, known: &[Arc<Hook>]) -> Vec<Arc<Hook>> {
        let mutates = text(&object["kind"]).starts_with("Mutating");
        let hooks = items(&object["webhooks"]).iter();
        hooks
            .map(|hook| Arc::new(Hook::read(name, hook, mutates, known)))
            .collect()
    }

    fn read(configuration: &str, hook: &Value, mutates: bool, known: &[Arc<Hook>]) -> Hook {
        let versions = items(&hook["admissionReviewVersions"]).iter().map(text);
        let version = versions
            .filter_map(|version| ["v1", "v1beta1"].into_iter().find(|v| *v == version))
            .next();
        let config = &hook["clientConfig"];
        let kept = known.iter().find(|hook| hook.client.is_for(config));
        Hook {
            name: text(&hook["name"]).to_owned(),
            configuration: configuration.to_owned(),
            matcher: Matcher::read(hook, "rules"),
            conditions: conditions(&hook["matchConditions"], &CONDITIONS),
            fails_closed: text(&hook["failurePolicy"]) != "Ignore",
            harmless: matches!(text(&hook["sideEffects"]), "None" | "NoneOnDryRun"),
            reinvoked: text(&hook["reinvocationPolicy"]) == "IfNeeded",
            mutates,
            timeout: Duration::from_secs(hook["timeoutSeconds"].as_u64().unwrap_or(10)),
            version: version.unwrap_or("v1"),
            client: match kept {
                Some(hook) => Arc::clone(&hook.client),
                None => Arc::new(Client::new(config)),
            },
        }
    }
}
