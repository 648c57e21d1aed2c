//! Encryption at rest: objects are encrypted on their way into a store and decrypted on their way out of it.
//!
//! ```text
//! API server, cache (plain) ─► Encrypted ─► rules: which providers for this key ─► any engine
//! ```
//!
//! Values look as upstream's do (`k8s:enc:aescbc:v1:key:…`), so a store can change hands. The first provider of a
//! resource writes and all of them read; what another than the first has written is *stale*, and the next write
//! replaces it even if nothing else changes.

pub mod configuration;
mod providers;
mod store;

pub use configuration::{Configuration, Resource};
pub use providers::Transformer;
pub use store::{Encrypted, Naming};
