//! Everything about nodes: whether they live, where their pods may go, which addresses they give out.

pub(crate) mod clock;
pub(crate) mod ipam;
pub(crate) mod lifecycle;
pub(crate) mod residents;
pub(crate) mod settings;
pub(crate) mod state;
pub(crate) mod taint_eviction;
pub(crate) mod taints;
