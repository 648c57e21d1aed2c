//! Writing: the verbs, what may enter, and what every write makes sure of.

pub(crate) mod admission;
pub(crate) mod boot;
pub(crate) mod codec;
pub(crate) mod definitions;
pub(crate) mod escalation;
pub(crate) mod eviction;
pub(crate) mod flow_schemas;
#[cfg(test)]
mod growth;
pub(crate) mod migration;
pub(crate) mod own;
pub(crate) mod policy_status;
pub(crate) mod rest;
pub(crate) mod services;
