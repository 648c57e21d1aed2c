//! The kubelet: runs the pods that are bound to this node with a container runtime, and says how they and the node
//! are.
//!
//! Read in this order: [`cri`] (the runtime), [`pods`] (what this node knows of its pods), [`volumes`] (what pods
//! mount), [`objects`] (what else pods refer to).

mod above;
pub mod admission;
pub mod backoff;
pub mod certificates;
pub mod cgroups;
mod changes;
pub mod config;
pub mod context;
pub mod cri;
pub mod decide;
pub mod eviction;
mod http_get;
pub mod images;
mod lifecycle;
pub mod machine;
pub mod make;
mod manager;
mod messages;
pub mod node;
pub mod objects;
pub mod pleg;
pub mod pods;
pub mod probes;
pub mod resize;
pub mod resources;
mod run;
pub mod seen;
pub mod server;
mod serving;
pub mod shutdown;
mod space;
pub mod spec;
pub mod statics;
pub mod status;
pub mod statuses;
mod upkeep;
pub mod users;
pub mod volumes;
mod watchdog;
pub mod worker;

pub use run::{End, Error, run, run_with};
