//! A server and an agent of ours in this process, with real sockets, driven by our own dialer.
#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

#[allow(dead_code, reason = "shared by two tests")]
mod destinations;
mod pair;
mod pki;
mod scenarios;
mod several;
