//! A server and an agent of ours in this process, with real sockets, driven by our own dialer.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

mod pair;
mod scenarios;
mod several;
