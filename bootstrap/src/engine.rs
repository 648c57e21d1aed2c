//! The step engine: takes a host from what it is to what the steps say it should be.
//!
//! A [`Step`] says what it wants as [`Change`]s, or looks at the world (a probe). The engine runs the graph of steps in
//! parallel; for each change it compares, writes what was there before to the journal (synced), and only then changes the
//! host. A run that was killed at any instant is simply run again: what is right is left alone, what is half done is done
//! again. The journal also takes everything back, byte for byte.

mod causes;
mod change;
mod step;
mod stop;

pub use change::{Change, Check, CommandChange, Content, File, Goal, Unit};
pub use step::{Failure, Retry, Scene, Step, Work, WorkFn};
pub use stop::{Reason, Stop};
