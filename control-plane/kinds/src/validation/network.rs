//! Services, their endpoints, ingresses and network policies.

pub mod discovery;
pub mod ingress;
pub mod networking;
pub mod service;
