//! Flags about who may connect, and how the server reaches nodes.

use std::ffi::OsString;
use std::path::PathBuf;

use apiserver::settings::{Callers, Egress, KeyPairFiles, Outbound};
use clap::Args;
use ipnet::IpNet;

/// Who may connect; the names are those of `az aks create`.
#[derive(Debug, Clone, Args)]
pub(crate) struct FrontDoor {
    /// Addresses that may connect, such as 203.0.113.0/24; loopback always may
    #[arg(
        long,
        value_delimiter = ',',
        value_parser = range,
        value_name = "CIDRS",
        conflicts_with = "enable_private_cluster"
    )]
    pub(crate) api_server_authorized_ip_ranges: Vec<IpNet>,
    /// Let only private networks connect
    #[arg(long)]
    pub(crate) enable_private_cluster: bool,
}

impl FrontDoor {
    /// From where connections are taken.
    pub(crate) fn callers(&self) -> Callers {
        match (
            self.enable_private_cluster,
            &*self.api_server_authorized_ip_ranges,
        ) {
            (true, _) => Callers::PrivateNetworks,
            (false, []) => Callers::Anybody,
            (false, ranges) => Callers::Ranges(ranges.to_vec()),
        }
    }

    /// The same as flags, for the process that does the work.
    pub(crate) fn flags(&self) -> Vec<String> {
        let ranges = self.api_server_authorized_ip_ranges.iter();
        let mut flags: Vec<String> = ranges
            .map(|range| format!("--api-server-authorized-ip-ranges={range}"))
            .collect();
        if self.enable_private_cluster {
            flags.push("--enable-private-cluster".into());
        }
        flags
    }
}

// A single address is a range of one.
fn range(text: &str) -> Result<IpNet, String> {
    let one = || text.parse().map(|ip: std::net::IpAddr| IpNet::from(ip));
    text.parse()
        .map(|range: IpNet| range.trunc())
        .or_else(|_| one())
        .map_err(|_| format!("`{text}` is neither an address nor a range such as 203.0.113.0/24"))
}

/// Which way a cluster of `kyanite up` reaches its nodes; straight, unless something else is said.
#[derive(Debug, Clone, Args)]
pub(crate) struct WayToNodes {
    /// Let nodes open tunnels to this port, and reach them only through those; 0 takes any free one [default: 8132 in the network of nodes that are machines; none without them]
    #[arg(
        long,
        value_name = "PORT",
        conflicts_with = "egress_selector_config_file"
    )]
    pub(crate) konnectivity_agent_port: Option<u16>,
    /// An EgressSelectorConfiguration: which traffic to nodes takes the tunnel of a server elsewhere
    #[arg(long, value_name = "FILE")]
    pub(crate) egress_selector_config_file: Option<PathBuf>,
    /// Reach nodes directly, as a server in their own network
    #[arg(long, conflicts_with_all = ["konnectivity_agent_port", "egress_selector_config_file"])]
    pub(crate) enable_apiserver_vnet_integration: bool,
}

/// Where AKS' konnectivity server takes agents.
const AGENT_PORT: u16 = 8132;

impl WayToNodes {
    /// Decides what was left open: machines open tunnels, as AKS' nodes do.
    pub(crate) fn settle(&mut self, has_machines: bool) {
        let is_open =
            self.egress_selector_config_file.is_none() && !self.enable_apiserver_vnet_integration;
        if has_machines && is_open {
            self.konnectivity_agent_port.get_or_insert(AGENT_PORT);
        }
    }

    /// The same as settings; `socket` is where a konnectivity server of our own takes dials.
    pub(crate) fn egress(&self, socket: PathBuf) -> Egress {
        match (
            self.konnectivity_agent_port,
            &self.egress_selector_config_file,
        ) {
            (Some(_), _) => Egress::Tunnel(socket),
            (None, Some(file)) => Egress::File(file.clone()),
            (None, None) => Egress::Direct,
        }
    }

    /// The same as flags, for the process that does the work.
    pub(crate) fn flags(&self) -> Vec<OsString> {
        let mut flags: Vec<OsString> = Vec::new();
        if let Some(port) = self.konnectivity_agent_port {
            flags.push(format!("--konnectivity-agent-port={port}").into());
        }
        if let Some(file) = &self.egress_selector_config_file {
            flags.extend(["--egress-selector-config-file".into(), file.into()]);
        }
        if self.enable_apiserver_vnet_integration {
            flags.push("--enable-apiserver-vnet-integration".into());
        }
        flags
    }
}

/// How nodes, pods and services are reached; upstream's names.
#[derive(Debug, Clone, Args)]
pub(crate) struct Nodes {
    /// An EgressSelectorConfiguration: which traffic takes a tunnel [default: all is direct]
    #[arg(long, value_name = "FILE")]
    pub(crate) egress_selector_config_file: Option<PathBuf>,
    /// Client certificate for kubelets, read again when it changes
    #[arg(long, value_name = "FILE", requires = "kubelet_client_key")]
    pub(crate) kubelet_client_certificate: Option<PathBuf>,
    /// Key of the client certificate for kubelets
    #[arg(long, value_name = "FILE", requires = "kubelet_client_certificate")]
    pub(crate) kubelet_client_key: Option<PathBuf>,
    /// CA of the kubelets' certificates; they are not checked without it
    #[arg(long, value_name = "FILE")]
    pub(crate) kubelet_certificate_authority: Option<PathBuf>,
    /// Kinds of node addresses in the order they are tried
    #[arg(
        long,
        value_delimiter = ',',
        default_values = Outbound::PREFERRED_ADDRESS_TYPES,
        value_name = "TYPES"
    )]
    pub(crate) kubelet_preferred_address_types: Vec<String>,
}

impl Nodes {
    pub(crate) fn egress(&self) -> Egress {
        match &self.egress_selector_config_file {
            Some(file) => Egress::File(file.clone()),
            None => Egress::Direct,
        }
    }

    pub(crate) fn outbound(&self) -> Outbound {
        let pair = (&self.kubelet_client_certificate, &self.kubelet_client_key);
        Outbound {
            kubelet_client: match pair {
                (Some(certificate), Some(key)) => Some(KeyPairFiles {
                    certificate: certificate.clone(),
                    key: key.clone(),
                }),
                _ => None,
            },
            kubelet_authority_file: self.kubelet_certificate_authority.clone(),
            kubelet_preferred_address_types: self.kubelet_preferred_address_types.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Cli {
        #[command(flatten)]
        door: FrontDoor,
        #[command(flatten)]
        way: WayToNodes,
    }

    #[test]
    fn ranges_survive_the_way_to_the_process_that_does_the_work() {
        let read = |flags: &[String]| {
            let words = std::iter::once("x".to_owned()).chain(flags.iter().cloned());
            Cli::try_parse_from(words).map(|cli| cli.door)
        };
        let given = ["--api-server-authorized-ip-ranges=203.0.113.7,10.1.2.3/8".to_owned()];
        let door = read(&given).unwrap();
        let wanted = ["203.0.113.7/32", "10.0.0.0/8"].map(|range| range.parse().unwrap());
        assert_eq!(door.callers(), Callers::Ranges(wanted.to_vec()));
        assert_eq!(read(&door.flags()).unwrap().callers(), door.callers());
        let private = read(&["--enable-private-cluster".into()]).unwrap();
        assert_eq!(private.callers(), Callers::PrivateNetworks);
        assert_eq!(read(&private.flags()).unwrap().callers(), private.callers());
        assert!(read(&["--api-server-authorized-ip-ranges=x".into()]).is_err());
    }

    #[test]
    fn a_cluster_has_one_way_to_its_nodes() {
        let read = |flags: &[OsString]| {
            let words = std::iter::once("x".into()).chain(flags.iter().cloned());
            Cli::try_parse_from(words).map(|cli| cli.way)
        };
        let socket = PathBuf::from("s");
        let cases: [(&[&str], Egress); 4] = [
            (&[], Egress::Direct),
            (&["--enable-apiserver-vnet-integration"], Egress::Direct),
            (
                &["--konnectivity-agent-port=0"],
                Egress::Tunnel(socket.clone()),
            ),
            (
                &["--egress-selector-config-file=f"],
                Egress::File("f".into()),
            ),
        ];
        for (given, wanted) in &cases {
            let given: Vec<OsString> = given.iter().map(OsString::from).collect();
            let way = read(&given).unwrap();
            assert_eq!(way.egress(socket.clone()), *wanted);
            let again = read(&way.flags()).unwrap();
            assert_eq!(again.egress(socket.clone()), *wanted);
            for (other, _) in cases.iter().skip(1) {
                let both: Vec<OsString> = given
                    .iter()
                    .cloned()
                    .chain(other.iter().map(OsString::from))
                    .collect();
                let is_same = given.is_empty();
                assert_eq!(read(&both).is_ok(), is_same, "{both:?}");
            }
        }
    }
}
