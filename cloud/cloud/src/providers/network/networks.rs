//! Networks and their subnets.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{CHILD, OWN, guid};
use crate::arm::document;
use crate::arm::fault::Fault;
use crate::arm::kind::{Draft, Kind};
use crate::turn::Turn;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "Microsoft.Network/virtualNetworks",
        required: &["/properties/addressSpace/addressPrefixes"],
        defaults: r#"{"properties":{"subnets":[],"virtualNetworkPeerings":[],"enableDdosProtection":false,
            "privateEndpointVNetPolicies":"Disabled"}}"#,
        references: &[
            "properties/subnets/[]/properties/networkSecurityGroup/id",
            "properties/subnets/[]/properties/routeTable/id",
            "properties/subnets/[]/properties/natGateway/id",
        ],
        decide: Some(virtual_network),
        ..OWN
    },
    Kind {
        name: "Microsoft.Network/virtualNetworks/subnets",
        within: Some("subnets"),
        guarded: true,
        defaults: r#"{"properties":{"delegations":[],"privateEndpointNetworkPolicies":"Disabled",
            "privateLinkServiceNetworkPolicies":"Enabled"}}"#,
        shows: &[
            ("ipConfigurations", "/ipConfigurations/", true),
            ("privateEndpoints", "/privateEndpoints/", true),
        ],
        ..CHILD
    },
    Kind {
        name: "Microsoft.Network/virtualNetworks/virtualNetworkPeerings",
        within: Some("virtualNetworkPeerings"),
        defaults: r#"{"properties":{"allowVirtualNetworkAccess":true,"allowForwardedTraffic":false,
            "allowGatewayTransit":false,"useRemoteGateways":false,"peeringSyncLevel":"FullyInSync",
            "peeringState":"Initiated","doNotVerifyRemoteGateways":false,"peerCompleteVnets":true}}"#,
        ..CHILD
    },
    Kind {
        name: "Microsoft.Network/natGateways",
        defaults: r#"{"sku":{"name":"Standard","tier":"Regional"},"properties":{"idleTimeoutInMinutes":4}}"#,
        references: &[
            "properties/publicIpAddresses/[]/id",
            "properties/publicIpPrefixes/[]/id",
        ],
        guarded: true,
        shows: &[("subnets", "/subnets/", true)],
        ..OWN
    },
];

pub(super) fn network_of(text: &str) -> Result<Ipv4Net, Fault> {
    let bad = || {
        let message = format!("The address prefix {text} has an invalid format.");
        Fault::bad("InvalidAddressPrefixFormat", message)
    };
    let net: Ipv4Net = text.parse().map_err(|_| bad())?;
    match net.trunc() == net {
        true => Ok(net),
        false => Err(Fault::bad(
            "InvalidCIDRNotation",
            format!(
                "The address prefix {text} has an invalid CIDR notation. For the given prefix length, the address \
                prefix should be {}.",
                net.trunc()
            ),
        )),
    }
}

fn prefixes(value: &Value) -> impl Iterator<Item = &str> {
    value
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
}

/// Subnets lie inside their network and beside each other.
fn virtual_network(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let name = draft.id.name().to_owned();
    let space = prefixes(&draft.body["properties"]["addressSpace"]["addressPrefixes"]);
    // Addresses of the sixth version are kept as they are.
    let space: Vec<Ipv4Net> = space
        .filter(|p| !p.contains(':'))
        .map(network_of)
        .collect::<Result<_, _>>()?;
    let mut taken: Vec<(String, Ipv4Net)> = Vec::new();
    let subnets = draft.body["properties"]["subnets"].as_array_mut();
    for subnet in subnets.into_iter().flatten() {
        let title = subnet["name"].as_str().unwrap_or_default().to_owned();
        // One prefix may be said in either way; it is shown in the one that was used.
        let one = subnet["properties"]["addressPrefix"]
            .as_str()
            .map(str::to_owned);
        let many: Vec<String> = prefixes(&subnet["properties"]["addressPrefixes"])
            .map(str::to_owned)
            .collect();
        let own: Vec<String> = one.into_iter().chain(many).collect();
        if own.is_empty() {
            let message = format!("Subnet {title} of {name} has no address prefix.");
            return Err(Fault::bad("InvalidRequestFormat", message));
        }
        for prefix in own.iter().filter(|p| !p.contains(':')) {
            let net = network_of(prefix)?;
            if !space.iter().any(|space| space.contains(&net)) {
                let message = format!(
                    "Subnet '{title}' is not valid because its IP address range is outside the IP \
                    address range of virtual network '{name}'."
                );
                return Err(Fault::bad("NetcfgInvalidSubnet", message));
            }
            if let Some((other, _)) = taken
                .iter()
                .find(|(_, t)| t.contains(&net) || net.contains(t))
            {
                let message = format!(
                    "Subnet '{title}' is not valid because its IP address range overlaps with that of \
                    an existing subnet in virtual network '{name}'. Overlapping subnet: '{other}'."
                );
                return Err(Fault::bad("NetcfgSubnetRangesOverlap", message));
            }
            taken.push((title.clone(), net));
        }
    }
    check_subnets_kept(turn, draft)?;
    peerings(turn, draft, &space)?;
    guid(turn, draft)
}

/// Networks that are peers of each other are connected; until the other one says so, too, it is only begun.
fn peerings(turn: &mut Turn<'_>, draft: &mut Draft<'_>, space: &[Ipv4Net]) -> Result<(), Fault> {
    let own = draft.id.to_string();
    let remote = |peering: &Value| {
        let id = peering["properties"]["remoteVirtualNetwork"]["id"].as_str();
        id.map(str::to_owned)
    };
    let before = draft.was("/properties/virtualNetworkPeerings");
    let mut now = draft.body["properties"]["virtualNetworkPeerings"].take();
    for peering in now.as_array_mut().into_iter().flatten() {
        let there = remote(peering).and_then(|id| document::get(turn, &id));
        let Some(there) = there else { continue };
        let addresses = there.body["properties"]["addressSpace"].clone();
        let overlaps = |text: &str| {
            let net: Option<Ipv4Net> = text.parse().ok();
            net.is_some_and(|net| space.iter().any(|o| o.contains(&net) || net.contains(o)))
        };
        let found = prefixes(&addresses["addressPrefixes"]).find(|prefix| overlaps(prefix));
        if let Some(prefix) = found.map(str::to_owned) {
            let message = format!(
                "Cannot create or update peering {}. Virtual networks cannot be peered because address space of the first \
                virtual network {own} overlaps with the prefix {prefix} of the second virtual network {}.",
                peering["name"].as_str().unwrap_or_default(),
                there.id()
            );
            return Err(Fault::bad("VnetAddressSpacesOverlap", message));
        }
        let is_mutual = set_state(turn, there.id(), &own, "Connected");
        let properties = &mut peering["properties"];
        properties["peeringState"] = json!(if is_mutual { "Connected" } else { "Initiated" });
        properties["remoteAddressSpace"] = addresses.clone();
        properties["remoteVirtualNetworkAddressSpace"] = addresses;
    }
    let kept: Vec<String> = now
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(remote)
        .collect();
    for gone in before.as_array().into_iter().flatten().filter_map(remote) {
        if !kept.iter().any(|kept| kept.eq_ignore_ascii_case(&gone)) {
            set_state(turn, &gone, &own, "Disconnected");
        }
    }
    draft.properties()["virtualNetworkPeerings"] = now;
    Ok(())
}

/// Says how another network's peering with this one is, if it has one.
fn set_state(turn: &mut Turn<'_>, there: &str, own: &str, state: &str) -> bool {
    let Some(mut there) = document::get(turn, there) else {
        return false;
    };
    let all = there.body["properties"]["virtualNetworkPeerings"].as_array_mut();
    let back = all.into_iter().flatten().find(|peering| {
        let id = peering["properties"]["remoteVirtualNetwork"]["id"].as_str();
        id.is_some_and(|id| id.eq_ignore_ascii_case(own))
    });
    let Some(back) = back else { return false };
    if back["properties"]["peeringState"] != state {
        back["properties"]["peeringState"] = json!(state);
        document::put(turn, &there);
    }
    true
}

/// A subnet that somebody uses cannot be left out, nor given other addresses.
fn check_subnets_kept(turn: &Turn<'_>, draft: &Draft<'_>) -> Result<(), Fault> {
    let before = draft.was("/properties/subnets");
    for subnet in before.as_array().into_iter().flatten() {
        let (id, name) = (
            subnet["id"].as_str().unwrap_or_default(),
            subnet["name"].as_str().unwrap_or_default(),
        );
        let now = draft.body["properties"]["subnets"]
            .as_array()
            .into_iter()
            .flatten();
        let is_kept = now.into_iter().any(|s| {
            s["name"]
                .as_str()
                .is_some_and(|n| n.eq_ignore_ascii_case(name))
        });
        let user = crate::arm::reference::sources(turn, id);
        if let (false, Some(user)) = (is_kept, user.first()) {
            let message = format!(
                "Subnet {name} is in use by {user} and cannot be deleted. In order to delete the \
                subnet, delete all the resources within the subnet. See aka.ms/deletesubnet."
            );
            return Err(Fault::bad("InUseSubnetCannotBeDeleted", message));
        }
    }
    Ok(())
}

/// The addresses of a subnet that somebody can have: without the first four and the last.
pub(super) fn usable(net: Ipv4Net) -> impl Iterator<Item = Ipv4Addr> {
    let (first, last) = (u32::from(net.network()) + 4, u32::from(net.broadcast()));
    (first..last).map(Ipv4Addr::from)
}
