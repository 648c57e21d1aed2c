//! Volumes, claims, classes and drivers.

pub mod classes;
pub mod migrations;
pub mod volumes;
