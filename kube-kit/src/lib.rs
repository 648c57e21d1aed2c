//! What the roles share: quantities, selectors, durations.
