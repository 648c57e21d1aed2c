//! `kyanite doctor`, `kyanite rehearse` and `kyanite demo`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::Place;

#[derive(Debug, Clone, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Only what is about this node, pod or namespace
    #[arg(value_name = "NAME")]
    pub(crate) about: Option<String>,
}

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum RehearseCommand {
    /// Which disruption budgets would keep nodes from being drained, and who would not come back; changes nothing
    Upgrade(RehearseUpgrade),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RehearseUpgrade {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Another cluster than that of the data directory, any Kubernetes
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Only nodes of this pool
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Demo {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Ask nothing: every step, one after the other
    #[arg(short, long)]
    pub(crate) yes: bool,
    /// Steps to leave out, by their name
    #[arg(long, value_delimiter = ',', value_name = "STEPS")]
    pub(crate) skip: Vec<String>,
    /// Leave the application where it is at the end
    #[arg(long)]
    pub(crate) keep: bool,
}
