//! What a subscription shows of itself: tenants, regions, providers, features, tags.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};

use super::fault::Fault;
use super::id::Path;
use super::{kind, region};
use crate::exchange::Reply;
use crate::providers;
use crate::turn::Turn;

/// The subscription, or how ARM says that there is none.
pub(crate) fn require(turn: &Turn<'_>, id: &str) -> Result<(), Fault> {
    match id.eq_ignore_ascii_case(&turn.settings.subscription) {
        true => Ok(()),
        false if uuid::Uuid::parse_str(id).is_err() => Err(Fault::bad(
            "InvalidSubscriptionId",
            format!("The provided subscription identifier '{id}' is malformed or invalid."),
        )
        .gateway()),
        false => Err(Fault::new(
            404,
            "SubscriptionNotFound",
            format!("The subscription '{id}' could not be found."),
        )
        .gateway()),
    }
}

pub(crate) fn item(turn: &Turn<'_>) -> Value {
    let id = &turn.settings.subscription;
    json!({
        "id": format!("/subscriptions/{id}"), "authorizationSource": "RoleBased", "managedByTenants": [],
        "subscriptionId": id, "tenantId": turn.settings.tenant, "displayName": "Kyanite", "state": "Enabled",
        "subscriptionPolicies": {"locationPlacementId": "Public_2014-09-01", "quotaId": "PayAsYouGo_2014-09-01",
            "spendingLimit": "Off"},
    })
}

pub(crate) fn tenants(turn: &Turn<'_>) -> Reply {
    let id = &turn.settings.tenant;
    Reply::list(vec![
        json!({"id": format!("/tenants/{id}"), "tenantId": id, "countryCode": "US",
        "displayName": "Kyanite", "domains": [crate::entra::directory::DOMAIN], "tenantCategory": "Home",
        "defaultDomain": crate::entra::directory::DOMAIN, "tenantType": "AAD"}),
    ])
}

/// A provider as `…/providers/<namespace>` shows it.
pub(crate) fn provider(turn: &Turn<'_>, provider: &providers::Provider) -> Value {
    let of_its = kind::all().filter(|kind| kind.namespace() == provider.namespace);
    let mut paths: BTreeSet<&str> = of_its.map(kind::Kind::path).collect();
    paths.extend(provider.more);
    let types: Vec<Value> = paths
        .into_iter()
        .map(|path| resource_type(provider, path))
        .collect();
    json!({
        "id": format!("/subscriptions/{}/providers/{}", turn.settings.subscription, provider.namespace),
        "namespace": provider.namespace, "registrationState": "Registered",
        "registrationPolicy": "RegistrationRequired", "resourceTypes": types,
    })
}

fn resource_type(provider: &providers::Provider, path: &str) -> Value {
    let mut item = json!({"resourceType": path, "locations": region::titles(), "apiVersions": provider.versions,
        "defaultApiVersion": provider.versions.first(), "capabilities": "SupportsTags, SupportsLocation"});
    if provider.namespace == "Microsoft.Compute"
        || provider.namespace == "Microsoft.ContainerService"
    {
        item["zoneMappings"] = json!(region::zone_mappings());
    }
    item
}

pub(crate) fn find(namespace: &str) -> Result<&'static providers::Provider, Fault> {
    let found = providers::PROVIDERS
        .iter()
        .find(|p| p.namespace.eq_ignore_ascii_case(namespace));
    found.ok_or_else(|| {
        let message = format!("The resource namespace '{namespace}' is invalid.");
        Fault::new(404, "InvalidResourceNamespace", message).gateway()
    })
}

/// A feature: all are registered, because there is nothing to wait for.
pub(crate) fn feature(path: &Path) -> Option<Reply> {
    let at = path
        .scope
        .to_lowercase()
        .contains("/providers/microsoft.features");
    let words: Vec<&str> = path.rest.iter().map(String::as_str).collect();
    let (namespace, name) = match (at, &path.namespace, &words[..]) {
        (true, Some(namespace), [word, name, ..]) if word.eq_ignore_ascii_case("features") => {
            (namespace, *name)
        }
        _ => return None,
    };
    Some(Reply::ok(json!({
        "id": format!("{}/providers/{namespace}/features/{name}", path.scope), "name": format!("{namespace}/{name}"),
        "type": "Microsoft.Features/providers/features", "properties": {"state": "Registered"},
    })))
}

/// The tags that are used, with their values and how often.
pub(crate) fn tag_names(turn: &Turn<'_>) -> Vec<Value> {
    let subscription = &turn.settings.subscription;
    let mut counts: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    for (_, entry) in turn.under(&format!(
        "arm/subscriptions/{}/",
        subscription.to_lowercase()
    )) {
        for (name, value) in entry["body"]["tags"].as_object().into_iter().flatten() {
            let value = value.as_str().unwrap_or_default().to_owned();
            *counts
                .entry(name.clone())
                .or_default()
                .entry(value)
                .or_default() += 1;
        }
    }
    let id = |rest: String| format!("/subscriptions/{subscription}/tagNames/{rest}");
    let count = |n: usize| json!({"type": "Total", "value": n});
    let shown = counts.into_iter().map(|(name, values)| {
        let total = values.values().sum();
        let each = |(value, n): (&String, &usize)| {
            json!({"id": id(format!("{name}/tagValues/{value}")), "tagValue": value, "count": count(*n)})
        };
        let values: Vec<Value> = values.iter().map(each).collect();
        json!({"id": id(name.clone()), "tagName": name, "count": count(total), "values": values})
    });
    shown.collect()
}
