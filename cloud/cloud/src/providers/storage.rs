//! Microsoft.Storage: accounts, shares, containers and keys.

use serde_json::{Value, json};

use super::{Call, Provider, get, post, put};
use crate::arm::document;
use crate::arm::fault::{self, Fault};
use crate::arm::kind::{Draft, Goes, Kind, PLAIN, Tag};
use crate::chance::seven_digits;
use crate::exchange::Reply;
use crate::turn::Turn;

/// What lives in an account.
const PART: Kind = Kind {
    has_location: false,
    tag: Tag::Quoted,
    longest: 63,
    decide: Some(part),
    ..PLAIN
};

pub(super) const PROVIDER: Provider = Provider {
    namespace: "Microsoft.Storage",
    versions: &["2025-01-01", "2024-01-01", "2023-01-01"],
    kinds: &[&[
        Kind {
            name: "Microsoft.Storage/storageAccounts",
            put: (202, 200),
            write: Goes::Location,
            milliseconds: 200,
            operations: ("asyncoperations", "asyncoperations"),
            required: &["/sku/name", "/kind"],
            sparse: true,
            longest: 24,
            read_only: &[
                "/properties/creationTime",
                "/properties/primaryEndpoints",
                "/properties/keyCreationTime",
            ],
            defaults: r#"{"tags":{},"properties":{"allowCrossTenantReplication":false,"minimumTlsVersion":"TLS1_2","allowBlobPublicAccess":false,"supportsHttpsTrafficOnly":true,
                "accessTier":"Hot","networkAcls":{"bypass":"AzureServices","virtualNetworkRules":[],"ipRules":[],
                "defaultAction":"Allow","ipv6Rules":[]},"privateEndpointConnections":[],"statusOfPrimary":"available",
                "encryption":{"services":{"file":{"keyType":"Account","enabled":true},"blob":{"keyType":"Account","enabled":true}},
                "keySource":"Microsoft.Storage"}}}"#,
            decide: Some(account),
            ..PLAIN
        },
        Kind {
            name: "Microsoft.Storage/storageAccounts/fileServices/shares",
            defaults: r#"{"properties":{"shareQuota":5120,"enabledProtocols":"SMB","accessTier":"TransactionOptimized",
                "leaseStatus":"unlocked","leaseState":"available"}}"#,
            ..PART
        },
        Kind {
            name: "Microsoft.Storage/storageAccounts/blobServices/containers",
            defaults: r#"{"properties":{"publicAccess":"None","deleted":false,"hasImmutabilityPolicy":false,"hasLegalHold":false,
                "leaseStatus":"Unlocked","leaseState":"Available","defaultEncryptionScope":"$account-encryption-key",
                "denyEncryptionScopeOverride":false}}"#,
            ..PART
        },
        Kind {
            name: "Microsoft.Storage/storageAccounts/queueServices/queues",
            ..PART
        },
        Kind {
            name: "Microsoft.Storage/storageAccounts/tableServices/tables",
            ..PART
        },
    ]],
    routes: &[
        post("checkNameAvailability", available),
        post("storageAccounts/{}/listKeys", keys),
        post("storageAccounts/{}/regenerateKey", keys),
        get("storageAccounts/{}/fileServices/default", service),
        get("storageAccounts/{}/blobServices/default", service),
        put("storageAccounts/{}/fileServices/default", set_service),
        put("storageAccounts/{}/blobServices/default", set_service),
    ],
    more: &[
        "storageAccounts/fileServices",
        "storageAccounts/blobServices",
        "locations",
        "locations/asyncoperations",
    ],
};

fn account(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let name = draft.id.name().to_owned();
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if name.len() < 3 || !name.chars().all(fits) {
        let message = format!(
            "{name} is not a valid storage account name. Storage account name must be between 3 and 24 \
            characters in length and use numbers and lower-case letters only."
        );
        return Err(Fault::bad("AccountNameInvalid", message));
    }
    let host = turn.settings.host().to_owned();
    let (made, now) = (
        draft.was("/properties/creationTime"),
        seven_digits(turn.now),
    );
    let location = draft.body["location"].clone();
    let tier = draft.body["sku"]["name"]
        .as_str()
        .unwrap_or_default()
        .split('_')
        .next()
        .unwrap_or_default()
        .to_owned();
    draft.body["sku"]["tier"] = json!(tier);
    let address = |service: &str| format!("https://{name}.{service}.core.{host}/");
    let properties = draft.properties();
    properties["primaryEndpoints"] = json!({"dfs": address("dfs"), "web": address("web"), "blob": address("blob"),
        "queue": address("queue"), "table": address("table"), "file": address("file")});
    properties["primaryLocation"] = location;
    properties["creationTime"] = if made.is_null() { json!(now) } else { made };
    properties["keyCreationTime"] =
        json!({"key1": properties["creationTime"], "key2": properties["creationTime"]});
    for service in ["file", "blob"] {
        properties["encryption"]["services"][service]["lastEnabledTime"] =
            properties["creationTime"].clone();
    }
    Ok(())
}

fn part(_: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    document::take(draft.properties(), "/provisioningState");
    let name = draft.id.name();
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    match name.len() >= 3 && name.chars().all(fits) {
        true => Ok(()),
        false => Err(Fault::bad(
            "InvalidResourceName",
            format!("The specified resource name '{name}' contains invalid characters."),
        )),
    }
}

fn available(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let body = call.body()?;
    let name = body["name"].as_str().unwrap_or_default();
    let scope = format!("/subscriptions/{}", call.subscription());
    let all = document::of_kind(turn, &scope, "Microsoft.Storage/storageAccounts");
    Ok(Reply::ok(
        match all.iter().any(|a| a.body["name"] == name) {
            true => json!({"nameAvailable": false, "reason": "AlreadyExists",
            "message": format!("The storage account named {name} is already taken.")}),
            false => json!({"nameAvailable": true}),
        },
    ))
}

fn keys(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let id = call.target();
    let found = document::get(turn, &id.to_string()).ok_or_else(|| fault::no_resource(&id))?;
    let key = |n: u8| {
        let one = crate::entra::directory::digest(&format!("{id}{n}{}", turn.settings.tenant));
        json!({"keyName": format!("key{n}"), "value": format!("{one}{one}"), "permissions": "FULL",
            "creationTime": found.body["properties"]["creationTime"]})
    };
    Ok(Reply::ok(json!({"keys": [key(1), key(2)]})))
}

/// The services that every account has.
fn service(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let id = call.path.id().expect("the route is a resource's");
    let account = id.parent().expect("a service belongs to an account");
    let found = document::get(turn, &account.to_string());
    let found = found.ok_or_else(|| fault::no_parent(&id, "read", &account.to_string()))?;
    let kept = turn.get(&format!("service/{}", id.key()));
    let sku = &found.body["sku"];
    let name = id.types.last().map(String::as_str).unwrap_or_default();
    let properties = match (kept, name.to_lowercase().starts_with("file")) {
        (Some(kept), _) => kept,
        (None, true) => json!({"protocolSettings": {"smb": {}}, "cors": {"corsRules": []},
            "shareDeleteRetentionPolicy": {"enabled": true, "days": 7}}),
        (None, false) => {
            json!({"cors": {"corsRules": []}, "deleteRetentionPolicy": {"allowPermanentDelete": false, "enabled": false}})
        }
    };
    Ok(Reply::ok(
        json!({"sku": sku, "id": id.to_string(), "name": "default",
        "type": format!("Microsoft.Storage/storageAccounts/{name}"), "properties": properties}),
    ))
}

fn set_service(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let id = call.path.id().expect("the route is a resource's");
    let account = id.parent().expect("a service belongs to an account");
    if document::get(turn, &account.to_string()).is_none() {
        return Err(fault::no_parent(&id, "write", &account.to_string()));
    }
    let mut body: Value = call.body()?;
    turn.put(format!("service/{}", id.key()), body["properties"].take());
    service(turn, call)
}
