//! What each kind means, without any I/O: its names and verbs, defaults, validation and columns.
//!
//! The API server is the shell around this crate: it decodes a body, calls [`defaults`] and the
//! kind's validation, stores the result, and prints rows for `kubectl get`.

pub mod convert;
pub mod defaults;
pub mod defined;
pub mod field;
pub mod fields;
pub mod pod_resources;
pub mod print;
pub mod qos;
pub mod resources;
mod service_type;
pub mod strategy;
mod unserved;
pub mod validation;
pub mod warnings;
