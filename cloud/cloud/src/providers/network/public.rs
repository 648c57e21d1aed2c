//! Public addresses, and ranges of them.

use serde_json::json;

use super::{OWN, addresses, guid};
use crate::arm::fault::Fault;
use crate::arm::kind::{Draft, Kind};
use crate::turn::Turn;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "Microsoft.Network/publicIPAddresses",
        defaults: r#"{"sku":{"name":"Basic","tier":"Regional"},"properties":{"publicIPAddressVersion":"IPv4",
            "publicIPAllocationMethod":"Dynamic","idleTimeoutInMinutes":4,"ipTags":[],
            "ddosSettings":{"protectionMode":"VirtualNetworkInherited"}}}"#,
        read_only: &["/properties/resourceGuid", "/properties/ipConfiguration"],
        references: &["properties/publicIPPrefix/id"],
        guarded: true,
        shows: &[("ipConfiguration", "/", false)],
        decide: Some(public_address),
        ..OWN
    },
    Kind {
        name: "Microsoft.Network/publicIPPrefixes",
        defaults: r#"{"sku":{"name":"Standard","tier":"Regional"},"properties":{"publicIPAddressVersion":"IPv4",
            "prefixLength":28,"ipTags":[]}}"#,
        guarded: true,
        shows: &[("publicIPAddresses", "/publicIPAddresses/", true)],
        decide: Some(public_prefix),
        ..OWN
    },
];

/// An address of the Internet that is only ours: of the range that is reserved for tests of networks.
fn public_address(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    if draft.body["sku"]["name"] == "Standard"
        && draft.body["properties"]["publicIPAllocationMethod"] != "Static"
    {
        let message = format!(
            "Standard sku publicIp {} must have AllocationMethod set to Static.",
            draft.id
        );
        return Err(Fault::bad(
            "StandardSkuPublicIPAddressesMustBeStatic",
            message,
        ));
    }
    let own = draft.was("/properties/ipAddress");
    let is_static = draft.body["properties"]["publicIPAllocationMethod"] == "Static";
    let is_v6 = draft.body["properties"]["publicIPAddressVersion"] == "IPv6";
    if !own.is_null() {
        draft.properties()["ipAddress"] = own;
    } else if is_static || is_v6 {
        let prefix = draft.body["properties"]["publicIPPrefix"]["id"]
            .as_str()
            .map(str::to_owned);
        draft.properties()["ipAddress"] = json!(addresses::public(turn, prefix.as_deref(), is_v6)?);
    }
    if let Some(label) = draft.body["properties"]["dnsSettings"]["domainNameLabel"].as_str() {
        let location = draft.body["location"].as_str().unwrap_or_default();
        let name = format!("{label}.{location}.cloudapp.azure.com");
        draft.properties()["dnsSettings"]["fqdn"] = json!(name);
    }
    guid(turn, draft)
}

fn public_prefix(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let own = draft.was("/properties/ipPrefix");
    let length = draft.body["properties"]["prefixLength"]
        .as_u64()
        .unwrap_or(28);
    draft.properties()["ipPrefix"] = match own.is_null() {
        true => json!(addresses::public_prefix(turn, length)?),
        false => own,
    };
    guid(turn, draft)
}
