//! What the proxy knows of the node it runs on.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1::Node;
use nix::ifaddrs::getifaddrs;

use crate::services::Place;

/// What is kept of our own Node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NodeState {
    pub(crate) zone: Option<String>,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) pod_nets: Vec<IpNet>,
    /// Whether load balancers may send to it.
    pub(crate) eligible: bool,
}

const ZONE: &str = "topology.kubernetes.io/zone";
const LEAVING: &str = "ToBeDeletedByClusterAutoscaler";

impl NodeState {
    pub(crate) fn of(node: &Node) -> NodeState {
        let labels = node.metadata.labels.as_ref();
        let spec = node.spec.as_ref();
        let nets = spec
            .and_then(|spec| spec.pod_cidrs.as_ref())
            .into_iter()
            .flatten();
        let taints = spec
            .and_then(|spec| spec.taints.as_ref())
            .into_iter()
            .flatten();
        let status = node.status.as_ref();
        let addresses = status
            .and_then(|s| s.addresses.as_ref())
            .into_iter()
            .flatten();
        let internal = addresses.filter(|address| address.type_ == "InternalIP");
        NodeState {
            zone: labels.and_then(|labels| labels.get(ZONE)).cloned(),
            addresses: internal.filter_map(|a| a.address.parse().ok()).collect(),
            pod_nets: nets.filter_map(|net| net.parse().ok()).collect(),
            eligible: node.metadata.deletion_timestamp.is_none()
                && !taints.into_iter().any(|taint| taint.key == LEAVING),
        }
    }

    pub(crate) fn place(&self, node: &str) -> Place {
        Place {
            node: node.to_owned(),
            zone: self.zone.clone(),
        }
    }
}

/// The addresses of this machine's interfaces.
pub(crate) fn own_addresses() -> Vec<IpAddr> {
    let Ok(interfaces) = getifaddrs() else {
        return Vec::new();
    };
    let mut found: Vec<IpAddr> = interfaces
        .filter_map(|interface| {
            let address = interface.address?;
            let v4 = address.as_sockaddr_in().map(|a| IpAddr::V4(a.ip()));
            v4.or_else(|| address.as_sockaddr_in6().map(|a| IpAddr::V6(a.ip())))
        })
        .filter(|ip| !ip.is_loopback() && !is_link_local(*ip))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn is_link_local(ip: IpAddr) -> bool {
    matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local())
}
