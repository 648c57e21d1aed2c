//! One request to a resource, and its answer.

use std::sync::Arc;

use access::User;
use bytes::Bytes;
use http::{HeaderMap, Method, StatusCode};
use kinds::resources::Resource;
use objects::managed;
use serde_json::Value;

use crate::auditing::Trail;
use crate::connection::response_body::Body;
use crate::door::request::{Query, ResourcePath, WriteOptions};
use crate::reading::negotiate::Offer;
use crate::reading::view::{RowObject, View};
use crate::status::{ApiError, Result};
use crate::writing::admission::Warnings;
use crate::writing::codec::Expected;

/// One request to a resource.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    /// The resource.
    pub(crate) resource: Arc<Resource>,
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
    /// What is recorded of it, if anything is.
    pub(crate) trail: Option<Arc<Trail>>,
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
    pub(crate) fn new(code: StatusCode, view: &View, body: Body) -> Reply {
        Reply {
            code,
            content_type: view.content_type(),
            body,
            warnings: Vec::new(),
        }
    }

    pub(crate) fn with_warnings(mut self, warnings: Vec<String>) -> Reply {
        self.warnings = warnings;
        self
    }
}

impl Call {
    /// The verb: the very one that was authorized.
    pub(crate) fn verb(&self) -> &'static str {
        crate::door::asked::verb(&self.method, &self.path, &self.query)
    }

    /// Says something about the request in its audit record.
    pub(crate) fn annotate(&self, key: &str, value: &str) {
        if let Some(trail) = &self.trail {
            trail.annotate(key, value);
        }
    }

    /// Whether the request is a watch.
    pub(crate) fn is_watch(&self) -> bool {
        self.verb() == "watch"
    }

    pub(crate) fn view(&self) -> Result<View> {
        let is_list = self.method == Method::GET && self.path.name.is_none();
        let view = self.view_of(match (self.resource.is_virtual, is_list) {
            _ if self.resource.ty.defined().is_some() => Offer::Custom,
            (true, _) if !self.resource.is("", "ComponentStatus") => Offer::Documents,
            (_, true) => Offer::Lists,
            (_, false) => Offer::Objects,
        })?;
        match self.is_watch() {
            true => Ok(view),
            false => view.suits(is_list),
        }
    }

    pub(crate) fn view_of(&self, offer: Offer) -> Result<View> {
        let accepted =
            crate::reading::negotiate::accept(&self.headers, self.query.get("pretty"), offer)?;
        let row_object = RowObject::parse(self.query.get("includeObject"))?;
        Ok(View {
            resource: Arc::clone(&self.resource),
            accepted,
            row_object,
        })
    }

    pub(crate) fn write_options(&self) -> Result<WriteOptions> {
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

    pub(crate) fn expected(&self) -> Expected {
        Expected {
            gv: self.resource.gv,
            kind: self.resource.kind,
            ty: self.resource.ty.clone(),
        }
    }

    pub(crate) fn namespace(&self) -> &str {
        self.path.namespace()
    }

    // The body may leave name and namespace out, but not contradict the path.
    pub(crate) fn check_identity(&self, object: &Value) -> Result<()> {
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

    pub(crate) fn check_named(&self, object: &Value) -> Result<()> {
        if text(object, "name").is_empty() {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({} based on URL) was undeterminable: name must be provided",
                self.path.name()
            )));
        }
        Ok(())
    }

    // An empty list of managers is gone from the normal form, so the bytes themselves are asked.
    pub(crate) fn asks_for_reset(&self) -> bool {
        const FIELD: &[u8] = b"\"managedFields\"";
        self.body.windows(FIELD.len()).any(|window| window == FIELD)
            && serde_json::from_slice(&self.body)
                .is_ok_and(|body: Value| managed::asks_for_reset(&body))
    }
}

/// A text of an object's metadata.
pub(crate) fn text<'a>(object: &'a Value, field: &str) -> &'a str {
    object["metadata"][field].as_str().unwrap_or_default()
}
