//! Secrets: a value, and what is said about it.

use serde_json::{Value, json};

use super::data::Refused;
use super::shelf::{Shelf, json_of};
use crate::exchange::{Asked, Reply};
use crate::turn::Turn;

/// Key Vault takes 25 KB.
const LONGEST: usize = 25 << 10;

pub(super) fn set(turn: &mut Turn<'_>, shelf: &Shelf<'_>, asked: &Asked) -> Result<Reply, Refused> {
    shelf.check_name(turn)?;
    let body = json_of(asked)?;
    let value = body["value"]
        .as_str()
        .ok_or_else(|| Refused::bad("Property value is missing."))?;
    if value.len() > LONGEST {
        return Err(Refused::bad(
            "The value of a secret has at most 25600 bytes.",
        ));
    }
    let version = turn.chance.hex(32);
    let mut secret = json!({"value": value, "id": format!("{}/{version}", shelf.address(turn, "secrets")),
        "attributes": shelf.attributes(turn, &body["attributes"])});
    for field in ["contentType", "tags"] {
        if !body[field].is_null() {
            secret[field] = body[field].clone();
        }
    }
    shelf.keep(turn, &version, &secret, &Value::Null);
    Ok(Reply::ok(secret))
}
