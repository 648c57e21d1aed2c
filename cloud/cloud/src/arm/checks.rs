//! What every write is held to, whatever its type: its body, its place, its preconditions.

use serde_json::{Value, json};

use super::document::{self, Document};
use super::fault::Fault;
use super::id::Id;
use super::kind::{Kind, Tag};
use super::region;
use crate::exchange::Asked;
use crate::turn::Turn;

/// The body of a write: an object.
pub(crate) fn body(asked: &Asked) -> Result<Value, Fault> {
    let invalid = |why: String| {
        let message =
            format!("The request content was invalid and could not be deserialized: '{why}'.");
        Fault::bad("InvalidRequestContent", message).gateway()
    };
    match asked.json().map_err(|e| invalid(e.to_string()))? {
        Value::Object(map) => Ok(Value::Object(map)),
        Value::Null => Err(invalid("the body is empty".into())),
        _ => Err(invalid("the body is not an object".into())),
    }
}

/// `If-Match` and `If-None-Match`.
pub(crate) fn preconditions<'b>(
    asked: &Asked,
    kind: &Kind,
    before: Option<&'b Document>,
) -> Result<(), Fault> {
    // Those that are elements of another resource have it among their properties.
    let marks = ["/etag", "/eTag", "/properties/eTag"];
    let mark = |b: &'b Document| marks.iter().find_map(|mark| b.body.pointer(mark)?.as_str());
    let now = before.map(|b| mark(b).unwrap_or_default());
    if let Some(wanted) = asked.header("if-match") {
        let fits = match now {
            Some(now) => wanted == "*" || bare(wanted) == bare(now),
            None => false,
        };
        if !fits {
            return Err(mismatch(kind, wanted, now));
        }
    }
    match asked.header("if-none-match") {
        Some("*") if before.is_some() => Err(mismatch(kind, "*", now)),
        _ => Ok(()),
    }
}

fn bare(tag: &str) -> &str {
    tag.trim_start_matches("W/").trim_matches('"')
}

fn mismatch(kind: &Kind, wanted: &str, now: Option<&str>) -> Fault {
    let now = now.unwrap_or_default();
    match kind.tag {
        Tag::Weak => Fault::new(412, "PreconditionFailed", "Precondition failed.").detail(
            "PreconditionFailedEtagMismatch",
            format!("Etag provided in if-match header {wanted} does not match etag {now} of resource in NRP database."),
        ),
        Tag::Upper => Fault::conflict(
            "EtagMismatch",
            format!("The etag provided '{wanted}' does not match the current etag '{now}' of the resource."),
        )
        .flat(),
        _ => Fault::new(
            412,
            "PreconditionFailed",
            format!("Etag provided in if-match header {wanted} does not match etag {now} of resource."),
        ),
    }
}

/// What will be kept of a body: over what was there, without what clients cannot set, with what is filled in.
pub(crate) fn complete(
    turn: &Turn<'_>,
    id: &Id,
    kind: &'static Kind,
    before: Option<&Document>,
    mut body: Value,
    sparse: bool,
) -> Result<Value, Fault> {
    check_name(id, kind)?;
    document::without_nulls(&mut body);
    super::reference::hide(kind, &mut body);
    for pointer in kind.read_only {
        document::take(&mut body, pointer);
    }
    if let (Some(before), true) = (before, sparse) {
        let mut merged = before.body.clone();
        document::overlay(&mut merged, &body);
        body = merged;
    } else if let Some(before) = before {
        keep_own(kind, &before.body, &mut body);
    }
    document::fill(&mut body, &defaults(kind));
    document::object(&mut body["properties"]);
    let spelled = before.map_or_else(|| id.to_string(), |before| before.id().to_owned());
    let name = Id::parse(&spelled).map_or_else(|| id.name().to_owned(), |id| id.name().to_owned());
    body["id"] = json!(spelled);
    body["name"] = json!(name);
    body["type"] = json!(kind.name);
    if kind.has_location {
        place(turn, kind, id, before, &mut body)?;
    }
    let state = before.map_or("Succeeded", |before| match before.state() {
        "" => "Succeeded",
        state => state,
    });
    body["properties"]["provisioningState"] = json!(state);
    Ok(body)
}

fn defaults(kind: &Kind) -> Value {
    serde_json::from_str(kind.defaults).expect("the table's defaults are JSON")
}

/// What the service keeps although a write replaces the rest: read-only fields, and children that were not mentioned.
fn keep_own(kind: &'static Kind, before: &Value, body: &mut Value) {
    for pointer in kind.read_only {
        if let Some(own) = before.pointer(pointer) {
            *document::at(body, pointer) = own.clone();
        }
    }
    for field in kind.inner().filter_map(|inner| inner.within) {
        if body["properties"][field].is_null() && !before["properties"][field].is_null() {
            document::object(&mut body["properties"]);
            body["properties"][field] = before["properties"][field].clone();
        }
    }
    for field in ["identity", "etag", "eTag"] {
        if body[field].is_null() && !before[field].is_null() {
            body[field] = before[field].clone();
        }
    }
}

fn check_name(id: &Id, kind: &Kind) -> Result<(), Fault> {
    let name = id.name();
    let bad = |c: char| c.is_control() || "<>%&\\?#".contains(c);
    if name.chars().any(bad) || name.ends_with('.') {
        let message = format!(
            "Resource name {name} is invalid. The name can contain letters, digits, underscores, \
            periods and hyphens; it must not end with a period."
        );
        return Err(Fault::bad("InvalidResourceName", message));
    }
    match name.len() > kind.longest {
        true => Err(Fault::bad(
            "InvalidResourceName",
            format!(
                "Resource name {name} is invalid. The name can be up to {} characters long.",
                kind.longest
            ),
        )),
        false => Ok(()),
    }
}

fn place(
    turn: &Turn<'_>,
    kind: &Kind,
    id: &Id,
    before: Option<&Document>,
    body: &mut Value,
) -> Result<(), Fault> {
    let was = before.and_then(|before| before.body["location"].as_str());
    let asked = body["location"].as_str().map(region::plain);
    let Some(asked) = asked.or_else(|| was.map(str::to_owned)) else {
        let message = "The location property is required for this definition.";
        return Err(Fault::bad("LocationRequired", message).gateway());
    };
    let _ = turn;
    if asked != "global" && !region::is_known(&asked) {
        let message = format!(
            "The provided location '{asked}' is not available for resource type '{}'. List of available regions for \
             the resource type is '{}'.",
            kind.name,
            region::names().collect::<Vec<_>>().join(",")
        );
        return Err(Fault::bad("LocationNotAvailableForResourceType", message).gateway());
    }
    if was.is_some_and(|was| was != asked) {
        let message = format!(
            "The resource '{}' already exists in location '{}' in resource group '{}'. A resource with the same name \
             cannot be created in location '{asked}'. Please select a new resource name.",
            id.name(),
            was.unwrap_or_default(),
            id.group.as_deref().unwrap_or_default()
        );
        return Err(Fault::conflict("InvalidResourceLocation", message).gateway());
    }
    body["location"] = json!(asked);
    Ok(())
}

/// What must be there and is not.
pub(crate) fn required(kind: &Kind, body: &Value) -> Result<(), Fault> {
    let is_missing = |pointer: &&&str| match body.pointer(pointer) {
        None | Some(Value::Null) => true,
        Some(Value::String(text)) => text.is_empty(),
        Some(_) => false,
    };
    match kind.required.iter().find(is_missing) {
        Some(pointer) => {
            let name = pointer
                .trim_start_matches('/')
                .trim_start_matches("properties/")
                .replace('/', ".");
            let message = format!("Required parameter '{name}' is missing (null).");
            Err(Fault::bad("InvalidParameter", message).target(&name))
        }
        None => Ok(()),
    }
}
