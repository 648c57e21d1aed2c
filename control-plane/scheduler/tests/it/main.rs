//! The placement of pods: against a plain and slow opinion on random clusters, and by tables.
#![allow(clippy::unwrap_used, reason = "tests")]

mod agreement;
mod filters;
mod oracle;
mod preemption;
mod waiting;
mod world;
