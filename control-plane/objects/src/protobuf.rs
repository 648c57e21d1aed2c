//! Kubernetes' protobuf encoding of any type of the table.
//!
//! Upstream's generated code is proto2 with Go's idea of presence: what is not a pointer is always
//! written, even when zero; pointers, lists and maps only when there is something. Fields go out
//! by ascending number and map entries by key, so the bytes of an object are unique and equal to
//! upstream's.

mod decode;
mod encode;
mod wire;

use serde_json::Value;

use crate::normalize::{TypeError, normalize};
use crate::schema::{self, TypeRef};
pub use wire::WireError;
use wire::{Reader, Writer};

/// What every enveloped object starts with.
pub const MAGIC: &[u8; 4] = b"k8s\0";

/// Why an object could not be encoded: it was not in normal form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("cannot encode {place} as protobuf: {found} is not a {expected}")]
pub struct EncodeError {
    /// The field, as its type and name.
    pub place: String,
    /// What stands there, shortened.
    pub found: String,
    /// What should.
    pub expected: String,
}

/// Why bytes could not be decoded.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DecodeError {
    /// There is nothing.
    #[error("empty data")]
    Empty,
    /// There is nothing after the magic bytes.
    #[error("empty body")]
    EmptyBody,
    /// The magic bytes are missing.
    #[error(
        "provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]"
    )]
    NoMagic,
    /// The bytes are not a message.
    #[error(transparent)]
    Wire(#[from] WireError),
    /// A value does not fit its type.
    #[error(transparent)]
    Type(#[from] TypeError),
    /// The kind is not in the table.
    #[error("no kind {kind:?} is registered for version {api_version:?}")]
    UnknownKind {
        /// Its API version.
        api_version: String,
        /// The kind.
        kind: String,
    },
}

/// An enveloped object, still encoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// The object's API version.
    pub api_version: String,
    /// The object's kind.
    pub kind: String,
    /// The object's message.
    pub raw: &'a [u8],
}

/// Encodes an object in normal form, without envelope.
pub fn encode_message(ty: TypeRef, object: &Value) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::default();
    encode::root(&mut writer, ty.get(), object)?;
    Ok(writer.finish())
}

/// Encodes an object in normal form inside the envelope that names its type.
pub fn encode_object(
    ty: TypeRef,
    api_version: &str,
    kind: &str,
    object: &Value,
) -> Result<Vec<u8>, EncodeError> {
    let mut writer = Writer::default();
    envelope(&mut writer, api_version, kind, |writer| {
        encode::root(writer, ty.get(), object)
    })?;
    Ok(writer.finish())
}

/// Encodes a list from its metadata and its items' messages as they were encoded before.
///
/// Every list of the API has its metadata at 1 and its items at 2.
pub fn encode_list<'a>(
    api_version: &str,
    kind: &str,
    metadata: &Value,
    items: impl DoubleEndedIterator<Item = &'a [u8]>,
) -> Result<Vec<u8>, EncodeError> {
    let list_meta = schema::lookup("meta.v1.ListMeta").expect("the table has the lists' metadata");
    let mut writer = Writer::default();
    envelope(&mut writer, api_version, kind, |writer| {
        items.rev().for_each(|item| writer.bytes_field(2, item));
        writer.delimited(1, |writer| encode::root(writer, list_meta.get(), metadata))
    })?;
    Ok(writer.finish())
}

/// One event of a watch stream: its length in four big-endian bytes, then the `WatchEvent`.
///
/// `object` is what [`encode_object`] or [`encode_list`] gave: a whole object with its envelope.
pub fn watch_frame(event_type: &str, object: &[u8]) -> Vec<u8> {
    let mut writer = Writer::default();
    let raw = |writer: &mut Writer| -> Result<(), std::convert::Infallible> {
        writer.bytes_field(1, object);
        Ok(())
    };
    let Ok(()) = writer.delimited(2, raw);
    writer.bytes_field(1, event_type.as_bytes());
    let length = u32::try_from(writer.len()).expect("an object is far smaller than 4 GiB");
    writer.bytes(&length.to_be_bytes());
    writer.finish()
}

/// `runtime.Unknown`: the type at 1, the message at 2, and two texts that are always empty here.
fn envelope<E>(
    writer: &mut Writer,
    api_version: &str,
    kind: &str,
    body: impl FnOnce(&mut Writer) -> Result<(), E>,
) -> Result<(), E> {
    writer.bytes_field(4, b"");
    writer.bytes_field(3, b"");
    writer.delimited(2, body)?;
    writer.delimited(1, |writer| {
        writer.bytes_field(2, kind.as_bytes());
        writer.bytes_field(1, api_version.as_bytes());
        Ok(())
    })?;
    writer.bytes(MAGIC);
    Ok(())
}

/// Takes the envelope off. An absent type is empty text.
pub fn open(bytes: &[u8]) -> Result<Envelope<'_>, DecodeError> {
    let body = match bytes.strip_prefix(MAGIC) {
        _ if bytes.is_empty() => return Err(DecodeError::Empty),
        None => return Err(DecodeError::NoMagic),
        Some([]) => return Err(DecodeError::EmptyBody),
        Some(body) => body,
    };
    let mut opened = Envelope {
        api_version: String::new(),
        kind: String::new(),
        raw: &[],
    };
    let mut reader = Reader::new(body);
    while let Some((number, wire)) = reader.tag()? {
        match number {
            1 => {
                let mut meta = Reader::new(reader.delimited(wire)?);
                while let Some((number, wire)) = meta.tag()? {
                    match number {
                        1 => opened.api_version = meta.text(wire)?.to_owned(),
                        2 => opened.kind = meta.text(wire)?.to_owned(),
                        _ => meta.skip(wire)?,
                    }
                }
            }
            2 => opened.raw = reader.delimited(wire)?,
            _ => reader.skip(wire)?,
        }
    }
    Ok(opened)
}

/// Decodes a message without envelope into normal form. Unknown fields are skipped.
pub fn decode_message(ty: TypeRef, bytes: &[u8]) -> Result<Value, DecodeError> {
    let object = decode::root(ty.get(), bytes)?;
    Ok(normalize(ty, Value::Object(object))?.value)
}

/// Decodes an enveloped object of a kind of the table: its API version, its kind, and the object
/// in normal form with both set.
pub fn decode_object(bytes: &[u8]) -> Result<(String, String, Value), DecodeError> {
    let Envelope {
        api_version,
        kind,
        raw,
    } = open(bytes)?;
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let Some(ty) = schema::kind(group, version, &kind) else {
        return Err(DecodeError::UnknownKind { api_version, kind });
    };
    let mut object = decode_message(ty, raw)?;
    object["apiVersion"] = Value::from(api_version.as_str());
    object["kind"] = Value::from(kind.as_str());
    Ok((api_version, kind, object))
}

#[cfg(test)]
mod tests;
