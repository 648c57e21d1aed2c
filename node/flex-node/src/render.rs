//! What goes into files. Pure.

pub mod containerd;
pub mod kubeconfig;
pub mod kubelet;
pub mod system;
