//! Real machines become nodes: custom data, `aks-node-controller.service`, containerd and upstream's kubelet under
//! systemd, and our API server. Needs root and upstream's programs; skipped, loudly, without.

mod aks;
mod azure;
mod balancers;
mod cluster;
mod commands;
mod flex;
mod network;
mod provision;
mod site;
