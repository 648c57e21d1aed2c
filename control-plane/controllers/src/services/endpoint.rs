//! One pod as an endpoint of a service.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::{ObjectReference, Service, ServicePort, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_kit::selector::LabelSelector as Selector;
use serde_json::json;

use crate::workloads::node_view::NodeView;
use crate::workloads::pod_view::PodView;

/// A family of addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Family {
    V4,
    V6,
}

impl Family {
    pub(super) fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    pub(super) fn has(self, address: IpAddr) -> bool {
        address.is_ipv4() == (self == Family::V4)
    }

    /// The families a service wants.
    pub(super) fn all_of(spec: &ServiceSpec) -> Vec<Family> {
        let named = spec.ip_families.iter().flatten();
        let mut families: Vec<Family> = named.map(|name| family(name)).collect();
        if families.is_empty() {
            let ip = spec
                .cluster_ip
                .as_deref()
                .and_then(|ip| ip.parse::<IpAddr>().ok());
            families.push(if ip.is_some_and(|ip| ip.is_ipv6()) {
                Family::V6
            } else {
                Family::V4
            });
        }
        families
    }
}

fn family(name: &str) -> Family {
    if name == "IPv6" {
        Family::V6
    } else {
        Family::V4
    }
}

/// Which pods a service means; none if it chooses none by itself.
pub(super) fn selector(service: &Service) -> Option<Selector> {
    let spec = service.spec.as_ref()?;
    let labels = spec.selector.as_ref().filter(|labels| !labels.is_empty())?;
    (spec.type_.as_deref() != Some("ExternalName")).then(|| Selector::from_map(&json!(labels)))
}

/// Whether a service has no address of its own.
pub(super) fn is_headless(spec: &ServiceSpec) -> bool {
    spec.cluster_ip.as_deref() == Some("None")
}

/// Whether a pod may be among the endpoints (upstream's `ShouldPodBeInEndpoints`).
pub(super) fn is_reachable(pod: &PodView, with_terminating: bool) -> bool {
    !pod.is_finished() && !pod.addresses.is_empty() && (with_terminating || !pod.is_deleted)
}

/// A pod's address of a family.
pub(super) fn address(pod: &PodView, family: Family) -> Option<IpAddr> {
    pod.addresses
        .iter()
        .copied()
        .find(|address| family.has(*address))
}

/// A pod as an endpoint (upstream's `podToEndpoint`).
pub(super) fn endpoint(
    service: &Service,
    pod: &PodView,
    node: Option<&NodeView>,
    address: IpAddr,
) -> Endpoint {
    let publishes = publishes_not_ready(service);
    let (is_serving, is_terminating) = (pod.is_ready(), pod.is_deleted);
    Endpoint {
        addresses: vec![address.to_string()],
        conditions: Some(EndpointConditions {
            ready: Some(publishes || (is_serving && !is_terminating)),
            serving: Some(is_serving),
            terminating: Some(is_terminating),
        }),
        hostname: hostname(service, pod),
        node_name: pod.node.clone(),
        target_ref: Some(pod_reference(service, pod)),
        zone: node.and_then(|node| node.zone().map(str::to_owned)),
        ..Endpoint::default()
    }
}

/// Whether pods are published before they are ready.
pub(super) fn publishes_not_ready(service: &Service) -> bool {
    service
        .spec
        .as_ref()
        .and_then(|spec| spec.publish_not_ready_addresses)
        == Some(true)
}

/// The name a pod has within the service.
pub(super) fn hostname(service: &Service, pod: &PodView) -> Option<String> {
    let is_subdomain = pod.subdomain == service.metadata.name;
    pod.hostname.clone().filter(|_| is_subdomain)
}

/// A reference to a pod.
pub(super) fn pod_reference(service: &Service, pod: &PodView) -> ObjectReference {
    ObjectReference {
        kind: Some("Pod".into()),
        namespace: service.metadata.namespace.clone(),
        name: Some(pod.name.clone()),
        uid: Some(pod.uid.clone()),
        ..ObjectReference::default()
    }
}

/// Where a pod listens for each of the service's ports; those it does not have are left out.
pub(super) fn ports(spec: &ServiceSpec, pod: &PodView) -> Vec<EndpointPort> {
    let ports = spec.ports.iter().flatten();
    let found = ports.filter_map(|port| {
        Some(EndpointPort {
            name: Some(port.name.clone().unwrap_or_default()),
            port: Some(number(port, pod)?),
            protocol: Some(protocol(port).to_owned()),
            app_protocol: port.app_protocol.clone(),
        })
    });
    found.collect()
}

pub(super) fn protocol(port: &ServicePort) -> &str {
    port.protocol.as_deref().unwrap_or("TCP")
}

/// The number behind a port (upstream's `FindPort`).
pub(super) fn number(port: &ServicePort, pod: &PodView) -> Option<i32> {
    match &port.target_port {
        None => Some(port.port),
        Some(IntOrString::Int(number)) => Some(if *number == 0 { port.port } else { *number }),
        Some(IntOrString::String(name)) => {
            let mut ports = pod.ports.iter();
            let found = ports
                .find(|(known, protocol, _)| known == name && protocol == self::protocol(port));
            found.map(|(_, _, number)| *number)
        }
    }
}
