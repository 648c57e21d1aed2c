//! What a node does for the cluster's network: it makes Services reachable by their addresses.
//!
//! ```text
//! Services, EndpointSlices ─► services: which addresses lead where ─► ledger: what changed ─► nft
//! ```
//!
//! Everything that is decided is decided without a kernel at hand: [`services`] turns objects into elements
//! of a fixed set of nftables maps, and changes into the few elements that differ. [`nft`] hands text to the
//! kernel.

mod config;
pub mod conntrack;
mod health;
pub mod kube_proxy;
mod metrics;
pub mod nft;
mod node;
pub mod policy;
pub mod policy_agent;
pub mod services;
mod strangers;
mod tracking;

pub use config::{ConfigError, Flags};
pub use services::model::{Family, Protocol};
pub use tracking::Tracking;
