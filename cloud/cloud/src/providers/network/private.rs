//! Private links: endpoints, services, and the zones that name them.

use serde_json::json;

use super::{CHILD, OWN, guid};
use crate::arm::document;
use crate::arm::fault::Fault;
use crate::arm::kind::{Draft, Goes, Kind, PLAIN, Tag, only};
use crate::turn::Turn;

const PRIVATE_DNS: Kind = Kind {
    put: (202, 202),
    write: Goes::Both,
    delete: Goes::Both,
    tag: Tag::Quoted,
    milliseconds: 150,
    operations: ("privateDnsOperationStatuses", "privateDnsOperationResults"),
    ..PLAIN
};

const RECORD: Kind = Kind {
    has_location: false,
    tag: Tag::Quoted,
    defaults: r#"{"properties":{"ttl":3600}}"#,
    ..PLAIN
};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "Microsoft.Network/privateEndpoints",
        defaults: r#"{"properties":{"manualPrivateLinkServiceConnections":[],"privateLinkServiceConnections":[],
            "customDnsConfigs":[],"ipConfigurations":[],"customNetworkInterfaceName":"","ipVersionType":"IPv4"}}"#,
        references: &["properties/subnet/id"],
        decide: Some(private_endpoint),
        ..OWN
    },
    Kind {
        name: "Microsoft.Network/privateEndpoints/privateDnsZoneGroups",
        within: None,
        ..CHILD
    },
    Kind {
        name: "Microsoft.Network/privateLinkServices",
        defaults: r#"{"properties":{"fqdns":[],"visibility":{"subscriptions":[]},"autoApproval":{"subscriptions":[]},
            "enableProxyProtocol":false,"privateEndpointConnections":[],"networkInterfaces":[],"accessMode":"Default"}}"#,
        references: &[
            "properties/loadBalancerFrontendIpConfigurations/[]/id",
            "properties/ipConfigurations/[]/properties/subnet/id",
        ],
        decide: Some(private_link_service),
        ..OWN
    },
    Kind {
        name: "Microsoft.Network/privateDnsZones",
        defaults: r#"{"properties":{"maxNumberOfRecordSets":25000,"maxNumberOfVirtualNetworkLinks":1000,
            "maxNumberOfVirtualNetworkLinksWithRegistration":100,"numberOfRecordSets":1,
            "numberOfVirtualNetworkLinks":0,"numberOfVirtualNetworkLinksWithRegistration":0}}"#,
        ..PRIVATE_DNS
    },
    Kind {
        name: "Microsoft.Network/privateDnsZones/virtualNetworkLinks",
        required: &["/properties/virtualNetwork/id"],
        references: &["properties/virtualNetwork/id"],
        defaults: r#"{"properties":{"registrationEnabled":false,"virtualNetworkLinkState":"Completed",
            "resolutionPolicy":"Default"}}"#,
        ..PRIVATE_DNS
    },
    only("Microsoft.Network/privateDnsZones/A", RECORD),
    only("Microsoft.Network/privateDnsZones/AAAA", RECORD),
    only("Microsoft.Network/privateDnsZones/CNAME", RECORD),
    only("Microsoft.Network/privateDnsZones/TXT", RECORD),
];

fn private_endpoint(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let own = draft.body["id"].as_str().unwrap_or_default().to_owned();
    let approved = json!({"status": "Approved", "description": "", "actionsRequired": "None"});
    for field in [
        "privateLinkServiceConnections",
        "manualPrivateLinkServiceConnections",
    ] {
        let all = draft.body["properties"][field].as_array_mut();
        for connection in all.into_iter().flatten() {
            let name = connection["name"].as_str().unwrap_or_default().to_owned();
            connection["id"] = json!(format!("{own}/{field}/{name}"));
            connection["type"] = json!(format!("Microsoft.Network/privateEndpoints/{field}"));
            document::fill(
                &mut connection["properties"],
                &json!({"provisioningState": "Succeeded",
                "privateLinkServiceConnectionState": approved}),
            );
        }
    }
    if draft.is_new() {
        let card = format!("{}.nic.{}", draft.id.name(), turn.chance.guid());
        let id = format!(
            "{}/providers/Microsoft.Network/networkInterfaces/{card}",
            draft.id.scope
        );
        draft.properties()["networkInterfaces"] = json!([{"id": id}]);
    } else {
        draft.properties()["networkInterfaces"] = draft.was("/properties/networkInterfaces");
    }
    guid(turn, draft)
}

fn private_link_service(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let own = draft.was("/properties/alias");
    let location = draft.body["location"].as_str().unwrap_or_default();
    let alias = format!(
        "{}.{}.{location}.azure.privatelinkservice",
        draft.id.name(),
        turn.chance.guid()
    );
    draft.properties()["alias"] = if own.is_null() { json!(alias) } else { own };
    guid(turn, draft)
}
