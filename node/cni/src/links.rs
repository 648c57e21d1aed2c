//! Links, addresses, routes and neighbours of one network namespace.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use ipnet::IpNet;

use crate::netlink::{
    ACK, Attributes, CREATE, DUMP, EXCLUSIVE, Message, REPLACE, Socket, attributes, number, text,
};

/// A hardware address.
pub(crate) type Mac = [u8; 6];

const NEW_LINK: u16 = 16;
const DELETE_LINK: u16 = 17;
const GET_LINK: u16 = 18;
const NEW_ADDRESS: u16 = 20;
const GET_ADDRESS: u16 = 22;
const NEW_ROUTE: u16 = 24;
const GET_ROUTE: u16 = 26;
const NEW_NEIGHBOUR: u16 = 28;

const IFLA_ADDRESS: u16 = 1;
const IFLA_IFNAME: u16 = 3;
const IFLA_MTU: u16 = 4;
const IFLA_MASTER: u16 = 10;
const IFLA_LINKINFO: u16 = 18;
const IFLA_IFALIAS: u16 = 20;
const IFLA_NET_NS_FD: u16 = 28;
const INFO_KIND: u16 = 1;
const INFO_DATA: u16 = 2;
const INFO_PORT_KIND: u16 = 4;
const INFO_PORT_DATA: u16 = 5;
const VETH_PEER: u16 = 1;
const PORT_HAIRPIN: u16 = 4;
const UP: u32 = 1;
const PROMISCUOUS: u32 = 0x100;
const LINK_HEADER: usize = 16;

const IFA_ADDRESS: u16 = 1;
const IFA_LOCAL: u16 = 2;
const IFA_FLAGS: u16 = 8;
const NO_DUPLICATE_DETECTION: u32 = 0x02;

const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
const RTA_GATEWAY: u16 = 5;
const RTA_PRIORITY: u16 = 6;
const RTA_METRICS: u16 = 8;
const RTA_TABLE: u16 = 15;
const RTAX_MTU: u16 = 2;
const RTAX_ADVMSS: u16 = 8;
const MAIN_TABLE: u8 = 254;
const STATIC: u8 = 4;
const UNICAST: u8 = 1;
const SCOPE_LINK: u8 = 253;

const NDA_DST: u16 = 1;
const NDA_LLADDR: u16 = 2;
const PERMANENT: u16 = 0x80;

const INET: u8 = 2;
const INET6: u8 = 10;

/// A link as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) index: u32,
    pub(crate) name: String,
    pub(crate) alias: String,
    pub(crate) kind: String,
    pub(crate) mac: Mac,
    pub(crate) mtu: u32,
    pub(crate) controller: u32,
    pub(crate) up: bool,
}

/// A pair of links: one end here, one end in a pod.
#[derive(Debug)]
pub(crate) struct Cable<'a> {
    pub(crate) host: &'a str,
    pub(crate) host_mac: Option<Mac>,
    pub(crate) bridge: Option<u32>,
    pub(crate) mtu: u32,
    pub(crate) pod: &'a str,
    pub(crate) pod_mac: Mac,
    pub(crate) namespace: BorrowedFd<'a>,
}

/// A route to be made.
#[derive(Debug, Clone)]
pub(crate) struct Route {
    pub(crate) to: IpNet,
    pub(crate) via: Option<IpAddr>,
    pub(crate) link: u32,
    pub(crate) mtu: Option<u32>,
    pub(crate) advmss: Option<u32>,
    pub(crate) priority: Option<u32>,
    pub(crate) table: Option<u32>,
    pub(crate) scope: Option<u8>,
}

impl Route {
    pub(crate) fn new(to: IpNet, via: Option<IpAddr>, link: u32) -> Route {
        Route {
            to,
            via,
            link,
            mtu: None,
            advmss: None,
            priority: None,
            table: None,
            scope: None,
        }
    }
}

/// A route as it is, in the main table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Way {
    pub(crate) to: IpNet,
    pub(crate) via: Option<IpAddr>,
    pub(crate) link: u32,
}

/// The links of a network namespace.
#[derive(Debug)]
pub(crate) struct Links(Socket);

impl Links {
    /// Those of the calling thread's namespace.
    pub(crate) fn here() -> io::Result<Links> {
        Socket::route().map(Links)
    }

    pub(crate) fn find(&self, name: &str) -> io::Result<Option<Link>> {
        let attributes = Attributes::default().text(IFLA_IFNAME, name);
        let message = Message::new(GET_LINK, 0, &link_header(0, 0, 0), attributes);
        match self.0.get(&message) {
            Ok(body) => Ok(Some(read_link(&body))),
            Err(e) if e.raw_os_error() == Some(NO_DEVICE) => Ok(None),
            Err(e) => Err(e),
        }
    }

    pub(crate) fn all(&self) -> io::Result<Vec<Link>> {
        let message = Message::new(GET_LINK, DUMP, &link_header(0, 0, 0), Attributes::default());
        Ok(self
            .0
            .list(&message)?
            .iter()
            .map(|b| read_link(b))
            .collect())
    }

    pub(crate) fn connect(&self, cable: &Cable<'_>) -> io::Result<()> {
        let namespace = u32::try_from(cable.namespace.as_raw_fd()).unwrap_or_default();
        let peer = Attributes::default()
            .text(IFLA_IFNAME, cable.pod)
            .put(IFLA_ADDRESS, cable.pod_mac)
            .number(IFLA_MTU, cable.mtu)
            .number(IFLA_NET_NS_FD, namespace);
        let data = Attributes::default().nest_after(VETH_PEER, &link_header(0, 0, 0), peer);
        let info = Attributes::default()
            .text(INFO_KIND, "veth")
            .nest(INFO_DATA, data);
        let attributes = Attributes::default()
            .text(IFLA_IFNAME, cable.host)
            .number(IFLA_MTU, cable.mtu)
            .maybe(cable.host_mac.is_some(), |a| {
                a.put(IFLA_ADDRESS, cable.host_mac.unwrap_or_default())
            })
            .maybe(cable.bridge.is_some(), |a| {
                a.number(IFLA_MASTER, cable.bridge.unwrap_or_default())
            })
            .nest(IFLA_LINKINFO, info);
        self.change_link(CREATE | EXCLUSIVE, &link_header(0, UP, UP), attributes)
    }

    pub(crate) fn add_bridge(&self, name: &str, mac: Mac, mtu: u32) -> io::Result<()> {
        let info = Attributes::default().text(INFO_KIND, "bridge");
        let attributes = Attributes::default()
            .text(IFLA_IFNAME, name)
            .put(IFLA_ADDRESS, mac)
            .number(IFLA_MTU, mtu)
            .nest(IFLA_LINKINFO, info);
        self.change_link(CREATE | EXCLUSIVE, &link_header(0, UP, UP), attributes)
    }

    pub(crate) fn raise(&self, index: u32) -> io::Result<()> {
        self.change_link(0, &link_header(index, UP, UP), Attributes::default())
    }

    pub(crate) fn lower(&self, index: u32) -> io::Result<()> {
        self.change_link(0, &link_header(index, 0, UP), Attributes::default())
    }

    pub(crate) fn listen_to_all(&self, index: u32) -> io::Result<()> {
        let header = link_header(index, PROMISCUOUS, PROMISCUOUS);
        self.change_link(0, &header, Attributes::default())
    }

    /// Writes something on a link; a new one takes nothing written.
    pub(crate) fn inscribe(&self, index: u32, alias: &str) -> io::Result<()> {
        let attributes = Attributes::default().text(IFLA_IFALIAS, alias);
        self.change_link(0, &link_header(index, 0, 0), attributes)
    }

    /// Lets frames of a bridge's port return to where they came from.
    pub(crate) fn turn_back(&self, index: u32) -> io::Result<()> {
        let port = Attributes::default().put(PORT_HAIRPIN, [1]);
        let info = Attributes::default()
            .text(INFO_PORT_KIND, "bridge")
            .nest(INFO_PORT_DATA, port);
        let attributes = Attributes::default().nest(IFLA_LINKINFO, info);
        self.change_link(0, &link_header(index, 0, 0), attributes)
    }

    /// Takes a link away, and the other end of a cable with it; one that is gone already is fine.
    pub(crate) fn delete(&self, name: &str) -> io::Result<()> {
        let attributes = Attributes::default().text(IFLA_IFNAME, name);
        let message = Message::new(DELETE_LINK, ACK, &link_header(0, 0, 0), attributes);
        match self.0.request(&message) {
            Err(e) if e.raw_os_error() != Some(NO_DEVICE) => Err(e),
            _ => Ok(()),
        }
    }

    fn change_link(&self, flags: u16, header: &[u8], attributes: Attributes) -> io::Result<()> {
        self.0
            .request(&Message::new(NEW_LINK, flags | ACK, header, attributes))
    }

    /// Gives a link an address; having it already is fine.
    pub(crate) fn add_address(&self, index: u32, address: IpNet) -> io::Result<()> {
        let header = [
            &[family(address.addr()), address.prefix_len(), 0, 0],
            &index.to_ne_bytes()[..],
        ]
        .concat();
        let bytes = octets(address.addr());
        // Nobody else can have it: waiting for the kernel to find that out takes more than a second.
        let attributes = Attributes::default()
            .put(IFA_LOCAL, &bytes)
            .put(IFA_ADDRESS, &bytes)
            .maybe(address.addr().is_ipv6(), |a| {
                a.number(IFA_FLAGS, NO_DUPLICATE_DETECTION)
            });
        let flags = CREATE | REPLACE | ACK;
        self.0
            .request(&Message::new(NEW_ADDRESS, flags, &header, attributes))
    }

    pub(crate) fn addresses(&self, index: u32) -> io::Result<Vec<IpNet>> {
        let message = Message::new(GET_ADDRESS, DUMP, &[0; 8], Attributes::default());
        let all = self.0.list(&message)?;
        Ok(all
            .iter()
            .filter(|body| body.len() >= 8 && number(&body[4..]) == index)
            .filter_map(|body| read_address(body))
            .collect())
    }

    pub(crate) fn add_route(&self, route: &Route) -> io::Result<()> {
        let scope = match (route.scope, route.via) {
            (Some(scope), _) => scope,
            (None, Some(_)) => 0,
            (None, None) => SCOPE_LINK,
        };
        let table = route
            .table
            .map_or(MAIN_TABLE, |table| u8::try_from(table).unwrap_or_default());
        let to = route.to;
        let header = [
            family(to.addr()),
            to.prefix_len(),
            0,
            0,
            table,
            STATIC,
            scope,
            UNICAST,
            0,
            0,
            0,
            0,
        ];
        let metrics = Attributes::default()
            .maybe(route.mtu.is_some(), |a| {
                a.number(RTAX_MTU, route.mtu.unwrap_or_default())
            })
            .maybe(route.advmss.is_some(), |a| {
                a.number(RTAX_ADVMSS, route.advmss.unwrap_or_default())
            });
        let attributes = Attributes::default()
            .maybe(to.prefix_len() > 0, |a| {
                a.put(RTA_DST, octets(to.network()))
            })
            .number(RTA_OIF, route.link)
            .maybe(route.via.is_some(), |a| {
                a.put(RTA_GATEWAY, route.via.map(octets).unwrap_or_default())
            })
            .maybe(route.priority.is_some(), |a| {
                a.number(RTA_PRIORITY, route.priority.unwrap_or_default())
            })
            .maybe(route.table.is_some(), |a| {
                a.number(RTA_TABLE, route.table.unwrap_or_default())
            })
            .maybe(metrics != Attributes::default(), |a| {
                a.nest(RTA_METRICS, metrics)
            });
        let flags = CREATE | REPLACE | ACK;
        self.0
            .request(&Message::new(NEW_ROUTE, flags, &header, attributes))
    }

    pub(crate) fn routes(&self) -> io::Result<Vec<Way>> {
        let message = Message::new(GET_ROUTE, DUMP, &[0; 12], Attributes::default());
        let all = self.0.list(&message)?;
        Ok(all.iter().filter_map(|body| read_route(body)).collect())
    }

    /// Says for good at which hardware address a neighbour is.
    pub(crate) fn add_neighbour(&self, index: u32, address: IpAddr, mac: Mac) -> io::Result<()> {
        let [low, high] = PERMANENT.to_ne_bytes();
        let header = [
            &[family(address), 0, 0, 0],
            &index.to_ne_bytes()[..],
            &[low, high, 0, 0],
        ]
        .concat();
        let attributes = Attributes::default()
            .put(NDA_DST, octets(address))
            .put(NDA_LLADDR, mac);
        let flags = CREATE | REPLACE | ACK;
        self.0
            .request(&Message::new(NEW_NEIGHBOUR, flags, &header, attributes))
    }

    /// Limits what leaves by a link to this many bytes in a second, and a burst of this many.
    pub(crate) fn limit(&self, index: u32, limit: crate::bandwidth::Limit) -> io::Result<()> {
        let (header, attributes) = crate::bandwidth::token_bucket(index, limit);
        let flags = CREATE | REPLACE | ACK;
        self.0.request(&Message::new(
            crate::bandwidth::NEW_QUEUE,
            flags,
            &header,
            attributes,
        ))
    }

    /// The packet size of the link that leads out of here, if one does: where addresses that nobody has are sent.
    pub(crate) fn outward_mtu(&self) -> Option<u32> {
        let documentation = [
            IpAddr::from([198, 51, 100, 1]),
            IpAddr::from([0x2001, 0xdb8, 0xffff, 0, 0, 0, 0, 1]),
        ];
        let link = documentation.into_iter().find_map(|to| self.way_to(to))?;
        let header = link_header(link, 0, 0);
        let message = Message::new(GET_LINK, 0, &header, Attributes::default());
        self.0.get(&message).ok().map(|body| read_link(&body).mtu)
    }

    fn way_to(&self, to: IpAddr) -> Option<u32> {
        let bytes = octets(to);
        let length = u8::try_from(bytes.len() * 8).ok()?;
        let header = [family(to), length, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let attributes = Attributes::default().put(RTA_DST, bytes);
        let body = self
            .0
            .get(&Message::new(GET_ROUTE, 0, &header, attributes))
            .ok()?;
        let found = crate::netlink::attributes(&body, 12);
        let link = found.iter().find(|(kind, _)| *kind == RTA_OIF);
        link.map(|(_, value)| number(value))
    }
}

const NO_DEVICE: i32 = rustix::io::Errno::NODEV.raw_os_error();

fn link_header(index: u32, flags: u32, change: u32) -> [u8; LINK_HEADER] {
    let mut header = [0; LINK_HEADER];
    header[4..8].copy_from_slice(&index.to_ne_bytes());
    header[8..12].copy_from_slice(&flags.to_ne_bytes());
    header[12..16].copy_from_slice(&change.to_ne_bytes());
    header
}

fn family(address: IpAddr) -> u8 {
    if address.is_ipv4() { INET } else { INET6 }
}

pub(crate) fn octets(address: IpAddr) -> Vec<u8> {
    match address {
        IpAddr::V4(v4) => v4.octets().to_vec(),
        IpAddr::V6(v6) => v6.octets().to_vec(),
    }
}

fn address(bytes: &[u8]) -> Option<IpAddr> {
    match bytes.len() {
        4 => <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from),
        16 => <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from),
        _ => None,
    }
}

fn read_link(body: &[u8]) -> Link {
    let mut link = Link::default();
    if body.len() >= LINK_HEADER {
        link.index = number(&body[4..]);
        link.up = number(&body[8..]) & UP != 0;
    }
    for (kind, value) in attributes(body, LINK_HEADER) {
        match kind {
            IFLA_ADDRESS => link.mac = value.try_into().unwrap_or_default(),
            IFLA_IFNAME => link.name = text(value),
            IFLA_MTU => link.mtu = number(value),
            IFLA_MASTER => link.controller = number(value),
            IFLA_IFALIAS => link.alias = text(value),
            IFLA_LINKINFO => {
                let info = attributes(value, 0);
                let kind = info.iter().find(|(kind, _)| *kind == INFO_KIND);
                link.kind = kind.map(|(_, value)| text(value)).unwrap_or_default();
            }
            _ => {}
        }
    }
    link
}

fn read_address(body: &[u8]) -> Option<IpNet> {
    let found = attributes(body, 8);
    let of = |wanted| found.iter().find(|(kind, _)| *kind == wanted);
    let (_, bytes) = of(IFA_LOCAL).or_else(|| of(IFA_ADDRESS))?;
    IpNet::new(address(bytes)?, body[1]).ok()
}

fn read_route(body: &[u8]) -> Option<Way> {
    if body.len() < 12 || body[4] != MAIN_TABLE || body[7] != UNICAST {
        return None;
    }
    let found = attributes(body, 12);
    let of = |wanted| {
        found
            .iter()
            .find(|(kind, _)| *kind == wanted)
            .map(|(_, v)| *v)
    };
    let any = match body[0] {
        INET => IpAddr::from([0; 4]),
        _ => IpAddr::from([0; 16]),
    };
    let to = of(RTA_DST).and_then(address).unwrap_or(any);
    Some(Way {
        to: IpNet::new(to, body[1]).ok()?,
        via: of(RTA_GATEWAY).and_then(address),
        link: of(RTA_OIF).map(number).unwrap_or_default(),
    })
}
