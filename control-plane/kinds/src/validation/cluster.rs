//! What a cluster is made of: nodes, namespaces, quotas, leases, devices, configuration, events.

pub mod config;
pub mod devices;
pub mod events;
pub mod lease;
pub mod namespace;
pub mod node;
pub mod quota;
pub mod scheduling;
