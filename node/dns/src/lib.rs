//! The cluster's DNS: names of Services and pods from what the API server says, everything else from servers
//! further up.
//!
//! ```text
//! query ─► message: what is asked ─► records: the cluster's own names ─┬► answer
//!                                         └ not ours ─► cache ─► forward ┘
//! ```
//!
//! What is ours is answered at once, on the thread that read the query. The wire format is our own ([`message`]):
//! a server reads one question and writes a handful of record types, and never needs more.

pub mod cache;
pub mod config;
pub mod forward;
pub mod message;
pub mod metrics;
pub mod name;
pub mod objects;
pub mod records;
mod role;
mod server;

pub use name::Name;
pub use role::{Error, Options, run};
pub use server::Server;
