//! What `kube-proxy` is told: flags of upstream's names, or a KubeProxyConfiguration.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use client_runtime::Connection;
use ipnet::IpNet;
use serde::Deserialize;

use crate::kube_proxy::{Config, DetectLocal, NodePorts};
use crate::tracking::Tracking;

/// Why a configuration is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("cannot read `{path}`: {cause}")]
    File {
        /// Which.
        path: String,
        /// Why not.
        cause: String,
    },
    /// A value makes no sense.
    #[error("{field}: {value:?} is not {expected}")]
    Value {
        /// Which field or flag.
        field: &'static str,
        /// What it says.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Something must be said.
    #[error("{0}")]
    Missing(&'static str),
}

/// What the command line says; a configuration file replaces all but the node's name, as upstream's does.
#[derive(Debug, Clone, Default)]
pub struct Flags {
    /// `--config`
    pub config: Option<PathBuf>,
    /// `--kubeconfig`
    pub kubeconfig: Option<PathBuf>,
    /// `--hostname-override`
    pub hostname_override: Option<String>,
    /// `--cluster-cidr`
    pub cluster_cidr: String,
    /// `--proxy-mode`
    pub proxy_mode: String,
    /// `--detect-local-mode`
    pub detect_local_mode: String,
    /// `--pod-bridge-interface`
    pub pod_bridge_interface: String,
    /// `--pod-interface-name-prefix`
    pub pod_interface_name_prefix: String,
    /// `--masquerade-all`
    pub masquerade_all: bool,
    /// `--nodeport-addresses`
    pub nodeport_addresses: Vec<String>,
    /// `--healthz-bind-address`
    pub healthz_bind_address: String,
    /// `--metrics-bind-address`
    pub metrics_bind_address: String,
    /// `--conntrack-…`
    pub tracking: Tracking,
}

/// What is read of a KubeProxyConfiguration; what only other modes use is let pass.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    kind: String,
    mode: String,
    hostname_override: String,
    #[serde(rename = "clusterCIDR")]
    cluster_cidr: String,
    detect_local_mode: String,
    detect_local: FileDetectLocal,
    node_port_addresses: Option<Vec<String>>,
    healthz_bind_address: Option<String>,
    metrics_bind_address: Option<String>,
    client_connection: ClientConnection,
    nftables: FileNftables,
    conntrack: FileConntrack,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FileConntrack {
    max_per_core: Option<u32>,
    min: Option<u32>,
    tcp_established_timeout: Option<String>,
    tcp_close_wait_timeout: Option<String>,
}

impl FileConntrack {
    fn tracking(&self) -> Result<Tracking, ConfigError> {
        let time = |text: &Option<String>| {
            text.as_deref()
                .map(|text| period(Some(text), Duration::ZERO))
                .transpose()
        };
        Ok(Tracking {
            max_per_core: self.max_per_core,
            min: self.min,
            tcp_established: time(&self.tcp_established_timeout)?,
            tcp_close_wait: time(&self.tcp_close_wait_timeout)?,
        })
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FileDetectLocal {
    bridge_interface: String,
    interface_name_prefix: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ClientConnection {
    kubeconfig: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FileNftables {
    masquerade_bit: Option<u8>,
    masquerade_all: bool,
    sync_period: Option<String>,
    min_sync_period: Option<String>,
}

/// Upstream's ports.
const HEALTHZ: &str = "0.0.0.0:10256";
const METRICS: &str = "127.0.0.1:10249";
const SYNC_PERIOD: Duration = Duration::from_secs(30);
/// Changes that come this close together are written together.
const MIN_SYNC_PERIOD: Duration = Duration::from_millis(10);

impl Flags {
    /// The configuration that follows, for a machine of this name.
    pub fn config(self, host: &str) -> Result<Config, ConfigError> {
        let file = match &self.config {
            Some(path) => read(path)?,
            None => self.as_file(),
        };
        let named = self
            .hostname_override
            .clone()
            .filter(|name| !name.is_empty());
        let node = named.unwrap_or_else(|| match file.hostname_override.as_str() {
            "" => host.to_owned(),
            name => name.to_owned(),
        });
        if !matches!(file.mode.as_str(), "" | "nftables") {
            tracing::warn!(
                mode = file.mode,
                "this proxy works by nftables, whatever the mode says"
            );
        }
        let connection = match (file.client_connection.kubeconfig.as_str(), self.kubeconfig) {
            ("", None) => Connection::InCluster,
            ("", Some(path)) => Connection::Kubeconfig(path),
            (path, _) => Connection::Kubeconfig(path.into()),
        };
        let nft = &file.nftables;
        let tracking = match &self.config {
            Some(_) => file.conntrack.tracking()?,
            None => self.tracking,
        };
        Ok(Config {
            tracking,
            connection,
            // As the kubelet writes it.
            node: node.trim().to_lowercase(),
            detect_local: detect_local(&file)?,
            masquerade_all: nft.masquerade_all,
            masquerade_bit: nft.masquerade_bit.unwrap_or(14),
            node_port_addresses: node_ports(file.node_port_addresses.as_deref())?,
            min_sync_period: period(nft.min_sync_period.as_deref(), MIN_SYNC_PERIOD)?,
            sync_period: period(nft.sync_period.as_deref(), SYNC_PERIOD)?,
            healthz: address(
                "healthzBindAddress",
                file.healthz_bind_address.as_deref(),
                HEALTHZ,
            )?,
            metrics: address(
                "metricsBindAddress",
                file.metrics_bind_address.as_deref(),
                METRICS,
            )?,
        })
    }

    fn as_file(&self) -> File {
        let ports = &self.nodeport_addresses;
        File {
            kind: "KubeProxyConfiguration".into(),
            mode: self.proxy_mode.clone(),
            cluster_cidr: self.cluster_cidr.clone(),
            detect_local_mode: self.detect_local_mode.clone(),
            detect_local: FileDetectLocal {
                bridge_interface: self.pod_bridge_interface.clone(),
                interface_name_prefix: self.pod_interface_name_prefix.clone(),
            },
            node_port_addresses: (!ports.is_empty()).then(|| ports.clone()),
            healthz_bind_address: Some(self.healthz_bind_address.clone()),
            metrics_bind_address: Some(self.metrics_bind_address.clone()),
            nftables: FileNftables {
                masquerade_all: self.masquerade_all,
                ..FileNftables::default()
            },
            ..File::default()
        }
    }
}

fn read(path: &PathBuf) -> Result<File, ConfigError> {
    let failed = |cause: String| ConfigError::File {
        path: path.display().to_string(),
        cause,
    };
    let text = std::fs::read_to_string(path).map_err(|e| failed(e.to_string()))?;
    let file: File = serde_saphyr::from_str(&text).map_err(|e| failed(e.to_string()))?;
    if file.kind != "KubeProxyConfiguration" {
        return Err(failed(format!(
            "its kind is {:?}, not KubeProxyConfiguration",
            file.kind
        )));
    }
    Ok(file)
}

// Without a mode, a cluster range is reason enough to use it.
fn detect_local(file: &File) -> Result<DetectLocal, ConfigError> {
    let nets = || {
        let ranges = file
            .cluster_cidr
            .split(',')
            .map(str::trim)
            .filter(|net| !net.is_empty());
        ranges
            .map(|net| value("clusterCIDR", net, "an address range"))
            .collect::<Result<Vec<IpNet>, _>>()
    };
    match file.detect_local_mode.as_str() {
        "" | "ClusterCIDR" if file.cluster_cidr.is_empty() => Ok(DetectLocal::None),
        "" | "ClusterCIDR" => Ok(DetectLocal::ClusterCidr(nets()?)),
        "NodeCIDR" => Ok(DetectLocal::NodeCidr),
        "BridgeInterface" => Ok(DetectLocal::Bridge(interface(
            &file.detect_local.bridge_interface,
        )?)),
        "InterfaceNamePrefix" => Ok(DetectLocal::Prefix(interface(
            &file.detect_local.interface_name_prefix,
        )?)),
        other => Err(ConfigError::Value {
            field: "detectLocalMode",
            value: other.into(),
            expected: "ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix",
        }),
    }
}

// It becomes part of a rule.
fn interface(name: &str) -> Result<String, ConfigError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 15 || !name.chars().all(is_plain) {
        return Err(ConfigError::Value {
            field: "detectLocal",
            value: name.into(),
            expected: "the name of an interface, or the beginning of one",
        });
    }
    Ok(name.to_owned())
}

fn node_ports(addresses: Option<&[String]>) -> Result<NodePorts, ConfigError> {
    let addresses = addresses.unwrap_or_default();
    if addresses.is_empty() || addresses == ["primary"] {
        return Ok(NodePorts::Primary);
    }
    let nets = addresses
        .iter()
        .map(|net| value("nodePortAddresses", net, "an address range"));
    let nets = nets.collect::<Result<Vec<IpNet>, _>>()?;
    if nets.iter().any(|net| net.prefix_len() == 0) {
        return Ok(NodePorts::All);
    }
    Ok(NodePorts::Within(nets))
}

fn address(
    field: &'static str,
    text: Option<&str>,
    default: &str,
) -> Result<Option<SocketAddr>, ConfigError> {
    match text.unwrap_or(default) {
        "" => Ok(None),
        text => value(field, text, "an address and port").map(Some),
    }
}

fn value<T: std::str::FromStr>(
    field: &'static str,
    text: &str,
    expected: &'static str,
) -> Result<T, ConfigError> {
    text.parse().map_err(|_| ConfigError::Value {
        field,
        value: text.into(),
        expected,
    })
}

fn period(text: Option<&str>, default: Duration) -> Result<Duration, ConfigError> {
    let Some(text) = text.filter(|text| !matches!(*text, "" | "0s" | "0")) else {
        return Ok(default);
    };
    let span: jiff::SignedDuration = value("syncPeriod", text, "a duration such as 30s")?;
    Ok(span.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flags() -> Flags {
        Flags {
            kubeconfig: Some("/k".into()),
            healthz_bind_address: HEALTHZ.into(),
            metrics_bind_address: "0.0.0.0:10249".into(),
            ..Flags::default()
        }
    }

    #[test]
    fn flags_as_aks_passes_them() {
        let flags = Flags {
            cluster_cidr: "10.244.0.0/16".into(),
            detect_local_mode: "ClusterCIDR".into(),
            ..flags()
        };
        let config = flags.config("Node-1").unwrap();
        assert_eq!(config.node, "node-1");
        assert_eq!(
            config.detect_local,
            DetectLocal::ClusterCidr(vec!["10.244.0.0/16".parse().unwrap()])
        );
        assert_eq!(config.metrics, Some("0.0.0.0:10249".parse().unwrap()));
        assert_eq!(config.node_port_addresses, NodePorts::Primary);
    }

    #[test]
    fn a_configuration_file_is_read_as_upstream_reads_it() {
        let text = r"
apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
clusterCIDR: 10.244.0.0/16,fd00::/48
clientConnection: { kubeconfig: /etc/kubeconfig }
nodePortAddresses: [192.168.0.0/16]
metricsBindAddress: ''
nftables: { masqueradeBit: 13, masqueradeAll: true, minSyncPeriod: 2s, syncPeriod: 1m0s }
conntrack: { maxPerCore: 0, tcpEstablishedTimeout: 1h0m0s }
";
        let file = std::env::temp_dir().join(format!("kube-proxy-{}.yaml", std::process::id()));
        std::fs::write(&file, text).unwrap();
        let read = Flags {
            config: Some(file.clone()),
            ..Flags::default()
        }
        .config("n1");
        std::fs::remove_file(file).unwrap();
        let config = read.unwrap();
        assert_eq!(config.masquerade_bit, 13);
        let established = Some(Duration::from_secs(3600));
        assert_eq!(config.tracking.max_per_core, Some(0));
        assert_eq!(config.tracking.tcp_established, established);
        assert!(config.masquerade_all);
        assert_eq!(config.min_sync_period, Duration::from_secs(2));
        assert_eq!(config.sync_period, Duration::from_secs(60));
        assert_eq!(config.metrics, None);
        assert_eq!(config.healthz, Some(HEALTHZ.parse().unwrap()));
        assert!(
            matches!(config.connection, Connection::Kubeconfig(path) if path.as_os_str() == "/etc/kubeconfig")
        );
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        for (flags, said) in [
            (
                Flags {
                    detect_local_mode: "Guess".into(),
                    ..flags()
                },
                "detectLocalMode",
            ),
            (
                Flags {
                    cluster_cidr: "10.0".into(),
                    ..flags()
                },
                "clusterCIDR",
            ),
            (
                Flags {
                    detect_local_mode: "BridgeInterface".into(),
                    pod_bridge_interface: "a\" b".into(),
                    ..flags()
                },
                "detectLocal",
            ),
            (
                Flags {
                    nodeport_addresses: vec!["x".into()],
                    ..flags()
                },
                "nodePortAddresses",
            ),
            (
                Flags {
                    healthz_bind_address: "here".into(),
                    ..flags()
                },
                "healthzBindAddress",
            ),
        ] {
            let error = flags.config("n1").unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }
}
