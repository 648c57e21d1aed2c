//! The bootstrap policy and the decisions that follow from it, against upstream's golden files.

#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "tests")]

mod decisions;
mod golden;
mod naive;
mod policy;
