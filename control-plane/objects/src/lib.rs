//! What an API object is, without any I/O: its schema, its encodings, its patches.
//!
//! Objects travel through the workspace as [`serde_json::Value`]s in *normal form*: exactly what
//! upstream's Go types would print after decoding the same bytes. Everything that needs to know
//! what a field means (protobuf numbers, merge keys, list types, which zero is printed) reads it
//! from one table, [`schema`], instead of from generated structs.

pub mod decode;
pub mod fieldset;
pub mod gotext;
mod instant;
pub mod json;
pub mod jsonpatch;
pub mod managed;
pub mod merge;
pub mod normalize;
mod path;
pub mod protobuf;
pub mod schema;
pub mod shape;
pub mod strategic;
mod strict;
pub mod testing;
pub mod yaml;

/// An object of more parts (fields, elements, entries) than this is refused while it is read: in memory each part takes
/// some hundred times its size in the body.
pub const MAX_PARTS: usize = 100_000;
