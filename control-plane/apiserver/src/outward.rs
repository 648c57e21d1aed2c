//! Going out: to kubelets, pods, services, webhooks, issuers and other API servers.

pub(crate) mod aggregation;
pub(crate) mod components;
pub(crate) mod egress;
pub(crate) mod outbound;
pub(crate) mod proxy;
pub(crate) mod remote;
pub(crate) mod webhook;
