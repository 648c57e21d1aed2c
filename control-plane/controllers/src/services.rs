//! Services: where their pods can be reached, as endpoint slices and, as it used to be, as endpoints.

mod endpoint;
mod packing;
mod topology;

pub(crate) mod cidrs;
pub(crate) mod endpoint_slices;
pub(crate) mod endpoints;
pub(crate) mod mirroring;
