//! `kyanite machine`.

use std::ffi::OsString;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use ipnet::Ipv4Net;

use super::{Place, duration};

#[derive(Debug, Subcommand)]
pub(crate) enum MachineCommand {
    /// Start a machine: a new one, or one that is off, with the disk it had
    Boot(MachineBoot),
    /// List machines
    List(Place),
    /// Run a program in a machine, with this terminal
    Exec {
        #[command(flatten)]
        place: Place,
        /// The machine
        name: String,
        /// The program and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
    /// Print what a machine wrote to its console
    Console {
        #[command(flatten)]
        place: Place,
        /// The machine
        name: String,
    },
    /// Shut a machine down; its disk stays
    Off {
        #[command(flatten)]
        place: Place,
        /// The machine
        name: String,
        /// How long it may take before the plug is pulled, such as 30s
        #[arg(long, default_value = "90s", value_parser = duration, value_name = "DURATION")]
        grace: Duration,
        /// Pull the plug at once
        #[arg(long, conflicts_with = "grace")]
        now: bool,
        /// Forget the machine and its disk as well
        #[arg(long)]
        remove: bool,
    },
    /// End what killed supervisors left running, and remove networks without machines
    Sweep(Place),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct MachineBoot {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Its name and host name
    pub(crate) name: String,
    /// What cloud-init would get: a file with a cloud-config, boothook, script or MIME message
    #[arg(long, value_name = "FILE")]
    pub(crate) custom_data: Option<PathBuf>,
    /// Its address; without one it has no network
    #[arg(long, value_name = "IP")]
    pub(crate) address: Option<Ipv4Addr>,
    /// The network it is attached to
    #[arg(
        long,
        default_value = "default",
        value_name = "NAME",
        requires = "address"
    )]
    pub(crate) network: String,
    /// The addresses of the network, if it is new
    #[arg(
        long,
        default_value = "10.224.0.0/16",
        value_name = "CIDR",
        requires = "address"
    )]
    pub(crate) subnet: Ipv4Net,
    /// A unit to start, beside the basic system; may be repeated
    #[arg(long = "unit", value_name = "UNIT")]
    pub(crate) units: Vec<String>,
}
