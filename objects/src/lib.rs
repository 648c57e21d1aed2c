//! What an API object is, without any I/O: its schema, its encodings, its patches.
//!
//! Objects travel through the workspace as [`serde_json::Value`]s in *normal form*: exactly what
//! upstream's Go types would print after decoding the same bytes. Everything that needs to know
//! what a field means (protobuf numbers, merge keys, list types, which zero is printed) reads it
//! from one table, [`schema`], instead of from generated structs.

pub mod schema;
