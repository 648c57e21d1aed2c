//! Deployments: a template's resources, in the order of what they need, as the one who asked for them.

use std::collections::HashSet;

use serde_json::{Map, Value, json};

use super::document::{self, Document};
use super::fault::Fault;
use super::id::Id;
use super::kind::{self, Goes};
use super::operation::{self, Begin, Verb};
use super::template::{Scope, Wanted, invalid};
use super::{access, group, inner, orders, resource};
use crate::chance::seven_digits;
use crate::entra::token::Caller;
use crate::exchange::Reply;
use crate::providers::Call;
use crate::turn::Turn;

pub(super) const KIND: &str = "Microsoft.Resources/deployments";
const MILLISECONDS: u64 = 300;
/// How deep deployments may lie inside each other.
const DEEPEST: usize = 5;

/// A template with what it is given, and who wants it.
struct Asked<'a> {
    caller: &'a Caller,
    subscription: String,
    group: Option<String>,
    name: String,
    template: Value,
    parameters: Value,
    is_complete: bool,
}

fn asked<'a>(call: &Call<'a>, body: &Value) -> Result<Asked<'a>, Fault> {
    let properties = &body["properties"];
    if !properties["template"].is_object() {
        let message = "The request content is not valid: 'properties.template' is missing; links to templates cannot be \
                       followed from here.";
        return Err(Fault::bad("InvalidDeployment", message));
    }
    Ok(Asked {
        caller: call.caller,
        subscription: call.subscription().to_owned(),
        group: call.path.group.clone(),
        name: call.names[0].clone(),
        template: properties["template"].clone(),
        parameters: properties["parameters"].clone(),
        is_complete: properties["mode"]
            .as_str()
            .is_some_and(|mode| mode.eq_ignore_ascii_case("complete")),
    })
}

/// `PUT …/deployments/<name>`.
pub(crate) fn put(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let body = call.body()?;
    let asked = asked(call, &body)?;
    let id = call.path.id().expect("the route is a resource's");
    let before = document::get(turn, &id.to_string());
    if before
        .as_ref()
        .is_some_and(|before| before.operation.is_some())
    {
        let message = format!(
            "Unable to edit or replace deployment '{}': previous deployment is still active.",
            asked.name
        );
        return Err(Fault::conflict("DeploymentActive", message));
    }
    // What is wrong with the template itself is said at once.
    let planned = plan(turn, &asked)?;
    let ids: Vec<Value> = planned
        .iter()
        .map(|one| json!({"id": one.id.to_string()}))
        .collect();
    let parameters = shown_parameters(turn, &asked)?;
    let is_new = before.is_none();
    let mut document = before.unwrap_or_else(|| Document::new(turn, Value::Null));
    document.body = json!({
        "id": id.to_string(), "name": id.name(), "type": KIND,
        "properties": {"templateHash": template_hash(&asked.template), "parameters": parameters,
            "mode": if asked.is_complete { "Complete" } else { "Incremental" }, "provisioningState": "Accepted",
            "timestamp": seven_digits(turn.now), "duration": "PT0S", "correlationId": turn.chance.guid(),
            "providers": providers_of(&planned), "dependencies": [], "validatedResources": ids},
    });
    if !body["location"].is_null() {
        document.body["location"] = body["location"].clone();
    }
    let caller = asked.caller;
    document.hidden = json!({"template": asked.template, "parameters": asked.parameters, "complete": asked.is_complete,
        "caller": {"id": caller.object_id, "name": caller.name, "groups": caller.groups, "app": caller.is_app}});
    let operation = operation::begin(turn, Begin::new(Verb::Action, document.id(), MILLISECONDS));
    document.operation = Some(operation.clone());
    document::put(turn, &document);
    let version = call.version();
    let address = format!(
        "{}{}/operationStatuses/{operation}?api-version={version}",
        turn.settings.origin, id
    );
    let reply = Reply::json(if is_new { 201 } else { 200 }, document.body);
    Ok(operation::headers(turn, reply, Goes::Async, &address, ""))
}

fn template_hash(template: &Value) -> String {
    use sha2::Digest as _;
    let digest = sha2::Sha256::digest(template.to_string());
    let eight: [u8; 8] = digest[..8]
        .try_into()
        .expect("a digest has more than eight bytes");
    u64::from_be_bytes(eight).to_string()
}

fn shown_parameters(turn: &Turn<'_>, asked: &Asked<'_>) -> Result<Value, Fault> {
    let scope = scope(turn, asked)?;
    let mut shown = Map::new();
    for (name, definition) in asked.template["parameters"]
        .as_object()
        .into_iter()
        .flatten()
    {
        let kind = definition["type"].as_str().unwrap_or_default();
        let value = match kind.to_lowercase().starts_with("secure") {
            true => json!({ "type": kind }),
            false => json!({"type": kind, "value": scope.parameters.get(&name.to_lowercase())}),
        };
        shown.insert(name.clone(), value);
    }
    Ok(Value::Object(shown))
}

fn providers_of(planned: &[Wanted]) -> Value {
    let mut rows: Vec<Value> = Vec::new();
    for one in planned {
        let types =
            json!([{"resourceType": one.id.types.join("/"), "locations": [one.body["location"]]}]);
        rows.push(json!({"namespace": one.id.namespace, "resourceTypes": types}));
    }
    json!(rows)
}

fn scope<'s, 't>(turn: &'s Turn<'t>, asked: &Asked<'_>) -> Result<Scope<'s, 't>, Fault> {
    let place = (asked.subscription.as_str(), asked.group.as_deref());
    Scope::new(turn, place, &asked.name, &asked.template, &asked.parameters)
}

/// The resources of a template, in the order in which they can be made.
fn plan(turn: &Turn<'_>, asked: &Asked<'_>) -> Result<Vec<Wanted>, Fault> {
    let scope = scope(turn, asked)?;
    let mut left = scope.resources(&asked.template)?;
    let mut planned: Vec<Wanted> = Vec::new();
    while !left.is_empty() {
        let waits = |one: &Wanted| {
            one.after.iter().any(|name| {
                left.iter()
                    .any(|other| is_meant(other, name) && other.id != one.id)
            })
        };
        let (mut now, later): (Vec<Wanted>, Vec<Wanted>) =
            left.iter().cloned().partition(|one| !waits(one));
        if now.is_empty() {
            let names: Vec<String> = later.iter().map(|one| one.id.type_and_name()).collect();
            return Err(invalid(format!(
                "Circular dependency detected on resources: {}",
                names.join(", ")
            )));
        }
        planned.append(&mut now);
        left = later;
    }
    Ok(planned)
}

/// Whether a name in `dependsOn` means a resource: by id, by type and name, by name, or by symbol.
fn is_meant(one: &Wanted, name: &str) -> bool {
    let (name, own) = (name.to_lowercase(), one.id.to_string().to_lowercase());
    let typed = format!("/{}", one.id.type_and_name().to_lowercase());
    let full: String = format!("{}/{}", one.id.kind(), one.id.names.join("/")).to_lowercase();
    own == name
        || typed.ends_with(&format!("/{name}"))
        || full == name
        || one.id.name().to_lowercase() == name
        || one
            .symbol
            .as_ref()
            .is_some_and(|symbol| symbol.to_lowercase() == name)
}

/// When its time has come, a deployment is made.
pub(crate) fn finish(turn: &mut Turn<'_>, document: &mut Document) {
    let hidden = document.hidden.take();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let groups = hidden["caller"]["groups"].as_array().into_iter().flatten();
    let caller = Caller {
        object_id: text(&hidden["caller"]["id"]),
        name: text(&hidden["caller"]["name"]),
        app_id: String::new(),
        is_app: hidden["caller"]["app"] == true,
        groups: groups
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect(),
        token_id: String::new(),
    };
    let Some(id) = Id::parse(document.id()) else {
        return;
    };
    let asked = Asked {
        caller: &caller,
        subscription: id.subscription.clone().unwrap_or_default(),
        group: id.group.clone(),
        name: id.name().to_owned(),
        template: hidden["template"].clone(),
        parameters: hidden["parameters"].clone(),
        is_complete: hidden["complete"] == true,
    };
    match make(turn, &asked, 0) {
        Ok((outputs, made)) => {
            let properties = &mut document.body["properties"];
            properties["provisioningState"] = json!("Succeeded");
            properties["outputs"] = outputs;
            properties["outputResources"] = made.iter().map(|id| json!({ "id": id })).collect();
        }
        Err(fault) => {
            let properties = &mut document.body["properties"];
            properties["provisioningState"] = json!("Failed");
            properties["error"] = json!({"code": "DeploymentFailed", "target": id.to_string(),
                "message": "At least one resource deployment operation failed. Please list deployment operations for \
                    details. Please see https://aka.ms/arm-deployment-operations for usage details.",
                "details": [fault.error()]});
        }
    }
    document.hidden = json!({"template": asked.template});
}

/// Makes a template's resources; gives its outputs and what was made.
fn make(
    turn: &mut Turn<'_>,
    asked: &Asked<'_>,
    depth: usize,
) -> Result<(Value, Vec<String>), Fault> {
    if depth > DEEPEST {
        return Err(invalid(format!(
            "Nested deployments exceed the limit of {DEEPEST}"
        )));
    }
    let planned = plan(turn, asked)?;
    let mut made = Vec::new();
    for one in planned.iter().filter(|one| !one.is_existing) {
        let body = scope(turn, asked)?.resolve_at(&one.loops, &untouched(&one.body))?;
        match one.id.kind().eq_ignore_ascii_case(KIND) {
            true => made.extend(nested(turn, asked, one, depth)?),
            false => {
                make_one(turn, asked.caller, &one.id, body)?;
                made.push(one.id.to_string());
            }
        }
    }
    if asked.is_complete {
        remove_others(turn, asked, &made)?;
    }
    Ok((outputs(turn, asked)?, made))
}

// A nested template is worked out by its own deployment.
fn untouched(body: &Value) -> Value {
    let mut body = body.clone();
    document::take(&mut body, "/properties/template");
    body
}

/// The group that an id in a template of a subscription names.
fn group_of(id: &Id) -> Option<&str> {
    let is_group = id
        .kind()
        .eq_ignore_ascii_case("Microsoft.Resources/resourceGroups");
    is_group.then(|| id.name())
}

fn make_group(turn: &mut Turn<'_>, caller: &Caller, id: &Id, body: &Value) -> Result<(), Fault> {
    let subscription = id.subscription.as_deref().unwrap_or_default();
    let action = access::Action {
        name: "Microsoft.Resources/subscriptions/resourceGroups/write".into(),
        scope: super::id::group(subscription, id.name()),
    };
    access::check(turn, caller, &action)?;
    group::write(turn, subscription, id.name(), body).map(drop)
}

/// Whether there can be such a resource.
fn check_kind(id: &Id) -> Result<(), Fault> {
    match group_of(id) {
        Some(_) => Ok(()),
        None => resource::kind_of(&id.namespace, &id.types).map(drop),
    }
}

fn make_one(turn: &mut Turn<'_>, caller: &Caller, id: &Id, body: Value) -> Result<(), Fault> {
    if group_of(id).is_some() {
        return make_group(turn, caller, id, &body);
    }
    let kind = resource::kind_of(&id.namespace, &id.types)?;
    let action = access::Action {
        name: format!("{}/write", kind.name),
        scope: id.to_string(),
    };
    access::check(turn, caller, &action)?;
    if let Some(group) = &id.group {
        group::open(turn, id.subscription.as_deref().unwrap_or_default(), group)?;
    }
    let before = resource::find(turn, id, kind, "write")?;
    let stored = resource::store(turn, id, kind, before, body, kind.sparse)?;
    // What something real stands behind takes its own time; the deployment waits for it.
    if let Some(operation) = &stored.operation
        && !orders::is_real(turn, &stored.document)
    {
        operation::complete(turn, operation);
    }
    Ok(())
}

fn nested(
    turn: &mut Turn<'_>,
    outer: &Asked<'_>,
    one: &Wanted,
    depth: usize,
) -> Result<Vec<String>, Fault> {
    let properties = &one.body["properties"];
    let is_inner = properties["expressionEvaluationOptions"]["scope"]
        .as_str()
        .is_some_and(|s| s.eq_ignore_ascii_case("inner"));
    let given = scope(turn, outer)?.resolve_at(&one.loops, &properties["parameters"])?;
    let (template, parameters) = match is_inner {
        true => (properties["template"].clone(), given),
        // The outer scope's parameters and variables are seen inside.
        false => {
            let mut template = properties["template"].clone();
            template["parameters"] = outer.template["parameters"].clone();
            template["variables"] = outer.template["variables"].clone();
            (template, outer.parameters.clone())
        }
    };
    let asked = Asked {
        caller: outer.caller,
        subscription: one
            .id
            .subscription
            .clone()
            .unwrap_or_else(|| outer.subscription.clone()),
        group: one.id.group.clone(),
        name: one.id.name().to_owned(),
        template,
        parameters,
        is_complete: false,
    };
    let (outputs, made) = make(turn, &asked, depth + 1)?;
    let body = json!({"id": one.id.to_string(), "name": one.id.name(), "type": KIND,
        "properties": {"provisioningState": "Succeeded", "mode": "Incremental", "outputs": outputs,
            "timestamp": seven_digits(turn.now), "correlationId": turn.chance.guid(), "duration": "PT0S"}});
    let document = Document::new(turn, body);
    document::put(turn, &document);
    Ok(made)
}

fn outputs(turn: &Turn<'_>, asked: &Asked<'_>) -> Result<Value, Fault> {
    let scope = scope(turn, asked)?;
    let mut shown = Map::new();
    for (name, output) in asked.template["outputs"].as_object().into_iter().flatten() {
        if !output["condition"].is_null() && scope.resolve(&output["condition"])? != json!(true) {
            continue;
        }
        let kind = output["type"].as_str().unwrap_or("String");
        let mut letters = kind.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        let title: String = first.into_iter().chain(letters).collect();
        shown.insert(
            name.clone(),
            json!({"type": title, "value": scope.resolve(&output["value"])?}),
        );
    }
    Ok(Value::Object(shown))
}

/// A complete deployment leaves nothing else in its group.
fn remove_others(turn: &mut Turn<'_>, asked: &Asked<'_>, made: &[String]) -> Result<(), Fault> {
    let gone = others(turn, asked, made);
    let together: HashSet<String> = gone.iter().map(|d| d.id().to_lowercase()).collect();
    for document in gone {
        let Some(id) = Id::parse(document.id()) else {
            continue;
        };
        if let Some(kind) = kind::named(&id.kind()) {
            resource::may_leave(turn, &id, kind, &document, &together)?;
        }
        resource::remove(turn, &document)?;
    }
    Ok(())
}

fn others(turn: &Turn<'_>, asked: &Asked<'_>, made: &[String]) -> Vec<Document> {
    let Some(group) = &asked.group else {
        return Vec::new();
    };
    let inside = group::inside(turn, &super::id::group(&asked.subscription, group));
    let is_kept = |document: &Document| {
        let own = document.id().to_lowercase();
        made.iter().any(|id| {
            own == id.to_lowercase() || own.starts_with(&format!("{}/", id.to_lowercase()))
        })
    };
    let is_top = |document: &Document| {
        Id::parse(document.id()).is_some_and(|id| {
            id.types.len() == 1
                && !id.kind().eq_ignore_ascii_case(KIND)
                && id.namespace != "Microsoft.Authorization"
        })
    };
    inside
        .into_iter()
        .filter(|document| is_top(document) && !is_kept(document))
        .collect()
}

/// `POST …/validate`.
pub(crate) fn validate(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let body = call.body()?;
    let asked = asked(call, &body)?;
    let planned = plan(turn, &asked)?;
    for one in &planned {
        check_kind(&one.id)?;
    }
    let ids: Vec<Value> = planned
        .iter()
        .map(|one| json!({"id": one.id.to_string()}))
        .collect();
    let id = call.target();
    Ok(Reply::ok(
        json!({"id": id.to_string(), "name": id.name(), "type": KIND, "properties": {
        "provisioningState": "Succeeded", "mode": "Incremental", "parameters": shown_parameters(turn, &asked)?,
        "validatedResources": ids, "correlationId": turn.chance.guid(), "timestamp": seven_digits(turn.now),
        "duration": "PT0S", "providers": providers_of(&planned), "dependencies": []}}),
    ))
}

/// `POST …/whatIf`: what would change, and nothing does.
pub(crate) fn what_if(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let body = call.body()?;
    let asked = asked(call, &body)?;
    let planned = plan(turn, &asked)?;
    let mut changes = Vec::new();
    let mut made = Vec::new();
    for one in planned.iter().filter(|one| !one.is_existing) {
        made.push(one.id.to_string());
        let scope = scope(turn, &asked)?;
        // What asks about resources that are not there yet stays as it is written.
        let after = scope
            .resolve_at(&one.loops, &untouched(&one.body))
            .unwrap_or_else(|_| one.body.clone());
        let before = present(turn, &one.id)?;
        changes.push(change(&one.id, before, after));
    }
    if asked.is_complete {
        let gone = others(turn, &asked, &made);
        changes.extend(
            gone.into_iter()
                .map(|d| json!({"resourceId": d.id(), "changeType": "Delete", "before": d.body})),
        );
    }
    Ok(Reply::ok(
        json!({"status": "Succeeded", "properties": {"correlationId": turn.chance.guid(), "changes": changes}}),
    ))
}

/// What is there under an id that a template names.
fn present(turn: &Turn<'_>, id: &Id) -> Result<Option<Document>, Fault> {
    if let Some(name) = group_of(id) {
        let subscription = id.subscription.as_deref().unwrap_or_default();
        return Ok(document::get(turn, &super::id::group(subscription, name)));
    }
    let kind = resource::kind_of(&id.namespace, &id.types)?;
    Ok(match kind.within {
        Some(_) => inner::get(turn, id, kind),
        None => document::get(turn, &id.to_string()),
    })
}

fn change(id: &Id, before: Option<Document>, mut after: Value) -> Value {
    document::fill(
        &mut after,
        &json!({"id": id.to_string(), "name": id.name(), "type": id.kind()}),
    );
    let Some(before) = before else {
        return json!({"resourceId": id.to_string(), "changeType": "Create", "after": after});
    };
    let mut delta = Vec::new();
    differences(&before.body, &after, "", &mut delta);
    let word = if delta.is_empty() {
        "NoChange"
    } else {
        "Modify"
    };
    json!({"resourceId": id.to_string(), "changeType": word, "before": before.body, "after": after, "delta": delta})
}

/// What a template says otherwise than what is there.
fn differences(before: &Value, after: &Value, path: &str, found: &mut Vec<Value>) {
    match (before, after) {
        (Value::Object(old), Value::Object(new)) => {
            for (key, value) in new {
                let path = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                };
                differences(old.get(key).unwrap_or(&Value::Null), value, &path, found);
            }
        }
        (Value::Null, after) => {
            found.push(json!({"path": path, "propertyChangeType": "Create", "before": null, "after": after}));
        }
        (before, after) if before != after => {
            found.push(json!({"path": path, "propertyChangeType": "Modify", "before": before, "after": after}));
        }
        _ => {}
    }
}

/// `POST …/cancel`.
pub(crate) fn cancel(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let id = call.target();
    let mut found = document::get(turn, &id.to_string()).ok_or_else(|| absent(id.name()))?;
    let Some(operation) = found.operation.take() else {
        let message = format!(
            "The deployment '{}' cannot be cancelled because it is not in progress.",
            id.name()
        );
        return Err(Fault::conflict("DeploymentCannotBeCancelled", message));
    };
    operation::cancel(
        turn,
        &operation,
        "DeploymentCanceled",
        "The deployment was cancelled.",
    );
    found.body["properties"]["provisioningState"] = json!("Canceled");
    document::put(turn, &found);
    Ok(Reply::empty(204))
}

/// `POST …/exportTemplate`.
pub(crate) fn export(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let id = call.target();
    let found = document::get(turn, &id.to_string()).ok_or_else(|| absent(id.name()))?;
    Ok(Reply::ok(json!({"template": found.hidden["template"]})))
}

/// `GET …/operations`: one for each resource.
pub(crate) fn operations(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    operations_of(turn, &call.target())
}

/// The same, for whoever asks without naming the provider, as az does.
pub(crate) fn operations_of(turn: &Turn<'_>, id: &Id) -> Result<Reply, Fault> {
    let found = document::get(turn, &id.to_string()).ok_or_else(|| absent(id.name()))?;
    let properties = &found.body["properties"];
    let made = properties["outputResources"]
        .as_array()
        .into_iter()
        .flatten();
    let rows = made.enumerate().map(|(at, resource)| {
        json!({"id": format!("{id}/operations/{at}"), "operationId": at.to_string(), "properties": {
            "provisioningOperation": "Create", "provisioningState": properties["provisioningState"], "statusCode": "OK",
            "timestamp": properties["timestamp"], "duration": "PT0S", "targetResource": resource}})
    });
    Ok(Reply::list(rows.collect()))
}

/// How ARM says that there is no such deployment.
pub(crate) fn absent(name: &str) -> Fault {
    Fault::new(
        404,
        "DeploymentNotFound",
        format!("Deployment '{name}' could not be found."),
    )
}
