//! What a client sees of stored objects: version, shape and encoding.
//!
//! The common case, JSON in the stored version, copies stored bytes. Everything else goes through a
//! value: convert to the version asked for, cut down to the shape asked for, encode.

use std::sync::Arc;

use bytes::Bytes;
use jiff::Timestamp;
use kinds::print;
use kinds::resources::Resource;
use objects::schema::{self, TypeRef};
use serde_json::{Map, Value, json};

use crate::connection::response_body::Body;
use crate::reading::collection::Change;
use crate::reading::negotiate::{Accepted, Format, Shape};
use crate::reading::stored::Stored;
use crate::status::{ApiError, Result};

/// Which part of the object a table row carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RowObject {
    /// Nothing.
    None,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

impl RowObject {
    /// From `includeObject`.
    pub(crate) fn parse(text: Option<&str>) -> Result<RowObject> {
        match text {
            None | Some("Metadata") => Ok(RowObject::Metadata),
            Some("None") => Ok(RowObject::None),
            Some("Object") => Ok(RowObject::Object),
            Some(other) => Err(ApiError::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: \
                 must be 'Metadata', 'Object', 'None', or empty"
            ))),
        }
    }
}

/// The metadata of a list.
#[derive(Debug, Default, Clone)]
pub(crate) struct ListMeta {
    /// The revision the list is true for.
    pub(crate) resource_version: u64,
    /// Token of the next page.
    pub(crate) continue_token: Option<String>,
    /// How many items follow this page.
    pub(crate) remaining: Option<usize>,
}

impl ListMeta {
    fn value(&self) -> Value {
        let mut meta = Map::new();
        meta.insert(
            "resourceVersion".into(),
            self.resource_version.to_string().into(),
        );
        if let Some(token) = &self.continue_token {
            meta.insert("continue".into(), token.as_str().into());
        }
        if let Some(remaining) = self.remaining {
            meta.insert("remainingItemCount".into(), remaining.into());
        }
        Value::Object(meta)
    }
}

/// Objects of this size and more are sent from where they are kept.
const SHARED: usize = 16 * 1024;

/// A client's view of a resource.
#[derive(Debug, Clone)]
pub(crate) struct View {
    /// The resource, in the version asked for.
    pub(crate) resource: Arc<Resource>,
    /// Encoding and shape.
    pub(crate) accepted: Accepted,
    /// What table rows carry.
    pub(crate) row_object: RowObject,
}

impl View {
    /// Whether stored bytes are what the client gets.
    fn is_direct(&self) -> bool {
        let as_asked = self.resource.gv == self.resource.stored || self.is_converted();
        self.accepted == Accepted::JSON && as_asked
    }

    /// Whether what is shown has been converted already: a webhook is asked before a view is made
    /// (`Api::in_version`).
    fn is_converted(&self) -> bool {
        let definition = self.resource.ty.defined();
        definition.is_some_and(|definition| definition.webhook().is_some())
    }

    /// Refuses a list asked for as one object's metadata and one object asked for as a list's, in
    /// upstream's words, which name its internal types.
    pub(crate) fn suits(self, is_list: bool) -> Result<View> {
        let Shape::Partial { list, .. } = self.accepted.shape else {
            return Ok(self);
        };
        let ty = format!("*{}.{}", self.resource.ty.package(), self.resource.kind);
        match (list, is_list) {
            (false, true) => Err(ApiError::wrong_transformation(format!(
                "you requested PartialObjectMetadata, but the requested object is a list ({ty}List)"
            ))),
            (true, false) => Err(ApiError::wrong_transformation(format!(
                "you requested PartialObjectMetadataList, but the requested object is not a list ({ty})"
            ))),
            _ => Ok(self),
        }
    }

    /// The Content-Type of objects and lists.
    pub(crate) fn content_type(&self) -> &'static str {
        self.accepted.format.media_type()
    }

    /// One stored object.
    pub(crate) fn stored(&self, stored: &Stored) -> Body {
        if self.is_direct() {
            return match stored.len() < SHARED {
                true => {
                    let mut out = Vec::with_capacity(stored.len());
                    stored.write(&mut out, stored.revision);
                    out.push(b'\n');
                    out.into()
                }
                false => Body::Shared(stored.parts().into()),
            };
        }
        self.object(self.convert(stored.value()))
    }

    /// One object in the version asked for.
    pub(crate) fn object(&self, object: Value) -> Body {
        let now = Timestamp::now();
        let shaped = match self.accepted.shape {
            Shape::Object => object,
            Shape::Partial { version, .. } => partial(&object, version),
            Shape::Table { version } => {
                let meta = ListMeta {
                    resource_version: revision_of(&object),
                    ..ListMeta::default()
                };
                table(
                    version,
                    &meta,
                    Some(&self.resource),
                    vec![self.row(object, now, version)],
                )
            }
        };
        encode(&shaped, self.accepted).into()
    }

    /// A list of objects that are stored nowhere.
    pub(crate) fn made(&self, objects: Vec<Value>) -> Body {
        let objects = objects.into_iter();
        let list = match self.accepted.shape {
            Shape::Table { version } => {
                let now = Timestamp::now();
                let rows = objects.map(|object| self.row(object, now, version));
                let meta = ListMeta::default();
                table(version, &meta, Some(&self.resource), rows.collect())
            }
            shape => {
                let (kind, api_version) = self.list_kind();
                let items = objects.map(|object| match shape {
                    Shape::Partial { version, .. } => partial(&object, version),
                    _ => object,
                });
                let items: Value = items.collect();
                json!({"kind": kind, "apiVersion": api_version, "metadata": {}, "items": items})
            }
        };
        encode(&list, self.accepted).into()
    }

    /// A list of stored objects.
    pub(crate) fn list(&self, items: Vec<Arc<Stored>>, meta: &ListMeta) -> Body {
        if self.is_direct() {
            return self.direct_list(items, meta);
        }
        if let Shape::Table { version } = self.accepted.shape {
            let now = Timestamp::now();
            let rows = items
                .iter()
                .map(|i| self.row(self.convert(i.value()), now, version))
                .collect();
            return encode(
                &table(version, meta, Some(&self.resource), rows),
                self.accepted,
            )
            .into();
        }
        if self.accepted.format == Format::Protobuf {
            return match self.protobuf_list(&items, meta) {
                Ok(bytes) => bytes.into(),
                Err(error) => encode(&error.to_value(), Accepted::JSON).into(),
            };
        }
        let (kind, api_version) = self.list_kind();
        let items: Value = items.iter().map(|i| self.item(i)).collect();
        // Upstream makes metadata lists item by item and leaves the list of none unmade.
        let is_unmade = matches!(self.accepted.shape, Shape::Partial { .. });
        let items = match items.as_array() {
            Some(none) if none.is_empty() && is_unmade => Value::Null,
            _ => items,
        };
        let list = json!({"kind": kind, "apiVersion": api_version, "metadata": meta.value(), "items": items});
        encode(&list, self.accepted).into()
    }

    fn list_kind(&self) -> (String, String) {
        match self.accepted.shape {
            Shape::Partial { version, .. } => (
                "PartialObjectMetadataList".into(),
                format!("meta.k8s.io/{version}"),
            ),
            _ => (
                self.resource.list_kind.to_owned(),
                self.resource.gv.to_string(),
            ),
        }
    }

    // Items of typed lists carry no kind and apiVersion; those of metadata lists and of custom resources
    // do, as upstream.
    fn item(&self, stored: &Stored) -> Value {
        let mut value = self.convert(stored.value());
        if let Shape::Partial { version, .. } = self.accepted.shape {
            return partial(&value, version);
        }
        if let (None, Some(object)) = (self.resource.ty.defined(), value.as_object_mut()) {
            object.remove("kind");
            object.remove("apiVersion");
        }
        value
    }

    fn direct_list(&self, items: Vec<Arc<Stored>>, meta: &ListMeta) -> Body {
        let (kind, api_version) = self.list_kind();
        let head = format!(
            "{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",\"metadata\":{},\"items\":[",
            meta.value()
        );
        let chunks = ListChunks {
            head: Some(head),
            items: items.into_iter(),
            named: self.resource.ty.defined().is_some(),
            first: true,
            done: false,
        };
        Body::Chunks(Box::new(chunks))
    }

    fn protobuf_list(&self, items: &[Arc<Stored>], meta: &ListMeta) -> Result<Vec<u8>> {
        let (kind, api_version) = self.list_kind();
        // Custom resources have no protobuf form but that of their metadata, and are never asked for another.
        let item_ty = match (self.accepted.shape, self.resource.ty.built_in()) {
            (Shape::Object, Some(ty)) => ty,
            _ => meta_type("PartialObjectMetadata"),
        };
        let encode =
            |stored: &Arc<Stored>| objects::protobuf::encode_message(item_ty, &self.item(stored));
        let items = items
            .iter()
            .map(encode)
            .collect::<std::result::Result<Vec<_>, _>>();
        let list = items.and_then(|items| {
            objects::protobuf::encode_list(
                &api_version,
                &kind,
                &meta.value(),
                items.iter().map(Vec::as_slice),
            )
        });
        list.map_err(ApiError::internal)
    }

    /// Brings a stored value into the version asked for.
    pub(crate) fn convert(&self, mut value: Value) -> Value {
        if !self.is_converted() {
            kinds::convert::serve(&self.resource, &mut value);
        }
        value
    }

    fn row(&self, object: Value, now: Timestamp, version: &str) -> Value {
        let cells = print::cells(&self.resource, &object, now);
        let mut row = json!({"cells": cells});
        let conditions = print::row_conditions(&self.resource, &object);
        if !conditions.is_empty() {
            row["conditions"] = conditions.into();
        }
        match self.row_object {
            RowObject::None => row["object"] = Value::Null,
            RowObject::Metadata => row["object"] = partial(&object, version),
            RowObject::Object => row["object"] = object,
        }
        row
    }

    /// One watch event about a change that all watchers of the same view share.
    pub(crate) fn event(&self, kind: &'static str, change: &Change) -> Bytes {
        let Some(stored) = (if kind == "DELETED" {
            &change.previous
        } else {
            &change.current
        })
        .as_ref()
        .or(change.previous.as_ref()) else {
            return Bytes::new();
        };
        if self.accepted.shape != Shape::Object || self.accepted.pretty {
            return self.frame(kind, stored, change.revision, false);
        }
        let key = (kind, self.resource.gv.version, self.accepted.format);
        change.frame(key, || self.frame(kind, stored, change.revision, false))
    }

    /// One watch event about an object, at a revision. `columns` says whether a table event carries
    /// the column definitions: only the first one does.
    pub(crate) fn frame(&self, kind: &str, stored: &Stored, revision: u64, columns: bool) -> Bytes {
        if self.is_direct() {
            let mut out = Vec::with_capacity(stored.len() + 40);
            out.extend_from_slice(b"{\"type\":\"");
            out.extend_from_slice(kind.as_bytes());
            out.extend_from_slice(b"\",\"object\":");
            stored.write(&mut out, revision);
            out.extend_from_slice(b"}\n");
            return out.into();
        }
        let object = self.convert(stored.value_at(revision));
        let shaped = match self.accepted.shape {
            Shape::Object => object,
            Shape::Partial { version, .. } => partial(&object, version),
            Shape::Table { version } => {
                let meta = ListMeta {
                    resource_version: revision,
                    ..ListMeta::default()
                };
                let columns = columns.then_some(&*self.resource);
                table(
                    version,
                    &meta,
                    columns,
                    vec![self.row(object, Timestamp::now(), version)],
                )
            }
        };
        self.event_frame(kind, &shaped)
    }

    /// A bookmark: an object that holds a revision and nothing else.
    pub(crate) fn bookmark(&self, revision: u64, initial_events_end: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": revision.to_string()});
        if initial_events_end {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let bare = json!({
            "kind": self.resource.kind,
            "apiVersion": self.resource.gv.to_string(),
            "metadata": metadata,
        });
        let shaped = match self.accepted.shape {
            Shape::Object => {
                let mut object = self.resource.ty.zero();
                for field in ["kind", "apiVersion", "metadata"] {
                    object[field] = bare[field].clone();
                }
                object
            }
            Shape::Partial { version, .. } => partial(&bare, version),
            Shape::Table { version } => {
                let meta = ListMeta {
                    resource_version: revision,
                    ..ListMeta::default()
                };
                let row = json!({"cells": [], "object": partial(&bare, "v1")});
                table(version, &meta, None, vec![row])
            }
        };
        self.event_frame("BOOKMARK", &shaped)
    }

    /// An error as the last event of a watch.
    pub(crate) fn error(&self, error: &ApiError) -> Bytes {
        self.event_frame("ERROR", &error.to_value())
    }

    fn event_frame(&self, kind: &str, object: &Value) -> Bytes {
        match self.accepted.format {
            Format::Protobuf => {
                objects::protobuf::watch_frame(kind, &encode(object, self.accepted)).into()
            }
            _ => {
                let mut out = serde_json::to_vec(&json!({"type": kind, "object": object}))
                    .expect("a value is always JSON");
                out.push(b'\n');
                out.into()
            }
        }
    }
}

struct ListChunks {
    head: Option<String>,
    items: std::vec::IntoIter<Arc<Stored>>,
    /// Whether items say their kind and apiVersion.
    named: bool,
    first: bool,
    done: bool,
}

impl Iterator for ListChunks {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        /// With the heads of its frames, what leaves as one write.
        const CHUNK: usize = 65_000;
        if self.done {
            return None;
        }
        let mut out = Vec::with_capacity(CHUNK);
        if let Some(head) = self.head.take() {
            out.extend_from_slice(head.as_bytes());
        }
        while let Some(item) = self.items.as_slice().first() {
            if !out.is_empty() && out.len() + item.len() > CHUNK {
                return Some(out.into());
            }
            if let Some(next) = self.items.as_slice().get(1) {
                next.fetch();
            }
            if !std::mem::take(&mut self.first) {
                out.push(b',');
            }
            match self.named {
                true => item.write(&mut out, item.revision),
                false => item.write_item(&mut out),
            }
            self.items.next();
        }
        self.done = true;
        out.extend_from_slice(b"]}\n");
        Some(out.into())
    }
}

fn revision_of(object: &Value) -> u64 {
    object["metadata"]["resourceVersion"]
        .as_str()
        .and_then(|v| v.parse().ok())
        .unwrap_or(0)
}

fn partial(object: &Value, version: &str) -> Value {
    json!({
        "kind": "PartialObjectMetadata",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": object["metadata"],
    })
}

fn table(version: &str, meta: &ListMeta, columns: Option<&Resource>, rows: Vec<Value>) -> Value {
    let columns: Vec<Value> = columns
        .map_or(&[][..], print::columns)
        .iter()
        .map(column)
        .collect();
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": meta.value(),
        "columnDefinitions": if columns.is_empty() { Value::Null } else { Value::Array(columns) },
        "rows": rows,
    })
}

fn column(column: &print::Column) -> Value {
    json!({
        "name": column.name,
        "type": column.ty,
        "format": column.format,
        "description": column.description,
        "priority": column.priority,
    })
}

fn meta_type(name: &str) -> TypeRef {
    schema::lookup(&format!("meta.v1.{name}")).expect("meta types are in the table")
}

/// Encodes any object that says its own apiVersion and kind.
pub(crate) fn encode(object: &Value, accepted: Accepted) -> Vec<u8> {
    match accepted.format {
        Format::Json if accepted.pretty => {
            let mut out = serde_json::to_vec_pretty(object).expect("a value is always JSON");
            out.push(b'\n');
            out
        }
        Format::Json => {
            let mut out = serde_json::to_vec(object).expect("a value is always JSON");
            out.push(b'\n');
            out
        }
        Format::Yaml => objects::yaml::to_string(object).into_bytes(),
        Format::Protobuf => {
            encode_protobuf(object).unwrap_or_else(|| encode(object, Accepted::JSON))
        }
    }
}

/// An object as protobuf, if it is of a kind that has such a form. Discovery leaves its apiVersion out
/// in places; it is v1.
pub(crate) fn encode_protobuf(object: &Value) -> Option<Vec<u8>> {
    let (api_version, kind) = (
        object["apiVersion"].as_str().unwrap_or("v1"),
        object["kind"].as_str()?,
    );
    let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
    let ty = schema::kind(group, version, kind)?;
    objects::protobuf::encode_object(ty, api_version, kind, object).ok()
}
