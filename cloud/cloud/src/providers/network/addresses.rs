//! Who has which address.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::networks::{network_of, usable};
use crate::arm::document;
use crate::arm::fault::Fault;
use crate::arm::id::Id;
use crate::arm::{inner, kind, reference};
use crate::exchange::Reply;
use crate::providers::Call;
use crate::turn::Turn;

/// Addresses that the Internet has for tests of networks (RFC 2544): no route leads out of this machine.
const PUBLIC: &str = "198.18.0.0/15";
/// How many addresses of a range nobody is given.
const KEPT: u64 = 4;

/// The range of public addresses: the region's, where some lead there.
fn range(turn: &Turn<'_>) -> Ipv4Net {
    let own = turn.settings.region.public_addresses();
    own.unwrap_or_else(|| PUBLIC.parse().expect("the pool is a network"))
}

/// How many addresses each half of a range has: single ones are in the lower, ranges of them in the upper.
fn half(range: Ipv4Net) -> u64 {
    1 << (31 - range.prefix_len().min(31))
}

/// The next public address. The counter only grows: an address is not given twice until all were, and never while
/// somebody has it. The first few are this machine's own.
pub(super) fn public(
    turn: &mut Turn<'_>,
    prefix: Option<&str>,
    is_v6: bool,
) -> Result<String, Fault> {
    if let Some(prefix) = prefix {
        return of_prefix(turn, prefix);
    }
    if is_v6 {
        let number = next(turn, "net/public", 1);
        return Ok(format!("2001:db8::{number:x}"));
    }
    let pool = range(turn);
    let scope = format!("/subscriptions/{}", turn.settings.subscription);
    let taken = document::of_kind(turn, &scope, "Microsoft.Network/publicIPAddresses");
    let taken: HashSet<String> = taken
        .iter()
        .filter_map(|d| {
            d.body["properties"]["ipAddress"]
                .as_str()
                .map(str::to_owned)
        })
        .collect();
    let size = half(pool).saturating_sub(KEPT);
    for _ in 0..size {
        let number = next(turn, "net/public", 1);
        let at = u32::try_from(KEPT + number % size).unwrap_or(0);
        let address = Ipv4Addr::from(u32::from(pool.network()) + at).to_string();
        if !taken.contains(&address) {
            return Ok(address);
        }
    }
    let message = format!("The subscription has used all of its {size} public IP addresses.");
    Err(Fault::bad("PublicIPCountLimitReached", message))
}

fn next(turn: &mut Turn<'_>, key: &str, step: u64) -> u64 {
    let number = turn.get(key).and_then(|n| n.as_u64()).unwrap_or(0);
    turn.put(key, json!(number + step));
    number
}

/// A range of public addresses, out of the upper half of the pool.
pub(super) fn public_prefix(turn: &mut Turn<'_>, length: u64) -> Result<String, Fault> {
    if !(21..=31).contains(&length) {
        let message =
            format!("Prefix length {length} is not valid. It has to be between 21 and 31.");
        return Err(Fault::bad("PrefixLengthOutOfRange", message));
    }
    let (pool, size) = (range(turn), 1u64 << (32 - length));
    if size > half(pool) {
        let message = format!("A public IP prefix of length {length} is larger than what is left.");
        return Err(Fault::bad("PublicIPPrefixOutOfAddresses", message));
    }
    let used = turn
        .get("net/prefixes")
        .and_then(|n| n.as_u64())
        .unwrap_or(0);
    let from = used.div_ceil(size) * size;
    turn.put("net/prefixes", json!(from + size));
    let at = half(pool) + from % half(pool);
    let first = Ipv4Addr::from(u32::from(pool.network()) + u32::try_from(at).unwrap_or(0));
    Ok(format!("{first}/{length}"))
}

fn of_prefix(turn: &Turn<'_>, prefix: &str) -> Result<String, Fault> {
    let range = document::get(turn, prefix)
        .map(|d| d.body["properties"]["ipPrefix"].clone())
        .unwrap_or_default();
    let net = network_of(range.as_str().unwrap_or_default())?;
    let users = reference::sources(turn, prefix);
    let of =
        |id: &String| document::get(turn, id).map(|d| d.body["properties"]["ipAddress"].clone());
    let taken: HashSet<String> = users
        .iter()
        .filter_map(of)
        .filter_map(|v| v.as_str().map(str::to_owned))
        .collect();
    let mut free = net
        .hosts()
        .map(|a| a.to_string())
        .filter(|a| !taken.contains(a));
    free.next().ok_or_else(|| {
        Fault::bad(
            "PublicIPPrefixOutOfAddresses",
            format!("Public IP prefix {prefix} has no free address."),
        )
    })
}

/// The subnet of an id, with its ranges.
fn subnet(turn: &Turn<'_>, id: &str) -> Option<(Value, Vec<Ipv4Net>)> {
    let parsed = Id::parse(id)?;
    let kind = kind::named("Microsoft.Network/virtualNetworks/subnets")?;
    let found = inner::get(turn, &parsed, kind)?.body;
    let properties = &found["properties"];
    let one = properties["addressPrefix"].as_str().into_iter();
    let many = properties["addressPrefixes"]
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str);
    let nets = one.chain(many).filter_map(|p| p.parse().ok()).collect();
    Some((found, nets))
}

/// The addresses in use in a subnet.
fn taken(turn: &Turn<'_>, subnet: &str) -> HashSet<Ipv4Addr> {
    let sources = reference::sources(turn, subnet);
    let mut found = HashSet::new();
    for source in sources {
        let owner = Id::parse(&source).and_then(|id| id.parent());
        let document = owner.and_then(|owner| document::get(turn, &owner.to_string()));
        let Some(document) = document else {
            continue;
        };
        for field in ["ipConfigurations", "frontendIPConfigurations"] {
            let all = document.body["properties"][field]
                .as_array()
                .into_iter()
                .flatten();
            let addresses = all.filter_map(|c| {
                c["properties"]["privateIPAddress"]
                    .as_str()?
                    .parse::<Ipv4Addr>()
                    .ok()
            });
            found.extend(addresses);
        }
    }
    for (_, instance) in turn.under(&format!("lease{}|", subnet.to_lowercase())) {
        found.extend(
            instance
                .as_str()
                .and_then(|text| text.parse::<Ipv4Addr>().ok()),
        );
    }
    found
}

/// Gives a configuration an address of its subnet: the one it wants, the one it had, or the first that is free. `given` are
/// those that the same write gave to others.
pub(super) fn private(
    turn: &mut Turn<'_>,
    configuration: &mut Value,
    before: Option<&Value>,
    given: &mut HashSet<Ipv4Addr>,
) -> Result<(), Fault> {
    let properties = &configuration["properties"];
    let Some(id) = properties["subnet"]["id"].as_str().map(str::to_owned) else {
        return Ok(());
    };
    if properties["privateIPAddressVersion"] == "IPv6" {
        return Ok(());
    }
    let Some((_, nets)) = subnet(turn, &id) else {
        return Ok(());
    };
    let had = before.filter(|b| b["properties"]["subnet"]["id"] == properties["subnet"]["id"]);
    let had = had
        .and_then(|b| b["properties"]["privateIPAddress"].as_str())
        .map(str::to_owned);
    let wanted = properties["privateIPAddress"].as_str().map(str::to_owned);
    let is_static = properties["privateIPAllocationMethod"] == "Static";
    if let Some(same) = had
        .clone()
        .filter(|had| wanted.as_ref().is_none_or(|w| w == had) || !is_static)
    {
        configuration["properties"]["privateIPAddress"] = json!(same);
        return Ok(());
    }
    let address = match wanted.filter(|_| is_static) {
        Some(wanted) => asked_for(turn, &id, &nets, &wanted, given)?,
        None => free(turn, &id, &nets, given)?,
    };
    given.insert(address);
    configuration["properties"]["privateIPAddress"] = json!(address.to_string());
    Ok(())
}

fn asked_for(
    turn: &Turn<'_>,
    subnet: &str,
    nets: &[Ipv4Net],
    wanted: &str,
    given: &HashSet<Ipv4Addr>,
) -> Result<Ipv4Addr, Fault> {
    let outside = || {
        let message = format!(
            "Private static IP address {wanted} does not belong to the range of subnet prefix {}.",
            nets.first().map(ToString::to_string).unwrap_or_default()
        );
        Fault::bad("PrivateIPAddressNotInSubnet", message)
    };
    let address: Ipv4Addr = wanted.parse().map_err(|_| outside())?;
    if !nets.iter().any(|net| net.contains(&address)) {
        return Err(outside());
    }
    let is_usable = nets.iter().any(|net| {
        let at = u32::from(address);
        at >= u32::from(net.network()) + 4 && at < u32::from(net.broadcast())
    });
    if !is_usable {
        let message =
            format!("Private static IP address {wanted} falls within reserved IP range of subnet.");
        return Err(Fault::bad("PrivateIPAddressInReservedRange", message));
    }
    match given.contains(&address) || taken(turn, subnet).contains(&address) {
        true => Err(Fault::bad(
            "PrivateIPAddressIsAllocated",
            format!(
                "IP configuration is using the private IP address {wanted} which is already allocated."
            ),
        )),
        false => Ok(address),
    }
}

/// The first free address of a subnet.
fn free(
    turn: &Turn<'_>,
    subnet: &str,
    nets: &[Ipv4Net],
    given: &HashSet<Ipv4Addr>,
) -> Result<Ipv4Addr, Fault> {
    let taken = taken(turn, subnet);
    let found = nets
        .iter()
        .flat_map(|net| usable(*net))
        .find(|address| !taken.contains(address) && !given.contains(address));
    found.ok_or_else(|| {
        let name = subnet.rsplit('/').next().unwrap_or_default();
        let message = format!("Subnet {name} with address prefix {} does not have enough capacity for 1 IP addresses.",
            nets.first().map(ToString::to_string).unwrap_or_default());
        Fault::bad("SubnetIsFull", message)
    })
}

/// Leases many addresses at once to the instances of a scale set; what is leased is kept per holder.
pub(in crate::providers) fn lease(
    turn: &mut Turn<'_>,
    subnet_id: &str,
    holders: &[String],
) -> Result<Vec<Ipv4Addr>, Fault> {
    let Some((_, nets)) = subnet(turn, subnet_id) else {
        return Ok(Vec::new());
    };
    let taken = taken(turn, subnet_id);
    let free = nets
        .iter()
        .flat_map(|net| usable(*net))
        .filter(|address| !taken.contains(address));
    let found: Vec<Ipv4Addr> = free.take(holders.len()).collect();
    if found.len() < holders.len() {
        let name = subnet_id.rsplit('/').next().unwrap_or_default();
        let message = format!(
            "Subnet {name} with address prefix {} does not have enough capacity for {} IP addresses.",
            nets.first().map(ToString::to_string).unwrap_or_default(),
            holders.len()
        );
        return Err(Fault::bad("SubnetIsFull", message));
    }
    for (holder, address) in holders.iter().zip(&found) {
        let key = format!(
            "lease{}|{}",
            subnet_id.to_lowercase(),
            holder.to_lowercase()
        );
        turn.put(key, json!(address.to_string()));
    }
    Ok(found)
}

/// Gives a lease back.
pub(in crate::providers) fn release(turn: &mut Turn<'_>, subnet_id: &str, holder: &str) {
    turn.remove(format!(
        "lease{}|{}",
        subnet_id.to_lowercase(),
        holder.to_lowercase()
    ));
}

/// The first range of a subnet.
pub(in crate::providers) fn prefix(turn: &Turn<'_>, subnet_id: &str) -> Option<Ipv4Net> {
    subnet(turn, subnet_id)?.1.first().copied()
}

/// `CheckIPAddressAvailability`.
pub(super) fn availability(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    let network = call.target();
    let wanted = call.asked.param("ipAddress").unwrap_or_default();
    let found = document::get(turn, &network.to_string());
    let found = found.ok_or_else(|| crate::arm::fault::no_resource(&network))?;
    let address: Option<Ipv4Addr> = wanted.parse().ok();
    let subnets = found.body["properties"]["subnets"]
        .as_array()
        .into_iter()
        .flatten();
    let is_free = address.is_some_and(|address| {
        let mut of = subnets
            .filter_map(|s| s["id"].as_str())
            .filter_map(|id| Some((id, subnet(turn, id)?.1)));
        of.any(|(id, nets)| {
            nets.iter().any(|n| n.contains(&address)) && !taken(turn, id).contains(&address)
        })
    });
    Ok(Reply::ok(
        json!({"available": is_free, "availableIPAddresses": [], "isPlatformReserved": false}),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arena::Arena;
    use crate::region::{Done, Order, Region, Trouble};

    /// A region with room for four public addresses.
    #[derive(Debug)]
    struct Small;

    #[async_trait::async_trait]
    impl Region for Small {
        fn has(&self, _: &str) -> bool {
            false
        }

        fn public_addresses(&self) -> Option<Ipv4Net> {
            "198.18.4.0/28".parse().ok()
        }

        async fn clear(&self, _: &[Order]) {}

        async fn carry_out(&self, _: Order) -> Result<Done, Trouble> {
            Ok(Done::default())
        }
    }

    #[test]
    fn public_addresses_are_the_regions_and_nobody_gets_one_that_somebody_has() {
        let mut arena = Arena::new();
        arena.settings.region = std::sync::Arc::new(Small);
        arena.group("g");
        let path = |name: &str| {
            format!("/resourceGroups/g/providers/Microsoft.Network/publicIPAddresses/{name}")
        };
        let mut put = |name: &str| {
            let body =
                json!({"location": "eastus", "properties": {"publicIPAllocationMethod": "Static"}});
            let reply = arena.ask("PUT", &path(name), body);
            arena.settle();
            let said = reply.document();
            let address = said["properties"]["ipAddress"].as_str();
            let found = address.or(said["error"]["code"].as_str());
            let found = found.unwrap_or_default().to_owned();
            if name == "b" {
                assert_eq!(arena.done("DELETE", &path("b"), Value::Null).0, 202);
            }
            found
        };
        let given: Vec<String> = ["a", "b", "c", "d", "e", "f"]
            .iter()
            .map(|name| put(name))
            .collect();
        let wanted = [
            "198.18.4.4",
            "198.18.4.5",
            "198.18.4.6",
            "198.18.4.7",
            "198.18.4.5",
            "PublicIPCountLimitReached",
        ];
        assert_eq!(given, wanted);
    }
}
