//! The verbs on stored resources.
//!
//! Every write goes the same way: decode, default, let the field manager see it, let the kind prepare
//! it, validate, store on condition that nothing changed meanwhile. Admission plugins may change the
//! object before validation and refuse it after.

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

use std::borrow::Cow;
use std::sync::Arc;

use access::User;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use kinds::resources::Resource;
use objects::fieldset::{FieldPath, FieldSet};
use objects::managed;
use serde_json::Value;
use store::{Change, Expect, Store, Written};

use crate::admission::{self, Attributes, Chain, Operation, Warnings};
use crate::authentication::Authenticator;
use crate::authorization::Authorizer;
use crate::body::Body;
use crate::cache::Cache;
use crate::clock::Clock;
use crate::codec::Expected;
use crate::collection::Collection;
use crate::negotiate::Offer;
use crate::outbound::Outbound;
use crate::request::{Query, ResourcePath, WriteOptions};
use crate::services::Services;
use crate::status::{ApiError, Result};
use crate::stored::Stored;
use crate::view::{RowObject, View};

/// The API over one store.
#[derive(Debug)]
pub(crate) struct Api {
    /// The store; nothing but this crate touches it.
    pub(crate) store: Arc<dyn Store>,
    /// Its contents in memory.
    pub(crate) cache: Arc<Cache>,
    /// Virtual IPs and node ports.
    pub(crate) services: Services,
    /// The time.
    pub(crate) clock: Clock,
    /// How long events live.
    pub(crate) event_ttl: std::time::Duration,
    /// What may enter.
    pub(crate) admission: Chain,
    /// Who asks.
    pub(crate) authenticator: Arc<Authenticator>,
    /// Who may do what.
    pub(crate) authorizer: Authorizer,
    /// How nodes, pods and services are reached.
    pub(crate) outbound: Arc<Outbound>,
    /// Turns true when the server stops.
    pub(crate) shutdown: tokio::sync::watch::Receiver<bool>,
}

/// One request to a resource.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The resource.
    pub(crate) resource: &'static Resource,
    /// The path, taken apart.
    pub(crate) path: ResourcePath,
    /// HTTP method.
    pub(crate) method: Method,
    /// Query options.
    pub(crate) query: Query,
    /// Headers.
    pub(crate) headers: HeaderMap,
    /// The body.
    pub(crate) body: Bytes,
    /// Who asks.
    pub(crate) user: Arc<User>,
    /// What the client should hear, whatever becomes of the request.
    pub(crate) warnings: Warnings,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Reply {
    /// HTTP status.
    pub(crate) code: StatusCode,
    /// Content-Type.
    pub(crate) content_type: &'static str,
    /// Body.
    pub(crate) body: Body,
    /// Warnings for people.
    pub(crate) warnings: Vec<String>,
}

impl Reply {
    fn new(code: StatusCode, view: &View, body: Body) -> Reply {
        Reply {
            code,
            content_type: view.content_type(),
            body,
            warnings: Vec::new(),
        }
    }

    fn with_warnings(mut self, warnings: Vec<String>) -> Reply {
        self.warnings = warnings;
        self
    }
}

impl Call {
    /// The verb: the very one that was authorized.
    pub(crate) fn verb(&self) -> &'static str {
        crate::asked::verb(&self.method, &self.path, &self.query)
    }

    /// Whether the request is a watch.
    pub(crate) fn is_watch(&self) -> bool {
        self.verb() == "watch"
    }

    fn view(&self) -> Result<View> {
        let is_list = self.method == Method::GET && self.path.name.is_none();
        let view = self.view_of(match (self.resource.is_virtual, is_list) {
            (true, _) => Offer::Documents,
            (false, true) => Offer::Lists,
            (false, false) => Offer::Objects,
        })?;
        match self.is_watch() {
            true => Ok(view),
            false => view.suits(is_list),
        }
    }

    fn view_of(&self, offer: Offer) -> Result<View> {
        let accepted = crate::negotiate::accept(&self.headers, self.query.get("pretty"), offer)?;
        let row_object = RowObject::parse(self.query.get("includeObject"))?;
        Ok(View {
            resource: self.resource,
            accepted,
            row_object,
        })
    }

    fn write_options(&self) -> Result<WriteOptions> {
        let agent = self
            .headers
            .get(http::header::USER_AGENT)
            .and_then(|v| v.to_str().ok());
        let kind = match self.method {
            Method::POST => "CreateOptions",
            Method::PUT => "UpdateOptions",
            _ => "PatchOptions",
        };
        WriteOptions::parse(&self.query, agent.unwrap_or_default(), kind)
    }

    fn expected(&self) -> Expected {
        Expected {
            gv: self.resource.gv,
            kind: self.resource.kind,
            ty: self.resource.ty,
        }
    }

    fn namespace(&self) -> &str {
        self.path.namespace()
    }

    // The body may leave name and namespace out, but not contradict the path.
    fn check_identity(&self, object: &Value) -> Result<()> {
        let (name, namespace) = (text(object, "name"), text(object, "namespace"));
        if !name.is_empty() && name != self.path.name() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({name}) does not match the name on the URL ({})",
                self.path.name()
            )));
        }
        if self.resource.namespaced && !namespace.is_empty() && namespace != self.namespace() {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        Ok(())
    }

    fn check_named(&self, object: &Value) -> Result<()> {
        if text(object, "name").is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                self.path.name()
            )));
        }
        Ok(())
    }

    // An empty list of managers is gone from the normal form, so the bytes themselves are asked.
    fn asks_for_reset(&self) -> bool {
        const FIELD: &[u8] = b"\"managedFields\"";
        self.body.windows(FIELD.len()).any(|window| window == FIELD)
            && serde_json::from_slice(&self.body)
                .is_ok_and(|body: Value| managed::asks_for_reset(&body))
    }
}

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

    /// The collection that stores a resource.
    pub(crate) fn collection(&self, resource: &Resource) -> Result<&Arc<Collection>> {
        self.cache
            .collection(resource)
            .ok_or_else(|| ApiError::internal(format!("{} has no storage", resource.qualified())))
    }

    /// The newest state of an object, straight from the store.
    pub(crate) async fn fetch(&self, collection: &Collection, key: &str) -> Result<Option<Stored>> {
        let Some(kv) = self.store.get(key).await? else {
            return Ok(None);
        };
        let stored = collection
            .form
            .adopt(&kv.value, kv.mod_revision)
            .map_err(ApiError::internal)?;
        Ok(Some(stored))
    }

    /// The newest state of a named object, or 404.
    pub(crate) async fn must_fetch(
        &self,
        resource: &Resource,
        namespace: &str,
        name: &str,
    ) -> Result<Stored> {
        let collection = self.collection(resource)?;
        let key = collection.key(namespace, name);
        self.fetch(collection, &key)
            .await?
            .ok_or_else(|| ApiError::not_found(resource, name))
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

    /// Writes an object. Where somebody decides by such objects (roles, tokens), the write is only done
    /// once they know it: a permission that was taken away is gone when its taker hears so. Watchers
    /// are told before the writer is.
    pub(crate) async fn commit(
        &self,
        collection: &Collection,
        key: &str,
        expect: Expect,
        change: Change,
    ) -> Result<Written> {
        let written = self.store.write(key, expect, change).await?;
        if let Written::Done(revision) = written {
            if collection.decides() {
                self.cache.reach(revision).await?;
            }
            if collection.is_watched() {
                self.cache.watchers_first(revision).await;
            }
        }
        Ok(written)
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
        let filter = tracked_fields(call.resource, subresource);
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
        kinds::strategy::show_hidden_fields(call.resource, new);
        managed::update(call.resource.ty, live, new, &request);
    }
}

// What an endpoint cannot own (upstream's reset fields): the status on the main resource, all but the
// status on /status, and what the kind's strategy resets beyond that.
pub(crate) fn tracked_fields(resource: &Resource, subresource: &str) -> managed::Filter {
    let whole = kinds::strategy::resets_metadata_on_status(resource);
    let paths: &[&[&str]] = match (subresource, resource.kind) {
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

// Resources that clients are told to leave, in upstream's words.
pub(crate) fn deprecation(resource: &Resource) -> Option<&'static str> {
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
    let normal = objects::normalize::normalize(resource.ty, object);
    Ok(normal
        .map_err(|e| ApiError::bad_request(e.to_string()))?
        .value)
}

/// An object of a request's version in the stored one; the same object when that is the same.
fn to_stored<'o>(resource: &Resource, object: &'o Value) -> Cow<'o, Value> {
    if resource.gv == resource.stored {
        return Cow::Borrowed(object);
    }
    let mut object = object.clone();
    kinds::convert::convert(&mut object, resource.gv, resource.stored, resource.kind);
    Cow::Owned(object)
}

/// Validation of a new object, as an error.
fn check_create(resource: &Resource, object: &Value) -> Result<()> {
    let errors = kinds::validation::create(resource, object);
    as_invalid(resource, object, errors)
}

/// Validation of a changed object, as an error.
fn check_update(resource: &Resource, new: &Value, old: &Value, subresource: &str) -> Result<()> {
    let errors = kinds::validation::update(resource, new, old, subresource);
    as_invalid(resource, new, errors)
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

fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}
