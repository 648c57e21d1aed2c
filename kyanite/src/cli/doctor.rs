//! `kyanite doctor` and `kyanite demo`.

use clap::Args;

use super::Place;

#[derive(Debug, Clone, Args)]
pub(crate) struct Doctor {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Only what is about this node, pod or namespace
    #[arg(value_name = "NAME")]
    pub(crate) about: Option<String>,
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
