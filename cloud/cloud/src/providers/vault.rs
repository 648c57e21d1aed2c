//! Microsoft.KeyVault: vaults; what is in them is in `data`.

mod certificates;
pub(crate) mod data;
mod deleted;
mod keys;
mod pfx;
mod secrets;
mod shelf;

use serde_json::json;

use super::{Call, Provider, get, post};
use crate::arm::document::{self, Document};
use crate::arm::fault::Fault;
use crate::arm::kind::{Draft, Kind, PLAIN};
use crate::exchange::Reply;
use crate::turn::Turn;

pub(super) const PROVIDER: Provider = Provider {
    namespace: "Microsoft.KeyVault",
    versions: &["2024-11-01", "2023-07-01", "2022-07-01"],
    kinds: &[&[Kind {
        name: "Microsoft.KeyVault/vaults",
        put: (200, 200),
        required: &["/properties/tenantId", "/properties/sku/name"],
        read_only: &["/properties/vaultUri"],
        longest: 24,
        defaults: r#"{"tags":{},"properties":{"accessPolicies":[],"enabledForDeployment":false,"enableSoftDelete":true,
            "softDeleteRetentionInDays":90,"enableRbacAuthorization":true,"publicNetworkAccess":"Enabled",
            "privateEndpointConnections":[]}}"#,
        sparse: true,
        decide: Some(decide),
        ..PLAIN
    }]],
    routes: &[
        post("checkNameAvailability", available),
        get("deletedVaults", deleted::list),
        get("locations/{}/deletedVaults/{}", deleted::get),
        post("locations/{}/deletedVaults/{}/purge", deleted::purge),
    ],
    more: &["deletedVaults", "locations"],
};

fn decide(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let name = draft.id.name().to_owned();
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
    let starts = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
    if name.len() < 3
        || !starts
        || !name.chars().all(fits)
        || name.contains("--")
        || name.ends_with('-')
    {
        let message = format!(
            "The vault name '{name}' is invalid. A vault's name must be between 3-24 alphanumeric \
            characters. The name must begin with a letter, end with a letter or digit, and not contain consecutive hyphens."
        );
        return Err(Fault::bad("VaultNameNotValid", message));
    }
    let other = turn.get(&data::by_name(&name)).filter(|id| {
        !id.as_str()
            .is_some_and(|id| id.eq_ignore_ascii_case(&draft.id.to_string()))
    });
    if other.is_some() {
        let message = format!(
            "The vault name '{name}' is already in use. Vault names are globally unique so it is \
            possible that the name is already taken."
        );
        return Err(Fault::conflict("VaultAlreadyExists", message));
    }
    deleted::recover(turn, draft)?;
    turn.put(data::by_name(&name), json!(draft.id.to_string()));
    let address = format!(
        "https://{}.vault.{}/",
        name.to_lowercase(),
        turn.settings.host()
    );
    draft.properties()["vaultUri"] = json!(address);
    Ok(())
}

fn available(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let body = call.body()?;
    let name = body["name"].as_str().unwrap_or_default();
    let taken = turn
        .get(&data::by_name(name))
        .or_else(|| deleted::find(turn, name));
    Ok(Reply::ok(match taken {
        Some(_) => {
            json!({"nameAvailable": false, "reason": "AlreadyExists", "message": format!("The vault name '{name}' is already in use.")})
        }
        None => json!({"nameAvailable": true}),
    }))
}

/// A vault that is removed can be recovered, with all that is in it, until it is purged.
pub(super) fn removed(turn: &mut Turn<'_>, kind: &Kind, document: &Document) {
    if kind.collection() != "vaults" {
        return;
    }
    let name = document.body["name"].as_str().unwrap_or_default();
    turn.remove(data::by_name(name));
    deleted::keep(turn, document);
}

/// A vault's name leads to its new place.
pub(super) fn moved(turn: &mut Turn<'_>, document: &Document, to: &str) {
    let name = document.body["name"].as_str().unwrap_or_default();
    turn.put(data::by_name(name), json!(to));
}

/// The vault of a name.
fn named(turn: &Turn<'_>, name: &str) -> Option<Document> {
    let id = turn.get(&data::by_name(name))?;
    document::get(turn, id.as_str()?)
}
