//! Whole journeys on simulated machines: there, back, and killed at every point on the way.

#![allow(clippy::unwrap_used, reason = "tests")]

mod arc;
mod crashes;
mod machines;
mod upgrades;
mod ways;
