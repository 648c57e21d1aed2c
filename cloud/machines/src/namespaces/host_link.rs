//! The one cable between this host and a network: addresses of the network's side that this host is to reach.
//!
//! One end is on the host with an address and a route for each of those, the other in the network's namespace. Nothing
//! else of the host's network changes, and all of it goes with either end: when the namespace goes, so does the cable.

use std::collections::BTreeSet;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::MetadataExt as _;

use futures::TryStreamExt as _;
use rtnetlink::packet_route::link::{InfoData, InfoVeth};
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteMessage, RouteScope};
use rtnetlink::{Handle, LinkMessageBuilder, LinkUnspec, LinkVeth, RouteMessageBuilder};

use super::network::{BRIDGE, Network, PLATFORM, index, netlink, on_own_thread, up};
use crate::Error;

/// The cable's end in the network.
pub const HOST_LINK: &str = "host0";

impl Network {
    /// Lets this host reach these addresses through the network, and these only; it is `own` there.
    pub fn open_to_host(&self, own: Ipv4Addr, to: &BTreeSet<Ipv4Addr>) -> Result<(), Error> {
        let link = self.host_link()?;
        let namespace = self.namespace();
        let inside = fs::File::open(&namespace).map_err(Error::file("open", &namespace))?;
        let fd = inside.as_raw_fd();
        on_own_thread(|| {
            netlink("lay a cable to a network", |netlink| async move {
                if index(&netlink, &link).await.is_err() {
                    lay(&netlink, &link, fd, own).await?;
                }
                let cable = index(&netlink, &link).await?;
                let there = routed(&netlink, cable).await?;
                for gone in there.iter().filter(|(address, _)| !to.contains(address)) {
                    netlink.route().del(gone.1.clone()).execute().await?;
                }
                let is_new = |address: &&Ipv4Addr| there.iter().all(|(known, _)| known != *address);
                for address in to.iter().filter(is_new) {
                    let route = RouteMessageBuilder::<Ipv4Addr>::new()
                        .destination_prefix(*address, 32)
                        .gateway(PLATFORM)
                        .output_interface(cable)
                        .pref_source(own)
                        .onlink();
                    netlink.route().add(route.build()).execute().await?;
                }
                Ok(())
            })
        })?;
        self.inside(move || {
            netlink("open a network to its host", |netlink| async move {
                up(&netlink, HOST_LINK).await?;
                // A network of an older make has no such address; others refuse it a second time.
                let bridge = index(&netlink, BRIDGE).await?;
                let platform = netlink.address().add(bridge, IpAddr::V4(PLATFORM), 32);
                let _ = platform.execute().await;
                let route = RouteMessageBuilder::<Ipv4Addr>::new()
                    .destination_prefix(own, 32)
                    .output_interface(index(&netlink, HOST_LINK).await?)
                    .scope(RouteScope::Link);
                netlink.route().add(route.build()).replace().execute().await
            })
        })?
    }

    /// Takes the cable away, if there is one.
    pub fn close_to_host(&self) -> Result<(), Error> {
        if !self.is_there() {
            return Ok(());
        }
        let link = self.host_link()?;
        on_own_thread(|| {
            netlink("take away the cable of a network", |netlink| async move {
                match index(&netlink, &link).await {
                    Ok(cable) => netlink.link().del(cable).execute().await,
                    Err(_) => Ok(()),
                }
            })
        })
    }

    /// What the cable's end is called on the host: no other namespace has this one's number while it is there.
    fn host_link(&self) -> Result<String, Error> {
        let file = self.namespace();
        let found = fs::metadata(&file).map_err(Error::file("look at", &file))?;
        Ok(format!("ky-{}", found.ino()))
    }
}

async fn lay(
    netlink: &Handle,
    link: &str,
    namespace: i32,
    own: Ipv4Addr,
) -> Result<(), rtnetlink::Error> {
    let peer = LinkMessageBuilder::<LinkUnspec>::new()
        .name(HOST_LINK)
        .setns_by_fd(namespace)
        .build();
    let cable = LinkVeth::new(link, HOST_LINK)
        .set_info_data(InfoData::Veth(InfoVeth::Peer(peer)))
        .up()
        .build();
    netlink.link().add(cable).execute().await?;
    let cable = index(netlink, link).await?;
    netlink
        .address()
        .add(cable, IpAddr::V4(own), 32)
        .execute()
        .await
}

/// Where the cable's routes lead.
async fn routed(
    netlink: &Handle,
    cable: u32,
) -> Result<Vec<(Ipv4Addr, RouteMessage)>, rtnetlink::Error> {
    let all = RouteMessageBuilder::<Ipv4Addr>::new().build();
    let all: Vec<RouteMessage> = netlink.route().get(all).execute().try_collect().await?;
    let own = all.into_iter().filter_map(|route| {
        let has = |wanted: &RouteAttribute| route.attributes.contains(wanted);
        if !has(&RouteAttribute::Oif(cable))
            || !has(&RouteAttribute::Gateway(RouteAddress::Inet(PLATFORM)))
        {
            return None;
        }
        let to = route
            .attributes
            .iter()
            .find_map(|attribute| match attribute {
                RouteAttribute::Destination(RouteAddress::Inet(to)) => Some(*to),
                _ => None,
            });
        to.map(|to| (to, route))
    });
    Ok(own.collect())
}
