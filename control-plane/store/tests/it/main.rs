//! The store's promises, checked from outside.
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]
#![allow(missing_docs, reason = "tests")]

mod contract;
mod crash;
mod damage;
mod engines;
mod etcd;
mod maintenance;
mod model;
mod restart;
