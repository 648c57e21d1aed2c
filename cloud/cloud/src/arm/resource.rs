//! What can be done with a resource of any type: the verbs of ARM, done once.

use std::collections::HashSet;

use http::Method;
use serde_json::{Value, json};

use super::document::{self, Document};
use super::fault::{self, Fault};
use super::id::{Id, Path};
use super::kind::{self, At, Draft, Goes, Kind, Tag};
use super::operation::{self, Begin, Verb};
use super::{checks, group, inner, list, lock, properties, reference};
use crate::exchange::{Asked, Reply};
use crate::turn::Turn;

/// A request about a resource of a type.
pub(crate) struct About<'r> {
    pub(crate) asked: &'r Asked,
    pub(crate) id: Id,
    pub(crate) kind: &'static Kind,
}

impl About<'_> {
    fn version(&self) -> &str {
        self.asked.param("api-version").unwrap_or_default()
    }
}

/// The type of what a path names, or how ARM says that there is none.
pub(crate) fn kind_of(namespace: &str, types: &[String]) -> Result<&'static Kind, Fault> {
    let name = format!("{namespace}/{}", types.join("/"));
    if let Some(kind) = kind::named(&name) {
        return Ok(kind);
    }
    let is_known = kind::all().any(|kind| kind.namespace().eq_ignore_ascii_case(namespace));
    let fault = match is_known {
        true => Fault::new(
            404,
            "InvalidResourceType",
            format!(
                "The resource type '{}' could not be found in the namespace '{namespace}'.",
                types.join("/")
            ),
        ),
        false => Fault::new(
            404,
            "InvalidResourceNamespace",
            format!("The resource namespace '{namespace}' is invalid."),
        ),
    };
    Err(fault.gateway())
}

/// Does what is asked with a resource.
pub(crate) fn answer(turn: &mut Turn<'_>, asked: &Asked, path: &Path) -> Result<Reply, Fault> {
    let namespace = path.namespace.as_deref().unwrap_or_default();
    if path.rest.len() % 2 == 1 {
        let types: Vec<String> = path.rest.iter().step_by(2).cloned().collect();
        let kind = kind_of(namespace, &types)?;
        return match asked.method {
            Method::GET => list::of_kind(turn, asked, path, kind),
            _ => Err(not_allowed(&asked.method, &path.scope)),
        };
    }
    let id = path.id().expect("a path with pairs is an id");
    let kind = kind_of(namespace, &id.types)?;
    let about = About { asked, id, kind };
    if let Some(group) = &about.id.group {
        let subscription = about.id.subscription.as_deref().unwrap_or_default();
        group::require(turn, subscription, group)?;
    }
    match asked.method {
        Method::GET => read(turn, &about),
        Method::HEAD => read(turn, &about).map(|_| Reply::empty(204)),
        Method::PUT => put(turn, &about),
        Method::PATCH => patch(turn, &about),
        Method::DELETE => delete(turn, &about),
        _ => Err(not_allowed(&asked.method, &about.id.to_string())),
    }
}

fn not_allowed(method: &Method, what: &str) -> Fault {
    let message =
        format!("The requested resource '{what}' does not support http method '{method}'.");
    Fault::new(405, "MethodNotAllowed", message)
}

/// The resource, its parent being there.
pub(crate) fn find(
    turn: &Turn<'_>,
    id: &Id,
    kind: &'static Kind,
    verb: &str,
) -> Result<Option<Document>, Fault> {
    if let Some(parent) = id.parent() {
        let is_there = document::get(turn, &parent.to_string()).is_some() || is_implied(&parent);
        if !is_there {
            let grand = parent.types.iter().zip(&parent.names);
            let path: Vec<String> = grand.map(|(kind, name)| format!("{kind}/{name}")).collect();
            let named = format!(
                "/subscriptions/{}/resourceGroups/{}/providers/{}/{}",
                id.subscription.as_deref().unwrap_or_default(),
                id.group.as_deref().unwrap_or_default(),
                id.namespace,
                path.join("/")
            );
            return Err(fault::no_parent(id, verb, &named));
        }
    }
    match kind.within {
        Some(_) => Ok(inner::get(turn, id, kind)),
        None => Ok(document::get(turn, &id.to_string())),
    }
}

// Services that every account has, without anybody having made them.
fn is_implied(parent: &Id) -> bool {
    parent.name().eq_ignore_ascii_case("default")
        && parent
            .types
            .last()
            .is_some_and(|t| t.to_lowercase().ends_with("services"))
}

fn read(turn: &Turn<'_>, about: &About<'_>) -> Result<Reply, Fault> {
    let found = find(turn, &about.id, about.kind, "read")?;
    let mut document = found.ok_or_else(|| absent(&about.id, about.kind))?;
    show(turn, about.kind, &mut document);
    let expand = about.asked.param("$expand").unwrap_or_default();
    crate::providers::expand(turn, about.kind, expand, &mut document);
    Ok(tagged(Reply::ok(document.body)))
}

/// What a provider says of something absent; the gateway speaks for those that ARM itself knows.
pub(crate) fn absent(id: &Id, kind: &Kind) -> Fault {
    if kind.name == "Microsoft.Resources/deployments" {
        return super::deployment::absent(id.name());
    }
    match (kind.within, kind.collection()) {
        (Some(_), _) if !kind.flat => {
            Fault::new(404, "NotFound", format!("Resource {id} not found."))
        }
        (_, "privateDnsZoneGroups") => Fault::new(
            404,
            "NotFound",
            format!("Resource {} not found.", id.name()),
        ),
        // The storage itself answers for what lies in an account.
        (_, "containers") => Fault::new(
            404,
            "ContainerNotFound",
            "The specified container does not exist.",
        ),
        (_, "shares") => Fault::new(404, "ShareNotFound", "The specified share does not exist."),
        _ => fault::no_resource(id),
    }
}

/// Completes a resource by what refers to it.
pub(crate) fn show(turn: &Turn<'_>, kind: &'static Kind, document: &mut Document) {
    reference::show(turn, kind, &mut document.body);
    for child in kind.inner() {
        let field = child.within.unwrap_or_default();
        let elements = document.body["properties"][field]
            .as_array_mut()
            .into_iter()
            .flatten();
        elements.for_each(|element| reference::show(turn, child, element));
    }
}

fn tagged(reply: Reply) -> Reply {
    let crate::exchange::Body::Json(body) = &reply.body else {
        return reply;
    };
    let tag = body["etag"]
        .as_str()
        .or_else(|| body["eTag"].as_str())
        .map(str::to_owned);
    match tag {
        Some(tag) => reply.with("etag", &tag),
        None => reply,
    }
}

fn put(turn: &mut Turn<'_>, about: &About<'_>) -> Result<Reply, Fault> {
    let body = checks::body(about.asked)?;
    let before = find(turn, &about.id, about.kind, "write")?;
    write(turn, about, before, body, about.kind.sparse)
}

fn patch(turn: &mut Turn<'_>, about: &About<'_>) -> Result<Reply, Fault> {
    let body = checks::body(about.asked)?;
    let before = find(turn, &about.id, about.kind, "write")?;
    let mut before = before.ok_or_else(|| absent(&about.id, about.kind))?;
    // Tags are replaced as a whole, everything else is laid over what is there.
    if body["tags"].is_object() {
        before.body["tags"] = json!({});
    }
    write(turn, about, Some(before), body, true)
}

/// Writes a resource and answers as its type does.
fn write(
    turn: &mut Turn<'_>,
    about: &About<'_>,
    before: Option<Document>,
    body: Value,
    sparse: bool,
) -> Result<Reply, Fault> {
    checks::preconditions(about.asked, about.kind, before.as_ref())?;
    lock::allows_write(turn, &about.id.to_string())?;
    properties::check(about.kind, before.as_ref(), &body)?;
    let written = store(turn, &about.id, about.kind, before, body, sparse)?;
    let code = match (written.is_new, about.asked.method == Method::PATCH) {
        (true, _) => about.kind.put.0,
        (false, true) => {
            if about.kind.put.1 == 201 {
                200
            } else {
                about.kind.put.1
            }
        }
        (false, false) => about.kind.put.1,
    };
    let mut document = written.document;
    show(turn, about.kind, &mut document);
    let is_silent = about.kind.write == Goes::Location && written.operation.is_some();
    let reply = match is_silent {
        true => Reply::empty(code),
        false => tagged(Reply::json(
            if about.kind.write == Goes::Location {
                200
            } else {
                code
            },
            document.body.clone(),
        )),
    };
    Ok(under_way(
        turn,
        about,
        about.kind.write,
        &document,
        written.operation,
        reply,
    ))
}

fn under_way(
    turn: &Turn<'_>,
    about: &About<'_>,
    goes: Goes,
    document: &Document,
    operation: Option<String>,
    reply: Reply,
) -> Reply {
    let Some(operation) = operation else {
        return reply;
    };
    // A child inside another resource has its place from there.
    let own = document.body["location"]
        .as_str()
        .or_else(|| document.hidden.as_str());
    let location = own.unwrap_or("global");
    let (status, result) = operation::addresses(
        turn,
        &about.id,
        about.kind.operations,
        &operation,
        location,
        about.version(),
    );
    operation::headers(turn, reply, goes, &status, &result)
}

/// What a write came to.
pub(crate) struct Stored {
    pub(crate) document: Document,
    pub(crate) is_new: bool,
    pub(crate) operation: Option<String>,
}

/// Decides on a write and stages it, whoever asks: a client, a template, or another resource.
pub(crate) fn store(
    turn: &mut Turn<'_>,
    id: &Id,
    kind: &'static Kind,
    before: Option<Document>,
    body: Value,
    sparse: bool,
) -> Result<Stored, Fault> {
    if kind.within.is_some() {
        return inner::store(turn, id, kind, before, body, sparse);
    }
    let body = checks::complete(turn, id, kind, before.as_ref(), body, sparse)?;
    let mut draft = Draft {
        id,
        kind,
        before: before.as_ref(),
        hidden: before
            .as_ref()
            .map_or(Value::Null, |before| before.hidden.clone()),
        body,
        phases: Vec::new(),
        milliseconds: kind.milliseconds,
        state: None,
    };
    inner::complete(turn, &mut draft)?;
    checks::required(kind, &draft.body)?;
    reference::check(turn, &draft)?;
    if let Some(decide) = kind.decide {
        decide(turn, &mut draft).map_err(|fault| {
            if kind.flat_errors {
                fault.flat()
            } else {
                fault
            }
        })?;
    }
    let (body, hidden) = (draft.body, draft.hidden);
    let (phases, milliseconds, state) = (draft.phases, draft.milliseconds, draft.state);
    let is_new = before.is_none();
    let mut document = before
        .clone()
        .unwrap_or_else(|| Document::new(turn, Value::Null));
    if !is_new && same(&document.body, &body) && document.hidden == hidden {
        return Ok(Stored {
            document,
            is_new,
            operation: None,
        });
    }
    operation::supersede(turn, &document);
    document.body = body;
    document.hidden = hidden;
    document.version += 1;
    document.changed = crate::chance::seven_digits(turn.now);
    mark(turn, kind, &mut document);
    let operation = begin(
        turn,
        kind,
        &mut document,
        is_new,
        state,
        (milliseconds, phases),
    );
    reference::keep(
        turn,
        kind,
        before.as_ref().map(|b| &b.body),
        Some(&document.body),
    );
    document::put(turn, &document);
    Ok(Stored {
        document,
        is_new,
        operation,
    })
}

fn begin(
    turn: &mut Turn<'_>,
    kind: &Kind,
    document: &mut Document,
    is_new: bool,
    state: Option<&'static str>,
    (milliseconds, phases): (u64, Vec<(u64, String)>),
) -> Option<String> {
    if kind.write == Goes::AtOnce {
        return None;
    }
    let word = state.unwrap_or(if is_new { kind.states.0 } else { kind.states.1 });
    document.body["properties"]["provisioningState"] = json!(word);
    let mut begin = Begin::new(Verb::Put, document.id(), milliseconds);
    begin.phases = phases;
    if kind.write != Goes::Async {
        begin.output = json!("resource");
    }
    let operation = operation::begin(turn, begin);
    document.operation = Some(operation.clone());
    Some(operation)
}

/// Whether two bodies say the same, but for what marks their versions.
fn same(old: &Value, new: &Value) -> bool {
    let bare = |body: &Value| {
        let mut body = body.clone();
        forget_marks(&mut body);
        body
    };
    bare(old) == bare(new)
}

fn forget_marks(value: &mut Value) {
    match value {
        Value::Object(map) => {
            for mark in ["etag", "eTag", "provisioningState"] {
                map.remove(mark);
            }
            map.values_mut().for_each(forget_marks);
        }
        Value::Array(all) => all.iter_mut().for_each(forget_marks),
        _ => {}
    }
}

/// Gives a resource and the children inside it a new mark.
fn mark(turn: &mut Turn<'_>, kind: &'static Kind, document: &mut Document) {
    let guid = turn.chance.guid();
    let version = document.version;
    let tag = |tag: Tag| match tag {
        Tag::None => None,
        Tag::Weak => Some(("etag", format!("W/\"{guid}\""))),
        Tag::Number => Some(("etag", format!("\"{version}\""))),
        Tag::Quoted => Some(("etag", format!("\"{guid}\""))),
        Tag::Upper => Some(("eTag", guid.clone())),
    };
    if let Some((field, value)) = tag(kind.tag) {
        document.body[field] = json!(value);
    }
    for child in kind.inner() {
        let Some((field, value)) = tag(child.tag) else {
            continue;
        };
        let list = document.body["properties"][child.within.unwrap_or_default()].as_array_mut();
        list.into_iter()
            .flatten()
            .for_each(|element| element[field] = json!(value));
    }
}

fn delete(turn: &mut Turn<'_>, about: &About<'_>) -> Result<Reply, Fault> {
    // What is not there is gone already, and so is what was in something that is not there.
    let Ok(Some(document)) = find(turn, &about.id, about.kind, "delete") else {
        return Ok(Reply::empty(204));
    };
    checks::preconditions(about.asked, about.kind, Some(&document))?;
    lock::allows_delete(turn, &about.id.to_string())?;
    if about.kind.within.is_some() {
        let operation = inner::remove(turn, &about.id, about.kind)?;
        return Ok(deleted(turn, about, &document, operation));
    }
    may_leave(turn, &about.id, about.kind, &document, &HashSet::new())?;
    let operation = leave(turn, about.kind, document.clone())?;
    Ok(deleted(turn, about, &document, operation))
}

fn deleted(
    turn: &Turn<'_>,
    about: &About<'_>,
    document: &Document,
    operation: Option<String>,
) -> Reply {
    match operation {
        Some(operation) => under_way(
            turn,
            about,
            about.kind.delete,
            document,
            Some(operation),
            Reply::empty(202),
        ),
        None => match about.kind.at {
            // Role assignments and locks show what was removed.
            At::Anywhere => Reply::ok(document.body.clone()),
            _ => Reply::empty(200),
        },
    }
}

/// Whether nothing holds a resource back.
pub(crate) fn may_leave(
    turn: &mut Turn<'_>,
    id: &Id,
    kind: &'static Kind,
    document: &Document,
    together: &HashSet<String>,
) -> Result<(), Fault> {
    reference::check_unused(turn, kind, document, together)?;
    // A shared disk has several.
    let shared = document.body["managedByExtended"].as_array();
    let owners = std::iter::once(&document.body["managedBy"]).chain(shared.into_iter().flatten());
    let owners: Vec<String> = owners
        .filter_map(|owner| Some(owner.as_str()?.to_lowercase()))
        .collect();
    let goes_with_owner = !owners.is_empty() && owners.iter().all(|o| together.contains(o));
    match kind.leave.filter(|_| !goes_with_owner) {
        Some(leave) => {
            leave(turn, id, document).map_err(|f| if kind.flat_errors { f.flat() } else { f })
        }
        None => Ok(()),
    }
}

/// Begins to remove a resource, or removes it at once.
fn leave(
    turn: &mut Turn<'_>,
    kind: &Kind,
    mut document: Document,
) -> Result<Option<String>, Fault> {
    if kind.delete == Goes::AtOnce {
        remove(turn, &document)?;
        return Ok(None);
    }
    operation::supersede(turn, &document);
    let operation = operation::begin(
        turn,
        Begin::new(Verb::Delete, document.id(), kind.milliseconds),
    );
    document.operation = Some(operation.clone());
    document.body["properties"]["provisioningState"] = json!("Deleting");
    document::put(turn, &document);
    Ok(Some(operation))
}

/// Removes a resource with whatever belongs to it.
pub(crate) fn remove(turn: &mut Turn<'_>, document: &Document) -> Result<(), Fault> {
    let key = super::id::key(document.id());
    for (child, entry) in turn.under(&format!("{key}/")) {
        forget(turn, &Document::read(entry));
        turn.remove(child);
    }
    forget(turn, document);
    turn.remove(key);
    Ok(())
}

/// Lets go of what a removed resource refers to, and of what only it had.
pub(crate) fn forget(turn: &mut Turn<'_>, document: &Document) {
    let kind = Id::parse(document.id()).and_then(|id| kind::named(&id.kind()));
    if let Some(kind) = kind {
        reference::keep(turn, kind, Some(&document.body), None);
        crate::providers::removed(turn, kind, document);
    }
}
