//! Cables between networks: each end is in one of them, and goes with either.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;

use futures::TryStreamExt as _;
use ipnet::Ipv4Net;
use rtnetlink::packet_route::link::{InfoData, InfoVeth, LinkAttribute, LinkMessage};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteScope};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};

use super::network::{Network, index, netlink, set, up};
use crate::Error;

/// How names of such cables' ends begin.
const PEER: &str = "p-";

impl Network {
    /// The name, in another network, of the cable to this one: no other namespace has this one's number while it is there.
    pub fn peer_link(&self) -> Result<String, Error> {
        let file = self.namespace();
        let found = fs::metadata(&file).map_err(Error::file("look at", &file))?;
        Ok(format!("{PEER}{}", found.ino()))
    }

    /// Lets packets for these addresses go to these networks, and to no others. The way back is those networks' own.
    pub fn set_peers(&self, peers: &[(Network, Vec<Ipv4Net>)]) -> Result<(), Error> {
        let own = self.peer_link()?;
        let mut wanted = BTreeMap::new();
        for (peer, ranges) in peers {
            wanted.insert(peer.peer_link()?, (peer, ranges));
        }
        let (own, wanted) = (&own, &wanted);
        self.inside(|| {
            netlink("take cables between networks away", |netlink| async move {
                for (name, link) in cables(&netlink).await? {
                    if !wanted.contains_key(&name) {
                        netlink.link().del(link).execute().await?;
                    }
                }
                Ok(())
            })?;
            for (name, (peer, ranges)) in wanted {
                let file = peer.namespace();
                let there = fs::File::open(&file).map_err(Error::file("open", &file))?;
                let there = there.as_raw_fd();
                let lay = |netlink: Handle| async move {
                    if index(&netlink, name).await.is_err() {
                        lay(&netlink, name, own, there).await?;
                    }
                    up(&netlink, name).await
                };
                netlink("lay a cable between networks", lay)?;
                // Whoever is on the other side asks for the machine, and this side answers for it.
                set(&format!("conf/{name}/proxy_arp"), "1")?;
                let lead = |netlink: Handle| async move {
                    let link = index(&netlink, name).await?;
                    lead(&netlink, link, ranges).await
                };
                netlink("set the ways between networks", lead)?;
            }
            Ok(())
        })?
    }
}

async fn lay(netlink: &Handle, name: &str, own: &str, there: i32) -> Result<(), rtnetlink::Error> {
    let peer = LinkMessageBuilder::<LinkUnspec>::new()
        .name(own)
        .setns_by_fd(there)
        .build();
    let cable = LinkVeth::new(name, own)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .build();
    netlink.link().add(cable).execute().await
}

/// The cables of this network, by their names.
async fn cables(netlink: &Handle) -> Result<Vec<(String, u32)>, rtnetlink::Error> {
    let all: Vec<LinkMessage> = netlink.link().get().execute().try_collect().await?;
    let name = |link: &LinkMessage| {
        link.attributes.iter().find_map(|one| match one {
            LinkAttribute::IfName(name) if name.starts_with(PEER) => Some(name.clone()),
            _ => None,
        })
    };
    let own = all
        .into_iter()
        .filter_map(|link| Some((name(&link)?, link.header.index)));
    Ok(own.collect())
}

/// Has these ranges, and no others, lead through a cable.
async fn lead(netlink: &Handle, link: u32, ranges: &[Ipv4Net]) -> Result<(), rtnetlink::Error> {
    let all = RouteMessageBuilder::<Ipv4Addr>::new().build();
    let all: Vec<RouteMessage> = netlink.route().get(all).execute().try_collect().await?;
    let mut there = Vec::new();
    for route in all {
        let to = route.attributes.iter().find_map(|one| match one {
            RouteAttribute::Destination(RouteAddress::Inet(to)) => Some(*to),
            _ => None,
        });
        let (Some(to), true) = (to, route.attributes.contains(&RouteAttribute::Oif(link))) else {
            continue;
        };
        match Ipv4Net::new(to, route.header.destination_prefix_length) {
            Ok(range) if ranges.contains(&range) => there.push(range),
            _ => netlink.route().del(route).execute().await?,
        }
    }
    for range in ranges.iter().filter(|range| !there.contains(range)) {
        let route = RouteMessageBuilder::<Ipv4Addr>::new()
            .destination_prefix(range.network(), range.prefix_len())
            .output_interface(link)
            .scope(RouteScope::Link);
        netlink.route().add(route.build()).execute().await?;
    }
    Ok(())
}
