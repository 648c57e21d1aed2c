//! Which add-ons a cluster has: what is usual, and what its people said otherwise, in a ConfigMap of the cluster.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::Addon;
use crate::client::Client;
use crate::exit::{Code, Result};

/// The ConfigMap with what people said.
pub(crate) const NAME: &str = "kyanite-addons";
/// Its namespace.
pub(crate) const NAMESPACE: &str = "kube-system";

/// What people said, by add-on: `enabled` or `disabled`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Choice(BTreeMap<String, String>);

impl Choice {
    /// As the ConfigMap's data has it.
    pub(crate) fn of(data: impl IntoIterator<Item = (String, String)>) -> Choice {
        Choice(data.into_iter().collect())
    }

    /// Whether a cluster has this add-on.
    pub(crate) fn has(&self, addon: &Addon, has_tunnels: bool) -> bool {
        match self.0.get(addon.name).map(String::as_str) {
            _ if addon.follows_tunnels => has_tunnels,
            Some("enabled") => true,
            Some("disabled") => false,
            _ => addon.is_usual,
        }
    }

    /// The same with this said about an add-on.
    pub(crate) fn with(mut self, addon: &Addon, enabled: bool) -> Choice {
        let said = if enabled { "enabled" } else { "disabled" };
        self.0.insert(addon.name.to_owned(), said.to_owned());
        self
    }

    /// What a cluster was told so far.
    pub(crate) async fn read(client: &Client) -> Result<Choice> {
        let object = match client.get(&path()).await {
            Err(failure) if failure.code == Code::NotFound => return Ok(Choice::default()),
            other => other?,
        };
        let data = object["data"].as_object().cloned().unwrap_or_default();
        let text = |value: Value| value.as_str().map(str::to_owned);
        let said = data
            .into_iter()
            .filter_map(|(name, value)| Some((name, text(value)?)));
        Ok(Choice::of(said))
    }

    /// Tells a cluster.
    pub(crate) async fn write(&self, client: &Client) -> Result<()> {
        let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": NAME, "namespace": NAMESPACE}, "data": self.0});
        client.apply(&path(), &object).await.map(drop)
    }
}

fn path() -> String {
    format!("/api/v1/namespaces/{NAMESPACE}/configmaps/{NAME}")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::find;
    use super::*;

    #[test]
    fn what_is_said_counts_and_the_rest_is_as_usual() {
        let (dns, policy) = (find("dns").unwrap(), find("network-policy").unwrap());
        let usual = Choice::default();
        assert!(usual.has(dns, true) && !usual.has(policy, true));
        let said = usual.with(dns, false).with(policy, true);
        assert!(!said.has(dns, true) && said.has(policy, true));
        let odd = Choice::of([("dns".to_owned(), "perhaps".to_owned())]);
        assert!(odd.has(dns, true));
    }

    #[test]
    fn tunnels_are_there_exactly_when_the_api_server_uses_them() {
        let tunnels = find("konnectivity").unwrap();
        let against = Choice::default().with(tunnels, false);
        assert!(against.has(tunnels, true));
        assert!(!Choice::default().has(tunnels, false));
    }
}
