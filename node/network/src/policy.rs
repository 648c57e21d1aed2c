//! Network policy: who may talk to whom (NetworkPolicy v1).
//!
//! Written twice, and the two are compared: [`evaluate`] follows the words of the API for one connection, and says
//! why; [`compile`] makes rules of all policies for the pods of one node.

pub mod compile;
pub mod evaluate;
pub mod model;
mod script;

pub use script::{TABLE, transition};
