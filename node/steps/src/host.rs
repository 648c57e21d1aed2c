//! The machine, behind one small boundary: files under a root, commands, the network, the clock.
//!
//! [`RealHost`] is this machine. [`SimulatedHost`] has a directory for a root, scripted commands, a systemd and a clock of
//! its own, and faults to order, so that whole provisions run in milliseconds.

mod command;
mod dialler;
mod files;
mod network;
mod process;
mod real;
mod simulated;
mod simulated_systemd;

use std::net::IpAddr;
use std::time::Duration;

pub use command::{Command, CommandError, Finished, Secret};
pub use files::{Entry, Files, Kind, Operation, Owner};
pub(crate) use files::{absent, draft_of, part_of};
pub(crate) use network::without_query;
pub use network::{Body, NetworkError, Request, Response, Trust};
pub use process::wait_or_end;
pub use real::RealHost;
pub use simulated::{Answer, Deed, Fault, SimulatedHost};
pub use simulated_systemd::UnitRecord;

use crate::engine::Stop;

/// What the engine and the steps may ask of a machine.
pub trait Host: Send + Sync {
    /// Its files.
    fn files(&self) -> &Files;

    /// Runs a command until it ends, its timeout passes or the run is cancelled; the last two end its whole process group.
    /// `Ok` means that it ran, whatever its exit status.
    fn run(&self, command: &Command, stop: &Stop) -> Result<Finished, CommandError>;

    /// The addresses of a name, from the machine's own resolver.
    fn resolve(&self, name: &str, timeout: Duration) -> Result<Vec<IpAddr>, NetworkError>;

    /// Opens a TCP connection and closes it.
    fn connect(&self, name: &str, port: u16, timeout: Duration) -> Result<(), NetworkError>;

    /// One HTTP request. Any status is `Ok`; the body goes to `body`, if that wants it.
    fn http(
        &self,
        request: &Request,
        body: &mut dyn Body,
        stop: &Stop,
    ) -> Result<Response, NetworkError>;

    /// The wall clock.
    fn now(&self) -> jiff::Timestamp;

    /// Time since some fixed moment; never jumps.
    fn elapsed(&self) -> Duration;

    /// Waits, unless the run is stopped.
    fn sleep(&self, time: Duration, stop: &Stop);

    /// Names this boot: what ends with the machine's uptime is done again when it differs.
    fn boot_id(&self) -> String;
}
