//! Microsoft Graph, as far as az and its like ask it.

use serde_json::{Value, json};

use super::token::Caller;
use super::{directory, text};
use crate::exchange::{Asked, Reply};
use crate::turn::Turn;

/// Graph's collections, and how it calls what is in them.
const COLLECTIONS: [(&str, &str); 4] = [
    ("applications", "application"),
    ("servicePrincipals", "servicePrincipal"),
    ("users", "user"),
    ("groups", "group"),
];

fn not_found(id: &str) -> Reply {
    let message = format!(
        "Resource '{id}' does not exist or one of its queried reference-property objects are not present."
    );
    error(404, "Request_ResourceNotFound", &message)
}

fn error(status: u16, code: &str, message: &str) -> Reply {
    Reply::json(status, json!({"error": {"code": code, "message": message}}))
}

/// Answers `/v1.0/…`.
pub(super) fn answer(turn: &mut Turn<'_>, caller: &Caller, asked: &Asked) -> Reply {
    let segments = asked.segments();
    let Ok(body) = asked.json() else {
        return error(400, "BadRequest", "Unable to read JSON request payload.");
    };
    let rest: Vec<&str> = segments[1..].to_vec();
    match (asked.method.as_str(), &rest[..]) {
        ("GET", ["me"]) => one(turn, "users", &caller.object_id),
        ("POST", ["directoryObjects", "getByIds"]) => by_ids(turn, &body),
        (_, [collection, ..]) => match COLLECTIONS
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(collection))
        {
            Some((collection, _)) => in_collection(turn, asked, collection, &rest[1..], &body),
            None => error(
                400,
                "BadRequest",
                &format!("Resource not found for the segment '{collection}'."),
            ),
        },
        _ => error(400, "BadRequest", "The request path names nothing."),
    }
}

fn in_collection(
    turn: &mut Turn<'_>,
    asked: &Asked,
    collection: &'static str,
    rest: &[&str],
    body: &Value,
) -> Reply {
    match (asked.method.as_str(), rest) {
        ("GET", []) => list(turn, collection, asked.param("$filter")),
        ("POST", []) => create(turn, collection, body),
        ("GET", [id]) => one(turn, collection, id),
        ("PATCH", [id]) => change(turn, collection, id, body),
        ("DELETE", [id]) => match directory::remove(turn, collection, id) {
            true => Reply::empty(204),
            false => not_found(id),
        },
        (_, [id, rest @ ..]) => below(turn, asked, collection, id, rest, body),
        _ => error(
            405,
            "Request_BadRequest",
            "Specified HTTP method is not allowed for the request target.",
        ),
    }
}

/// An object as Graph shows it.
fn shown(mut object: Value) -> Value {
    object.as_object_mut().map(|object| object.remove("hidden"));
    object
}

fn one(turn: &Turn<'_>, collection: &str, id: &str) -> Reply {
    let by_id = turn.get(&directory::key(collection, id));
    let found =
        by_id.or_else(|| (collection == "users").then(|| directory::user_named(turn, id))?);
    found.map_or_else(|| not_found(id), |object| Reply::ok(shown(object)))
}

fn list(turn: &Turn<'_>, collection: &str, filter: Option<&str>) -> Reply {
    let all = turn.under(&format!("dir/{collection}/")).into_iter();
    let kept = all.map(|(_, object)| object).filter(|object| match filter {
        Some(filter) => filter
            .split(" or ")
            .any(|any| any.split(" and ").all(|f| fits(object, f))),
        None => true,
    });
    Reply::list(kept.map(shown).collect())
}

/// Whether an object fits one clause: `f eq 'v'`, `startswith(f,'v')`, `f/any(c:c eq 'v')`, `f in ('a','b')`.
fn fits(object: &Value, clause: &str) -> bool {
    let clause = clause.trim();
    let quoted = clause.split('\'').nth(1).unwrap_or_default();
    if let Some(rest) = clause.strip_prefix("startswith(") {
        let field = rest.split(',').next().unwrap_or_default().trim();
        let (value, start) = (
            text(object, field).to_ascii_lowercase(),
            quoted.to_ascii_lowercase(),
        );
        return value.starts_with(&start);
    }
    if let Some((field, _)) = clause.split_once("/any(") {
        let values = object[field.trim()].as_array().into_iter().flatten();
        return values
            .filter_map(Value::as_str)
            .any(|v| v.eq_ignore_ascii_case(quoted));
    }
    if let Some((field, all)) = clause.split_once(" in ") {
        let mut values = all.split('\'').skip(1).step_by(2);
        return values.any(|v| v.eq_ignore_ascii_case(text(object, field.trim())));
    }
    let field = clause.split(' ').next().unwrap_or_default();
    text(object, field).eq_ignore_ascii_case(quoted)
}

fn create(turn: &mut Turn<'_>, collection: &str, body: &Value) -> Reply {
    let made = match collection {
        "applications" => directory::add_application(turn, body),
        "servicePrincipals" => return create_principal(turn, body),
        "users" if directory::user_named(turn, text(body, "userPrincipalName")).is_some() => {
            let message =
                "Another object with the same value for property userPrincipalName already exists.";
            return error(400, "Request_BadRequest", message);
        }
        "users" => directory::add_user(turn, body),
        _ => add_group(turn, body),
    };
    Reply::json(201, shown(made))
}

fn create_principal(turn: &mut Turn<'_>, body: &Value) -> Reply {
    let app_id = text(body, "appId");
    match directory::by_app_id(turn, app_id) {
        None => {
            let message = format!(
                "The appId '{app_id}' of the service principal does not reference a valid application object."
            );
            error(400, "Request_BadRequest", &message)
        }
        Some((_, Some(_))) => {
            let message = "The service principal cannot be created, updated, or restored because the service principal \
                           name is already in use.";
            error(409, "Request_MultipleObjectsWithSameKeyValue", message)
        }
        Some((application, None)) => {
            let name = application.map_or(Value::Null, |a| a["displayName"].clone());
            Reply::json(201, directory::add_service_principal(turn, app_id, &name))
        }
    }
}

fn add_group(turn: &mut Turn<'_>, body: &Value) -> Value {
    let id = turn.chance.guid();
    let mut group = json!({"id": id, "displayName": body["displayName"], "mailNickname": body["mailNickname"],
        "mailEnabled": false, "securityEnabled": true, "groupTypes": [], "hidden": {"members": []}});
    if let Some(description) = body.get("description") {
        group["description"] = description.clone();
    }
    turn.put(directory::key("groups", &id), group.clone());
    group
}

fn change(turn: &mut Turn<'_>, collection: &str, id: &str, body: &Value) -> Reply {
    let key = directory::key(collection, id);
    let Some(mut object) = turn.get(&key) else {
        return not_found(id);
    };
    for (field, value) in body.as_object().into_iter().flatten() {
        if field == "keyCredentials" {
            object[field] = key_credentials(turn, value);
        } else if field != "id" && field != "hidden" {
            object[field] = value.clone();
        }
    }
    turn.put(key, object);
    Reply::empty(204)
}

// Graph gives each certificate an id where the client did not.
fn key_credentials(turn: &mut Turn<'_>, credentials: &Value) -> Value {
    let mut credentials = credentials.clone();
    for credential in credentials.as_array_mut().into_iter().flatten() {
        if credential["keyId"].is_null() {
            credential["keyId"] = json!(turn.chance.guid());
        }
    }
    credentials
}

fn below(
    turn: &mut Turn<'_>,
    asked: &Asked,
    collection: &str,
    id: &str,
    rest: &[&str],
    body: &Value,
) -> Reply {
    let Some(mut object) = turn.get(&directory::key(collection, id)) else {
        return not_found(id);
    };
    match (asked.method.as_str(), collection, rest) {
        ("POST", "applications", ["addPassword"]) => Reply::ok(directory::add_secret(
            turn,
            &mut object,
            &body["passwordCredential"],
        )),
        ("POST", "applications", ["removePassword"]) => {
            remove_secret(turn, object, text(body, "keyId"));
            Reply::empty(204)
        }
        (method, "applications", ["federatedIdentityCredentials", rest @ ..]) => {
            federated(turn, method, object, rest, body)
        }
        ("POST", _, ["getMemberGroups" | "getMemberObjects"]) => Reply::list(
            directory::groups_of(turn, id)
                .into_iter()
                .map(Value::from)
                .collect(),
        ),
        ("GET", _, ["memberOf" | "transitiveMemberOf"]) => {
            let groups = directory::groups_of(turn, id);
            let found = groups
                .iter()
                .filter_map(|group| turn.get(&directory::key("groups", group)));
            Reply::list(found.map(shown).collect())
        }
        (method, "groups", ["members", rest @ ..]) => members(turn, method, object, rest, body),
        ("GET", _, ["owners"]) => Reply::list(Vec::new()),
        _ => error(400, "BadRequest", "Resource not found for the segment."),
    }
}

fn remove_secret(turn: &mut Turn<'_>, mut application: Value, key_id: &str) {
    if let Some(all) = application["passwordCredentials"].as_array_mut() {
        all.retain(|credential| text(credential, "keyId") != key_id);
    }
    application["hidden"]["secrets"]
        .as_object_mut()
        .map(|secrets| secrets.remove(key_id));
    turn.put(
        directory::key("applications", text(&application, "id")),
        application.clone(),
    );
}

fn federated(
    turn: &mut Turn<'_>,
    method: &str,
    mut application: Value,
    rest: &[&str],
    body: &Value,
) -> Reply {
    let key = directory::key("applications", text(&application, "id"));
    let mut all = application["hidden"]["federated"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let named = |c: &Value, wanted: &str| text(c, "id") == wanted || text(c, "name") == wanted;
    let reply = match (method, rest) {
        ("GET", []) => return Reply::list(all),
        ("POST", []) => {
            let mut made = body.clone();
            made["id"] = json!(turn.chance.guid());
            all.push(made.clone());
            Reply::json(201, made)
        }
        ("GET", [id]) => {
            let found = all.into_iter().find(|c| named(c, id));
            return found.map_or_else(|| not_found(id), Reply::ok);
        }
        ("DELETE", [id]) if all.iter().any(|c| named(c, id)) => {
            all.retain(|c| !named(c, id));
            Reply::empty(204)
        }
        (_, rest) => return not_found(rest.first().unwrap_or(&"")),
    };
    application["hidden"]["federated"] = json!(all);
    turn.put(key, application);
    reply
}

fn members(
    turn: &mut Turn<'_>,
    method: &str,
    mut group: Value,
    rest: &[&str],
    body: &Value,
) -> Reply {
    let key = directory::key("groups", text(&group, "id"));
    let mut all: Vec<Value> = group["hidden"]["members"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    match (method, rest) {
        ("GET", []) => {
            let objects = all
                .iter()
                .filter_map(|id| directory::object(turn, id.as_str()?));
            return Reply::list(objects.map(|(_, object)| shown(object)).collect());
        }
        ("POST", ["$ref"]) => {
            let id = text(body, "@odata.id")
                .rsplit('/')
                .next()
                .unwrap_or_default();
            all.push(json!(id));
        }
        ("DELETE", [id, "$ref"]) => all.retain(|member| member != id),
        _ => return not_found(rest.first().unwrap_or(&"")),
    }
    group["hidden"]["members"] = json!(all);
    turn.put(key, group);
    Reply::empty(204)
}

fn by_ids(turn: &Turn<'_>, body: &Value) -> Reply {
    let ids = body["ids"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let found = ids.filter_map(|id| {
        let (collection, kind) = COLLECTIONS
            .iter()
            .find(|(collection, _)| turn.get(&directory::key(collection, id)).is_some())?;
        let mut object = shown(turn.get(&directory::key(collection, id))?);
        object["@odata.type"] = json!(format!("#microsoft.graph.{kind}"));
        Some(object)
    });
    Reply::list(found.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_are_those_that_az_sends() {
        let object = json!({"displayName": "Web App", "appId": "A1", "servicePrincipalNames": ["a1", "http://web"]});
        for (clause, expected) in [
            ("displayName eq 'web app'", true),
            ("displayName eq 'other'", false),
            ("startswith(displayName,'WEB')", true),
            ("servicePrincipalNames/any(c:c eq 'http://web')", true),
            ("servicePrincipalNames/any(c:c eq 'nobody')", false),
            ("appId in ('x','a1')", true),
        ] {
            assert_eq!(fits(&object, clause), expected, "{clause}");
        }
    }
}
