//! Networks and their subnets.

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::Value;

use super::{CHILD, OWN, guid};
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
            "peeringState":"Connected","doNotVerifyRemoteGateways":false,"peerCompleteVnets":true}}"#,
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
    guid(turn, draft)
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
