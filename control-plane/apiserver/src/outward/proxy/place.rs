//! Which place a proxied request means: the name in its path, and the objects it names.
//!
//! Pure: `ResourceLocation` and its kin of `pkg/registry/core/{node,pod,service}`.

use std::net::IpAddr;

use serde_json::Value;

use crate::outward::outbound::{Place, Trust};
use crate::status::{ApiError, Result};

/// Upstream's kubelet port where a node says nothing of its own.
const KUBELET_PORT: u16 = 10_250;

/// A name as paths have it: `name`, `name:port` or `scheme:name:port`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Named<'a> {
    /// Whether `https` is asked for; `http` and nothing mean the same.
    pub(super) https: bool,
    pub(super) name: &'a str,
    /// A number or a name; empty where none is named.
    pub(super) port: &'a str,
}

impl<'a> Named<'a> {
    /// Takes a name apart; `kind` is what it should name.
    pub(super) fn parse(id: &'a str, kind: &str) -> Result<Named<'a>> {
        let parts: Vec<&str> = id.split(':').collect();
        let (scheme, name, port) = match parts[..] {
            [name] => ("", name, ""),
            [name, port] => ("", name, port),
            [scheme, name, port] => (scheme, name, port),
            _ => ("", "", ""),
        };
        if name.is_empty() || !matches!(scheme, "" | "http" | "https") {
            return Err(ApiError::bad_request(format!(
                "invalid {kind} request {id:?}"
            )));
        }
        let https = scheme == "https";
        Ok(Named { https, name, port })
    }

    fn place(&self, host: &str, port: &str) -> Result<Place> {
        let port = match port {
            "" if self.https => 443,
            "" => 80,
            text => text.parse().map_err(|_| {
                let why = format!("dial tcp: lookup tcp/{text}: unknown port");
                ApiError::unavailable(format!("error trying to reach service: {why}"))
            })?,
        };
        Ok(Place {
            tls: self.https.then_some(Trust::Anybody),
            host: host.to_owned(),
            port,
        })
    }
}

/// A kubelet's address, the first of the preferred kinds that the node has.
pub(super) fn kubelet(node: &Value, preferred: &[String]) -> Result<Place> {
    let addresses = node["status"]["addresses"].as_array();
    let addresses: Vec<(&str, &str)> = addresses
        .into_iter()
        .flatten()
        .map(|each| (text(&each["type"]), text(&each["address"])))
        .collect();
    let mut wanted = preferred
        .iter()
        .filter_map(|kind| addresses.iter().find(|(found, _)| found == kind));
    let Some((_, host)) = wanted.next() else {
        let known: Vec<String> = addresses
            .iter()
            .map(|(kind, at)| format!("{{{kind} {at}}}"))
            .collect();
        return Err(ApiError::plain(format!(
            "no preferred addresses found; known addresses: [{}]",
            known.join(" ")
        )));
    };
    let port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"].as_u64();
    let port = port
        .and_then(|port| u16::try_from(port).ok())
        .filter(|port| *port > 0);
    Ok(Place {
        tls: Some(Trust::Kubelet),
        host: (*host).to_owned(),
        port: port.unwrap_or(KUBELET_PORT),
    })
}

/// `nodes/proxy`: the kubelet, or another port of its node.
pub(super) fn of_node(named: &Named<'_>, kubelet: Place) -> Result<Place> {
    if named.port.is_empty() || named.port == kubelet.port.to_string() {
        return Ok(kubelet);
    }
    named.place(&kubelet.host, named.port)
}

/// `pods/proxy`: the pod's first address, and its first port unless one is named.
pub(super) fn of_pod(named: &Named<'_>, pod: &Value) -> Result<Place> {
    let address = text(&pod["status"]["podIPs"][0]["ip"]);
    check_address(address)?;
    let containers = pod["spec"]["containers"].as_array();
    let mut ports = containers
        .into_iter()
        .flatten()
        .filter_map(|container| container["ports"][0]["containerPort"].as_u64());
    let port = match (named.port, ports.next()) {
        ("", Some(first)) => first.to_string(),
        (port, _) => port.to_owned(),
    };
    named.place(address, &port)
}

/// Refuses addresses that no pod or node has: loopback, link-local, multicast.
pub(super) fn check_address(address: &str) -> Result<()> {
    match address.parse::<IpAddr>() {
        Ok(ip) if is_global_unicast(ip) => Ok(()),
        _ => Err(ApiError::bad_request("address not allowed")),
    }
}

/// Go's `IsGlobalUnicast`: private addresses are global in its sense.
pub(super) fn is_global_unicast(ip: IpAddr) -> bool {
    match ip.to_canonical() {
        IpAddr::V4(ip) => {
            !(ip.is_unspecified()
                || ip.is_loopback()
                || ip.is_multicast()
                || ip.is_link_local()
                || ip.is_broadcast())
        }
        IpAddr::V6(ip) => {
            !(ip.is_unspecified()
                || ip.is_loopback()
                || ip.is_multicast()
                || ip.is_unicast_link_local())
        }
    }
}

/// The name of the port that a request to a service means: a number stands for the port that has it.
pub(super) fn service_port<'a>(named: &Named<'a>, service: &'a Value) -> Result<&'a str> {
    let Ok(number) = named.port.parse::<i64>() else {
        return Ok(named.port);
    };
    let ports = service["spec"]["ports"].as_array().into_iter().flatten();
    let mut found = ports.filter(|port| port["port"].as_i64() == Some(number));
    match found.next() {
        Some(port) => Ok(text(&port["name"])),
        None => Err(ApiError::unavailable(format!(
            "no service port {number} found for service {:?}",
            named.name
        ))),
    }
}

/// An address behind a service, with the pod that must have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Candidate<'a> {
    pub(super) pod: &'a str,
    pub(super) namespace: &'a str,
    pub(super) address: &'a str,
    pub(super) port: u64,
}

/// The ready addresses behind a port of a service, from `turn` on and around: who asks with a random
/// number spreads the load.
pub(super) fn candidates<'a>(endpoints: &'a Value, port: &str, turn: usize) -> Vec<Candidate<'a>> {
    let mut found = Vec::new();
    for subset in rotated(&endpoints["subsets"], turn) {
        let ports = subset["ports"].as_array().into_iter().flatten();
        for port in ports.filter(|each| text(&each["name"]) == port) {
            let addresses = rotated(&subset["addresses"], turn).map(|address| Candidate {
                pod: text(&address["targetRef"]["name"]),
                namespace: text(&address["targetRef"]["namespace"]),
                address: text(&address["ip"]),
                port: port["port"].as_u64().unwrap_or_default(),
            });
            found.extend(addresses);
        }
    }
    found
}

fn rotated(list: &Value, turn: usize) -> impl Iterator<Item = &Value> {
    let list = list.as_array().map_or(&[][..], Vec::as_slice);
    let (before, after) = list.split_at(turn.checked_rem(list.len()).unwrap_or_default());
    after.iter().chain(before)
}

impl Candidate<'_> {
    /// Only addresses of pods are proxied to: whoever writes endpoints must not choose where we connect.
    pub(super) fn is_of(&self, pod: &Value) -> bool {
        let addresses = pod["status"]["podIPs"].as_array().into_iter().flatten();
        addresses
            .into_iter()
            .any(|each| text(&each["ip"]) == self.address)
    }

    /// Where it is.
    pub(super) fn place(&self, named: &Named<'_>) -> Result<Place> {
        named.place(self.address, &self.port.to_string())
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests;
