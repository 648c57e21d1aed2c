//! The plugin as runtimes call it, in network namespaces that the tests make.

mod containerd;
mod contract;
mod crash;
mod lab;
mod traffic;
