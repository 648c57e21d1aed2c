//! `kyanite konnectivity-server` and `kyanite konnectivity-agent`: upstream's flags and ours.

use clap::Args;

use super::Logging;

#[derive(Debug, Clone, Args)]
pub(crate) struct KonnectivityServer {
    #[command(flatten)]
    pub(crate) flags: konnectivity::flags::ServerFlags,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct KonnectivityAgent {
    #[command(flatten)]
    pub(crate) flags: konnectivity::flags::AgentFlags,
    #[command(flatten)]
    pub(crate) logging: Logging,
}
