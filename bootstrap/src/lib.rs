//! The node controller: a blank machine becomes a node.
//!
//! `config` is the contract with whoever asks for a node. Everything else follows from a
//! [`config::Configuration`].

pub mod config;
pub mod environment;
pub mod version;
