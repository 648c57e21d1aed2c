//! Konnectivity: the control plane reaches nodes through tunnels that nodes open.
//!
//! Wire-compatible with upstream's apiserver-network-proxy: a server and an agent of ours talk to an
//! agent and a server of upstream's.
//!
//! The core has no sockets: `packet` (the messages), `lanes` (connections that share a stream,
//! windows, turns), `strategies` (which agent), `server::backend` and `agent::session` (what each
//! side does about a packet), `http2::core`. Around it, one task per socket: `link` runs a shared
//! stream, `pump` a connection's local half.

pub mod agent;
pub mod dialer;
#[cfg(test)]
mod faults;
pub mod flags;
mod http2;
mod kubernetes;
mod lanes;
mod leases;
mod link;
mod listen;
mod metrics;
mod monitor;
mod packet;
mod pieces;
mod pump;
pub mod server;
mod strategies;
mod wire_names;

pub use listen::Listen;
pub use strategies::Strategy;
