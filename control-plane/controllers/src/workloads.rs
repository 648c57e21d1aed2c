//! Workloads: the controllers that make pods, and keep as many of them as they are asked for.
//!
//! Each is a decision, taken from a few views of what is there, and a shell that carries it out. They share one
//! small view of pods, the rules of ownership, and the care with which many pods are made at once.

mod batches;
pub(crate) mod expectations;
mod fractions;
pub(crate) mod node_view;
mod owned_pods;
pub(crate) mod ownership;
pub(crate) mod pod_view;
pub(crate) mod pods;
mod ranking;
mod revisions;
mod template_hash;

pub(crate) mod cron_job;
pub(crate) mod daemon_set;
pub(crate) mod deployment;
pub(crate) mod disruption;
pub(crate) mod ephemeral_claims;
pub(crate) mod job;
pub(crate) mod node_ttl;
pub(crate) mod replica_set;
pub(crate) mod resource_claims;
pub(crate) mod stateful_set;
pub(crate) mod ttl_after_finished;
