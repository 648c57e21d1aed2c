//! The program around the engine: `provision`, `provision-wait`, `plan`, `status`, with upstream's files and exit codes.

mod guest_events;
mod lock;
mod log;
pub mod paths;
mod progress;
mod provision;
mod reporter;
mod wait;

pub use log::{Level, Log};
pub use progress::{Progress, RunState, StepProgress, StepState};
pub use provision::{Ended, Provision, StepsFor, run_deadline};
pub use wait::{Patience, Waited, wait};

#[cfg(test)]
mod tests;
