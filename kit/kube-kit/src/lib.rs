//! What the roles share: quantities, selectors, durations.

pub mod duration;
pub mod quantity;
pub mod selector;
