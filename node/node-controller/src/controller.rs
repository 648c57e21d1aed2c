//! The program around the engine: `provision`, `provision-wait`, `plan`, `status`, with upstream's files and exit codes.

mod guest_events;
mod handover;
mod lock;
mod log;
pub mod paths;
mod progress;
mod provision;
mod reporter;
mod scripts;
mod wait;

pub use handover::undo;
pub use log::{Level, Log};
pub use progress::{Progress, RunState, StepProgress, StepState};
pub use provision::{Ended, Provision, StepsFor, run_deadline};
pub use scripts::{Script, run_script};
pub use wait::{Patience, Waited, wait};

#[cfg(test)]
mod tests;
