//! Konnectivity: the control plane reaches nodes through tunnels that nodes open.
//!
//! Wire-compatible with upstream's apiserver-network-proxy: a server and an agent of ours talk to an
//! agent and a server of upstream's.

pub mod dialer;
