//! ADD: a pod gets its addresses, its cable and its ways.

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv6Addr};

use ipnet::IpNet;

use crate::call::Call;
use crate::conf::{Conf, Role};
use crate::error::{Code, Error};
use crate::firewall::{self, Base};
use crate::ipam::{Pick, Range, pick};
use crate::ledger::{Attachment, Books, key};
use crate::links::{Cable, Link, Links, Mac, Route};
use crate::namespace::{Namespace, set};
use crate::result::{Address, Interface, Outcome};
use crate::{cleanup, killed_at};

/// The node's end of every cable in overlay mode; Azure's plugin has the same.
const NODE_MAC: Mac = [0xaa; 6];
/// Where pods of an overlay send everything. Nobody has these addresses: pods are told the node's hardware address.
const GATEWAY_4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(169, 254, 1, 1));
const GATEWAY_6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0x1234, 0x5678, 0x9abc));
const USUAL_MTU: u32 = 1500;

/// What a pod is to get.
struct Plan<'a> {
    call: &'a Call,
    conf: &'a Conf,
    namespace: &'a Namespace,
    links: &'a Links,
    picks: Vec<Pick>,
    host: String,
    mac: Mac,
    mtu: u32,
}

/// Attaches a container.
pub(crate) fn add(call: &Call, conf: &Conf) -> Result<Outcome, Error> {
    conf.needs_ranges()?;
    let namespace = Namespace::open(call.namespace.as_deref().unwrap_or("".as_ref()))?;
    if namespace.is_own() {
        let message = "the container's network namespace is the node's own";
        return Err(Error::new(Code::InvalidNamespace, message));
    }
    let links = Links::here().map_err(Error::kernel("talk to the kernel"))?;
    let mac = wanted_mac(conf)?;
    let picks = reserve(call, conf, &namespace, &links)?;
    let mtu = match conf.settings.mtu {
        0 => links.outward_mtu().unwrap_or(USUAL_MTU),
        mtu => mtu,
    };
    let plan = Plan {
        call,
        conf,
        namespace: &namespace,
        links: &links,
        host: cleanup::host_name(&conf.name, &call.container, &call.interface),
        mac: mac.unwrap_or_else(|| pod_mac(&picks)),
        picks,
        mtu,
    };
    plan.make().inspect_err(|_| {
        // The runtime will ask for a DEL; what can be taken away now need not wait for that.
        let _ = cleanup::del(call, conf);
    })
}

/// Enters a pod into the books, before anything of it is made.
fn reserve(
    call: &Call,
    conf: &Conf,
    namespace: &Namespace,
    links: &Links,
) -> Result<Vec<Pick>, Error> {
    let mut books = cleanup::books(conf, links)?;
    let host = cleanup::host_name(&conf.name, &call.container, &call.interface);
    let key = key(&call.container, &call.interface);
    if let Some(earlier) = books.ledger.attachments.get(&key) {
        let there = links
            .find(&host)
            .map_err(Error::kernel("look for links"))?
            .is_some();
        if earlier.complete && there {
            let message = format!(
                "{} of the container {} is attached already; hint: DEL comes first",
                call.interface, call.container
            );
            return Err(Error::new(Code::AlreadyAttached, message));
        }
        // An ADD that was killed: begin anew.
        links
            .delete(&host)
            .map_err(Error::kernel("take away what an earlier ADD left"))?;
        books.ledger.attachments.remove(&key);
    }
    let picks = match choose(call, conf, &books) {
        Err(error) if error.code == Code::TryAgainLater => {
            cleanup::drop_dead(&mut books, links)?;
            choose(call, conf, &books)?
        }
        chosen => chosen?,
    };
    let attachment = Attachment {
        container: call.container.clone(),
        interface: call.interface.clone(),
        namespace: namespace.path.clone(),
        identity: Some(namespace.identity),
        host,
        ports: conf.settings.ports(),
        ..Attachment::default()
    };
    books.ledger.enter(attachment, &picks);
    books.ledger.base = base(conf);
    books.save()?;
    killed_at("reserved");
    Ok(picks)
}

fn choose(call: &Call, conf: &Conf, books: &Books) -> Result<Vec<Pick>, Error> {
    let (mut asked, _) = conf.settings.asked_for();
    asked.extend(
        call.arguments
            .get("IP")
            .and_then(|ip| ip.parse::<IpAddr>().ok()),
    );
    let all = books.ledger.attachments.values();
    let taken: HashSet<IpAddr> = all.flat_map(|a| a.addresses.iter().copied()).collect();
    let mut picks = Vec::new();
    for (n, set) in conf.ranges.iter().enumerate() {
        let last = books.ledger.last.get(&n).copied();
        let found = pick(set, last, &asked, |address| taken.contains(&address));
        picks.push(found.ok_or_else(|| full(set))?);
    }
    let unmet = asked
        .iter()
        .find(|ip| !picks.iter().any(|pick| pick.address == **ip));
    match unmet {
        None => Ok(picks),
        Some(ip) => Err(Error::new(
            Code::InvalidConfiguration,
            format!("the address {ip} that was asked for is in no range of this network"),
        )),
    }
}

fn full(set: &[Range]) -> Error {
    let subnets: Vec<String> = set.iter().map(|range| range.subnet.to_string()).collect();
    let message = format!("no IP addresses available in {}", subnets.join(", "));
    Error::new(Code::TryAgainLater, message)
        .because("every address has a live pod; hint: fewer pods on this node (maxPods), or a larger pod CIDR")
}

/// What the network's rules need to know, by this configuration.
pub(crate) fn base(conf: &Conf) -> Base {
    let ranges = conf.ranges.iter().flatten();
    Base {
        masquerade: conf.settings.masquerades(),
        pods: ranges.map(|range| range.subnet).collect(),
        inside: conf.settings.non_masquerade.clone(),
    }
}

fn wanted_mac(conf: &Conf) -> Result<Option<Mac>, Error> {
    let (_, Some(text)) = conf.settings.asked_for() else {
        return Ok(None);
    };
    let bytes: Option<Vec<u8>> = text
        .split(':')
        .map(|byte| u8::from_str_radix(byte, 16).ok())
        .collect();
    let mac = bytes.and_then(|bytes| Mac::try_from(bytes).ok());
    let odd = || {
        Error::new(
            Code::InvalidConfiguration,
            format!("`{text}` is not a hardware address"),
        )
    };
    mac.map(Some).ok_or_else(odd)
}

/// An address has one hardware address, whoever has it: what neighbours remember never gets old.
fn pod_mac(picks: &[Pick]) -> Mac {
    let bytes = picks.first().map(|pick| crate::links::octets(pick.address));
    let bytes = bytes.unwrap_or_default();
    let end = bytes.last_chunk::<4>().copied().unwrap_or_default();
    [0x0a, 0x58, end[0], end[1], end[2], end[3]]
}

/// A hardware address as people write it.
pub(crate) fn mac_text(mac: Mac) -> String {
    let bytes: Vec<String> = mac.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

impl Plan<'_> {
    fn make(&self) -> Result<Outcome, Error> {
        let bridge = match self.conf.role {
            Role::Bridge => Some(self.bridge()?),
            _ => None,
        };
        self.connect(bridge.as_ref())?;
        killed_at("connected");
        let host = self
            .links
            .find(&self.host)
            .map_err(Error::kernel("look for the cable"))?
            .ok_or_else(|| Error::new(Code::Kernel, "the cable has gone"))?;
        self.namespace.inside(|| self.furnish_pod())?;
        killed_at("furnished");
        self.furnish_node(&host)?;
        killed_at("routed");
        self.complete()?;
        Ok(self.outcome(bridge.as_ref(), &host))
    }

    fn bridge(&self) -> Result<Link, Error> {
        let name = self.conf.settings.bridge_name();
        let doing = || Error::kernel(format!("make the bridge {name}"));
        let find = || self.links.find(name).map_err(doing());
        let bridge = match find()? {
            Some(bridge) => bridge,
            None => {
                let mac = gateway_mac(&self.picks);
                match self.links.add_bridge(name, mac, self.mtu) {
                    // Another pod's ADD was faster.
                    Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(doing()(e)),
                    _ => {}
                }
                set(&format!("ipv6/conf/{name}/accept_ra"), "0")?;
                find()?.ok_or_else(|| Error::new(Code::Kernel, "the bridge has gone"))?
            }
        };
        if bridge.kind != "bridge" {
            let message = format!("the link {name} is there and is not a bridge");
            return Err(Error::new(Code::InvalidConfiguration, message));
        }
        if !bridge.up {
            self.links.raise(bridge.index).map_err(doing())?;
        }
        if self.conf.settings.promisc_mode {
            self.links.listen_to_all(bridge.index).map_err(doing())?;
        }
        if self.conf.settings.is_gateway() {
            self.address_bridge(&bridge).map_err(doing())?;
        }
        Ok(bridge)
    }

    fn address_bridge(&self, bridge: &Link) -> std::io::Result<()> {
        let there = self.links.addresses(bridge.index)?;
        for pick in &self.picks {
            let gateway = within(pick.gateway, pick.subnet);
            if !there.contains(&gateway) {
                self.links.add_address(bridge.index, gateway)?;
            }
        }
        Ok(())
    }

    fn connect(&self, bridge: Option<&Link>) -> Result<(), Error> {
        let overlay = self.conf.role == Role::Overlay;
        let cable = Cable {
            host: &self.host,
            host_mac: overlay.then_some(NODE_MAC),
            bridge: bridge.map(|bridge| bridge.index),
            mtu: self.mtu,
            pod: &self.call.interface,
            pod_mac: self.mac,
            namespace: self.namespace.fd(),
        };
        self.links
            .connect(&cable)
            .map_err(|cause| match cause.kind() {
                ErrorKind::AlreadyExists => Error::new(
                    Code::Kernel,
                    format!(
                        "the container has an interface {} already",
                        self.call.interface
                    ),
                ),
                _ => Error::kernel("connect the container")(cause),
            })
    }

    // Runs inside the pod.
    fn furnish_pod(&self) -> Result<(), Error> {
        let links = Links::here().map_err(Error::kernel("talk to the kernel in the container"))?;
        let name = &self.call.interface;
        if self.picks.iter().any(|pick| pick.address.is_ipv6()) {
            for link in ["lo", name] {
                set(&format!("ipv6/conf/{link}/disable_ipv6"), "0")?;
            }
        }
        let doing = || Error::kernel(format!("configure {name} in the container"));
        let find = |name: &str| {
            let found = links.find(name).map_err(doing())?;
            found.ok_or_else(|| Error::new(Code::Kernel, format!("{name} has gone")))
        };
        let link = find(name)?;
        for address in self.addresses() {
            links.add_address(link.index, address).map_err(doing())?;
        }
        let lo = find("lo")?;
        if !lo.up {
            links.raise(lo.index).map_err(doing())?;
        }
        links.raise(link.index).map_err(doing())?;
        self.route_pod(&links, link.index).map_err(doing())?;
        if let Some(limit) = self.conf.settings.bandwidth().sent() {
            links.limit(link.index, limit).map_err(doing())?;
        }
        Ok(())
    }

    fn route_pod(&self, links: &Links, link: u32) -> std::io::Result<()> {
        if self.conf.role == Role::Overlay {
            for pick in &self.picks {
                let gateway = self.gateway(pick);
                links.add_route(&Route::new(gateway.into(), None, link))?;
                links.add_neighbour(link, gateway, NODE_MAC)?;
            }
        }
        for wanted in self.conf.routes() {
            let is_4 = wanted.dst.addr().is_ipv4();
            let mut picks = self.picks.iter();
            let Some(pick) = picks.find(|pick| pick.address.is_ipv4() == is_4) else {
                continue;
            };
            let via = wanted.gw.or(Some(self.gateway(pick)));
            links.add_route(&Route {
                mtu: wanted.mtu,
                advmss: wanted.advmss,
                priority: wanted.priority,
                table: wanted.table,
                scope: wanted.scope,
                ..Route::new(wanted.dst, via, link)
            })?;
        }
        Ok(())
    }

    fn furnish_node(&self, host: &Link) -> Result<(), Error> {
        let doing = || Error::kernel(format!("configure {} of the node", self.host));
        let addresses: Vec<IpAddr> = self.picks.iter().map(|pick| pick.address).collect();
        let alias = cleanup::alias(&self.conf.name, self.call, &addresses);
        self.links.inscribe(host.index, &alias).map_err(doing())?;
        match self.conf.role {
            Role::Overlay => {
                for pick in &self.picks {
                    let way = Route::new(pick.address.into(), None, host.index);
                    self.links.add_route(&way).map_err(doing())?;
                    self.links
                        .add_neighbour(host.index, pick.address, self.mac)
                        .map_err(doing())?;
                }
            }
            _ if self.conf.settings.hairpin() => {
                self.links.turn_back(host.index).map_err(doing())?;
            }
            _ => {}
        }
        if let Some(limit) = self.conf.settings.bandwidth().received() {
            self.links.limit(host.index, limit).map_err(doing())?;
        }
        for pick in &self.picks {
            match pick.address {
                IpAddr::V4(_) => set("ipv4/ip_forward", "1")?,
                IpAddr::V6(_) => set("ipv6/conf/all/forwarding", "1")?,
            }
        }
        if !self.conf.settings.ports().is_empty() {
            let out = match self.conf.role {
                Role::Bridge => self.conf.settings.bridge_name(),
                _ => &self.host,
            };
            set(&format!("ipv4/conf/{out}/route_localnet"), "1")?;
        }
        Ok(())
    }

    fn complete(&self) -> Result<(), Error> {
        let mut books = Books::take(&self.conf.directory())?;
        let key = key(&self.call.container, &self.call.interface);
        match books.ledger.attachments.get_mut(&key) {
            Some(attachment) => attachment.complete = true,
            None => {
                let message = "the container was detached while it was being attached";
                return Err(Error::new(Code::TryAgainLater, message));
            }
        }
        firewall::follow(&cleanup::table(self.conf), &books.ledger)?;
        killed_at("ruled");
        books.save()?;
        killed_at("completed");
        Ok(())
    }

    // Nobody else is on an overlay pod's cable: its network is itself.
    fn addresses(&self) -> Vec<IpNet> {
        let overlay = self.conf.role == Role::Overlay;
        let of = |pick: &Pick| match overlay {
            true => pick.address.into(),
            false => within(pick.address, pick.subnet),
        };
        self.picks.iter().map(of).collect()
    }

    fn gateway(&self, pick: &Pick) -> IpAddr {
        match (self.conf.role, pick.address) {
            (Role::Overlay, IpAddr::V4(_)) => GATEWAY_4,
            (Role::Overlay, IpAddr::V6(_)) => GATEWAY_6,
            _ => pick.gateway,
        }
    }

    fn outcome(&self, bridge: Option<&Link>, host: &Link) -> Outcome {
        let of_node = |link: &Link| Interface {
            name: link.name.clone(),
            mac: mac_text(link.mac),
            mtu: link.mtu,
            sandbox: String::new(),
        };
        let mut interfaces: Vec<Interface> = bridge.into_iter().map(of_node).collect();
        interfaces.push(of_node(host));
        interfaces.push(Interface {
            name: self.call.interface.clone(),
            mac: mac_text(self.mac),
            mtu: self.mtu,
            sandbox: self.namespace.path.display().to_string(),
        });
        let ips = self.addresses().into_iter().zip(&self.picks);
        let ips = ips.map(|(address, pick)| Address {
            interface: Some(interfaces.len() - 1),
            address,
            gateway: Some(self.gateway(pick)),
        });
        Outcome {
            ips: ips.collect(),
            interfaces,
            routes: self.conf.routes(),
            dns: self.conf.settings.dns().clone(),
        }
    }
}

fn gateway_mac(picks: &[Pick]) -> Mac {
    let gateways: Vec<Pick> = picks
        .iter()
        .map(|pick| Pick {
            address: pick.gateway,
            ..pick.clone()
        })
        .collect();
    pod_mac(&gateways)
}

fn within(address: IpAddr, subnet: IpNet) -> IpNet {
    IpNet::new(address, subnet.prefix_len()).unwrap_or(subnet)
}
