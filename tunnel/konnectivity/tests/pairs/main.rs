//! Our server and agent with upstream's, in all four pairings, through one list of scenarios that
//! does not know whose programs it is given.
//!
//! Upstream's programs are looked for in `$UPSTREAM_BIN` and where `make upstream` puts them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[allow(dead_code, reason = "shared by two tests")]
#[path = "../it/destinations.rs"]
mod destinations;
mod kubernetes;
#[path = "../it/pki.rs"]
mod pki;
mod programs;
mod scenarios;
mod setting;

use programs::Whose::{Ours, Theirs};

#[tokio::test]
async fn our_server_and_our_agent() {
    scenarios::all(Ours, Ours).await;
}

#[tokio::test]
async fn our_server_and_upstreams_agent() {
    scenarios::all(Ours, Theirs).await;
}

#[tokio::test]
async fn upstreams_server_and_our_agent() {
    scenarios::all(Theirs, Ours).await;
}

#[tokio::test]
async fn upstreams_server_and_upstreams_agent() {
    scenarios::all(Theirs, Theirs).await;
}
