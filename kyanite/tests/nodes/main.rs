//! Real machines become nodes: custom data, `aks-node-controller.service`, containerd and upstream's kubelet under
//! systemd, and our API server. Needs root and upstream's programs; skipped, loudly, without.

mod cluster;
mod commands;
#[path = "../../../cloud/machines/tests/it/image.rs"]
mod image;
mod provision;
mod site;
