//! Network cards.

use std::collections::HashSet;
use std::net::Ipv4Addr;

use serde_json::{Value, json};

use super::{CHILD, OWN, addresses, guid};
use crate::arm::fault::Fault;
use crate::arm::id::Id;
use crate::arm::kind::{Draft, Goes, Kind};
use crate::fabric;
use crate::turn::Turn;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "Microsoft.Network/networkInterfaces",
        write: Goes::AtOnce,
        required: &["/properties/ipConfigurations"],
        defaults: r#"{"properties":{"dnsSettings":{"dnsServers":[],"appliedDnsServers":[]},
            "enableAcceleratedNetworking":false,"vnetEncryptionSupported":false,"enableIPForwarding":false,
            "disableTcpStateTracking":false,"hostedWorkloads":[],"tapConfigurations":[],"nicType":"Standard",
            "auxiliaryMode":"None","auxiliarySku":"None"}}"#,
        references: &[
            "properties/networkSecurityGroup/id",
            "properties/ipConfigurations/[]/properties/subnet/id",
            "properties/ipConfigurations/[]/properties/applicationSecurityGroups/[]/id",
            "properties/ipConfigurations/[]/properties/publicIPAddress/id",
            "properties/ipConfigurations/[]/properties/loadBalancerBackendAddressPools/[]/id",
            "properties/ipConfigurations/[]/properties/loadBalancerInboundNatRules/[]/id",
        ],
        guarded: true,
        shows: &[("virtualMachine", "/virtualMachines/", false)],
        decide: Some(card),
        ..OWN
    },
    Kind {
        name: "Microsoft.Network/networkInterfaces/ipConfigurations",
        within: Some("ipConfigurations"),
        defaults: r#"{"properties":{"privateIPAllocationMethod":"Dynamic","privateIPAddressVersion":"IPv4"}}"#,
        ..CHILD
    },
];

/// A card: an address of its subnet for each configuration, and a hardware address.
fn card(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let before = draft.was("/properties/ipConfigurations");
    let mut configurations = draft.body["properties"]["ipConfigurations"].take();
    let is_only = configurations.as_array().is_some_and(|all| all.len() == 1);
    let mut given = HashSet::new();
    for configuration in configurations.as_array_mut().into_iter().flatten() {
        let name = configuration["name"].clone();
        let own = before
            .as_array()
            .into_iter()
            .flatten()
            .find(|c| c["name"] == name);
        if is_only && configuration["properties"]["primary"].is_null() {
            configuration["properties"]["primary"] = json!(true);
        }
        addresses::private(turn, configuration, own, &mut given)?;
    }
    let first = &configurations[0]["properties"];
    let network = first["subnet"]["id"].as_str();
    let network = network.and_then(|id| Id::parse(id)?.parent());
    let hardware = hardware_address(&first["privateIPAddress"]);
    draft.properties()["ipConfigurations"] = configurations;
    draft.properties()["macAddress"] = json!(hardware);
    if let Some(network) = network {
        let suffix = fabric::names::suffix(&network.to_string());
        draft.properties()["dnsSettings"]["internalDomainNameSuffix"] = json!(suffix);
    }
    guid(turn, draft)
}

/// Microsoft's part and that of the address, which machines' cards really have: `machines::hardware_address`.
fn hardware_address(address: &Value) -> String {
    let address: Option<Ipv4Addr> = address.as_str().and_then(|text| text.parse().ok());
    let [_, a, b, c] = address.unwrap_or(Ipv4Addr::UNSPECIFIED).octets();
    format!("00-0D-3A-{a:02X}-{b:02X}-{c:02X}")
}
