//! Our server and agent with upstream's, in all four pairings, through one list of scenarios that
//! does not know whose programs it is given.
//!
//! Upstream's programs are looked for in `$UPSTREAM_BIN` and where `make upstream` puts them.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod kubernetes;
mod programs;
mod scenarios;
mod setting;

use harness::in_time;
use programs::Whose::{Ours, Theirs};

#[tokio::test]
async fn our_server_and_our_agent() {
    in_time(scenarios::all(Ours, Ours)).await;
}

#[tokio::test]
async fn our_server_and_upstreams_agent() {
    in_time(scenarios::all(Ours, Theirs)).await;
}

#[tokio::test]
async fn upstreams_server_and_our_agent() {
    in_time(scenarios::all(Theirs, Ours)).await;
}

#[tokio::test]
async fn upstreams_server_and_upstreams_agent() {
    in_time(scenarios::all(Theirs, Theirs)).await;
}
