//! Ways that not every packet takes: a table for each mark, which is asked before the network's own.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use futures::TryStreamExt as _;
use ipnet::Ipv4Net;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::route::{
    RouteAddress, RouteAttribute, RouteMessage, RouteScope, RouteType,
};
use rtnetlink::packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use rtnetlink::{Handle, IpVersion, RouteMessageBuilder};

use super::network::{BRIDGE, Network, index, netlink};
use crate::Error;

/// Where our rules are among those of the kernel: before its main table.
const PRIORITY: u32 = 100;

/// Where a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Way {
    /// To this machine, whoever it is for.
    Machine(Ipv4Addr),
    /// As all others do.
    Usual,
    /// Nowhere.
    Nowhere,
}

/// Ways by their packets' mark, which is the number of the kernel's table too; the longest range that has an address
/// decides, and where none has, the way is the usual one.
pub type Ways = BTreeMap<u32, BTreeMap<Ipv4Net, Way>>;

impl Network {
    /// Has packets with these marks go these ways, and no others.
    pub fn set_ways(&self, ways: &Ways) -> Result<(), Error> {
        let set = || {
            netlink("set the ways of packets", |netlink| async move {
                let bridge = index(&netlink, BRIDGE).await?;
                let rules = rules(&netlink).await?;
                let own: BTreeSet<u32> = rules.iter().map(|(table, _)| *table).collect();
                for (table, rule) in rules {
                    if !ways.contains_key(&table) {
                        netlink.rule().del(rule).execute().await?;
                    }
                }
                let there = routes(&netlink, &own).await?;
                for (table, to, way, route) in &there {
                    if ways.get(table).and_then(|ways| ways.get(to)) != Some(way) {
                        netlink.route().del(route.clone()).execute().await?;
                    }
                }
                for (table, ways) in ways {
                    for (to, way) in ways {
                        let is_it = |one: &Found| (one.0, one.1, one.2) == (*table, *to, *way);
                        if !there.iter().any(is_it) {
                            let route = route(*table, *to, *way, bridge);
                            netlink.route().add(route).replace().execute().await?;
                        }
                    }
                    if !own.contains(table) {
                        lead(&netlink, *table).await?;
                    }
                }
                Ok(())
            })
        };
        self.inside(set)?
    }
}

async fn lead(netlink: &Handle, table: u32) -> Result<(), rtnetlink::Error> {
    let rule = netlink.rule().add().v4().table_id(table).fw_mark(table);
    let rule = rule.priority(PRIORITY).action(RuleAction::ToTable);
    rule.execute().await
}

/// Our rules, by the tables that they lead to.
async fn rules(netlink: &Handle) -> Result<Vec<(u32, RuleMessage)>, rtnetlink::Error> {
    let all = netlink.rule().get(IpVersion::V4).execute();
    let all: Vec<RuleMessage> = all.try_collect().await?;
    let table = |rule: &RuleMessage| {
        rule.attributes
            .contains(&RuleAttribute::Priority(PRIORITY))
            .then_some(())?;
        let found = rule.attributes.iter().find_map(|one| match one {
            RuleAttribute::Table(table) => Some(*table),
            _ => None,
        });
        Some(found.unwrap_or(u32::from(rule.header.table)))
    };
    let own = all
        .into_iter()
        .filter_map(|rule| Some((table(&rule)?, rule)));
    Ok(own.collect())
}

/// A table, where packets go, how, and the kernel's own words for it.
type Found = (u32, Ipv4Net, Way, RouteMessage);

async fn routes(netlink: &Handle, tables: &BTreeSet<u32>) -> Result<Vec<Found>, rtnetlink::Error> {
    let mut all = RouteMessageBuilder::<Ipv4Addr>::new().build();
    all.header.address_family = AddressFamily::Inet;
    let all: Vec<RouteMessage> = netlink.route().get(all).execute().try_collect().await?;
    let found = all.into_iter().filter_map(|route| {
        let (mut table, mut to, mut via) = (None, Ipv4Addr::UNSPECIFIED, None);
        for attribute in &route.attributes {
            match attribute {
                RouteAttribute::Table(number) => table = Some(*number),
                RouteAttribute::Destination(RouteAddress::Inet(address)) => to = *address,
                RouteAttribute::Gateway(RouteAddress::Inet(address)) => via = Some(*address),
                _ => {}
            }
        }
        let table = table.unwrap_or(u32::from(route.header.table));
        tables.contains(&table).then_some(())?;
        let to = Ipv4Net::new(to, route.header.destination_prefix_length).ok()?;
        let way = match (route.header.kind, via) {
            (RouteType::Throw, _) => Way::Usual,
            (_, Some(machine)) => Way::Machine(machine),
            _ => Way::Nowhere,
        };
        Some((table, to, way, route))
    });
    Ok(found.collect())
}

fn route(table: u32, to: Ipv4Net, way: Way, bridge: u32) -> RouteMessage {
    let route = RouteMessageBuilder::<Ipv4Addr>::new()
        .table_id(table)
        .destination_prefix(to.network(), to.prefix_len());
    match way {
        Way::Machine(machine) => route
            .gateway(machine)
            .output_interface(bridge)
            .onlink()
            .build(),
        Way::Usual => route.kind(RouteType::Throw).build(),
        Way::Nowhere => route
            .kind(RouteType::BlackHole)
            .scope(RouteScope::Universe)
            .build(),
    }
}
