//! The flags of `kyanite policy`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::Logging;

#[derive(Debug, Clone, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Say which network policy allows or denies a connection, and why
    Explain(Explain),
    /// Keep this node's rules as the cluster's network policies say (needs root)
    Agent(Agent),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Explain {
    /// Who connects: namespace/pod, or an address
    #[arg(value_name = "FROM")]
    pub(crate) from: String,
    /// To whom: namespace/pod:port, or address:port
    #[arg(value_name = "TO:PORT")]
    pub(crate) to: String,
    /// By which transport
    #[arg(long, value_enum, default_value_t = Transport::Tcp)]
    pub(crate) protocol: Transport,
    /// How the API server is reached [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
}

/// A transport.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Transport {
    Tcp,
    Udp,
    Sctp,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Agent {
    /// How the API server is reached, and as whom; otherwise as the pod's service account
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// The node's name, where it is not the host's
    #[arg(long, value_name = "NAME")]
    pub(crate) hostname_override: Option<String>,
    /// The DaemonSet that this is a pod of: with it the rules go
    #[arg(long, value_name = "NAMESPACE/NAME", value_parser = pair)]
    pub(crate) daemon_set: Option<(String, String)>,
    /// Take every rule away, and end
    #[arg(long)]
    pub(crate) cleanup: bool,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

fn pair(text: &str) -> Result<(String, String), String> {
    let (namespace, name) = text.split_once('/').ok_or("not NAMESPACE/NAME")?;
    Ok((namespace.to_owned(), name.to_owned()))
}
