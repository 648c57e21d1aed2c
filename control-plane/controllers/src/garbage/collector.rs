//! The garbage collector: an object whose owners are all gone goes, too.
//!
//! The core is a [`graph`] of who owns whom, kept from the metadata of every object there is; it decides what is to be
//! done about one object at a time, and says when it cannot know without asking the API server.

mod graph;
mod monitors;
mod resources;
mod shell;

pub(crate) use shell::start;
