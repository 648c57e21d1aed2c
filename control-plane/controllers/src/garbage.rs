//! Removes what nobody needs any more: dependents of objects that are gone, and pods whose time is over.

pub(crate) mod collector;
pub(crate) mod pods;
