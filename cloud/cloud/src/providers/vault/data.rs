//! What is in a vault: secrets with their versions.
//!
//! `vault/<vault>/secrets/<name>/<time>-<version>` holds one version; the newest is the last.

use http::Method;
use serde_json::{Value, json};

use super::named;
use crate::arm::access;
use crate::arm::document::Document;
use crate::entra::token::Caller;
use crate::exchange::{Asked, Reply};
use crate::turn::Turn;

/// Where a vault's name leads to its id.
pub(crate) fn by_name(name: &str) -> String {
    format!("vaultname/{}", name.to_lowercase())
}

/// The vault that a host is of: `<name>.vault.<this host>`.
pub(crate) fn of_host(host: &str) -> Option<&str> {
    let (name, rest) = host.split_once('.')?;
    rest.starts_with("vault.").then_some(name)
}

fn error(status: u16, code: &str, message: &str) -> Reply {
    Reply::json(status, json!({"error": {"code": code, "message": message}}))
}

/// Whom a request without a token is sent to.
pub(crate) fn challenge(turn: &Turn<'_>) -> Reply {
    let settings = turn.settings;
    let value = format!(
        "Bearer authorization=\"{}/{}\", resource=\"https://vault.{}\"",
        settings.origin,
        settings.tenant,
        settings.host()
    );
    error(
        401,
        "Unauthorized",
        "AKV10000: Request is missing a Bearer or PoP token.",
    )
    .with("www-authenticate", &value)
}

/// Answers a request to a vault.
pub(crate) fn answer(turn: &mut Turn<'_>, caller: &Caller, vault: &str, asked: &Asked) -> Reply {
    let Some(document) = named(turn, vault) else {
        return error(404, "VaultNotFound", "The vault was not found.");
    };
    let segments = asked.segments();
    let verb = match (asked.method.as_str(), segments.len()) {
        ("GET", 1) => "list",
        ("GET", 3) if segments[2] == "versions" => "list",
        ("GET", _) => "get",
        ("PUT" | "PATCH", _) => "set",
        ("DELETE", _) => "delete",
        _ => "",
    };
    if !may(turn, caller, &document, verb) {
        let message = format!(
            "Caller is not authorized to perform action on resource.\r\nCaller: appid={};oid={}\r\nAction: \
            'Microsoft.KeyVault/vaults/secrets/{verb}'\r\nVault: {vault}",
            caller.app_id, caller.object_id
        );
        return error(403, "Forbidden", &message);
    }
    match (&asked.method, &segments[..]) {
        (&Method::GET, ["secrets"]) => list(turn, vault),
        (&Method::PUT, ["secrets", name]) => set(turn, vault, name, asked),
        (&Method::GET, ["secrets", name]) => get(turn, vault, name, None),
        (&Method::GET, ["secrets", name, "versions"]) => versions(turn, vault, name),
        (&Method::GET, ["secrets", name, version]) => get(turn, vault, name, Some(version)),
        (&Method::DELETE, ["secrets", name]) => delete(turn, vault, name),
        _ => error(404, "NotFound", "This vault keeps secrets only."),
    }
}

/// By role, or by the vault's own policies where it does not use roles.
fn may(turn: &Turn<'_>, caller: &Caller, vault: &Document, verb: &str) -> bool {
    let properties = &vault.body["properties"];
    if properties["enableRbacAuthorization"] != false {
        let action = match verb {
            "list" => "Microsoft.KeyVault/vaults/secrets/readMetadata/action".to_owned(),
            "delete" => "Microsoft.KeyVault/vaults/secrets/delete".to_owned(),
            verb => format!("Microsoft.KeyVault/vaults/secrets/{verb}Secret/action"),
        };
        return access::may(turn, caller, &action, vault.id(), true);
    }
    let mut policies = properties["accessPolicies"]
        .as_array()
        .into_iter()
        .flatten();
    policies.any(|policy| {
        let of_caller = policy["objectId"]
            .as_str()
            .is_some_and(|id| id == caller.object_id || caller.groups.iter().any(|g| g == id));
        let mut allowed = policy["permissions"]["secrets"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str);
        of_caller
            && allowed
                .any(|word| word.eq_ignore_ascii_case(verb) || word.eq_ignore_ascii_case("all"))
    })
}

fn prefix(vault: &str, name: &str) -> String {
    format!(
        "vault/{}/secrets/{}/",
        vault.to_lowercase(),
        name.to_lowercase()
    )
}

fn not_found(name: &str) -> Reply {
    let message = format!("A secret with (name/id) {name} was not found in this key vault.");
    error(404, "SecretNotFound", &message)
}

fn set(turn: &mut Turn<'_>, vault: &str, name: &str, asked: &Asked) -> Reply {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if name.is_empty() || name.len() > 127 || !name.chars().all(fits) {
        return error(
            400,
            "BadParameter",
            "The request URI contains an invalid name.",
        );
    }
    let Ok(body) = asked.json() else {
        return error(400, "BadParameter", "The body is no JSON.");
    };
    if !body["value"].is_string() {
        return error(400, "BadParameter", "Property value is missing.");
    }
    let version = turn.chance.hex(32);
    let now = turn.now.as_second();
    let address = format!(
        "https://{vault}.vault.{}/secrets/{name}/{version}",
        turn.settings.host()
    );
    let mut secret = json!({"value": body["value"], "id": address, "attributes": {"enabled": true, "created": now,
        "updated": now, "recoveryLevel": "Purgeable"}});
    for field in ["contentType", "tags"] {
        if !body[field].is_null() {
            secret[field] = body[field].clone();
        }
    }
    crate::arm::document::overlay(&mut secret["attributes"], &body["attributes"]);
    turn.put(
        format!(
            "{}{:020}-{version}",
            prefix(vault, name),
            turn.now.as_nanosecond()
        ),
        secret.clone(),
    );
    Reply::ok(secret)
}

fn get(turn: &Turn<'_>, vault: &str, name: &str, version: Option<&str>) -> Reply {
    let all = turn.under(&prefix(vault, name));
    let found = match version.filter(|version| !version.is_empty()) {
        Some(version) => all
            .into_iter()
            .find(|(key, _)| key.ends_with(&format!("-{version}"))),
        None => all.into_iter().next_back(),
    };
    match found {
        Some((_, secret)) if secret["attributes"]["enabled"] == false => error(
            403,
            "Forbidden",
            "Operation get is not allowed on a disabled secret.",
        ),
        Some((_, secret)) => Reply::ok(secret),
        None => not_found(name),
    }
}

fn without_value(secret: &Value) -> Value {
    let mut shown = secret.clone();
    crate::arm::document::take(&mut shown, "/value");
    shown
}

fn list(turn: &Turn<'_>, vault: &str) -> Reply {
    let mut shown: Vec<Value> = Vec::new();
    for (_, secret) in turn.under(&format!("vault/{}/secrets/", vault.to_lowercase())) {
        let mut one = without_value(&secret);
        let id = one["id"]
            .as_str()
            .unwrap_or_default()
            .rsplit_once('/')
            .map(|(id, _)| id.to_owned());
        one["id"] = json!(id);
        // Versions follow each other: the last of a name is the newest.
        match shown.last_mut() {
            Some(last) if last["id"] == one["id"] => *last = one,
            _ => shown.push(one),
        }
    }
    Reply::ok(json!({"value": shown, "nextLink": null}))
}

fn versions(turn: &Turn<'_>, vault: &str, name: &str) -> Reply {
    let all = turn.under(&prefix(vault, name));
    Reply::ok(
        json!({"value": all.iter().map(|(_, secret)| without_value(secret)).collect::<Vec<_>>(), "nextLink": null}),
    )
}

// Gone at once: without a `recoveryId` clients do not wait for it to become recoverable.
fn delete(turn: &mut Turn<'_>, vault: &str, name: &str) -> Reply {
    let all = turn.under(&prefix(vault, name));
    let Some((_, last)) = all.last() else {
        return not_found(name);
    };
    let mut shown = without_value(last);
    let now = turn.now.as_second();
    shown["deletedDate"] = json!(now);
    for (key, _) in all {
        turn.remove(key);
    }
    Reply::ok(shown)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderMap;

    use super::*;
    use crate::arena::Arena;

    fn ask(arena: &mut Arena, method: Method, path: &str, body: &Value) -> Reply {
        let body = match body.is_null() {
            true => Bytes::new(),
            false => Bytes::from(body.to_string()),
        };
        let asked = Asked::new(method, path, HeaderMap::new(), body);
        let caller = arena.caller.clone();
        arena.now += jiff::SignedDuration::from_secs(1);
        arena.turn(|turn| answer(turn, &caller, "one-vault", &asked))
    }

    #[test]
    fn secrets_have_versions_and_belong_to_those_whom_the_vault_names() {
        let mut arena = Arena::new();
        arena.group("g");
        let path = "/resourceGroups/g/providers/Microsoft.KeyVault/vaults/one-vault";
        let vault = |words: Value| {
            json!({"location": "eastus", "properties": {"tenantId": "t", "sku": {"family": "A", "name": "standard"},
                "enableRbacAuthorization": false, "accessPolicies": [{"tenantId": "t",
                "objectId": "00000000-0000-4000-8000-00000000000a", "permissions": {"secrets": words}}]}})
        };
        assert_eq!(arena.done("PUT", path, vault(json!(["get"]))).0, 200);
        let secret = json!({"value": "first"});
        let refused = ask(&mut arena, Method::PUT, "/secrets/s", &secret);
        assert_eq!(refused.status, 403);
        arena.done("PUT", path, vault(json!(["all"])));
        let first = ask(&mut arena, Method::PUT, "/secrets/s", &secret);
        assert_eq!(first.status, 200);
        ask(
            &mut arena,
            Method::PUT,
            "/secrets/s",
            &json!({"value": "second"}),
        );
        let newest = ask(&mut arena, Method::GET, "/secrets/s", &Value::Null);
        assert_eq!(newest.document()["value"], "second");
        let id = first.document()["id"].as_str().unwrap();
        let version = id.rsplit('/').next().unwrap();
        let old = ask(
            &mut arena,
            Method::GET,
            &format!("/secrets/s/{version}"),
            &Value::Null,
        );
        assert_eq!(old.document()["value"], "first");
        for (path, count) in [("/secrets", 1), ("/secrets/s/versions", 2)] {
            let listed = ask(&mut arena, Method::GET, path, &Value::Null);
            let listed = listed.document()["value"].as_array().unwrap().clone();
            assert_eq!(listed.len(), count, "{path}");
            assert!(listed.iter().all(|one| one["value"].is_null()), "{path}");
        }
        let gone = ask(&mut arena, Method::DELETE, "/secrets/s", &Value::Null);
        assert_eq!(gone.status, 200);
        let missing = ask(&mut arena, Method::GET, "/secrets/s", &Value::Null);
        assert_eq!(missing.document()["error"]["code"], "SecretNotFound");
        let wrong = ask(&mut arena, Method::PUT, "/secrets/a_b", &secret);
        assert_eq!(wrong.status, 400);
    }
}
