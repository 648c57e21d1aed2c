//! The verbs on stored resources.
//!
//! Every write goes the same way: decode, default, let the field manager see it, let the kind prepare
//! it, validate, store on condition that nothing changed meanwhile. Admission plugins may change the
//! object before validation and refuse it after.

mod component_statuses;
mod create;
mod delete;
mod patch;
mod read;
mod reviews;
pub(crate) mod scale;
mod subresources;
mod tokens;
mod update;

pub(crate) use create::generate_name;
pub(crate) use subresources::set_condition;

use std::sync::Arc;

use http::Method;
use kinds::resources::Resource;
use objects::fieldset::{FieldPath, FieldSet};
use objects::managed;
use serde_json::Value;

use crate::api::Api;
use crate::call::{Call, Reply, text};
use crate::connection::response_body::Body;
use crate::door::request::WriteOptions;
use crate::reading::stored::Stored;
use crate::reading::view::View;
use crate::status::{ApiError, Result};
use crate::writing::admission::{self, Attributes, Operation};
use crate::writing::definitions;

impl Api {
    /// Answers a request to a resource.
    pub(crate) async fn call(&self, call: &Call) -> Result<Reply> {
        // Authorized as what it asks about, and served by nobody, as upstream's routes have it.
        if call.method == Method::HEAD {
            return Err(ApiError::method_not_allowed());
        }
        let verb = call.verb();
        match call.path.subresource.as_deref() {
            Some(name) => {
                let known = call
                    .resource
                    .subresource(name)
                    .ok_or_else(ApiError::no_such_path)?;
                if !known.verbs.contains(&verb) {
                    return Err(ApiError::method_not_allowed());
                }
                self.call_subresource(call, name, verb).await
            }
            None if call.path.rest.is_some() => Err(ApiError::no_such_path()),
            None if !call.resource.allows(verb) => Err(ApiError::method_not_allowed()),
            None if call.resource.is_virtual => self.call_virtual(call).await,
            None => self.call_stored(call, verb).await,
        }
    }

    async fn call_stored(&self, call: &Call, verb: &str) -> Result<Reply> {
        let scoped = call.path.namespace.is_some();
        let write = !matches!(verb, "list" | "watch" | "deletecollection");
        let on_collection = call.path.name.is_none();
        let misplaced = match verb {
            "create" => !on_collection || (call.resource.namespaced && !scoped),
            "update" | "patch" => on_collection,
            "deletecollection" => call.resource.namespaced && !scoped,
            _ => false,
        };
        if misplaced {
            return Err(ApiError::method_not_allowed());
        }
        if call.resource.namespaced && !scoped && write {
            return Err(ApiError::no_such_path());
        }
        if !call.resource.namespaced && scoped {
            return Err(ApiError::no_such_path());
        }
        match verb {
            "get" => self.get(call).await,
            "list" => self.list(call).await,
            "watch" => self.watch(call).await,
            "create" => self.create(call).await,
            "update" => self.update(call, "").await,
            "patch" => self.patch(call, "").await,
            "delete" => self.delete(call).await,
            _ => self.delete_collection(call).await,
        }
    }

    /// A stored object as the answer to a request.
    async fn shown(&self, view: &View, stored: &Stored) -> Result<Body> {
        let collection = self.collection(&view.resource)?;
        if collection.webhook.is_none() {
            return Ok(view.stored(stored));
        }
        let one = vec![Arc::new(stored.clone())];
        let converted = self.in_version(&view.resource, &collection, one).await?;
        Ok(view.stored(&converted[0]))
    }

    /// The first phase of admission for an object that is POSTed to a subresource or only answered.
    async fn mutate_posted(&self, call: &Call, object: &mut Value) -> Result<()> {
        let name = posted_name(call, object).to_owned();
        admission::mutate(self, &posted(call, &name)?, object).await
    }

    /// The second phase of the same.
    async fn validate_posted(&self, call: &Call, object: &Value) -> Result<()> {
        let name = posted_name(call, object);
        admission::validate(self, &posted(call, name)?, Some(object)).await
    }

    /// Lets the field manager see a write that carries a whole object.
    fn track(
        &self,
        call: &Call,
        options: &WriteOptions,
        subresource: &str,
        live: Option<&Value>,
        new: &mut Value,
    ) {
        let (api_version, time) = (call.resource.gv.to_string(), self.clock.seconds());
        let filter = tracked_fields(&call.resource, subresource);
        let request = managed::Request {
            manager: &options.field_manager,
            api_version: &api_version,
            kind: call.resource.kind,
            subresource,
            time: &time,
            force: options.force,
            reset: call.asks_for_reset(),
            filter: &filter,
        };
        kinds::strategy::show_hidden_fields(&call.resource, new);
        managed::update(call.resource.ty.shape(), live, new, &request);
    }
}

// What an endpoint cannot own (upstream's reset fields): the status on the main resource, all but the
// status on /status, and what the kind's strategy resets beyond that.
pub(crate) fn tracked_fields(resource: &Resource, subresource: &str) -> managed::Filter {
    let whole = kinds::strategy::resets_metadata_on_status(resource);
    let kind = match resource.ty.defined() {
        Some(_) => "",
        None => resource.kind,
    };
    let paths: &[&[&str]] = match (subresource, kind) {
        ("", "CertificateSigningRequest") => &[&["spec"], &["status"]],
        ("", _) if resource.subresource("status").is_some() => &[&["status"]],
        ("status", "Deployment") => &[&["spec"], &["metadata", "labels"]],
        ("status", _) if whole => &[&["spec"], &["metadata"]],
        ("status", _) => &[&["spec"]],
        ("finalize", _) => &[&["status"]],
        _ => &[],
    };
    let paths: Vec<_> = paths
        .iter()
        .map(|p| FieldPath::of_fields(p.iter().copied()))
        .collect();
    managed::Filter::Exclude(FieldSet::from_paths(&paths))
}

fn posted<'a>(call: &'a Call, name: &'a str) -> Result<Attributes<'a>> {
    Ok(Attributes {
        call,
        operation: Operation::Create,
        subresource: call.path.subresource.as_deref().unwrap_or_default(),
        name,
        old: None,
        dry_run: call.write_options()?.dry_run,
    })
}

fn posted_name<'a>(call: &'a Call, object: &'a Value) -> &'a str {
    match call.path.name.as_deref() {
        Some(name) => name,
        None => text(object, "name"),
    }
}

/// Events are the only objects that go by themselves.
fn is_event(resource: &Resource) -> bool {
    matches!(resource.gv.group, "" | "events.k8s.io") && resource.kind == "Event"
}

// Resources that clients are told to leave, in upstream's words.
pub(crate) fn deprecation(resource: &Resource) -> Option<&str> {
    if let Some(definition) = resource.ty.defined() {
        return definition.deprecation();
    }
    match (resource.gv.group, resource.kind) {
        ("", "ComponentStatus") => Some("v1 ComponentStatus is deprecated in v1.19+"),
        ("", "Endpoints") => {
            Some("v1 Endpoints is deprecated in v1.33+; use discovery.k8s.io/v1 EndpointSlice")
        }
        _ => None,
    }
}

/// An object in the normal form of its type.
pub(crate) fn normal_form(resource: &Resource, object: Value) -> Result<Value> {
    let normal = resource.ty.normalize(object);
    Ok(normal
        .map_err(|e| ApiError::bad_request(e.to_string()))?
        .value)
}

/// What a client should hear about an object although the write succeeds.
fn warnings(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<String> {
    let mut told = kinds::warnings::of(resource, new, old);
    if resource.is(definitions::GROUP, "CustomResourceDefinition") {
        told.extend(extensions::formats::warnings(new, old));
    }
    told
}

/// Validation of a new object, as an error.
fn check_create(resource: &Resource, object: &Value) -> Result<()> {
    let mut errors = kinds::validation::create(resource, object);
    if resource.is(definitions::GROUP, "CustomResourceDefinition") {
        check_schemas(object, None, &mut errors);
    }
    admission::check_expressions(resource, object, None, &mut errors);
    as_invalid(resource, object, errors)
}

/// Validation of a changed object, as an error.
fn check_update(resource: &Resource, new: &Value, old: &Value, subresource: &str) -> Result<()> {
    let mut errors = kinds::validation::update(resource, new, old, subresource);
    if resource.is(definitions::GROUP, "CustomResourceDefinition") && subresource.is_empty() {
        check_schemas(new, Some(old), &mut errors);
    }
    admission::check_expressions(resource, new, Some(old), &mut errors);
    as_invalid(resource, new, errors)
}

// Rules are only looked at where the schemas that they see are in order.
fn check_schemas(definition: &Value, old: Option<&Value>, errors: &mut kinds::field::Errors) {
    let before = errors.0.len();
    extensions::structural::check(definition, old, errors);
    if errors.0.len() == before {
        definitions::rules::check(definition, old, errors);
    }
}

fn as_invalid(resource: &Resource, object: &Value, errors: kinds::field::Errors) -> Result<()> {
    if errors.is_empty() {
        return Ok(());
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    // Both groups of events have one internal kind, and upstream names it as the core one.
    let group = match (resource.gv.group, resource.kind) {
        ("events.k8s.io", "Event") => "",
        (group, _) => group,
    };
    Err(ApiError::invalid(group, resource.kind, name, &errors))
}
