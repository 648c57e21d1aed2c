//! The rule set's shape: which maps and chains there are, and what stands in them.
//!
//! ```text
//! prerouting, output ─► services ─► outside?  local clients and pods skip it
//!                          │          └ outside-ips, outside-nodeports ─► chain of n local endpoints
//!                          └ service-ips, service-nodeports ─► chain of n endpoints ─► dnat by slots-…
//! ```
//!
//! A *front* is what clients connect to: an address, transport and port, or a port on every node. The maps say
//! for each front which chain picks an endpoint; the chain of n endpoints draws a number below n and looks up
//! front and number in a map of *slots*. So there are as many chains as there are different numbers of
//! endpoints, and sets, whose creation is quadratic in the kernel, are a fixed few.

use std::net::IpAddr;

use ipnet::IpNet;

use super::model::Protocol;
use super::topology::Target;

/// The table that is ours, in either family.
pub const TABLE: &str = "kyanite-services";

/// What clients connect to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Front {
    /// A port of an address.
    Address(IpAddr, Protocol, u16),
    /// A port of every node.
    Node(Protocol, u16),
}

impl Front {
    /// Its transport.
    pub fn protocol(&self) -> Protocol {
        let (Front::Address(_, protocol, _) | Front::Node(protocol, _)) = self;
        *protocol
    }
}

/// Whose connections: any client's, or those from outside that must stay on this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// Any endpoint will do.
    Cluster,
    /// Endpoints of this node only.
    Outside,
}

/// Something the rule set holds at most once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Key {
    /// A chain that picks an endpoint.
    Picks(Pick),
    /// A chain that remembers for so many seconds who went where.
    Remembers(u32),
    /// Where connections to a front go.
    Dispatch(Reach, Front),
    /// The n-th endpoint of a front.
    Slot(Reach, Front, u16),
    /// How long clients of a front stay with their endpoint.
    Affinity(Front),
    /// A front without endpoints.
    Refused(Front),
    /// A front that not everybody may use.
    Guarded(Front),
    /// Who may.
    Admitted(Front, IpNet),
    /// An address that is a Service's.
    ClusterAddress(IpAddr),
    /// An endpoint on this node, which may connect to itself.
    Hairpin(IpAddr),
}

impl Key {
    /// The front that this is a part of.
    pub(super) fn front(&self) -> Option<Front> {
        match self {
            Key::Slot(_, front, _)
            | Key::Dispatch(_, front)
            | Key::Affinity(front)
            | Key::Refused(front)
            | Key::Guarded(front)
            | Key::Admitted(front, _) => Some(*front),
            _ => None,
        }
    }
}

/// What stands there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Value {
    /// Being there is all.
    Present,
    /// Connections get an endpoint.
    Goto(Pick),
    /// Packets vanish.
    Drop,
    /// An endpoint.
    To(Target),
    /// Remembered for so many seconds.
    Remember(u32),
}

/// A chain that picks one of n endpoints.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Pick {
    /// Whether its fronts are ports of nodes.
    pub nodes: bool,
    /// Their transport: `nft` can name the type of a slot only together with it.
    pub protocol: Protocol,
    /// Whose source address is replaced.
    pub sources: Sources,
    /// Whether clients stay with their endpoint.
    pub sticky: bool,
    /// Among how many.
    pub of: u16,
}

/// Whose source address is replaced, so that answers come back through this node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Sources {
    /// That of clients which are not pods.
    Internal,
    /// Everybody's.
    Always,
    /// That of this node's own programs.
    Node,
    /// Nobody's: the endpoint is on this node.
    Kept,
}

impl Pick {
    /// The chain's name.
    pub fn chain(&self) -> String {
        let fronts = kind(self.nodes);
        let sources = match self.sources {
            Sources::Internal => "internal",
            Sources::Always => "external",
            Sources::Node => "cluster",
            Sources::Kept => "outside",
        };
        let sticky = if self.sticky { "-sticky" } else { "" };
        format!(
            "{sources}-{fronts}-{}{sticky}-{}",
            self.protocol.name(),
            self.of
        )
    }

    /// Whose slots it picks from.
    pub(super) fn reach(&self) -> Reach {
        match self.sources {
            Sources::Kept => Reach::Outside,
            _ => Reach::Cluster,
        }
    }
}

/// How maps of a kind of front end their names.
pub(super) fn kind(nodes: bool) -> &'static str {
    if nodes { "nodeports" } else { "ips" }
}

/// The chain that remembers for so many seconds.
pub(super) fn remembering(seconds: u32) -> String {
    format!("remember-{seconds}")
}

/// Which packets come from pods.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum LocalTraffic {
    /// Nobody can tell.
    #[default]
    Unknown,
    /// Those from addresses of pods.
    Nets(Vec<IpNet>),
    /// Those that come in by a bridge.
    Bridge(String),
    /// Those that come in by interfaces whose names begin so.
    Prefix(String),
}

/// Which addresses of the node have node ports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NodePortAddresses {
    /// All but loopback.
    All,
    /// These.
    Some(Vec<IpAddr>),
}

/// What the rules depend on beside Services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The mark of packets whose source is to be replaced.
    pub masquerade_mark: u32,
    /// Replace the source of everything that goes to a Service.
    pub masquerade_all: bool,
    /// How pods are told from others.
    pub local_traffic: LocalTraffic,
    /// Where node ports are served.
    pub node_ports: NodePortAddresses,
    /// Ranges in which every address is a Service's or nobody's.
    pub service_nets: Vec<IpNet>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            masquerade_mark: 1 << 14,
            masquerade_all: false,
            local_traffic: LocalTraffic::Unknown,
            node_ports: NodePortAddresses::All,
            service_nets: Vec::new(),
        }
    }
}
