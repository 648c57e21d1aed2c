//! The node controller: a blank machine becomes a node.
//!
//! `config` is the contract with whoever asks for a node. Everything else follows from a
//! [`config::Configuration`]. `engine` takes a `host` from what it is to what it should be.

pub mod config;
pub mod engine;
pub mod host;
