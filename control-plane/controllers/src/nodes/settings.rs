//! What node controllers are told: upstream's flags of node lifecycle and node IPAM.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;

/// How nodes are watched over, and when the pods of a lost one are evicted.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeLifecycle {
    /// How often the health of nodes is looked at (`--node-monitor-period`).
    pub monitor_period: Duration,
    /// How long a node may be silent before it counts as lost (`--node-monitor-grace-period`).
    pub monitor_grace_period: Duration,
    /// The same for a node that has not said anything yet (`--node-startup-grace-period`).
    pub startup_grace_period: Duration,
    /// Lost nodes of a zone that are tainted per second (`--node-eviction-rate`).
    pub eviction_rate: f32,
    /// The same where most of a large zone is lost (`--secondary-node-eviction-rate`).
    pub secondary_eviction_rate: f32,
    /// More nodes than these make a zone a large one (`--large-cluster-size-threshold`).
    pub large_cluster_size: usize,
    /// The share of lost nodes from which a zone is disrupted (`--unhealthy-zone-threshold`).
    pub unhealthy_zone_threshold: f32,
}

impl Default for NodeLifecycle {
    fn default() -> NodeLifecycle {
        NodeLifecycle {
            monitor_period: Duration::from_secs(5),
            monitor_grace_period: Duration::from_secs(50),
            startup_grace_period: Duration::from_secs(60),
            eviction_rate: 0.1,
            secondary_eviction_rate: 0.01,
            large_cluster_size: 50,
            unhealthy_zone_threshold: 0.55,
        }
    }
}

/// Which addresses nodes get for their pods.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeIpam {
    /// One range, or one of each family (`--cluster-cidr`).
    pub cluster_cidrs: Vec<IpNet>,
    /// How long the prefix of a node's IPv4 range is (`--node-cidr-mask-size-ipv4`).
    pub mask_size_ipv4: u8,
    /// The same for IPv6 (`--node-cidr-mask-size-ipv6`).
    pub mask_size_ipv6: u8,
    /// Ranges that nodes must not get: those of services (`--service-cluster-ip-range`).
    pub reserved: Vec<IpNet>,
}

/// Upstream's `maxCIDRs`-related limit: a range is divided into at most this many bits' worth of parts.
const MAX_BITS: u8 = 16;

/// Why ranges cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    /// Nodes were to get ranges, of nothing.
    #[error("nodes cannot be given address ranges: --cluster-cidr names none")]
    Nothing,
    /// More than one of a family.
    #[error(
        "--cluster-cidr names {0} ranges: one is possible, or two of which one is IPv4 and the other IPv6"
    )]
    NotDualStack(usize),
    /// A node's part would be larger than the whole.
    #[error(
        "the mask size /{mask} of a node is smaller than that of the cluster's range `{range}`"
    )]
    MaskTooSmall {
        /// The range.
        range: IpNet,
        /// The mask size of a node.
        mask: u8,
    },
    /// The range would be divided into more parts than are kept track of.
    #[error(
        "the range `{range}` is divided into too many parts by the mask size /{mask} of a node: at most {MAX_BITS} bits may lie between"
    )]
    TooManyParts {
        /// The range.
        range: IpNet,
        /// The mask size of a node.
        mask: u8,
    },
}

impl NodeIpam {
    /// Parts of these ranges, with upstream's mask sizes.
    pub fn new(cluster_cidrs: Vec<IpNet>) -> NodeIpam {
        NodeIpam {
            cluster_cidrs,
            mask_size_ipv4: 24,
            mask_size_ipv6: 64,
            reserved: Vec::new(),
        }
    }

    /// How long the prefix of a node's part is.
    pub fn mask_size(&self, range: &IpNet) -> u8 {
        match range.addr() {
            IpAddr::V4(_) => self.mask_size_ipv4,
            IpAddr::V6(_) => self.mask_size_ipv6,
        }
    }

    /// Says whether nodes can be given parts of these ranges.
    pub fn check(&self) -> Result<(), BadRange> {
        match self.cluster_cidrs.as_slice() {
            [] => return Err(BadRange::Nothing),
            [_] => {}
            [a, b] if a.addr().is_ipv4() != b.addr().is_ipv4() => {}
            more => return Err(BadRange::NotDualStack(more.len())),
        }
        let mut ranges = self.cluster_cidrs.iter();
        ranges.try_for_each(|range| self.check_range(*range))
    }

    fn check_range(&self, range: IpNet) -> Result<(), BadRange> {
        let mask = self.mask_size(&range);
        match mask.checked_sub(range.prefix_len()) {
            None => Err(BadRange::MaskTooSmall { range, mask }),
            Some(_) if mask > range.max_prefix_len() => Err(BadRange::MaskTooSmall { range, mask }),
            Some(bits) if bits > MAX_BITS => Err(BadRange::TooManyParts { range, mask }),
            Some(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn ranges(list: &str) -> Vec<IpNet> {
        let texts = list.split(',').filter(|text| !text.is_empty());
        texts.map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn ranges_are_one_or_one_of_each_family_and_divisible() {
        let v6 = "fd00::/56".parse::<IpNet>().unwrap();
        for (list, expected) in [
            ("10.244.0.0/16", Ok(())),
            ("10.244.0.0/16,fd00::/56", Ok(())),
            ("fd00::/56", Ok(())),
            ("", Err(BadRange::Nothing)),
            ("10.0.0.0/16,10.1.0.0/16", Err(BadRange::NotDualStack(2))),
            (
                "10.0.0.0/25",
                Err(BadRange::MaskTooSmall {
                    range: "10.0.0.0/25".parse().unwrap(),
                    mask: 24,
                }),
            ),
            (
                "fd00::/40",
                Err(BadRange::TooManyParts {
                    range: "fd00::/40".parse().unwrap(),
                    mask: 64,
                }),
            ),
        ] {
            assert_eq!(NodeIpam::new(ranges(list)).check(), expected, "{list}");
        }
        assert_eq!(NodeIpam::new(vec![v6]).mask_size(&v6), 64);
    }
}
