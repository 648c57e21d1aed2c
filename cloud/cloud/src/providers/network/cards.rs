//! Network cards.

use std::collections::HashSet;

use serde_json::json;

use super::{CHILD, OWN, addresses, guid};
use crate::arm::fault::Fault;
use crate::arm::kind::{Draft, Goes, Kind};
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
    draft.properties()["ipConfigurations"] = configurations;
    let own = draft.was("/properties/macAddress");
    draft.properties()["macAddress"] = match own.is_null() {
        true => json!(
            format!(
                "00-0D-3A-{}-{}-{}",
                turn.chance.hex(2),
                turn.chance.hex(2),
                turn.chance.hex(2)
            )
            .to_uppercase()
        ),
        false => own,
    };
    guid(turn, draft)
}
