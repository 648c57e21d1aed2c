//! Encryption at rest: objects are encrypted on their way into a store and decrypted on their way out of it.
//!
//! ```text
//! API server, cache (plain) ─► Encrypted ─► rules: which providers for this key ─► any engine
//! ```
//!
//! Values look as upstream's do (`k8s:enc:aescbc:v1:key:…`), so a store can change hands. The first provider of a
//! resource writes and all of them read; what another than the first has written is *stale*, and the next write
//! replaces it even if nothing else changes. Keys are in the configuration, or with a key management service (`kms`).

mod configuration;
mod kms;
mod meters;
mod providers;
mod store;

pub use configuration::Resource;
pub use meters::Meters;
pub use store::{Encrypted, Naming};
