//! The node controller: a blank machine becomes a node.
//!
//! `config` is the contract with whoever asks for a node. Everything else follows from a
//! [`config::Configuration`]: `steps` says what the machine should be (with what `render` puts
//! into its files), and the crate of that name takes the machine from what it is to that; `controller`
//! is the program around it, and `result` what it leaves for those who wait.

pub mod codes;
pub mod config;
pub mod controller;
pub mod custom_data;
pub mod environment;
pub mod machine;
pub mod render;
pub mod result;
pub mod steps;
pub mod validate;
pub mod version;
