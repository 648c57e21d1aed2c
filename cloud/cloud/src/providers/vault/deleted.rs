//! Vaults that were removed: their names are taken and their content is kept until somebody purges them, or time does.

use serde_json::{Value, json};

use crate::arm::document::{self, Document};
use crate::arm::fault::Fault;
use crate::arm::kind::Draft;
use crate::arm::operation::{self, Begin, Verb};
use crate::chance::seven_digits;
use crate::exchange::Reply;
use crate::providers::Call;
use crate::turn::Turn;

const ALL: &str = "deletedvault/";

fn key(name: &str) -> String {
    format!("{ALL}{}", name.to_lowercase())
}

/// A removed vault that time has not purged.
pub(super) fn find(turn: &Turn<'_>, name: &str) -> Option<Value> {
    turn.get(&key(name)).filter(|vault| is_left(turn, vault))
}

fn is_left(turn: &Turn<'_>, vault: &Value) -> bool {
    let until = vault["shown"]["properties"]["scheduledPurgeDate"].as_str();
    until.is_some_and(|until| until > seven_digits(turn.now).as_str())
}

/// Keeps what was removed.
pub(super) fn keep(turn: &mut Turn<'_>, vault: &Document) {
    let body = &vault.body;
    let name = body["name"].as_str().unwrap_or_default();
    let location = body["location"].as_str().unwrap_or_default();
    let days = body["properties"]["softDeleteRetentionInDays"]
        .as_i64()
        .unwrap_or(90);
    let until = turn.now + jiff::SignedDuration::from_hours(24 * days);
    let id = format!(
        "/subscriptions/{}/providers/Microsoft.KeyVault/locations/{location}/deletedVaults/{name}",
        turn.settings.subscription
    );
    let shown = json!({"id": id, "name": name, "type": "Microsoft.KeyVault/deletedVaults", "properties": {
        "vaultId": body["id"], "location": location, "deletionDate": seven_digits(turn.now), "tags": body["tags"],
        "scheduledPurgeDate": seven_digits(until),
        "purgeProtectionEnabled": body["properties"]["enablePurgeProtection"]}});
    turn.put(
        key(name),
        json!({"shown": shown, "properties": body["properties"]}),
    );
}

/// Brings a vault back where a write asks for it, and refuses its name to others.
pub(super) fn recover(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let mode = document::take(&mut draft.body, "/properties/createMode");
    let name = draft.id.name().to_owned();
    let wants = mode
        .as_ref()
        .and_then(Value::as_str)
        .unwrap_or_default()
        .eq_ignore_ascii_case("recover");
    match (find(turn, &name), wants) {
        (Some(mut vault), true) => {
            draft.body["properties"] = vault["properties"].take();
            turn.remove(key(&name));
            Ok(())
        }
        (Some(_), false) => {
            let message = "A vault with the same name already exists in deleted state. You need to either recover or \
                           purge existing key vault. Follow this link https://go.microsoft.com/fwlink/?linkid=2149745 \
                           for more information on soft delete.";
            Err(Fault::conflict("ConflictError", message))
        }
        (None, true) if draft.is_new() => Err(absent(&name)),
        // What time has purged is forgotten when its name is used again.
        (None, _) if draft.is_new() => {
            forget(turn, &name);
            Ok(())
        }
        _ => Ok(()),
    }
}

fn absent(name: &str) -> Fault {
    let message = format!("The specified deleted vault '{name}' does not exist.");
    Fault::new(404, "DeletedVaultNotFound", message)
}

/// Removes what was in a vault, and that there was one.
fn forget(turn: &mut Turn<'_>, name: &str) {
    for (key, _) in turn.under(&format!("vault/{}/", name.to_lowercase())) {
        turn.remove(key);
    }
    turn.remove(key(name));
}

pub(super) fn list(turn: &mut Turn<'_>, _: &Call<'_>) -> Result<Reply, Fault> {
    let all = turn.under(ALL).into_iter().map(|(_, vault)| vault);
    let left = all.filter(|vault| is_left(turn, vault));
    Ok(Reply::list(
        left.map(|mut vault| vault["shown"].take()).collect(),
    ))
}

pub(super) fn get(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let mut vault = find(turn, &call.names[1]).ok_or_else(|| absent(&call.names[1]))?;
    Ok(Reply::ok(vault["shown"].take()))
}

pub(super) fn purge(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let (location, name) = (&call.names[0], &call.names[1]);
    let vault = find(turn, name).ok_or_else(|| absent(name))?;
    if vault["shown"]["properties"]["purgeProtectionEnabled"] == true {
        let message =
            format!("The vault '{name}' cannot be purged: purge protection is enabled for it.");
        return Err(Fault::new(403, "Forbidden", message));
    }
    forget(turn, name);
    let id = vault["shown"]["id"].as_str().unwrap_or_default();
    let mut begin = Begin::new(Verb::Action, id, 100);
    let now = seven_digits(turn.now);
    begin.output =
        json!({"createdDateTime": now, "lastActionDateTime": now, "status": "Succeeded"});
    let operation = operation::begin(turn, begin);
    let address = format!(
        "{}/subscriptions/{}/providers/Microsoft.KeyVault/locations/{location}/operationResults/{operation}?api-version={}",
        turn.settings.origin,
        call.subscription(),
        call.version()
    );
    Ok(Reply::empty(202)
        .with("location", &address)
        .with("retry-after-ms", "100"))
}
