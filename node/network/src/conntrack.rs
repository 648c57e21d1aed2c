//! Connections the kernel still tracks to where nobody is any more.
//!
//! A TCP client notices that its endpoint is gone. A UDP client sends on from the same port, and as long as it
//! does, the kernel sends its packets where it sent the first one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_sys::protocols::NETLINK_NETFILTER;
use netlink_sys::{Socket, SocketAddr};

use crate::services::Udp;
use crate::services::layout::Front;
use crate::services::model::{Family, Protocol};

/// A tracked connection: where it was sent first, and where it went.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Tracked {
    protocol: u8,
    original: (IpAddr, u16),
    answers_from: (IpAddr, u16),
    /// What names it, as the kernel wrote it.
    name: Vec<u8>,
}

/// Whether a UDP connection leads to an endpoint that its front no longer has.
fn is_stale(tracked: &Tracked, fronts: &[Udp], is_node: impl Fn(IpAddr) -> bool) -> bool {
    let (ip, port) = tracked.original;
    let front = fronts.iter().find(|udp| match udp.front {
        Front::Address(address, Protocol::Udp, number) => (address, number) == (ip, port),
        // Without endpoints a node port may be some program's own.
        Front::Node(Protocol::Udp, number) => {
            number == port && is_node(ip) && !udp.targets.is_empty()
        }
        _ => false,
    });
    let goes_to =
        |target: &crate::services::Target| (target.address, target.port) == tracked.answers_from;
    front.is_some_and(|udp| !udp.targets.iter().any(goes_to))
}

/// Makes the kernel forget connections to endpoints that these fronts no longer have, and says how many.
pub fn forget(
    family: Family,
    fronts: &[Udp],
    is_node: impl Fn(IpAddr) -> bool,
) -> std::io::Result<usize> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let all = dump(&socket, family)?;
    let stale: Vec<&Tracked> = all
        .iter()
        .filter(|tracked| tracked.protocol == UDP && is_stale(tracked, fronts, &is_node))
        .collect();
    for tracked in &stale {
        socket.send(&message(DELETE, REQUEST | ACK, family, &tracked.name), 0)?;
        // An error means that it went by itself.
        socket.recv_from_full()?;
    }
    Ok(stale.len())
}

const UDP: u8 = 17;
// From <linux/netlink.h> and <linux/netfilter/nfnetlink_conntrack.h>.
const REQUEST: u16 = 0x1;
const ACK: u16 = 0x4;
const DUMP: u16 = 0x300;
const GET: u16 = 0x101;
const DELETE: u16 = 0x102;
const END_OF_DUMP: u16 = 3;
const ERROR: u16 = 2;
const TUPLE_ORIGINAL: u16 = 1;
const TUPLE_REPLY: u16 = 2;
const HEADER: usize = 16;
const FAMILY_HEADER: usize = 4;

fn message(kind: u16, flags: u16, family: Family, attributes: &[u8]) -> Vec<u8> {
    let length = HEADER + FAMILY_HEADER + attributes.len();
    let mut bytes = Vec::with_capacity(length);
    bytes.extend(u32::try_from(length).unwrap_or_default().to_ne_bytes());
    bytes.extend(kind.to_ne_bytes());
    bytes.extend(flags.to_ne_bytes());
    bytes.extend([0; 8]);
    bytes.extend([family_number(family), 0, 0, 0]);
    bytes.extend(attributes);
    bytes
}

fn family_number(family: Family) -> u8 {
    match family {
        Family::V4 => 2,
        Family::V6 => 10,
    }
}

fn dump(socket: &Socket, family: Family) -> std::io::Result<Vec<Tracked>> {
    socket.send(&message(GET, REQUEST | DUMP, family, &[]), 0)?;
    let mut all = Vec::new();
    loop {
        let (bytes, _) = socket.recv_from_full()?;
        for (kind, body) in messages(&bytes) {
            match kind {
                END_OF_DUMP | ERROR => return Ok(all),
                _ => all.extend(body.get(FAMILY_HEADER..).and_then(tracked)),
            }
        }
    }
}

/// Type and body of each message in a datagram.
pub(crate) fn messages(mut bytes: &[u8]) -> Vec<(u16, &[u8])> {
    let mut found = Vec::new();
    while let Some(header) = bytes.get(..HEADER) {
        let length = u32::from_ne_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(body) = bytes.get(HEADER..length) else {
            break;
        };
        found.push((u16::from_ne_bytes([header[4], header[5]]), body));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

/// Number, whole bytes and content of each attribute.
pub(crate) fn attributes(mut bytes: &[u8]) -> Vec<(u16, &[u8], &[u8])> {
    let mut found = Vec::new();
    while let Some(header) = bytes.get(..4) {
        let length = usize::from(u16::from_ne_bytes([header[0], header[1]]));
        let kind = u16::from_ne_bytes([header[2], header[3]]) & 0x3fff;
        let Some(content) = bytes.get(4..length) else {
            break;
        };
        found.push((kind, &bytes[..length], content));
        bytes = bytes.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

fn tracked(bytes: &[u8]) -> Option<Tracked> {
    let all = attributes(bytes);
    let find = |kind| all.iter().find(|(k, ..)| *k == kind);
    let (_, name, original) = find(TUPLE_ORIGINAL)?;
    let (.., reply) = find(TUPLE_REPLY)?;
    let (original, reply) = (tuple(original)?, tuple(reply)?);
    let mut name = name.to_vec();
    name.resize(name.len().next_multiple_of(4), 0);
    Some(Tracked {
        protocol: original.protocol,
        original: original.to,
        answers_from: reply.from,
        name,
    })
}

struct Tuple {
    protocol: u8,
    from: (IpAddr, u16),
    to: (IpAddr, u16),
}

fn tuple(bytes: &[u8]) -> Option<Tuple> {
    let parts = attributes(bytes);
    let part = |kind: u16| {
        parts
            .iter()
            .find(|(k, ..)| *k == kind)
            .map(|(.., content)| attributes(content))
    };
    let (ip, transport) = (part(1)?, part(2)?);
    let address = |kinds: [u16; 2]| {
        ip.iter()
            .find(|(k, ..)| kinds.contains(k))
            .and_then(|(.., b)| ip_of(b))
    };
    let content = |kind: u16| {
        transport
            .iter()
            .find(|(k, ..)| *k == kind)
            .map(|(.., b)| *b)
    };
    let port =
        |kind| content(kind).and_then(|b| Some(u16::from_be_bytes([*b.first()?, *b.get(1)?])));
    Some(Tuple {
        protocol: *content(1)?.first()?,
        from: (address([1, 3])?, port(2)?),
        to: (address([2, 4])?, port(3)?),
    })
}

fn ip_of(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes)
            .ok()
            .map(|b| Ipv4Addr::from(b).into()),
        _ => <[u8; 16]>::try_from(bytes)
            .ok()
            .map(|b| Ipv6Addr::from(b).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::services::Target;

    #[test]
    fn only_connections_to_endpoints_that_are_gone_are_stale() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let target = |text: &str| Target {
            address: ip(text),
            port: 53,
        };
        let fronts = [
            Udp {
                front: Front::Address(ip("10.0.0.10"), Protocol::Udp, 53),
                targets: vec![target("10.244.0.2")],
            },
            Udp {
                front: Front::Address(ip("10.0.0.11"), Protocol::Udp, 53),
                targets: vec![],
            },
            Udp {
                front: Front::Node(Protocol::Udp, 30053),
                targets: vec![target("10.244.0.2")],
            },
            Udp {
                front: Front::Node(Protocol::Udp, 30054),
                targets: vec![],
            },
        ];
        for (to, port, from, stale) in [
            ("10.0.0.10", 53, "10.244.0.2", false),
            ("10.0.0.10", 53, "10.244.0.3", true),
            ("10.0.0.10", 54, "10.244.0.3", false),
            ("10.0.0.11", 53, "10.244.0.3", true),
            ("192.168.0.1", 30053, "10.244.0.3", true),
            ("192.168.0.1", 30053, "10.244.0.2", false),
            ("192.168.0.2", 30053, "10.244.0.3", false),
            ("192.168.0.1", 30054, "192.168.0.1", false),
        ] {
            let tracked = Tracked {
                protocol: UDP,
                original: (ip(to), port),
                answers_from: (ip(from), 53),
                name: Vec::new(),
            };
            let found = is_stale(&tracked, &fronts, |node| node == ip("192.168.0.1"));
            assert_eq!(found, stale, "{to}:{port} answered by {from}");
        }
    }

    #[test]
    fn nonsense_from_the_kernel_is_survived() {
        for length in 0..64 {
            let bytes: Vec<u8> = (0..length).map(|i| i as u8 | 4).collect();
            messages(&bytes);
            let _ = tracked(&bytes);
        }
    }
}
