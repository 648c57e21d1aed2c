//! The flags of `kyanite cloud` and `kyanite az-env`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::{Logging, Place};

/// Run the cloud's front door alone.
#[derive(Debug, Clone, Args)]
pub(crate) struct Cloud {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Port of the cloud; 0 takes any free one
    #[arg(long, default_value_t = 8443)]
    pub(crate) port: u16,
    /// Address to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "IP")]
    pub(crate) bind_address: IpAddr,
    /// How long operations take: 1 some hundred milliseconds, 0 no time at all
    #[arg(long, default_value_t = 1.0, value_parser = pace, value_name = "FACTOR")]
    pub(crate) pace: f64,
    /// Refuse requests beyond Azure's own limits with 429
    #[arg(long)]
    pub(crate) throttle: bool,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

/// The cloud beside a cluster.
#[derive(Debug, Clone, Args)]
pub(crate) struct Beside {
    /// Whether the cloud runs beside the cluster: an Azure that az and the SDKs use, with this cluster in it
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub(crate) cloud: bool,
    /// Port of the cloud; 0 takes any free one [default: 8443, or any free one where that is taken]
    #[arg(long, value_name = "PORT")]
    pub(crate) cloud_port: Option<u16>,
    /// azure.json of another cloud that Services of type LoadBalancer are to be in, as in AKS' control plane
    #[arg(long, value_name = "FILE")]
    pub(crate) cloud_config: Option<PathBuf>,
    /// How many seconds tokens of managed identities are good, to see what renews them [default: 86400]
    #[arg(long, value_name = "SECONDS", hide = true)]
    pub(crate) cloud_token_lifetime: Option<u32>,
}

impl Beside {
    /// How long tokens of managed identities are good.
    pub(crate) fn token_lifetime(&self) -> Option<Duration> {
        let seconds = self.cloud_token_lifetime?;
        Some(Duration::from_secs(seconds.into()))
    }

    /// The same as flags, for the process that does the work.
    pub(crate) fn flags(&self) -> Vec<String> {
        let mut flags = vec![format!("--cloud={}", self.cloud)];
        flags.extend(self.cloud_port.map(|port| format!("--cloud-port={port}")));
        let file = self.cloud_config.as_deref();
        flags.extend(file.map(|file| format!("--cloud-config={}", file.display())));
        let lifetime = self.cloud_token_lifetime;
        flags.extend(lifetime.map(|seconds| format!("--cloud-token-lifetime={seconds}")));
        flags
    }
}

fn pace(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(pace) if (0.0..=1000.0).contains(&pace) => Ok(pace),
        _ => Err("a number between 0 and 1000 is needed".into()),
    }
}
