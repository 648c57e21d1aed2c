//! The step engine: takes a host from what it is to what the steps say it should be.
//!
//! A [`Step`] says what it wants as [`Change`]s, or looks at the world (a probe). The engine runs the graph of steps in
//! parallel; for each change it compares, writes what was there before to the journal (synced), and only then changes the
//! host. A run that was killed at any instant is simply run again: what is right is left alone, what is half done is done
//! again. The journal also takes everything back, byte for byte.

mod apply;
mod causes;
mod change;
mod compare;
mod download;
mod graph;
mod journal;
mod plan;
mod run;
mod step;
mod stop;
mod undo;
mod units;

pub use change::{Change, Check, CommandChange, Content, File, Goal, Unit};
pub use compare::Difference;
pub use graph::GraphError;
pub use plan::{Plan, PlanError, StepPlan};
pub use run::{Engine, Event, Outcome, Report, StepReport, Watcher};
pub use step::{Failure, Retry, Scene, Step, Work, WorkFn};
pub use stop::{Reason, Stop};
pub use undo::Undone;

#[cfg(test)]
mod tests;
