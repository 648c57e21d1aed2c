//! `HTTPS_PROXY` and `NO_PROXY`, as Go's programs understand them (`x/net/http/httpproxy`).

use std::net::IpAddr;

use ipnet::IpNet;
use wire::proxy::Proxy;

/// grpc-go resolves a proxy as it does a server.
const USUAL_PORT: u16 = 443;

/// Which connections take a proxy, and which one. None by default.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    proxy: Option<Proxy>,
    exempt: Vec<Exempt>,
}

/// What takes no proxy; a port of `None` is every port.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Exempt {
    Everything,
    Network(IpNet),
    Address(IpAddr, Option<String>),
    /// A domain with its dot, and whether the name without it is meant too.
    Domain(String, bool, Option<String>),
}

impl Proxies {
    /// What the environment says.
    pub fn from_environment() -> Proxies {
        let first = |names: [&str; 2]| {
            let values = names
                .into_iter()
                .filter_map(|name| std::env::var(name).ok());
            values.into_iter().find(|value| !value.is_empty())
        };
        let proxy = first(["HTTPS_PROXY", "https_proxy"]).unwrap_or_default();
        let exempt = first(["NO_PROXY", "no_proxy"]).unwrap_or_default();
        Proxies::parse(&proxy, &exempt)
    }

    /// The two variables' values; empty is unset.
    pub fn parse(proxy: &str, exempt: &str) -> Proxies {
        Proxies {
            proxy: Proxy::parse(proxy, USUAL_PORT),
            exempt: exempt.split(',').filter_map(Exempt::parse).collect(),
        }
    }

    /// The proxy on the way to a server.
    pub(super) fn towards(&self, host: &str, port: u16) -> Option<&Proxy> {
        let host = host.trim_matches(['[', ']']).to_lowercase();
        let address: Option<IpAddr> = host.parse().ok();
        let own = host == "localhost" || address.is_some_and(|ip| ip.is_loopback());
        let port = port.to_string();
        let is_exempt = |rule: &Exempt| rule.matches(&host, address, &port);
        self.proxy
            .as_ref()
            .filter(|_| !own && !self.exempt.iter().any(is_exempt))
    }
}

impl Exempt {
    fn parse(entry: &str) -> Option<Exempt> {
        let entry = entry.trim().to_lowercase();
        if entry == "*" {
            return Some(Exempt::Everything);
        }
        if let Ok(network) = entry.parse() {
            return Some(Exempt::Network(network));
        }
        let (host, port) = match entry.rsplit_once(':') {
            // More colons without brackets are an address of IPv6.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
                (host.trim_matches(['[', ']']), Some(port.to_owned()))
            }
            _ => (&*entry, None),
        };
        if let Ok(address) = host.parse() {
            return Some(Exempt::Address(address, port));
        }
        let host = host
            .strip_prefix('*')
            .filter(|h| h.starts_with('.'))
            .unwrap_or(host);
        match host.strip_prefix('.') {
            _ if host.is_empty() => None,
            Some(_) => Some(Exempt::Domain(host.to_owned(), false, port)),
            None => Some(Exempt::Domain(format!(".{host}"), true, port)),
        }
    }

    fn matches(&self, host: &str, address: Option<IpAddr>, port: &str) -> bool {
        let fits = |wanted: &Option<String>| {
            let wanted = wanted.as_deref().unwrap_or_default();
            wanted.is_empty() || wanted == port
        };
        match self {
            Exempt::Everything => true,
            Exempt::Network(network) => address.is_some_and(|ip| network.contains(&ip)),
            Exempt::Address(wanted, at) => address == Some(*wanted) && fits(at),
            Exempt::Domain(domain, itself, at) => {
                (host.ends_with(domain.as_str()) || *itself && host == &domain[1..]) && fits(at)
            }
        }
    }
}

#[cfg(test)]
mod tests;
