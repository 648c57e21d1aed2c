//! `HTTPS_PROXY` and `NO_PROXY`, as Go's programs understand them (`x/net/http/httpproxy`), and a proxy's `CONNECT` as
//! grpc-go asks for it.

use std::io;
use std::net::IpAddr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnet::IpNet;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::http2::percent_decode;

/// grpc-go resolves a proxy as it does a server.
const USUAL_PORT: u16 = 443;
/// The most bytes of a proxy's answer.
const MAX_ANSWER: usize = 16 << 10;

/// Which connections take a proxy, and which one. None by default.
#[derive(Debug, Clone, Default)]
pub struct Proxies {
    proxy: Option<Proxy>,
    exempt: Vec<Exempt>,
}

/// A proxy that takes `CONNECT`.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Proxy {
    pub(super) host: String,
    pub(super) port: u16,
    /// `user:password`, which nobody shall see in a log.
    credentials: Option<String>,
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({}:{})", self.host, self.port)
    }
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
            proxy: Proxy::parse(proxy),
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

impl Proxy {
    // A URL, or a host and perhaps a port.
    fn parse(text: &str) -> Option<Proxy> {
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next()?;
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (place, USUAL_PORT),
        };
        (!host.is_empty()).then(|| Proxy {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            credentials: credentials.map(|user| {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                format!("{}:{}", percent_decode(name), percent_decode(password))
            }),
        })
    }

    /// Has the proxy connect to `host:port`; from then on the socket leads there.
    pub(super) async fn connect(&self, socket: &mut TcpStream, target: &str) -> io::Result<()> {
        let authorization = match &self.credentials {
            None => String::new(),
            Some(secret) => {
                format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(secret))
            }
        };
        let request = format!(
            "CONNECT {target} HTTP/1.1\r\nHost: {target}\r\nUser-Agent: kyanite-konnectivity\r\n{authorization}\r\n"
        );
        socket.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        // Byte by byte: what follows belongs to the server.
        while !answer.ends_with(b"\r\n\r\n") {
            if answer.len() >= MAX_ANSWER {
                return Err(io::Error::other("its answer has no end"));
            }
            answer.push(socket.read_u8().await?);
        }
        let answer = String::from_utf8_lossy(&answer);
        let line = answer.lines().next().unwrap_or_default();
        match line.split(' ').nth(1) {
            Some("200") => Ok(()),
            _ => Err(io::Error::other(format!("it answered `{line}`"))),
        }
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
