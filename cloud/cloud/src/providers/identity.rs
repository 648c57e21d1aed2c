//! Microsoft.ManagedIdentity, and the identities that other resources have.

use serde_json::{Value, json};

use super::{Call, Provider, post};
use crate::arm::document::{self, Document};
use crate::arm::fault::Fault;
use crate::arm::kind::{Draft, Kind, PLAIN};
use crate::arm::reference;
use crate::entra::directory;
use crate::exchange::Reply;
use crate::turn::Turn;

pub(super) const PROVIDER: Provider = Provider {
    namespace: "Microsoft.ManagedIdentity",
    versions: &["2024-11-30", "2023-01-31"],
    kinds: &[&[
        Kind {
            name: "Microsoft.ManagedIdentity/userAssignedIdentities",
            read_only: &[
                "/properties/principalId",
                "/properties/clientId",
                "/properties/tenantId",
            ],
            defaults: r#"{"tags":{}}"#,
            decide: Some(user_assigned),
            longest: 128,
            ..PLAIN
        },
        Kind {
            name: "Microsoft.ManagedIdentity/userAssignedIdentities/federatedIdentityCredentials",
            required: &[
                "/properties/issuer",
                "/properties/subject",
                "/properties/audiences",
            ],
            has_location: false,
            decide: Some(federated),
            longest: 120,
            ..PLAIN
        },
    ]],
    routes: &[post(
        "userAssignedIdentities/{}/listAssociatedResources",
        associated,
    )],
    more: &["identities", "operations"],
};

fn user_assigned(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    document::take(draft.properties(), "/provisioningState");
    if draft.is_new() {
        let (id, name) = (draft.id.to_string(), draft.id.name().to_owned());
        let (principal, client) = directory::add_managed_identity(turn, &name, &id, true);
        let tenant = turn.settings.tenant.clone();
        let properties = draft.properties();
        properties["principalId"] = json!(principal);
        properties["clientId"] = json!(client);
        properties["tenantId"] = json!(tenant);
    }
    Ok(())
}

fn federated(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    document::take(draft.properties(), "/provisioningState");
    let parent = draft
        .id
        .parent()
        .expect("a credential belongs to an identity");
    let same = |other: &Document| {
        let of = |field: &str| other.body["properties"][field] == draft.body["properties"][field];
        of("issuer") && of("subject") && other.id() != draft.body["id"].as_str().unwrap_or_default()
    };
    let others = document::children(turn, &parent, "federatedIdentityCredentials");
    if others.iter().any(same) {
        let message = "Issuer and subject combination already exists for this Managed Identity.";
        return Err(Fault::conflict("Conflict", message));
    }
    match others.len() >= 20 && draft.is_new() {
        true => Err(Fault::bad(
            "FederatedIdentityCredentialLimitExceeded",
            "The limit of 20 federated identity credentials is reached.",
        )),
        false => Ok(()),
    }
}

fn associated(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let sources = reference::sources(turn, &call.target().to_string());
    let shown: Vec<Value> = sources.iter().map(|id| json!({"id": id})).collect();
    Ok(Reply::ok(
        json!({"value": shown, "totalCount": sources.len()}),
    ))
}

/// Gives a resource the identities it asks for: a principal of its own, and those that it uses.
pub(super) fn assign(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let kind = draft.body["identity"]["type"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if kind.is_empty() || kind == "None" {
        document::take(&mut draft.body, "/identity");
        return Ok(());
    }
    if kind.contains("SystemAssigned") {
        let own = draft.was("/identity/principalId");
        let principal = match own.as_str() {
            Some(own) => own.to_owned(),
            None => {
                directory::add_managed_identity(turn, draft.id.name(), &draft.id.to_string(), false)
                    .0
            }
        };
        draft.body["identity"]["principalId"] = json!(principal);
        draft.body["identity"]["tenantId"] = json!(turn.settings.tenant);
    }
    let used = draft.body["identity"]["userAssignedIdentities"].as_object_mut();
    for (id, shown) in used.into_iter().flatten() {
        let Some(identity) = document::get(turn, id) else {
            let message = format!("The following user assigned identities are not found: '{id}'.");
            return Err(Fault::bad("FailedIdentityOperation", message));
        };
        let properties = &identity.body["properties"];
        *shown =
            json!({"principalId": properties["principalId"], "clientId": properties["clientId"]});
    }
    Ok(())
}

/// A principal goes with the resource it was made for.
pub(super) fn removed(turn: &mut Turn<'_>, kind: &Kind, document: &Document) {
    let principal = match kind.name {
        "Microsoft.ManagedIdentity/userAssignedIdentities" => {
            &document.body["properties"]["principalId"]
        }
        _ => &document.body["identity"]["principalId"],
    };
    if let Some(principal) = principal.as_str() {
        directory::remove(turn, "servicePrincipals", principal);
    }
}
