//! Objects as they are stored: JSON text that lists, gets and watches share without parsing it.
//!
//! Every stored object begins with the same *head*, `{"kind":K,"apiVersion":V,"metadata":{`, and holds
//! no resourceVersion, because the revision is only known once the write has happened. So the text a
//! client sees is the head, `"resourceVersion":"N",` and the rest, and a list item is the same with a
//! shorter head. Nothing is decoded on these paths; bytes are copied once, into the response.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use bytes::Bytes;
use kinds::defined::{Definition, ObjectType};
use kinds::resources::{GroupVersion, Resource};
use serde_json::Value;
use tokio::sync::OnceCell;

const MEMBER: &str = "\"metadata\":{";

/// What is known of a collection's stored form.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    /// `{"kind":K,"apiVersion":V,"metadata":{`.
    head: String,
    /// What custom resources are read by: their schema may have changed since they were written.
    definition: Option<Arc<dyn Definition>>,
}

impl Form {
    /// The form of a resource's stored version.
    pub(crate) fn of(resource: &Resource) -> Form {
        let (kind, api_version) = (resource.kind, resource.stored);
        Form {
            head: format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",{MEMBER}"),
            definition: match &resource.ty {
                ObjectType::BuiltIn(_) => None,
                ObjectType::Defined(definition) => Some(Arc::clone(definition)),
            },
        }
    }

    /// Whether a definition says how objects are read.
    pub(crate) fn is_defined(&self) -> bool {
        self.definition.is_some()
    }

    /// What [`Form::encode`] has just made.
    pub(crate) fn own(&self, text: &Bytes, revision: u64) -> Stored {
        self.stored(text.clone(), revision)
    }

    /// The stored text of an object.
    pub(crate) fn encode(&self, object: &Value) -> Bytes {
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(self.head_of(object).as_bytes());
        let fields = object["metadata"].as_object().into_iter().flatten();
        write_members(
            &mut out,
            fields.filter(|(name, _)| *name != "resourceVersion"),
            true,
        );
        out.push(b'}');
        let others = object.as_object().into_iter().flatten();
        let others =
            others.filter(|(name, _)| !matches!(name.as_str(), "kind" | "apiVersion" | "metadata"));
        write_members(&mut out, others, false);
        out.push(b'}');
        // Exactly as large as the text: it stays in memory for as long as the object does.
        Bytes::from(out.into_boxed_slice())
    }

    /// Takes bytes out of the store: ours as they are, upstream's (protobuf, or JSON in another
    /// order) brought into our form.
    pub(crate) fn adopt(&self, bytes: &Bytes, revision: u64) -> Result<Stored, String> {
        if let Some(definition) = &self.definition {
            let value: Value = serde_json::from_slice(bytes).map_err(|e| e.to_string())?;
            let adopted = definition.adopt(value);
            return Ok(Stored {
                differs: !bytes.starts_with(self.head.as_bytes()),
                ..self.stored(self.encode(&adopted), revision)
            });
        }
        if bytes.starts_with(self.head.as_bytes()) {
            return Ok(self.stored(bytes.clone(), revision));
        }
        let value = if bytes.starts_with(objects::protobuf::MAGIC) {
            objects::protobuf::decode_object(bytes)
                .map_err(|e| e.to_string())?
                .2
        } else {
            serde_json::from_slice(bytes).map_err(|e| e.to_string())?
        };
        Ok(self.stored(self.encode(&value), revision))
    }

    // Where a webhook converts, objects of several versions lie beside each other.
    fn head_of(&self, object: &Value) -> Cow<'_, str> {
        let definition = self.definition.as_ref();
        match definition.filter(|d| d.webhook().is_some()) {
            None => Cow::Borrowed(&self.head),
            Some(_) => {
                let (kind, version) = (&object["kind"], &object["apiVersion"]);
                Cow::Owned(format!(
                    "{{\"kind\":{kind},\"apiVersion\":{version},{MEMBER}"
                ))
            }
        }
    }

    fn stored(&self, text: Bytes, revision: u64) -> Stored {
        // No kind and no version have the member's name inside.
        let head = match text.starts_with(self.head.as_bytes()) {
            true => Some(self.head.len()),
            false => (text
                .windows(MEMBER.len())
                .position(|w| w == MEMBER.as_bytes()))
            .map(|at| at + MEMBER.len()),
        };
        Stored {
            text,
            revision,
            head: head.unwrap_or(self.head.len()),
            differs: false,
            index: OnceLock::new(),
            others: OnceLock::new(),
        }
    }
}

// An object that was not stored (a dry run) has no version.
fn write_version(out: &mut Vec<u8>, version: u64) {
    if version > 0 {
        out.extend_from_slice(b"\"resourceVersion\":\"");
        out.extend_from_slice(itoa::Buffer::new().format(version).as_bytes());
        out.extend_from_slice(b"\",");
    }
}

fn write_members<'a>(
    out: &mut Vec<u8>,
    members: impl Iterator<Item = (&'a String, &'a Value)>,
    mut first: bool,
) {
    for (name, value) in members {
        if !std::mem::take(&mut first) {
            out.push(b',');
        }
        serde_json::to_writer(&mut *out, name).expect("writing to memory cannot fail");
        out.push(b':');
        serde_json::to_writer(&mut *out, value).expect("writing to memory cannot fail");
    }
}

/// What selectors look at, taken out of an object once.
#[derive(Debug)]
pub(crate) struct Index {
    /// Labels, sorted by key.
    pub(crate) labels: Box<[(Box<str>, Box<str>)]>,
    /// Selectable fields, in the kind's order.
    pub(crate) fields: Box<[Box<str>]>,
}

/// One stored object at one revision.
#[derive(Debug)]
pub(crate) struct Stored {
    text: Bytes,
    /// The revision that wrote it.
    pub(crate) revision: u64,
    head: usize,
    differs: bool,
    index: OnceLock<Box<Index>>,
    others: OnceLock<Arc<Others>>,
}

/// The same object in other versions, as a webhook has converted it: asked once for all who want it.
pub(crate) type Others = Mutex<Vec<(&'static str, Arc<OnceCell<Arc<Stored>>>)>>;

impl Clone for Stored {
    fn clone(&self) -> Self {
        Stored {
            text: self.text.clone(),
            index: OnceLock::new(),
            others: self.others.clone(),
            ..*self
        }
    }
}

impl Stored {
    /// The stored text, for comparing with a new one.
    pub(crate) fn text(&self) -> &Bytes {
        &self.text
    }

    /// Whether it lies in the store in another version: writing it anew is then a write.
    pub(crate) fn differs(&self) -> bool {
        self.differs
    }

    /// Whether the text occurs anywhere in the object.
    pub(crate) fn mentions(&self, text: &str) -> bool {
        self.text.windows(text.len()).any(|w| w == text.as_bytes())
    }

    /// The size of [`Stored::write`]'s output, roughly.
    pub(crate) fn len(&self) -> usize {
        self.text.len() + 48
    }

    /// Appends the whole object. `version` is its own revision, or that of its deletion.
    pub(crate) fn write(&self, out: &mut Vec<u8>, version: u64) {
        out.extend_from_slice(&self.text[..self.head]);
        self.write_rest(out, version);
    }

    /// What [`Stored::write`] writes and a line's end; most of it is the stored text itself, and not a copy.
    pub(crate) fn parts(&self) -> [Bytes; 3] {
        let mut head = Vec::with_capacity(self.head + 48);
        head.extend_from_slice(&self.text[..self.head]);
        write_version(&mut head, self.revision);
        let rest = self.text.slice(self.head..);
        [head.into(), rest, Bytes::from_static(b"\n")]
    }

    /// Asks memory for the text, or the start of a long one, whose rest the processor foresees. A list that does so
    /// an object ahead waits for memory while it copies, and not before it does.
    pub(crate) fn fetch(&self) {
        const LINE: usize = 64;
        let lines = self.text.iter().step_by(LINE).take(32);
        std::hint::black_box(lines.fold(0, |all, byte| all ^ byte));
    }

    /// Appends the object as a list item: without kind and apiVersion.
    pub(crate) fn write_item(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        out.extend_from_slice(MEMBER.as_bytes());
        self.write_rest(out, self.revision);
    }

    fn write_rest(&self, out: &mut Vec<u8>, version: u64) {
        write_version(out, version);
        out.extend_from_slice(&self.text[self.head..]);
    }

    /// The object as a value, with its resourceVersion.
    pub(crate) fn value(&self) -> Value {
        self.value_at(self.revision)
    }

    /// The object as a value, with a given resourceVersion (that of its deletion).
    pub(crate) fn value_at(&self, version: u64) -> Value {
        let mut value: Value = serde_json::from_slice(&self.text)
            .expect("stored text was written by `encode` or checked by `adopt`");
        if version > 0 {
            value["metadata"]["resourceVersion"] = version.to_string().into();
        }
        value
    }

    /// Whether the object is in this version.
    pub(crate) fn is_of(&self, gv: GroupVersion) -> bool {
        let end = format!("\"apiVersion\":\"{gv}\",{MEMBER}");
        self.text[..self.head].ends_with(end.as_bytes())
    }

    /// Where the object is kept in another version.
    pub(crate) fn other(&self, version: &'static str) -> Arc<OnceCell<Arc<Stored>>> {
        let mut others = self.others().lock().unwrap_or_else(PoisonError::into_inner);
        match others.iter().find(|(known, _)| *known == version) {
            Some((_, cell)) => Arc::clone(cell),
            None => {
                let cell = Arc::default();
                others.push((version, Arc::clone(&cell)));
                cell
            }
        }
    }

    /// What copies of this object share from now on.
    pub(crate) fn others(&self) -> &Arc<Others> {
        self.others.get_or_init(Arc::default)
    }

    /// What selectors look at; computed at the first question.
    pub(crate) fn index(&self, resource: &Resource) -> &Index {
        self.index
            .get_or_init(|| Box::new(make_index(resource, &self.value())))
    }
}

fn make_index(resource: &Resource, object: &Value) -> Index {
    let labels = object["metadata"]["labels"]
        .as_object()
        .into_iter()
        .flatten();
    Index {
        labels: labels
            .map(|(key, value)| {
                (
                    key.as_str().into(),
                    value.as_str().unwrap_or_default().into(),
                )
            })
            .collect(),
        fields: kinds::fields::values(resource, object)
            .into_iter()
            .map(Into::into)
            .collect(),
    }
}

/// The collection's part of a storage key: upstream's names, so that both can share an etcd.
pub(crate) fn prefix(resource: &Resource) -> String {
    if resource.ty.defined().is_some() {
        return format!("{}/{}", resource.gv.group, resource.plural);
    }
    match (resource.gv.group, resource.plural) {
        ("", "nodes") => "minions".into(),
        ("", "services") => "services/specs".into(),
        ("", "endpoints") => "services/endpoints".into(),
        ("", "replicationcontrollers") => "controllers".into(),
        ("networking.k8s.io", "ingresses") => "ingress".into(),
        (group @ ("apiextensions.k8s.io" | "apiregistration.k8s.io"), plural) => {
            format!("{group}/{plural}")
        }
        (_, plural) => plural.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn form() -> Form {
        Form::of(kinds::resources::find("", "v1", "configmaps").expect("exists"))
    }

    #[test]
    fn an_object_is_written_with_its_revision_and_nothing_is_lost() {
        let object = json!({"kind": "ConfigMap", "apiVersion": "v1",
            "metadata": {"name": "a", "resourceVersion": "9", "uid": "u"}, "data": {"k": "v"}});
        let form = form();
        let stored = form.adopt(&form.encode(&object), 7).expect("ours");
        let mut out = Vec::new();
        stored.write(&mut out, 7);
        assert_eq!(stored.parts().concat(), [&out[..], b"\n"].concat());
        let mut back: Value = serde_json::from_slice(&out).expect("JSON");
        assert_eq!(back["metadata"]["resourceVersion"], "7");
        back["metadata"]["resourceVersion"] = "9".into();
        assert_eq!(back, object);
        let mut item = Vec::new();
        stored.write_item(&mut item);
        let item: Value = serde_json::from_slice(&item).expect("JSON");
        assert!(item.get("kind").is_none());
        assert_eq!(item["data"]["k"], "v");
    }

    #[test]
    fn json_in_another_order_is_adopted() {
        let text = Bytes::from_static(
            br#"{"apiVersion":"v1","data":{"k":"v"},"kind":"ConfigMap","metadata":{"name":"a"}}"#,
        );
        let stored = form().adopt(&text, 3).expect("readable");
        assert_eq!(stored.value()["data"]["k"], "v");
        assert_eq!(stored.value()["metadata"]["resourceVersion"], "3");
    }
}
