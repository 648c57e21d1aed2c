//! Objects as they are stored: JSON text that lists, gets and watches share without parsing it.
//!
//! Every stored object begins with the same *head*, `{"kind":K,"apiVersion":V,"metadata":{`, and holds
//! no resourceVersion, because the revision is only known once the write has happened. So the text a
//! client sees is the head, `"resourceVersion":"N",` and the rest, and a list item is the same with a
//! shorter head. Nothing is decoded on these paths; bytes are copied once, into the response.

use std::sync::OnceLock;

use bytes::Bytes;
use kinds::resources::Resource;
use serde_json::Value;

const MEMBER: &str = "\"metadata\":{";

/// What is known of a collection's stored form.
#[derive(Debug, Clone)]
pub(crate) struct Form {
    /// `{"kind":K,"apiVersion":V,"metadata":{`.
    head: String,
}

impl Form {
    /// The form of a resource's stored version.
    pub(crate) fn of(resource: &Resource) -> Form {
        let (kind, api_version) = (resource.kind, resource.stored);
        Form {
            head: format!("{{\"kind\":\"{kind}\",\"apiVersion\":\"{api_version}\",{MEMBER}"),
        }
    }

    /// The stored text of an object.
    pub(crate) fn encode(&self, object: &Value) -> Bytes {
        let mut out = Vec::with_capacity(1024);
        out.extend_from_slice(self.head.as_bytes());
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

    fn stored(&self, text: Bytes, revision: u64) -> Stored {
        Stored {
            text,
            revision,
            head: self.head.len(),
            index: OnceLock::new(),
        }
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
    index: OnceLock<Box<Index>>,
}

impl Stored {
    /// The stored text, for comparing with a new one.
    pub(crate) fn text(&self) -> &Bytes {
        &self.text
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
        // An object that was not stored (a dry run) has no version.
        if version > 0 {
            out.extend_from_slice(b"\"resourceVersion\":\"");
            out.extend_from_slice(itoa::Buffer::new().format(version).as_bytes());
            out.extend_from_slice(b"\",");
        }
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
