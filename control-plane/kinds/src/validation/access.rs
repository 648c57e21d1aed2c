//! Who may do what, and how much of it at once.

pub mod certificates;
pub mod flowcontrol;
pub mod rbac;
pub mod reviews;
