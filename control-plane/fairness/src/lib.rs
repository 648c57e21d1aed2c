//! Whose turn it is: priority and fairness, as Kubernetes' FlowSchemas and PriorityLevelConfigurations
//! describe them.
//!
//! ```text
//! request ─► schema (which level, which flow) ─► gate ─► turns (seats, fair queues) ─► a seat, or 429
//! ```
//!
//! A level has seats of its own that nobody can take, and lends the rest to a pool that all levels share.
//! Within a level each flow (a user, or a namespace) is dealt a few of the level's queues and queues take
//! turns, so a greedy flow fills its own queues and everybody else's requests pass it by.

mod defaults;
mod gate;
mod level;
mod schema;
mod turns;

pub use defaults::objects;
pub use gate::{Class, Gate, Kind, Refused, Seat};
