//! What ends up in the files of a node: pure functions from a configuration and what the machine
//! shows to text. Nothing here reads or writes anything.
//!
//! File names, keys, flags and variables are AKS's contract; where upstream's own result is
//! broken (keys the kubelet does not know, TOML tables given twice) ours is the working one.

pub mod azure;
pub mod cni;
pub mod containerd;
pub mod credential_provider;
pub mod drop_ins;
pub mod firewall;
pub mod kubeconfig;
pub mod kubelet;
pub mod kubelet_file;
pub mod localdns;
pub mod merge;
pub mod proxy;
pub mod source;
pub mod sysctl;
pub mod tls_bootstrap;
pub mod units;
