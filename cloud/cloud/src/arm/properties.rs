//! Names that a type does not know: a slip of the pen is refused, not kept.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::document::Document;
use super::fault::Fault;
use super::kind::Kind;

static KNOWN: LazyLock<HashMap<&'static str, Vec<&'static str>>> = LazyLock::new(|| {
    let lines = include_str!("../../data/properties.tbl").lines();
    let rows = lines
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| {
            let (kind, names) = line.split_once('|')?;
            Some((kind.trim(), names.split_whitespace().collect()))
        });
    rows.collect()
});

/// Refuses a body with a property that its type does not have. What is there already may be sent back.
pub(crate) fn check(kind: &Kind, before: Option<&Document>, body: &Value) -> Result<(), Fault> {
    let Some(known) = KNOWN.get(kind.name) else {
        return Ok(());
    };
    let own = before.map(|before| &before.body["properties"]);
    let sent = body["properties"].as_object().into_iter().flatten();
    for (name, _) in sent {
        let is_known = known.iter().any(|one| one.eq_ignore_ascii_case(name))
            || own.is_some_and(|own| own.get(name).is_some());
        if !is_known {
            return Err(unknown(kind, name));
        }
    }
    Ok(())
}

/// In the words of the provider's own reader of JSON.
fn unknown(kind: &Kind, name: &str) -> Fault {
    let collection = kind.collection();
    let one = collection
        .strip_suffix("es")
        .filter(|_| collection.ends_with("sses"));
    let one = one
        .or_else(|| collection.strip_suffix('s'))
        .unwrap_or(collection);
    let title: String = one[..1].to_uppercase() + &one[1..];
    let message = format!(
        "Could not find member '{name}' on object of type '{title}Properties'. Path 'properties.{name}', line 1, \
         position 1."
    );
    match kind.namespace() {
        "Microsoft.Network" => Fault::bad("InvalidRequestFormat", "Cannot parse the request.")
            .detail("InvalidJson", message),
        _ => Fault::bad("BadRequest", message).target(&format!("properties.{name}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arm::kind;

    #[test]
    fn every_row_is_of_a_type_and_knows_what_the_type_fills_in() {
        for (name, known) in KNOWN.iter() {
            let kind = kind::named(name).unwrap_or_else(|| panic!("{name}"));
            let defaults: Value = serde_json::from_str(kind.defaults).unwrap();
            for field in defaults["properties"].as_object().into_iter().flatten() {
                let is_known = known.iter().any(|one| one.eq_ignore_ascii_case(field.0));
                assert!(is_known, "{name} fills in {}", field.0);
            }
        }
    }
}
