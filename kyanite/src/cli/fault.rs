//! The flags of `kyanite fault`.

use std::time::Duration;

use clap::{Args, Subcommand};

use super::{Place, duration};

/// Faults on purpose.
#[derive(Debug, Subcommand)]
pub(crate) enum FaultCommand {
    /// Pull the plug of every node in an availability zone, such as 1
    ZoneDown(NewFault),
    /// Start the nodes of an availability zone again
    ZoneUp {
        #[command(flatten)]
        place: Place,
        /// The zone
        zone: String,
    },
    /// Pull the plug of a machine: of a node, or of a virtual machine
    Crash(NewFault),
    /// Stop everything in a machine where it is
    Freeze(NewFault),
    /// Take a machine off its network, as if its cable were pulled
    Cut(NewFault),
    /// Say which faults there are
    List(Place),
    /// Undo every fault
    Clear(Place),
}

#[derive(Debug, Args)]
pub(crate) struct NewFault {
    #[command(flatten)]
    pub(crate) place: Place,
    /// The machine's computer name, or the zone
    pub(crate) target: String,
    /// Wait so long, then undo it; otherwise it lasts until `kyanite fault clear`
    #[arg(long = "for", value_name = "DURATION", value_parser = duration)]
    pub(crate) lasts: Option<Duration>,
}
