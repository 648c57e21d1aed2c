//! Placeholder header, replaced by the first module.
