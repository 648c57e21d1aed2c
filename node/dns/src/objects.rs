//! What is kept of Services and EndpointSlices for their names.

use std::net::IpAddr;

use k8s_openapi::api::core::v1 as core;
use k8s_openapi::api::discovery::v1 as discovery;

use crate::name::Name;

/// What is kept of a Service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Service {
    /// What its name leads to.
    pub kind: Kind,
    /// Its own addresses.
    pub cluster_ips: Vec<IpAddr>,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// What the name of a Service leads to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Its own addresses.
    Cluster,
    /// Its endpoints.
    Headless,
    /// Another name.
    External(Name),
}

/// A port, with the name and transport that SRV records have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Port {
    /// Its name; empty where there is only one.
    pub name: Box<str>,
    /// `tcp`, `udp` or `sctp`.
    pub protocol: &'static str,
    /// Its number.
    pub port: u16,
}

impl Port {
    /// Whether it is the one of this name and transport. Ports without a name have no record of their own.
    pub fn is(&self, (name, protocol): (&str, &str)) -> bool {
        !self.name.is_empty() && *self.name == *name && self.protocol == protocol
    }
}

impl Service {
    /// What is kept of a Service; nothing of one without addresses that is not headless either.
    pub fn of(service: &core::Service) -> Option<Service> {
        let spec = service.spec.as_ref()?;
        let ips = spec
            .cluster_ips
            .iter()
            .flatten()
            .chain(spec.cluster_ip.iter());
        let mut cluster_ips: Vec<IpAddr> = ips.filter_map(|ip| ip.parse().ok()).collect();
        cluster_ips.sort_unstable();
        cluster_ips.dedup();
        let kind = match (spec.type_.as_deref(), spec.cluster_ip.as_deref()) {
            (Some("ExternalName"), _) => {
                Kind::External(Name::parse(spec.external_name.as_deref()?)?)
            }
            (_, Some("None")) => Kind::Headless,
            _ => Kind::Cluster,
        };
        let ports = spec.ports.iter().flatten();
        let port =
            |p: &core::ServicePort| port(p.name.as_deref(), p.protocol.as_deref(), Some(p.port));
        Some(Service {
            kind,
            cluster_ips,
            ports: ports.filter_map(port).collect(),
        })
    }
}

fn port(name: Option<&str>, protocol: Option<&str>, number: Option<i32>) -> Option<Port> {
    let protocol = match protocol {
        None | Some("TCP") => "tcp",
        Some("UDP") => "udp",
        Some("SCTP") => "sctp",
        Some(_) => return None,
    };
    Some(Port {
        name: name.unwrap_or_default().to_ascii_lowercase().into(),
        protocol,
        port: u16::try_from(number?).ok()?,
    })
}

/// What is kept of an EndpointSlice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Slice {
    /// The name of its Service.
    pub service: Box<str>,
    /// Its ports.
    pub ports: Vec<Port>,
    /// Its endpoints.
    pub endpoints: Vec<Endpoint>,
}

/// An endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    /// Its address.
    pub address: IpAddr,
    /// The name it asked for.
    pub hostname: Option<Box<str>>,
    /// Whether its name leads to it.
    pub ready: bool,
}

impl Endpoint {
    /// The label before its Service's: the name it asked for, or its address.
    pub fn host(&self) -> String {
        match (&self.hostname, self.address) {
            (Some(name), _) => name.to_string(),
            (None, IpAddr::V4(ip)) => ip.to_string().replace('.', "-"),
            (None, IpAddr::V6(ip)) => {
                // A label must not end in a dash.
                let text = ip.to_string().replace(':', "-");
                if text.ends_with('-') {
                    text + "0"
                } else {
                    text
                }
            }
        }
    }
}

const SERVICE_NAME: &str = "kubernetes.io/service-name";

impl Slice {
    /// What is kept of a slice; nothing of one that belongs to no Service.
    pub fn of(slice: &discovery::EndpointSlice) -> Option<Slice> {
        let service = slice.metadata.labels.as_ref()?.get(SERVICE_NAME)?;
        let ports = slice.ports.iter().flatten();
        let port =
            |p: &discovery::EndpointPort| port(p.name.as_deref(), p.protocol.as_deref(), p.port);
        let endpoints = slice.endpoints.iter().flatten();
        Some(Slice {
            service: service.as_str().into(),
            ports: ports.filter_map(port).collect(),
            endpoints: endpoints.flat_map(endpoints_of).collect(),
        })
    }
}

fn endpoints_of(endpoint: &discovery::Endpoint) -> Vec<Endpoint> {
    let ready = endpoint
        .conditions
        .as_ref()
        .and_then(|c| c.ready)
        .unwrap_or(true);
    let hostname = endpoint.hostname.as_deref().filter(|name| !name.is_empty());
    let addresses = endpoint.addresses.iter().filter_map(|ip| ip.parse().ok());
    addresses
        .map(|address| Endpoint {
            address,
            hostname: hostname.map(|name| name.to_ascii_lowercase().into()),
            ready,
        })
        .collect()
}
