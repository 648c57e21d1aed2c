//! Networks: a bridge in a network namespace of its own, so that two networks may use the same addresses and
//! nothing of the host's network is touched. A mount holds the namespace; machines hang on the bridge.
//!
//! As in Azure machines do not reach each other on the wire: ports of the bridge are isolated, the bridge answers for
//! every address, and whatever one machine sends another is routed by the namespace. So there is one place that sees
//! every packet, keeps track of connections and can decide about them.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::{Path, PathBuf};

use futures::TryStreamExt as _;
use ipnet::Ipv4Net;
use nix::sched::{CloneFlags, unshare};
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::{
    Handle, LinkBridge, LinkBridgePort, LinkMessageBuilder, LinkUnspec, LinkVeth,
    RouteMessageBuilder,
};
use rustix::mount::{UnmountFlags, mount_bind, unmount};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use super::record::{read_json, write_json};
use crate::{Attachment, Error};

/// The bridge's name inside a network.
pub const BRIDGE: &str = "br0";
const CARD: &str = "eth0";
const OWN_NAMESPACE: &str = "/proc/thread-self/ns/net";

/// Settings of the calling thread's namespace, below the kernel's own of IPv4. It is a router, which answers for every
/// address that it knows a way to; nobody is told a shorter way, as there is none, and ways need not be the same in
/// both directions.
const ROUTER: [(&str, &str); 9] = [
    ("ip_forward", "1"),
    ("conf/all/send_redirects", "0"),
    ("conf/default/send_redirects", "0"),
    ("conf/br0/send_redirects", "0"),
    ("conf/all/rp_filter", "0"),
    ("conf/default/rp_filter", "0"),
    ("conf/br0/rp_filter", "0"),
    ("conf/br0/proxy_arp", "1"),
    ("conf/br0/proxy_arp_pvlan", "1"),
];

/// The address of the metadata service in every network.
pub const METADATA: Ipv4Addr = Ipv4Addr::new(169, 254, 169, 254);

/// The platform's own address in every network of Azure: probes of load balancers come from it.
pub const PLATFORM: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// The type of the kernel's file system of namespaces, from its `magic.h`.
const NSFS_MAGIC: u32 = 0x6e73_6673;

/// A network that machines can be attached to.
#[derive(Debug, Clone)]
pub struct Network {
    dir: PathBuf,
    /// Its addresses; where it has several ranges, the first of them.
    pub subnet: Ipv4Net,
    /// Its other ranges: each has a gateway of its own.
    more: Vec<Ipv4Net>,
}

#[derive(Serialize, Deserialize)]
struct Saved {
    subnet: Ipv4Net,
    #[serde(default)]
    more: Vec<Ipv4Net>,
}

/// The hardware address of the card that has this address: Microsoft's part, as in Azure, and the address' own.
pub fn hardware_address(address: Ipv4Addr) -> [u8; 6] {
    let [_, a, b, c] = address.octets();
    [0x00, 0x0d, 0x3a, a, b, c]
}

/// The first address of a range.
fn gateway_of(subnet: Ipv4Net) -> Ipv4Addr {
    subnet.hosts().next().unwrap_or(subnet.addr())
}

impl Network {
    /// Makes the network, or finds it as it was made before; a range that it did not have is one more. Whoever makes it
    /// says which of them is the first.
    pub(crate) fn create(dir: PathBuf, subnet: Ipv4Net) -> Result<Network, Error> {
        fs::create_dir_all(&dir).map_err(Error::file("make", &dir))?;
        let mut network = Network::open(dir.clone()).unwrap_or(Network {
            dir,
            subnet,
            more: Vec::new(),
        });
        let is_new = !network.subnets().any(|own| own == subnet);
        if is_new {
            network.more.push(subnet);
        }
        if !network.is_there() {
            let all: Vec<Ipv4Net> = network.subnets().collect();
            network.more = all.into_iter().filter(|own| *own != subnet).collect();
            network.subnet = subnet;
        }
        let saved = Saved {
            subnet: network.subnet,
            more: network.more.clone(),
        };
        write_json(&network.dir.join("network.json"), &saved)?;
        match network.is_there() {
            true if is_new => network.widen(subnet)?,
            true => {}
            false => network.build()?,
        }
        Ok(network)
    }

    /// The network that was made in this directory.
    pub(crate) fn open(dir: PathBuf) -> Result<Network, Error> {
        let saved: Saved = read_json(&dir.join("network.json"))?;
        Ok(Network {
            dir,
            subnet: saved.subnet,
            more: saved.more,
        })
    }

    /// Whatever is in this directory, to take it away.
    pub(crate) fn at(dir: PathBuf) -> Network {
        Network {
            dir,
            subnet: Ipv4Net::default(),
            more: Vec::new(),
        }
    }

    /// The address of the bridge: what machines have as their gateway, and where the host's side listens.
    pub fn gateway(&self) -> Ipv4Addr {
        gateway_of(self.subnet)
    }

    /// All of its ranges.
    fn subnets(&self) -> impl Iterator<Item = Ipv4Net> {
        [self.subnet].into_iter().chain(self.more.iter().copied())
    }

    /// The range that has an address.
    fn subnet_of(&self, address: Ipv4Addr) -> Ipv4Net {
        let mut all = self.subnets();
        all.find(|subnet| subnet.contains(&address))
            .unwrap_or(self.subnet)
    }

    /// The file that stands for its namespace (`nsenter --net=<file>`).
    pub fn namespace(&self) -> PathBuf {
        self.dir.join("netns")
    }

    /// Runs something on a thread inside the network, next to the bridge; programs started there stay there.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        on_own_thread(|| {
            enter(&self.namespace())?;
            Ok(work())
        })
    }

    /// Sends what is for these addresses to a machine: the network's route table. The last word counts.
    pub fn route(&self, to: Ipv4Net, machine: Ipv4Addr) -> Result<(), Error> {
        let route = move || {
            netlink("set a route of a network", |netlink| async move {
                let route = RouteMessageBuilder::<Ipv4Addr>::new()
                    .destination_prefix(to.network(), to.prefix_len())
                    .gateway(machine)
                    .build();
                netlink.route().add(route).replace().execute().await
            })
        };
        self.inside(route)?
    }

    /// Switches a port of the bridge on or off; its machine sees its carrier come and go.
    pub(crate) fn set_port(&self, port: &str, on: bool) -> Result<(), Error> {
        let port = port.to_owned();
        let set = || {
            netlink("switch a port of a network", |netlink| async move {
                let message = LinkUnspec::new_with_index(index(&netlink, &port).await?);
                let message = if on { message.up() } else { message.down() };
                netlink.link().set(message.build()).execute().await
            })
        };
        self.inside(set)?
    }

    pub(super) fn is_there(&self) -> bool {
        rustix::fs::statfs(self.namespace()).is_ok_and(|s| s.f_type as u32 == NSFS_MAGIC)
    }

    fn build(&self) -> Result<(), Error> {
        let file = self.namespace();
        fs::write(&file, "").map_err(Error::file("make", &file))?;
        on_own_thread(|| {
            new_namespace()?;
            netlink("make the bridge of a network", |netlink| async move {
                up(&netlink, "lo").await?;
                let bridge = LinkBridge::new(BRIDGE).build();
                netlink.link().add(bridge).execute().await?;
                let index = index(&netlink, BRIDGE).await?;
                let add = |address, prefix| netlink.address().add(index, address, prefix);
                for subnet in self.subnets() {
                    let gateway = IpAddr::V4(gateway_of(subnet));
                    add(gateway, subnet.prefix_len()).execute().await?;
                }
                // Where machines ask who they are, if somebody listens there.
                add(METADATA.into(), 32).execute().await?;
                add(PLATFORM.into(), 32).execute().await
            })?;
            for (setting, value) in ROUTER {
                set(setting, value)?;
            }
            // Last: a namespace that is held is one that is complete.
            mount_bind(OWN_NAMESPACE, &file).map_err(Error::file("hold a namespace at", &file))
        })
    }

    // Addresses that came later.
    fn widen(&self, subnet: Ipv4Net) -> Result<(), Error> {
        let add = || {
            netlink("give a network more addresses", |netlink| async move {
                let bridge = index(&netlink, BRIDGE).await?;
                let gateway = IpAddr::V4(gateway_of(subnet));
                let add = netlink.address().add(bridge, gateway, subnet.prefix_len());
                add.execute().await
            })
        };
        self.inside(add)?
    }

    /// Lets go of the namespace and forgets the network.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        // It would go with the namespace, a little later.
        self.close_to_host()?;
        let file = self.namespace();
        while self.is_there() {
            unmount(&file, UnmountFlags::DETACH).map_err(Error::file("unmount", &file))?;
        }
        fs::remove_dir_all(&self.dir).map_err(Error::file("remove", &self.dir))
    }

    /// Gives the calling thread a network namespace of its own, with a card on this network.
    ///
    /// The card goes when the namespace goes: there is nothing to clean up.
    pub(crate) fn attach(&self, attachment: &Attachment, port: &str) -> Result<(), Error> {
        new_namespace()?;
        let own = fs::File::open(OWN_NAMESPACE).map_err(Error::kernel("find the new namespace"))?;
        enter(&self.namespace())?;
        let cable = Network::plug_in(port, &own, attachment.address);
        move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(Error::kernel("return to the machine's namespace"))?;
        cable?;
        self.configure(attachment.address)
    }

    fn plug_in(port: &str, machine: &fs::File, address: Ipv4Addr) -> Result<(), Error> {
        let machine = machine.as_raw_fd();
        netlink("plug a machine into its network", |netlink| async move {
            let card = LinkMessageBuilder::<LinkUnspec>::new()
                .name(CARD)
                .address(hardware_address(address).to_vec())
                .setns_by_fd(machine)
                .build();
            let cable = LinkVeth::new(port, CARD)
                .set_info_data(InfoData::Veth(InfoVeth::Peer(card)))
                .controller(index(&netlink, BRIDGE).await?)
                .build();
            netlink.link().add(cable).execute().await?;
            let cable = index(&netlink, port).await?;
            let alone = LinkBridgePort::new(cable).isolated(true).build();
            netlink.link().set_port(alone).execute().await?;
            up(&netlink, port).await
        })
    }

    fn configure(&self, address: Ipv4Addr) -> Result<(), Error> {
        netlink("configure a machine's network card", |netlink| async move {
            up(&netlink, "lo").await?;
            let card = index(&netlink, CARD).await?;
            let subnet = self.subnet_of(address);
            netlink
                .address()
                .add(card, address.into(), subnet.prefix_len())
                .execute()
                .await?;
            up(&netlink, CARD).await?;
            let route = RouteMessageBuilder::<Ipv4Addr>::new()
                .gateway(gateway_of(subnet))
                .build();
            netlink.route().add(route).execute().await
        })
    }
}

/// Sets something of the calling thread's namespace.
pub(super) fn set(setting: &str, value: &str) -> Result<(), Error> {
    let file = Path::new("/proc/sys/net/ipv4").join(setting);
    fs::write(&file, value).map_err(Error::file("write", &file))
}

/// Gives the calling thread a network namespace with nothing but a loopback.
pub(crate) fn only_loopback() -> Result<(), Error> {
    new_namespace()?;
    netlink("start the loopback", |netlink| async move {
        up(&netlink, "lo").await
    })
}

fn new_namespace() -> Result<(), Error> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(Error::kernel("make a network namespace"))
}

pub(super) fn enter(namespace: &Path) -> Result<(), Error> {
    let file = fs::File::open(namespace).map_err(Error::file("open", namespace))?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(Error::file("enter the network namespace", namespace))
}

// A thread's namespace is its own; the caller's must not change.
pub(super) fn on_own_thread<T: Send>(
    work: impl FnOnce() -> Result<T, Error> + Send,
) -> Result<T, Error> {
    std::thread::scope(|scope| match scope.spawn(work).join() {
        Ok(done) => done,
        Err(panic) => std::panic::resume_unwind(panic),
    })
}

// Talks to the kernel about the calling thread's namespace.
pub(super) fn netlink<F: Future<Output = Result<(), rtnetlink::Error>>>(
    doing: &str,
    work: impl FnOnce(Handle) -> F,
) -> Result<(), Error> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?;
        runtime.block_on(async {
            let (connection, handle, _) = rtnetlink::new_connection()?;
            tokio::spawn(connection);
            Ok::<_, std::io::Error>(work(handle).await)
        })
    };
    run()
        .map_err(Error::kernel(doing))?
        .map_err(|source| Error::Netlink {
            doing: doing.to_owned(),
            source,
        })
}

pub(super) async fn index(netlink: &Handle, name: &str) -> Result<u32, rtnetlink::Error> {
    let mut links = netlink.link().get().match_name(name).execute();
    let link = links
        .try_next()
        .await?
        .ok_or(rtnetlink::Error::RequestFailed)?;
    Ok(link.header.index)
}

pub(super) async fn up(netlink: &Handle, name: &str) -> Result<(), rtnetlink::Error> {
    let message = LinkUnspec::new_with_index(index(netlink, name).await?)
        .up()
        .build();
    netlink.link().set(message).execute().await
}
