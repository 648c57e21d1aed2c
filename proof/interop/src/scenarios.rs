//! What is done with a cluster. No scenario knows whose programs it is made of.

pub(crate) mod azure;
pub(crate) mod changing_hands;
pub(crate) mod clients;
pub(crate) mod cloud_controllers;
pub(crate) mod controllers;
pub(crate) mod definitions;
pub(crate) mod helm;
pub(crate) mod kubectl;
pub(crate) mod kubelet;
pub(crate) mod placements;
pub(crate) mod store;
mod streams;
pub(crate) mod workloads;
