//! The node controller: a blank machine becomes a node.
//!
//! `config` is the contract with whoever asks for a node. Everything else follows from a
//! [`config::Configuration`].

pub mod codes;
pub mod config;
pub mod custom_data;
pub mod environment;
pub mod validate;
pub mod version;
