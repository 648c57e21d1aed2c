//! Who asks, and may they: the decisions of authentication and authorization.
//!
//! ```text
//! credentials ─► (tokens, certificates) ─► User ─► (Node graph, RBAC, a chain of webhooks) ─► Decision
//! ```
//!
//! Everything here decides and nothing here waits: objects come in as changes, the time comes in as an
//! argument. The API server feeds it and acts on the answers.

mod attributes;
pub mod certificates;
pub mod chain;
pub mod impersonation;
pub mod node;
pub mod policy;
pub mod rbac;
pub mod tokens;
mod user;

pub use attributes::{Attributes, Decision, ResourceTarget, Target};
pub use user::User;
