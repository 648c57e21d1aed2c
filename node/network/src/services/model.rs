//! What is kept of Services and EndpointSlices.

use std::net::IpAddr;

use ipnet::IpNet;
use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;

/// An address family; each has a table of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    /// Both, in the order of their names.
    pub const BOTH: [Family; 2] = [Family::V4, Family::V6];

    /// As nftables calls tables of it.
    pub fn table_family(self) -> &'static str {
        match self {
            Family::V4 => "ip",
            Family::V6 => "ip6",
        }
    }

    /// As the API calls it.
    pub fn name(self) -> &'static str {
        match self {
            Family::V4 => "IPv4",
            Family::V6 => "IPv6",
        }
    }

    /// The family of an address.
    pub fn of(address: IpAddr) -> Family {
        match address {
            IpAddr::V4(_) => Family::V4,
            IpAddr::V6(_) => Family::V6,
        }
    }

    /// The family of a range.
    pub fn of_net(net: &IpNet) -> Family {
        Family::of(net.addr())
    }
}

/// A transport that Services have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Protocol {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
    /// SCTP.
    Sctp,
}

impl Protocol {
    /// All of them, in the order the rules name them.
    pub const ALL: [Protocol; 3] = [Protocol::Tcp, Protocol::Udp, Protocol::Sctp];

    /// By the API's name; TCP where none is given.
    pub fn parse(name: Option<&str>) -> Option<Protocol> {
        match name {
            None | Some("TCP" | "") => Some(Protocol::Tcp),
            Some("UDP") => Some(Protocol::Udp),
            Some("SCTP") => Some(Protocol::Sctp),
            Some(_) => None,
        }
    }

    /// As nftables calls it.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Tcp => "tcp",
            Protocol::Udp => "udp",
            Protocol::Sctp => "sctp",
        }
    }
}

/// A Service's namespace and name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceName {
    /// Its namespace.
    pub namespace: Box<str>,
    /// Its name.
    pub name: Box<str>,
}

impl ServiceName {
    /// From both parts.
    pub fn new(namespace: &str, name: &str) -> ServiceName {
        ServiceName {
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

impl std::fmt::Display for ServiceName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What is kept of a Service that has addresses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// Addresses inside the cluster.
    pub cluster_ips: Vec<IpAddr>,
    /// `spec.externalIPs`.
    pub external_ips: Vec<IpAddr>,
    /// Addresses of a load balancer that hands packets on unchanged.
    pub balancer_ips: Vec<IpAddr>,
    /// Who may use those; everybody when empty.
    pub source_ranges: Vec<IpNet>,
    /// How many seconds a client stays with its endpoint.
    pub affinity: Option<u32>,
    /// `internalTrafficPolicy: Local`.
    pub internal_local: bool,
    /// `externalTrafficPolicy: Local`.
    pub external_local: bool,
    /// Where a load balancer asks for local endpoints.
    pub health_check_port: Option<u16>,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// A port of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name; empty where there is only one.
    pub name: Box<str>,
    /// Its transport.
    pub protocol: Protocol,
    /// The number clients use.
    pub port: u16,
    /// The number on every node.
    pub node_port: Option<u16>,
}

/// The label of a Service that another proxy serves.
const OTHER_PROXY: &str = "service.kubernetes.io/service-proxy-name";
/// The label of what belongs to a headless Service.
const HEADLESS: &str = "service.kubernetes.io/headless";

impl Service {
    /// What is kept of a Service; nothing of one that has no address of its own, or another proxy
    /// (upstream's `ShouldSkipService`).
    pub fn of(service: &core::Service) -> Option<Service> {
        let spec = service.spec.as_ref()?;
        let labels = service.metadata.labels.as_ref();
        let is_others =
            labels.is_some_and(|l| l.contains_key(OTHER_PROXY) || l.contains_key(HEADLESS));
        let cluster_ips = cluster_ips(spec);
        if is_others || cluster_ips.is_empty() || spec.type_.as_deref() == Some("ExternalName") {
            return None;
        }
        Some(Service {
            cluster_ips,
            external_ips: addresses(spec.external_ips.iter().flatten()),
            balancer_ips: balancer_ips(service),
            source_ranges: source_ranges(service),
            affinity: affinity(spec),
            internal_local: spec.internal_traffic_policy.as_deref() == Some("Local"),
            external_local: spec.external_traffic_policy.as_deref() == Some("Local"),
            health_check_port: spec.health_check_node_port.and_then(port_number),
            ports: ports(spec),
        })
    }

    /// Whether a load balancer is to ask this node for local endpoints.
    pub fn health_check(&self) -> Option<u16> {
        self.health_check_port.filter(|_| self.external_local)
    }
}

fn cluster_ips(spec: &core::ServiceSpec) -> Vec<IpAddr> {
    let all = spec.cluster_ips.iter().flatten();
    let found = addresses(all);
    if found.is_empty() {
        return addresses(spec.cluster_ip.iter());
    }
    found
}

// Neither `None` nor an empty string is an address.
fn addresses<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<IpAddr> {
    texts.filter_map(|text| text.parse().ok()).collect()
}

// With `ipMode: Proxy` packets must reach the load balancer itself.
fn balancer_ips(service: &core::Service) -> Vec<IpAddr> {
    let is_balanced =
        service.spec.as_ref().and_then(|s| s.type_.as_deref()) == Some("LoadBalancer");
    let status = service
        .status
        .as_ref()
        .and_then(|s| s.load_balancer.as_ref());
    let ingress = status.and_then(|balancer| balancer.ingress.as_ref());
    let ingress = ingress.into_iter().flatten().filter(|_| is_balanced);
    let direct = ingress.filter(|place| place.ip_mode.as_deref() != Some("Proxy"));
    addresses(direct.filter_map(|place| place.ip.as_ref()))
}

/// The older way to name source ranges.
const SOURCE_RANGES: &str = "service.beta.kubernetes.io/load-balancer-source-ranges";

fn source_ranges(service: &core::Service) -> Vec<IpNet> {
    let spec = service.spec.as_ref();
    let listed = spec.and_then(|spec| spec.load_balancer_source_ranges.as_ref());
    if let Some(listed) = listed.filter(|list| !list.is_empty()) {
        return nets(listed.iter().map(String::as_str));
    }
    let annotations = service.metadata.annotations.as_ref();
    let older = annotations.and_then(|all| all.get(SOURCE_RANGES));
    older.map_or_else(Vec::new, |text| nets(text.split(',')))
}

fn nets<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<IpNet> {
    texts
        .filter_map(|text| text.trim().parse::<IpNet>().ok())
        .map(|net| net.trunc())
        .collect()
}

fn affinity(spec: &core::ServiceSpec) -> Option<u32> {
    let config = spec.session_affinity_config.as_ref();
    let seconds = config
        .and_then(|c| c.client_ip.as_ref())
        .and_then(|c| c.timeout_seconds);
    let seconds = seconds
        .and_then(|s| u32::try_from(s).ok())
        .filter(|s| *s > 0);
    (spec.session_affinity.as_deref() == Some("ClientIP")).then(|| seconds.unwrap_or(10800))
}

fn ports(spec: &core::ServiceSpec) -> Vec<Port> {
    let ports = spec.ports.iter().flatten();
    ports
        .filter_map(|port| {
            Some(Port {
                name: port.name.as_deref().unwrap_or_default().into(),
                protocol: Protocol::parse(port.protocol.as_deref())?,
                port: port_number(port.port)?,
                node_port: port.node_port.and_then(port_number),
            })
        })
        .collect()
}

fn port_number(number: i32) -> Option<u16> {
    u16::try_from(number).ok().filter(|number| *number > 0)
}

/// What is kept of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The Service it belongs to.
    pub service: ServiceName,
    /// Names, transports and numbers of its ports.
    pub ports: Vec<SlicePort>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// A port of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SlicePort {
    /// The name of the Service's port.
    pub name: Box<str>,
    /// Its transport.
    pub protocol: Protocol,
    /// The number the endpoint listens on.
    pub port: u16,
}

/// An endpoint, and what the choice among endpoints needs to know of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// Takes connections.
    pub ready: bool,
    /// Would take connections, though it may be about to end.
    pub serving: bool,
    /// Is about to end.
    pub terminating: bool,
    /// Where it runs.
    pub node: Option<Box<str>>,
    /// Zones it is meant for.
    pub zone_hints: Vec<Box<str>>,
    /// Nodes it is meant for.
    pub node_hints: Vec<Box<str>>,
}

/// The label that names the Service of a slice.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

impl Slice {
    /// What is kept of a slice; nothing of one that belongs to no Service of ours.
    pub fn of(slice: &discovery::EndpointSlice) -> Option<Slice> {
        let labels = slice.metadata.labels.as_ref()?;
        let name = labels.get(SERVICE_NAME).filter(|name| !name.is_empty())?;
        if labels.contains_key(HEADLESS)
            || labels.contains_key(OTHER_PROXY)
            || !matches!(slice.address_type.as_str(), "IPv4" | "IPv6")
        {
            return None;
        }
        let namespace = slice.metadata.namespace.as_deref().unwrap_or_default();
        Some(Slice {
            service: ServiceName::new(namespace, name),
            ports: slice
                .ports
                .iter()
                .flatten()
                .filter_map(slice_port)
                .collect(),
            endpoints: slice
                .endpoints
                .iter()
                .flatten()
                .filter_map(endpoint)
                .collect(),
        })
    }
}

fn slice_port(port: &discovery::EndpointPort) -> Option<SlicePort> {
    Some(SlicePort {
        name: port.name.as_deref().unwrap_or_default().into(),
        protocol: Protocol::parse(port.protocol.as_deref())?,
        port: port.port.and_then(port_number)?,
    })
}

// The first address stands for all: they are interchangeable by contract.
fn endpoint(endpoint: &discovery::Endpoint) -> Option<Endpoint> {
    let conditions = endpoint.conditions.as_ref();
    let ready = conditions.and_then(|c| c.ready).unwrap_or(true);
    let hints = endpoint.hints.as_ref();
    let zones = hints
        .and_then(|h| h.for_zones.as_ref())
        .into_iter()
        .flatten();
    let nodes = hints
        .and_then(|h| h.for_nodes.as_ref())
        .into_iter()
        .flatten();
    Some(Endpoint {
        address: endpoint.addresses.first()?.parse().ok()?,
        ready,
        serving: conditions.and_then(|c| c.serving).unwrap_or(ready),
        terminating: conditions.and_then(|c| c.terminating).unwrap_or(false),
        node: endpoint.node_name.as_deref().map(Into::into),
        zone_hints: zones.map(|zone| zone.name.as_str().into()).collect(),
        node_hints: nodes.map(|node| node.name.as_str().into()).collect(),
    })
}
