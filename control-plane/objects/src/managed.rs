//! Field management: who set which field, and server-side apply on top of it.
//!
//! [`update`] is for every write that carries a whole object (POST, PUT and all patches but
//! apply); [`apply`] is server-side apply. Rules of `apimachinery/pkg/util/managedfields`, with
//! one simplification: where upstream converts the object to each manager's API version, paths
//! are taken to mean the same in all versions of a kind, so an entry of another version loses the
//! paths that changed here and keeps the ones this version does not have.

mod conflict;
mod entries;
mod lastapplied;
mod ownership;

use std::borrow::Cow;

use serde_json::{Map, Value};

pub use conflict::{Conflict, Conflicts};
pub use entries::{EntriesError, ManagerId, Managers, Operation, Owned};
pub use ownership::{Filter, Step};

use crate::fieldset::equal;
use crate::merge::{Duplicates, SchemaErrors, validate};
use crate::shape::Shape;
use crate::{gotext, normalize};

/// The most entries of updaters an object keeps; the oldest are merged into one.
pub const MAX_UPDATE_ENTRIES: usize = 10;

const ANCIENT_MANAGER: &str = "ancient-changes";
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Who writes, through what, and when.
#[derive(Debug, Clone, Copy)]
pub struct Request<'r> {
    /// The field manager; empty becomes `unknown`.
    pub manager: &'r str,
    /// The API version the request came in, such as `apps/v1`.
    pub api_version: &'r str,
    /// The kind of the object.
    pub kind: &'r str,
    /// The subresource, or empty.
    pub subresource: &'r str,
    /// The time to record, RFC 3339 in UTC without fractions.
    pub time: &'r str,
    /// Apply: take fields over from other managers instead of reporting conflicts.
    pub force: bool,
    /// Update: the body asked to forget all managers; see [`asks_for_reset`].
    pub reset: bool,
    /// Fields this endpoint does not set, such as `status` of a main resource.
    pub filter: &'r Filter,
}

impl Request<'_> {
    fn id(&self, operation: Operation) -> ManagerId {
        self.id_of(self.manager, operation)
    }

    fn id_of(&self, manager: &str, operation: Operation) -> ManagerId {
        let manager = if manager.is_empty() {
            "unknown"
        } else {
            manager
        };
        ManagerId::new(manager, operation, self.api_version, self.subresource)
    }
}

/// Whether a request body, as it came in, asks to forget all managers: `managedFields` is an empty
/// list or one empty entry. The normal form drops empty lists, so this has to be asked before it.
pub fn asks_for_reset(body: &Value) -> bool {
    match body.pointer("/metadata/managedFields") {
        Some(Value::Array(entries)) => match entries.as_slice() {
            [] => true,
            [Value::Object(only)] => only.is_empty(),
            _ => false,
        },
        _ => false,
    }
}

/// Sets `new.metadata.managedFields` after an update from `live` (`None`: creation).
///
/// Never fails: when the entries or objects cannot be understood, `new` ends up without entries,
/// as upstream leaves it.
pub fn update<'s>(
    shape: impl Into<Shape<'s>>,
    live: Option<&Value>,
    new: &mut Value,
    request: &Request<'_>,
) {
    let is_reset = request.reset || asks_for_reset(new);
    let Some(sent) = take_managed_fields(new) else {
        return;
    };
    let is_creation = live.and_then(|l| l.pointer("/metadata/uid")).is_none();
    let managers = managers_of_update(live, &sent, request, is_reset);
    if managers.is_empty() && !is_creation {
        return;
    }
    let shape = shape.into();
    // The live entries may stay where they are: nobody can own them.
    let live = live.map_or_else(|| Cow::Owned(empty_object(shape, request)), Cow::Borrowed);
    if let Ok(managers) = updated(shape, &live, new, managers, request) {
        put_managed_fields(new, &managers);
    }
}

// A client that does not know the entries must not delete them by accident, and one that writes a
// subresource must not change them at all.
fn managers_of_update(
    live: Option<&Value>,
    sent: &Value,
    request: &Request<'_>,
    is_reset: bool,
) -> Managers {
    let of_live = || live.and_then(|l| Managers::of(l).ok()).unwrap_or_default();
    if !request.subresource.is_empty() {
        return of_live();
    }
    if is_reset {
        return Managers::default();
    }
    match Managers::decode(sent) {
        Ok(managers) if !managers.is_empty() => managers,
        _ => of_live(),
    }
}

fn updated(
    shape: Shape<'_>,
    live: &Value,
    new: &Value,
    mut managers: Managers,
    request: &Request<'_>,
) -> Result<Managers, SchemaErrors> {
    validate(shape, new, Duplicates::Allowed)?;
    validate(shape, live, Duplicates::Allowed)?;
    ownership::update(
        shape,
        live,
        new,
        &mut managers,
        &request.id(Operation::Update),
        request,
    );
    managers.cap_updates(MAX_UPDATE_ENTRIES, ANCIENT_MANAGER);
    Ok(managers)
}

/// Why an apply was refused.
#[derive(Debug, thiserror::Error, Clone, PartialEq, Eq)]
pub enum ApplyError {
    /// The configuration is not for this endpoint (upstream: 400).
    #[error("{0}")]
    BadRequest(String),
    /// Other managers own what the configuration changes (upstream: 409).
    #[error(transparent)]
    Conflicts(#[from] Conflicts),
    /// The configuration or live object does not have its type's shape, or the result does not
    /// decode (upstream: a plain error, answered as a 500 whose message is this text).
    #[error("{0}")]
    Unusable(String),
}

/// Server-side apply of `config` onto `live` (`None`: creation). The answer carries the new
/// `managedFields`; it equals `live` when the apply changed nothing.
///
/// `finish` decodes and defaults the merged object into normal form; its error is the decoder's.
pub fn apply<'s>(
    shape: impl Into<Shape<'s>>,
    live: Option<&Value>,
    config: &Value,
    request: &Request<'_>,
    finish: impl FnOnce(Value) -> Result<Value, String>,
) -> Result<Value, ApplyError> {
    let shape = shape.into();
    check_type(config, request)?;
    let managers = live
        .map_or(Ok(Managers::default()), Managers::of)
        .map_err(|e| ApplyError::Unusable(format!("failed to decode managed fields: {e}")))?;
    let bare = live.map_or_else(|| empty_object(shape, request), without_managed_fields);
    let managers = with_existing_fields(shape, &bare, managers, request)?;
    check_config(shape, config, &bare)?;
    let (merged, managers) = lastapplied::apply(shape, &bare, config, managers, request)?;
    let mut object = match merged {
        None => bare,
        Some(merged) => finish(merged).map_err(|e| {
            let what = description(config);
            ApplyError::Unusable(format!(
                "failed to convert new object ({what}) to proper version: {e}"
            ))
        })?,
    };
    if request.manager == lastapplied::KUBECTL {
        lastapplied::refresh_annotation(&mut object, config);
    }
    put_managed_fields(&mut object, &managers);
    if let Some(live) = live {
        keep_times_if_unchanged(live, &mut object);
    }
    Ok(object)
}

fn check_type(config: &Value, request: &Request<'_>) -> Result<(), ApplyError> {
    let (api_version, kind) = type_of(config);
    if (api_version, kind) == (request.api_version, request.kind) {
        return Ok(());
    }
    Err(ApplyError::BadRequest(format!(
        "invalid object type: {}",
        gvk_text(api_version, kind)
    )))
}

fn check_config(shape: Shape<'_>, config: &Value, live: &Value) -> Result<(), ApplyError> {
    if config
        .pointer("/metadata/managedFields")
        .is_some_and(Value::is_array)
    {
        return Err(ApplyError::BadRequest(
            "metadata.managedFields must be nil".to_owned(),
        ));
    }
    let unusable = |which: &str, object: &Value, errors: SchemaErrors| {
        let what = description(object);
        ApplyError::Unusable(format!(
            "failed to create typed {which} object ({what}): {errors}"
        ))
    };
    validate(shape, config, Duplicates::Refused).map_err(|e| unusable("patch", config, e))?;
    validate(shape, live, Duplicates::Allowed).map_err(|e| unusable("live", live, e))
}

// The first apply to an object nobody tracked gives what is there to a manager of its own, so
// that the applier does not own it by accident.
fn with_existing_fields(
    shape: Shape<'_>,
    live: &Value,
    managers: Managers,
    request: &Request<'_>,
) -> Result<Managers, ApplyError> {
    if !managers.is_empty() {
        return Ok(managers);
    }
    let empty = empty_object(shape, request);
    let before = Request {
        manager: BEFORE_FIRST_APPLY,
        ..*request
    };
    updated(shape, &empty, live, managers, &before).map_err(|e| {
        ApplyError::Unusable(format!(
            "failed to create manager for existing fields: failed to convert new object ({}) to smd typed: {e}",
            description(live)
        ))
    })
}

/// Puts back the live entries' times when nothing else differs, so that a write without effect
/// stays one. The server calls it again after admission.
pub fn keep_times_if_unchanged(live: &Value, new: &mut Value) {
    let entries = |object: &Value| object.pointer("/metadata/managedFields").cloned();
    let (Some(old_entries), Some(new_entries)) = (entries(live), entries(new)) else {
        return;
    };
    if old_entries == new_entries || without_times(&old_entries) != without_times(&new_entries) {
        return;
    }
    if equal(&without_managed_fields(live), &without_managed_fields(new)) {
        set_managed_fields(new, old_entries);
    }
}

fn without_times(entries: &Value) -> Value {
    let mut entries = entries.clone();
    for entry in entries.as_array_mut().into_iter().flatten() {
        entry.as_object_mut().map(|e| e.remove("time"));
    }
    entries
}

/// The object upstream starts from when it creates one of this kind.
fn empty_object(shape: Shape<'_>, request: &Request<'_>) -> Value {
    let mut object = match shape.as_type() {
        Some(ty) => normalize::zero(ty),
        None => Value::Object(Map::new()),
    };
    object["apiVersion"] = request.api_version.into();
    object["kind"] = request.kind.into();
    object
}

fn without_managed_fields(object: &Value) -> Value {
    let mut object = object.clone();
    take_managed_fields(&mut object);
    object
}

/// Removes and answers the entries; `None` when the object has no metadata to hold any.
fn take_managed_fields(object: &mut Value) -> Option<Value> {
    let metadata = object.get_mut("metadata")?.as_object_mut()?;
    Some(metadata.remove("managedFields").unwrap_or(Value::Null))
}

fn put_managed_fields(object: &mut Value, managers: &Managers) {
    if managers.is_empty() {
        take_managed_fields(object);
    } else {
        set_managed_fields(object, managers.encode());
    }
}

fn set_managed_fields(object: &mut Value, entries: Value) {
    if let Some(Value::Object(metadata)) = object.get_mut("metadata") {
        metadata.insert("managedFields".to_owned(), entries);
    }
}

fn type_of(object: &Value) -> (&str, &str) {
    let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
    (text("apiVersion"), text("kind"))
}

fn gvk_text(api_version: &str, kind: &str) -> String {
    let slash = if api_version.contains('/') { "" } else { "/" };
    format!("{slash}{api_version}, Kind={kind}")
}

/// `namespace/name; group/version, Kind=kind`, as upstream names objects in these errors.
fn description(object: &Value) -> String {
    let meta = |key: &str| match object.pointer(&format!("/metadata/{key}")) {
        Some(Value::String(text)) => text.clone(),
        Some(other) if !other.is_null() => gotext::plain(other),
        _ => String::new(),
    };
    let (api_version, kind) = type_of(object);
    format!(
        "{}/{}; {}",
        meta("namespace"),
        meta("name"),
        gvk_text(api_version, kind)
    )
}

#[cfg(test)]
mod tests;
