//! Whole provisions on simulated machines: what is on disk afterwards, byte by byte, and how they
//! fail.

#![allow(clippy::unwrap_used, reason = "tests")]

mod cases;
mod crashes;
mod failures;
mod machines;
mod trees;
