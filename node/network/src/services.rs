//! The service proxy, without a kernel: objects in, changes of a rule set out.
//!
//! The rule set is flat (see [`layout`]): a fixed number of maps for all Services, and chains only by how many
//! endpoints there are to choose from. A Service is a handful of map elements, so a change touches elements of
//! that Service and nothing else, however many there are.

mod compile;
pub mod layout;
mod ledger;
pub mod model;
mod proxy;
mod script;
mod topology;

pub use ledger::Change;
pub use proxy::{Proxy, Udp};
pub use script::{full, incremental, removal};
pub use topology::{Place, Target};
