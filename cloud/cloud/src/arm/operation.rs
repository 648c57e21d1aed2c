//! Long-running operations: what is under way, told by the clock, and what follows at the end.
//!
//! An operation is written down together with the change it belongs to, so that whoever starts after a crash finds
//! it and brings it to its end. It ends by itself, never because somebody asks.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::document::{self, Document};
use super::fault::Fault;
use super::id::{Id, Path};
use super::kind::{self, Goes};
use super::{group, orders, resource};
use crate::chance::seven_digits;
use crate::exchange::{Asked, Reply, encode};
use crate::region::Done;
use crate::turn::Turn;

/// What an operation does when its time has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// A resource is ready.
    Put,
    /// A resource goes.
    Delete,
    /// A group goes, with all that is in it.
    DeleteGroup,
    /// An action is done; what it changed is in `then`.
    Action,
}

impl Verb {
    const ALL: [(Verb, &'static str); 4] = [
        (Verb::Put, "put"),
        (Verb::Delete, "delete"),
        (Verb::DeleteGroup, "deleteGroup"),
        (Verb::Action, "action"),
    ];

    fn name(self) -> &'static str {
        let row = Verb::ALL.iter().find(|(verb, _)| *verb == self);
        row.map_or("", |(_, name)| name)
    }

    fn named(name: &str) -> Verb {
        let row = Verb::ALL.iter().find(|(_, known)| *known == name);
        row.map_or(Verb::Action, |(verb, _)| *verb)
    }
}

/// An operation that is about to begin.
#[derive(Debug)]
pub(crate) struct Begin {
    pub(crate) verb: Verb,
    pub(crate) resource: String,
    pub(crate) milliseconds: u64,
    /// What it says of itself, from which millisecond on.
    pub(crate) phases: Vec<(u64, String)>,
    /// What is laid over the resource at the end.
    pub(crate) then: Value,
    /// What the operation itself has to show.
    pub(crate) output: Value,
    /// The word of an action and what came with it, for whom stands behind the resource.
    pub(crate) action: Value,
}

impl Begin {
    pub(crate) fn new(verb: Verb, resource: &str, milliseconds: u64) -> Begin {
        Begin {
            verb,
            resource: resource.to_owned(),
            milliseconds,
            phases: Vec::new(),
            then: Value::Null,
            output: Value::Null,
            action: Value::Null,
        }
    }
}

/// The key of an operation.
pub(crate) fn key(id: &str) -> String {
    format!("op/{id}")
}

/// Writes an operation down; gives its id.
pub(crate) fn begin(turn: &mut Turn<'_>, begin: Begin) -> String {
    let id = turn.chance.guid();
    let pace = turn.settings.pace;
    let scaled = |milliseconds: u64| (milliseconds as f64 * pace) as i64;
    let start = turn.now.as_millisecond();
    let phases: Vec<Value> = begin
        .phases
        .iter()
        .map(|(ms, text)| json!([start + scaled(*ms), text]))
        .collect();
    turn.put(
        key(&id),
        json!({"id": id, "status": "InProgress", "verb": begin.verb.name(), "resource": begin.resource,
            "start": seven_digits(turn.now), "due": start + scaled(begin.milliseconds), "phases": phases,
            "then": begin.then, "output": begin.output, "action": begin.action}),
    );
    id
}

/// When an entry of the state is due, if it is an operation under way.
pub(crate) fn due(key: &str, entry: &Value) -> Option<i64> {
    (key.starts_with("op/") && entry["status"] == "InProgress")
        .then(|| entry["due"].as_i64().unwrap_or(0))
}

/// An operation that has not ended.
pub(crate) fn under_way(turn: &Turn<'_>, id: &str) -> Option<Value> {
    turn.get(&key(id)).filter(|o| o["status"] == "InProgress")
}

/// What an operation does.
pub(crate) fn verb(operation: &Value) -> Verb {
    Verb::named(operation["verb"].as_str().unwrap_or_default())
}

/// Brings an operation to its end.
pub(crate) fn complete(turn: &mut Turn<'_>, id: &str) {
    conclude(turn, id, &Done::default());
}

/// Brings an operation to its end, with what its order came to.
pub(crate) fn conclude(turn: &mut Turn<'_>, id: &str, done: &Done) {
    let Some(mut operation) = under_way(turn, id) else {
        return;
    };
    let target = operation["resource"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    let outcome = match verb(&operation) {
        Verb::Put | Verb::Action => ready(turn, &target, id, &operation, done),
        Verb::Delete => gone(turn, &target, id),
        Verb::DeleteGroup => {
            group::clear(turn, &target);
            Ok(())
        }
    };
    operation["end"] = json!(seven_digits(turn.now));
    if !done.output.is_null() {
        operation["output"] = done.output.clone();
    }
    match outcome {
        Ok(()) => operation["status"] = json!("Succeeded"),
        Err(fault) => {
            operation["status"] = json!("Failed");
            operation["error"] = fault.error();
        }
    }
    turn.put(key(id), operation);
}

/// What an operation fails with that nobody can explain.
pub(crate) fn unexplained() -> Value {
    json!({"code": "InternalServerError", "message": "Encountered internal server error."})
}

/// Ends an operation that went wrong: it fails, and so does what it worked on.
pub(crate) fn fail(turn: &mut Turn<'_>, id: &str, error: Value) {
    let Some(mut operation) = under_way(turn, id) else {
        return;
    };
    let target = operation["resource"].as_str().unwrap_or_default();
    if let Some(mut document) =
        document::get(turn, target).filter(|d| d.operation.as_deref() == Some(id))
    {
        document.operation = None;
        document.body["properties"]["provisioningState"] = json!("Failed");
        if operation["laid"] == true {
            document.body["properties"]["status"] = json!({"provisioningError": error});
        }
        settle_inner(&mut document, "Failed");
        settled(turn, &mut document);
        document::put(turn, &document);
    }
    operation["status"] = json!("Failed");
    operation["end"] = json!(seven_digits(turn.now));
    operation["error"] = error;
    turn.put(key(id), operation);
}

/// Ends an operation before its time.
pub(crate) fn cancel(turn: &mut Turn<'_>, id: &str, code: &str, message: &str) {
    if let Some(mut operation) = turn.get(&key(id)).filter(|o| o["status"] == "InProgress") {
        operation["status"] = json!("Canceled");
        operation["end"] = json!(seven_digits(turn.now));
        operation["error"] = json!({"code": code, "message": message});
        turn.put(key(id), operation);
    }
}

// A later operation of the same resource has taken its place: then there is nothing to do.
fn ready(
    turn: &mut Turn<'_>,
    target: &str,
    id: &str,
    operation: &Value,
    done: &Done,
) -> Result<(), Fault> {
    let Some(mut document) = document::get(turn, target) else {
        return Ok(());
    };
    if document.operation.as_deref() != Some(id) {
        return Ok(());
    }
    if operation["laid"] != true {
        lay(turn, &mut document, &operation["then"]);
    }
    orders::lay_done(&mut document, done);
    document.operation = None;
    if document.state() != "Failed" {
        settle(&mut document.body);
        settle_inner(&mut document, "Succeeded");
        forget_error(&mut document.body);
    }
    settled(turn, &mut document);
    document::put(turn, &document);
    match document.state() {
        "Failed" => Err(failure(&document)),
        _ => Ok(()),
    }
}

/// Lays over a resource what an operation leads to, and what follows from it.
pub(crate) fn lay(turn: &mut Turn<'_>, document: &mut Document, then: &Value) {
    document::overlay(&mut document.body, then);
    let kind = Id::parse(document.id()).and_then(|id| kind::named(&id.kind()));
    if let Some(finish) = kind.and_then(|kind| kind.finish) {
        finish(turn, document);
    }
}

/// What went wrong before is of no interest once something went well.
fn forget_error(body: &mut Value) {
    document::take(body, "/properties/status/provisioningError");
    if body["properties"].get("status") == Some(&json!({})) {
        document::take(body, "/properties/status");
    }
}

/// Does what follows when an operation on a resource has come to its end.
pub(crate) fn settled(turn: &mut Turn<'_>, document: &mut Document) {
    let kind = Id::parse(document.id()).and_then(|id| kind::named(&id.kind()));
    if let Some(settled) = kind.and_then(|kind| kind.settled) {
        settled(turn, document);
    }
}

/// The children inside a resource that were not ready are what it is now.
fn settle_inner(document: &mut Document, state: &str) {
    let kind = Id::parse(document.id()).and_then(|id| kind::named(&id.kind()));
    for inner in kind.into_iter().flat_map(kind::Kind::inner) {
        let field = inner.within.unwrap_or_default();
        let list = document.body["properties"][field]
            .as_array_mut()
            .into_iter()
            .flatten();
        for element in list {
            let own = match inner.flat {
                true => Some(element),
                false => element.get_mut("properties"),
            };
            let said = own.and_then(|own| own.get_mut("provisioningState"));
            if let Some(said) = said.filter(|said| **said != "Succeeded") {
                *said = json!(state);
            }
        }
    }
}

/// Why a resource failed, as it says so itself.
fn failure(document: &Document) -> Fault {
    let properties = &document.body["properties"];
    let own = [
        &properties["error"],
        &properties["status"]["provisioningError"],
    ];
    let error = own
        .into_iter()
        .find(|error| error.is_object())
        .unwrap_or(&Value::Null);
    let inner = if error["details"][0].is_object() {
        &error["details"][0]
    } else {
        error
    };
    let text = |error: &Value, field: &str| error[field].as_str().unwrap_or("Failed").to_owned();
    Fault::conflict(&text(error, "code"), text(error, "message"))
        .detail(&text(inner, "code"), text(inner, "message"))
}

fn settle(body: &mut Value) {
    if body["properties"].get("provisioningState").is_some() {
        body["properties"]["provisioningState"] = json!("Succeeded");
    }
}

fn gone(turn: &mut Turn<'_>, target: &str, operation: &str) -> Result<(), Fault> {
    let Some(document) = document::get(turn, target) else {
        return Ok(());
    };
    match document.operation.as_deref() == Some(operation) {
        true => resource::remove(turn, &document),
        false => Ok(()),
    }
}

/// What an operation says of itself now.
fn status(operation: &Value, now: Timestamp) -> String {
    let said = operation["status"].as_str().unwrap_or("InProgress");
    let phases = operation["phases"].as_array().into_iter().flatten();
    let mut past = phases.filter(|phase| phase[0].as_i64().unwrap_or(0) <= now.as_millisecond());
    match (said, past.next_back()) {
        ("InProgress", Some(phase)) => phase[1].as_str().unwrap_or(said).to_owned(),
        _ => said.to_owned(),
    }
}

/// Whether the last words of a path are those of an operation, and its id.
pub(crate) fn of_path(path: &Path) -> Option<(String, bool)> {
    const STATUS: [&str; 5] = [
        "operations",
        "nfvoperations",
        "diskoperations",
        "operationstatuses",
        "privatednsoperationstatuses",
    ];
    const RESULT: [&str; 4] = [
        "operationresults",
        "nfvoperationresults",
        "asyncoperations",
        "privatednsoperationresults",
    ];
    let words = path.words();
    let [.., word, id] = &words[..] else {
        return None;
    };
    let is_result = RESULT.contains(&word.as_str());
    let is_its = is_result || (STATUS.contains(&word.as_str()) && id.len() == 36);
    is_its.then(|| (id.clone(), is_result))
}

/// Answers who asks how an operation goes.
pub(crate) fn answer(
    turn: &Turn<'_>,
    id: &str,
    is_result: bool,
    asked: &Asked,
) -> Result<Reply, Fault> {
    let unknown = || {
        Fault::new(
            404,
            "NotFound",
            format!("The entity was not found: operation '{id}'."),
        )
    };
    let operation = turn.get(&key(id)).ok_or_else(unknown)?;
    let status = status(&operation, turn.now);
    let running = operation["status"] == "InProgress";
    if is_result || asked.param("monitor").is_some() {
        return Ok(result(turn, &operation, running, asked));
    }
    let mut body = json!({"name": id, "status": status, "startTime": operation["start"]});
    if !operation["end"].is_null() {
        body["endTime"] = operation["end"].clone();
    }
    if !operation["error"].is_null() {
        body["error"] = operation["error"].clone();
    }
    if !running && !operation["output"].is_null() {
        body["properties"] = json!({"output": shown_output(turn, &operation)});
    }
    Ok(soon(turn, Reply::ok(body)))
}

// An output that is the resource itself is read at the end, not when the operation began.
fn shown_output(turn: &Turn<'_>, operation: &Value) -> Value {
    match &operation["output"] {
        Value::String(word) if word == "resource" => {
            let target = operation["resource"].as_str().unwrap_or_default();
            document::get(turn, target).map_or(Value::Null, |document| document.body)
        }
        output => output.clone(),
    }
}

fn result(turn: &Turn<'_>, operation: &Value, running: bool, asked: &Asked) -> Reply {
    if running {
        let query: Vec<String> = asked
            .query
            .iter()
            .map(|(k, v)| format!("{k}={}", encode(v)))
            .collect();
        let again = format!("{}{}?{}", turn.settings.origin, asked.path, query.join("&"));
        return soon(turn, Reply::empty(202).with("location", &again));
    }
    if !operation["error"].is_null() {
        return Reply::json(409, json!({"error": operation["error"]}));
    }
    match (operation["verb"].as_str(), shown_output(turn, operation)) {
        (Some("deleteGroup"), _) => Reply::empty(200),
        (_, Value::Null) => Reply::empty(204),
        (_, output) => Reply::ok(output),
    }
}

/// Tells a client when to ask again. Azure says ten seconds and more; here it is worth asking much sooner.
fn soon(turn: &Turn<'_>, reply: Reply) -> Reply {
    let milliseconds = if turn.settings.pace > 5.0 {
        "1000"
    } else {
        "100"
    };
    reply.with("retry-after-ms", milliseconds)
}

/// The first answer of an operation: where to ask how it goes.
pub(crate) fn headers(
    turn: &Turn<'_>,
    reply: Reply,
    goes: Goes,
    status: &str,
    result: &str,
) -> Reply {
    let reply = match goes {
        Goes::AtOnce => return reply,
        Goes::Async => reply.with("azure-asyncoperation", status),
        Goes::Both => reply
            .with("azure-asyncoperation", status)
            .with("location", result),
        Goes::Location => reply.with("location", result),
    };
    soon(turn, reply)
}

/// Whether the time of an operation has come.
pub(crate) fn wait(due: i64, now: Timestamp) -> SignedDuration {
    SignedDuration::from_millis((due - now.as_millisecond()).max(0))
}

/// The addresses of an operation of a type in a region: of its state, and of its result.
pub(crate) fn addresses(
    turn: &Turn<'_>,
    id: &Id,
    words: (&str, &str),
    operation: &str,
    location: &str,
    version: &str,
) -> (String, String) {
    let origin = &turn.settings.origin;
    let subscription = id
        .subscription
        .as_deref()
        .unwrap_or(&turn.settings.subscription);
    let base = format!(
        "{origin}/subscriptions/{subscription}/providers/{}/locations/{location}",
        id.namespace
    );
    let address =
        |word: &str, more: &str| format!("{base}/{word}/{operation}?{more}api-version={version}");
    let more = if words.0 == words.1 {
        "monitor=true&"
    } else {
        ""
    };
    (address(words.0, ""), address(words.1, more))
}

/// Ends what works on a resource because something else takes its place.
pub(crate) fn supersede(turn: &mut Turn<'_>, document: &Document) {
    if let Some(operation) = document.operation.clone() {
        let message = "Operation was canceled and superseded by another operation.";
        cancel(
            turn,
            &operation,
            "CanceledAndSupersededDueToAnotherOperation",
            message,
        );
    }
}
