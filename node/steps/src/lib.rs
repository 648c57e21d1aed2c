//! Taking a machine from what it is to what it should be, whatever that is.
//!
//! `engine` runs steps, which say what they want as data, on a `host`: the real machine or a simulated one. It knows of no
//! cloud and no node; the node controller brings steps and configuration.

pub mod engine;
pub mod host;
