//! What the runtime is told to make: sandboxes and containers from a pod's spec. Pure, but for what the caller has
//! read before (files, objects).

pub mod container;
pub mod dns;
pub mod env;
pub mod hosts;
pub mod sandbox;
pub mod security;
