//! What a plugin is told about a write.

use std::sync::{Arc, Mutex, PoisonError};

use access::User;
use kinds::resources::Resource;
use serde_json::Value;

use crate::call::Call;
use crate::status::ApiError;

/// What is being done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// A new object, or a POST to a subresource.
    Create,
    /// A changed object.
    Update,
    /// An object on its way out.
    Delete,
    /// A stream to a node.
    Connect,
}

impl Operation {
    /// The operation as the admission API writes it.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }
}

/// A write on its way in.
#[derive(Debug)]
pub(crate) struct Attributes<'a> {
    /// The request.
    pub(crate) call: &'a Call,
    /// What is being done; a PUT or an apply that creates is a create.
    pub(crate) operation: Operation,
    /// The subresource, or nothing.
    pub(crate) subresource: &'a str,
    /// The name, empty while the server has yet to generate it.
    pub(crate) name: &'a str,
    /// The object as it is, for updates and deletes.
    pub(crate) old: Option<&'a Value>,
    /// Whether nothing is going to be stored.
    pub(crate) dry_run: bool,
}

impl<'a> Attributes<'a> {
    /// The resource; for a subresource the one it hangs below.
    pub(crate) fn resource(&self) -> &'a Arc<Resource> {
        &self.call.resource
    }

    /// Whether the write is to this resource, in any version; the subresource is not looked at.
    pub(crate) fn is(&self, group: &str, plural: &str) -> bool {
        let resource = &self.call.resource;
        resource.plural == plural && resource.gv.group == group
    }

    /// Whether the write is to this resource itself and not to something below it.
    pub(crate) fn is_main(&self, group: &str, plural: &str) -> bool {
        self.subresource.is_empty() && self.is(group, plural)
    }

    /// The namespace; a namespace is in itself.
    pub(crate) fn namespace(&self) -> &'a str {
        match self.is("", "namespaces") {
            true => self.name,
            false => self.call.path.namespace(),
        }
    }

    /// Who asks.
    pub(crate) fn user(&self) -> &'a User {
        &self.call.user
    }

    /// Tells the client something in a Warning header, whatever becomes of the request.
    pub(crate) fn warn(&self, text: impl Into<String>) {
        self.call.warnings.push(text.into());
    }

    /// Says something about the write in its audit record.
    pub(crate) fn annotate(&self, key: &str, value: &str) {
        self.call.annotate(key, value);
    }

    /// 403 in admission's usual words. The object is asked for its name if the request has none yet.
    pub(crate) fn forbid(&self, object: Option<&Value>, why: &str) -> ApiError {
        ApiError::forbidden(self.resource(), &self.shown_name(object), why)
    }

    fn shown_name(&self, object: Option<&Value>) -> String {
        let candidates = [
            self.name,
            object.map_or("", |o| text(o, "name")),
            object.map_or("", |o| text(o, "generateName")),
        ];
        let found = candidates.into_iter().find(|name| !name.is_empty());
        found.unwrap_or("Unknown").to_owned()
    }
}

/// A text of an object's metadata.
pub(super) fn text<'o>(object: &'o Value, field: &str) -> &'o str {
    object["metadata"][field].as_str().unwrap_or_default()
}

/// More warnings are not kept; fewer fit into the headers.
const MOST: usize = 100;

/// Warnings that a request has gathered; each is told once, however often a write is tried.
#[derive(Debug, Clone, Default)]
pub(crate) struct Warnings(Arc<Mutex<Vec<String>>>);

impl Warnings {
    /// Adds one.
    pub(crate) fn push(&self, text: String) {
        let mut texts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if texts.len() < MOST && !texts.contains(&text) {
            texts.push(text);
        }
    }

    /// All of them so far.
    pub(crate) fn take(&self) -> Vec<String> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
