//! Microsoft.ContainerRegistry.

use serde_json::json;

use super::{Call, Provider, get, identity, post};
use crate::arm::document;
use crate::arm::fault::{self, Fault};
use crate::arm::kind::{Draft, Goes, Kind, PLAIN};
use crate::chance::seven_digits;
use crate::exchange::Reply;
use crate::turn::Turn;

pub(super) const PROVIDER: Provider = Provider {
    namespace: "Microsoft.ContainerRegistry",
    versions: &["2025-04-01", "2023-07-01", "2019-05-01"],
    kinds: &[&[Kind {
        name: "Microsoft.ContainerRegistry/registries",
        put: (201, 201),
        write: Goes::Async,
        delete: Goes::Both,
        milliseconds: 200,
        operations: ("operationStatuses", "operationResults"),
        required: &["/sku/name"],
        read_only: &["/properties/loginServer", "/properties/creationDate"],
        sparse: true,
        longest: 50,
        defaults: r#"{"tags":{},"properties":{"adminUserEnabled":false,"publicNetworkAccess":"Enabled","anonymousPullEnabled":false,
            "dataEndpointEnabled":false,"dataEndpointHostNames":[],"encryption":{"status":"disabled"},
            "networkRuleBypassOptions":"AzureServices","privateEndpointConnections":[],"zoneRedundancy":"Disabled",
            "policies":{"quarantinePolicy":{"status":"disabled"},"trustPolicy":{"type":"Notary","status":"disabled"},
                "retentionPolicy":{"days":7,"status":"disabled"},"exportPolicy":{"status":"enabled"},
                "azureADAuthenticationAsArmPolicy":{"status":"enabled"},"softDeletePolicy":{"retentionDays":7,"status":"disabled"}}}}"#,
        decide: Some(decide),
        ..PLAIN
    }]],
    routes: &[
        post("checkNameAvailability", available),
        post("registries/{}/listCredentials", credentials),
        post("registries/{}/regenerateCredential", credentials),
        get("registries/{}/listUsages", usages),
    ],
    more: &[],
};

fn decide(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let name = draft.id.name();
    if name.len() < 5 || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
        let message = format!(
            "Registry names may contain alpha numeric characters only and must be between 5 and 50 \
            characters: '{name}'."
        );
        return Err(Fault::bad("InvalidResourceName", message));
    }
    let server = format!("{}.azurecr.{}", name.to_lowercase(), turn.settings.host());
    let made = draft.was("/properties/creationDate");
    draft.body["sku"]["tier"] = draft.body["sku"]["name"].clone();
    let properties = draft.properties();
    properties["loginServer"] = json!(server);
    properties["creationDate"] = if made.is_null() {
        json!(seven_digits(turn.now))
    } else {
        made
    };
    identity::assign(turn, draft)
}

fn available(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let body = call.body()?;
    let name = body["name"].as_str().unwrap_or_default();
    let scope = format!("/subscriptions/{}", call.subscription());
    let all = document::of_kind(turn, &scope, "Microsoft.ContainerRegistry/registries");
    let taken = all.iter().any(|r| {
        r.body["name"]
            .as_str()
            .is_some_and(|n| n.eq_ignore_ascii_case(name))
    });
    Ok(Reply::ok(match taken {
        true => json!({"nameAvailable": false, "reason": "AlreadyExists",
            "message": format!("The registry {name} is already in use.")}),
        false => json!({"nameAvailable": true}),
    }))
}

fn credentials(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let id = call.target();
    let found = document::get(turn, &id.to_string()).ok_or_else(|| fault::no_resource(&id))?;
    if found.body["properties"]["adminUserEnabled"] != true {
        let message = format!(
            "Run 'az acr update -n {} --admin-enabled true' to enable admin first.",
            id.name()
        );
        return Err(Fault::bad("UnAuthorizedForCredentialOperations", message));
    }
    let password =
        |n: u8| crate::entra::directory::digest(&format!("{id}{n}{}", turn.settings.tenant));
    Ok(Reply::ok(
        json!({"username": id.name(), "passwords": [{"name": "password", "value": password(1)},
        {"name": "password2", "value": password(2)}]}),
    ))
}

fn usages(_: &mut Turn<'_>, _: &Call<'_>) -> Result<Reply, Fault> {
    Ok(Reply::list(vec![
        json!({"name": "Size", "limit": 10_737_418_240_u64, "currentValue": 0, "unit": "Bytes"}),
    ]))
}
