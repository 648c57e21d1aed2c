//! The node controller: a blank machine becomes a node.
//!
//! `config` is the contract with whoever asks for a node. Everything else follows from a
//! [`config::Configuration`]. `engine` takes a `host` from what it is to what it should
//! be; `controller` is the program around it, and `result` what it leaves for those who wait.

pub mod codes;
pub mod config;
pub mod controller;
pub mod custom_data;
pub mod engine;
pub mod environment;
pub mod host;
pub mod result;
pub mod validate;
pub mod version;
