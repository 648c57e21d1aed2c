//! Definitions of custom resources, webhooks and admission policies.

pub mod admission;
pub mod extension;
pub mod webhooks;
