//! Real packets through the rules, between namespaces that the tests make.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "tests"
)]

mod lab;
mod policies;
mod services;
