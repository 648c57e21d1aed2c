//! The flags of `kyanite dns`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::Args;

use super::Logging;

#[derive(Debug, Clone, Args)]
pub(crate) struct Dns {
    /// A Corefile; without one, what AKS writes, with custom/*.override and custom/*.server in /etc/coredns
    #[arg(long, value_name = "FILE")]
    pub(crate) conf: Option<PathBuf>,
    /// How the API server is reached, and as whom; otherwise as the pod's service account
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Addresses to listen on
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "0.0.0.0",
        value_name = "IPS"
    )]
    pub(crate) bind_address: Vec<IpAddr>,
    /// Port to listen on, UDP and TCP
    #[arg(long, default_value_t = 53)]
    pub(crate) port: u16,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

impl Dns {
    /// Where to listen, each address once.
    pub(crate) fn addresses(&self) -> Vec<IpAddr> {
        let mut addresses = self.bind_address.clone();
        if addresses.is_empty() {
            addresses.push(IpAddr::V4(Ipv4Addr::UNSPECIFIED));
        }
        addresses.dedup();
        addresses
    }
}
