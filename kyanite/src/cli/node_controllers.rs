//! Flags about nodes: how they are watched over, which addresses they give out; upstream's names.

use std::net::IpAddr;
use std::time::Duration;

use clap::Args;
use controllers::{NodeIpam, NodeLifecycle};
use ipnet::IpNet;

use super::duration;

#[derive(Debug, Clone, Args)]
pub(crate) struct NodeControllers {
    /// How often the health of nodes is looked at
    #[arg(long, default_value = "5s", value_parser = duration, value_name = "DURATION")]
    pub(crate) node_monitor_period: Duration,
    /// How long a node may be silent before it counts as lost; several times the ten seconds between two leases
    #[arg(long, default_value = "50s", value_parser = duration, value_name = "DURATION")]
    pub(crate) node_monitor_grace_period: Duration,
    /// The same for a node that has said nothing yet
    #[arg(long, default_value = "1m", value_parser = duration, value_name = "DURATION")]
    pub(crate) node_startup_grace_period: Duration,
    /// Lost nodes per second that are emptied in a zone
    #[arg(long, default_value_t = 0.1, value_parser = rate, value_name = "RATE")]
    pub(crate) node_eviction_rate: f32,
    /// The same where most of a large zone is lost; a small zone is then left alone
    #[arg(long, default_value_t = 0.01, value_parser = rate, value_name = "RATE")]
    pub(crate) secondary_node_eviction_rate: f32,
    /// A zone with more nodes than these is large
    #[arg(long, default_value_t = 50, value_name = "NODES")]
    pub(crate) large_cluster_size_threshold: usize,
    /// The share of lost nodes, and at least three, from which on most of a zone is lost
    #[arg(long, default_value_t = 0.55, value_parser = share, value_name = "SHARE")]
    pub(crate) unhealthy_zone_threshold: f32,
    /// Of no effect since Kubernetes 1.27: pods say with tolerationSeconds how long they stay on a lost node
    #[arg(long, value_parser = duration, value_name = "DURATION", hide = true)]
    pub(crate) pod_eviction_timeout: Option<Duration>,
    /// Pods that have ended and are kept; 0 keeps all
    #[arg(long, default_value_t = 12_500, value_name = "PODS")]
    pub(crate) terminated_pod_gc_threshold: usize,
    /// Whether nodes get a part of the cluster's range for their pods
    #[arg(long, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub(crate) allocate_node_cidrs: Option<bool>,
    /// Addresses of pods: one range, or one of each family
    #[arg(long, value_delimiter = ',', value_name = "CIDRS")]
    pub(crate) cluster_cidr: Vec<IpNet>,
    /// How long the prefix of a node's range is, where there is one range [default: 24, or 64 for IPv6]
    #[arg(long, value_name = "BITS")]
    pub(crate) node_cidr_mask_size: Option<u8>,
    /// How long the prefix of a node's IPv4 range is [default: 24]
    #[arg(long, value_name = "BITS")]
    pub(crate) node_cidr_mask_size_ipv4: Option<u8>,
    /// How long the prefix of a node's IPv6 range is [default: 64]
    #[arg(long, value_name = "BITS")]
    pub(crate) node_cidr_mask_size_ipv6: Option<u8>,
}

fn rate(text: &str) -> Result<f32, String> {
    let rate: Option<f32> = text.parse().ok();
    rate.filter(|rate| rate.is_finite() && *rate >= 0.0)
        .ok_or_else(|| format!("`{text}` is no rate such as 0.1 per second"))
}

fn share(text: &str) -> Result<f32, String> {
    let share: Option<f32> = text.parse().ok();
    share
        .filter(|share| (0.0..=1.0).contains(share))
        .ok_or_else(|| format!("`{text}` is no share between 0 and 1"))
}

impl NodeControllers {
    /// How nodes are watched over.
    pub(crate) fn lifecycle(&self) -> NodeLifecycle {
        NodeLifecycle {
            monitor_period: self.node_monitor_period,
            monitor_grace_period: self.node_monitor_grace_period,
            startup_grace_period: self.node_startup_grace_period,
            eviction_rate: self.node_eviction_rate,
            secondary_eviction_rate: self.secondary_node_eviction_rate,
            large_cluster_size: self.large_cluster_size_threshold,
            unhealthy_zone_threshold: self.unhealthy_zone_threshold,
        }
    }

    /// Which addresses nodes give out, if they do; `ranges` where none are named.
    pub(crate) fn ipam(
        &self,
        allocate: bool,
        ranges: Vec<IpNet>,
        services: &[IpNet],
    ) -> Result<Option<NodeIpam>, String> {
        if !self.allocate_node_cidrs.unwrap_or(allocate) {
            return Ok(None);
        }
        let ranges = match self.cluster_cidr.is_empty() {
            true => ranges,
            false => self.cluster_cidr.clone(),
        };
        if self.node_cidr_mask_size.is_some() && ranges.len() > 1 {
            return Err("--node-cidr-mask-size cannot be used with two ranges: name --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6".into());
        }
        let mut ipam = NodeIpam::new(ranges);
        ipam.reserved = services.to_vec();
        let sole = |v4: bool| {
            let range = ipam.cluster_cidrs.first().map(IpNet::addr);
            self.node_cidr_mask_size
                .filter(|_| range.as_ref().is_some_and(IpAddr::is_ipv4) == v4)
        };
        let (v4, v6) = (sole(true), sole(false));
        ipam.mask_size_ipv4 = self.node_cidr_mask_size_ipv4.or(v4).unwrap_or(24);
        ipam.mask_size_ipv6 = self.node_cidr_mask_size_ipv6.or(v6).unwrap_or(64);
        ipam.check().map_err(|cause| cause.to_string())?;
        Ok(Some(ipam))
    }

    /// Says so where a flag is of no effect.
    pub(crate) fn warn(&self) {
        if self.pod_eviction_timeout.is_some() {
            tracing::warn!(
                "--pod-eviction-timeout has no effect since Kubernetes 1.27: how long pods stay on a lost node is \
                 their own tolerationSeconds for node.kubernetes.io/not-ready and node.kubernetes.io/unreachable, 300 unless they say otherwise"
            );
        }
    }

    /// The same as flags, for the process that does the work.
    pub(crate) fn flags(&self) -> Vec<String> {
        let millis = |flag: &str, value: Duration| format!("--{flag}={}ms", value.as_millis());
        let mut flags = vec![
            millis("node-monitor-period", self.node_monitor_period),
            millis("node-monitor-grace-period", self.node_monitor_grace_period),
            millis("node-startup-grace-period", self.node_startup_grace_period),
            format!("--node-eviction-rate={}", self.node_eviction_rate),
            format!(
                "--secondary-node-eviction-rate={}",
                self.secondary_node_eviction_rate
            ),
            format!(
                "--large-cluster-size-threshold={}",
                self.large_cluster_size_threshold
            ),
            format!(
                "--unhealthy-zone-threshold={}",
                self.unhealthy_zone_threshold
            ),
            format!(
                "--terminated-pod-gc-threshold={}",
                self.terminated_pod_gc_threshold
            ),
        ];
        let mut add = |flag: &str, value: Option<String>| {
            flags.extend(value.map(|value| format!("--{flag}={value}")));
        };
        let text = |size: Option<u8>| size.map(|size| size.to_string());
        add("node-cidr-mask-size", text(self.node_cidr_mask_size));
        add(
            "node-cidr-mask-size-ipv4",
            text(self.node_cidr_mask_size_ipv4),
        );
        add(
            "node-cidr-mask-size-ipv6",
            text(self.node_cidr_mask_size_ipv6),
        );
        add(
            "allocate-node-cidrs",
            self.allocate_node_cidrs.map(|on| on.to_string()),
        );
        let timeout = self
            .pod_eviction_timeout
            .map(|t| format!("{}ms", t.as_millis()));
        add("pod-eviction-timeout", timeout);
        flags.extend(
            self.cluster_cidr
                .iter()
                .map(|range| format!("--cluster-cidr={range}")),
        );
        flags
    }
}

/// Nodes on paper.
#[derive(Debug, Clone, Args)]
pub(crate) struct Hollow {
    /// How many hollow nodes there are: they register, renew leases and run pods on paper
    #[arg(long, default_value_t = 0, value_name = "NODES")]
    pub(crate) hollow: usize,
}

impl Hollow {
    /// The same as flags, for the process that does the work.
    pub(crate) fn flags(&self) -> [String; 1] {
        [format!("--hollow={}", self.hollow)]
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        nodes: NodeControllers,
    }

    fn parsed(line: &str) -> NodeControllers {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Line::parse_from(words).nodes
    }

    #[test]
    fn upstreams_defaults_are_ours() {
        let nodes = parsed("");
        assert_eq!(nodes.lifecycle(), NodeLifecycle::default());
        assert_eq!(nodes.ipam(false, Vec::new(), &[]), Ok(None));
        assert!(nodes.ipam(true, Vec::new(), &[]).is_err());
    }

    #[test]
    fn flags_survive_being_handed_on() {
        let line = "--node-monitor-grace-period=40s --pod-eviction-timeout=5m --node-eviction-rate=0.2 \
                    --cluster-cidr=10.1.0.0/16,fd00::/56 --allocate-node-cidrs --node-cidr-mask-size-ipv4=25";
        let nodes = parsed(line);
        let again = parsed(&nodes.flags().join(" "));
        assert_eq!(format!("{nodes:?}"), format!("{again:?}"));
        let ipam = again.ipam(false, Vec::new(), &[]).ok().flatten();
        assert_eq!(
            ipam.map(|ipam| (ipam.cluster_cidrs.len(), ipam.mask_size_ipv4)),
            Some((2, 25))
        );
    }

    #[test]
    fn one_mask_size_is_for_one_range() {
        let nodes = parsed("--cluster-cidr=10.1.0.0/16 --node-cidr-mask-size=26");
        let ipam = nodes.ipam(true, Vec::new(), &[]).ok().flatten();
        assert_eq!(ipam.map(|ipam| ipam.mask_size_ipv4), Some(26));
        let nodes = parsed("--cluster-cidr=10.1.0.0/16,fd00::/56 --node-cidr-mask-size=26");
        assert!(nodes.ipam(true, Vec::new(), &[]).is_err());
    }
}
