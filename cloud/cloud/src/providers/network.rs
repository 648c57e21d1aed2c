//! Microsoft.Network: the shapes that its rows share, and tables by what they are about.

mod addresses;
mod balancer;
mod cards;
mod networks;
mod private;
mod public;
mod security;

pub(super) use addresses::{lease, prefix, release};

use serde_json::json;

use super::{Call, Provider, Route, get};
use crate::arm::document;
use crate::arm::fault::Fault;
use crate::arm::kind::{Draft, Goes, Kind, PLAIN, Tag, only};
use crate::exchange::Reply;
use crate::turn::Turn;

const OWN: Kind = Kind {
    write: Goes::Async,
    delete: Goes::Both,
    tag: Tag::Weak,
    milliseconds: 150,
    states: ("Updating", "Updating"),
    longest: 80,
    read_only: &["/properties/resourceGuid"],
    decide: Some(guid),
    ..PLAIN
};

const CHILD: Kind = Kind {
    has_location: false,
    decide: None,
    read_only: &[],
    ..OWN
};

pub(super) const PROVIDER: Provider = Provider {
    namespace: "Microsoft.Network",
    versions: &[
        "2025-07-01",
        "2025-05-01",
        "2024-07-01",
        "2024-06-01",
        "2022-01-01",
    ],
    kinds: &[
        networks::KINDS,
        security::KINDS,
        public::KINDS,
        cards::KINDS,
        balancer::KINDS,
        private::KINDS,
        KINDS,
    ],
    routes: ROUTES,
    more: &[
        "locations",
        "operations",
        "locations/operations",
        "locations/usages",
    ],
};

const KINDS: &[Kind] = &[
    Kind {
        name: "Microsoft.Network/routeTables",
        defaults: r#"{"properties":{"routes":[],"disableBgpRoutePropagation":false}}"#,
        guarded: true,
        shows: &[("subnets", "/subnets/", true)],
        ..OWN
    },
    Kind {
        name: "Microsoft.Network/routeTables/routes",
        within: Some("routes"),
        defaults: r#"{"properties":{"hasBgpOverride":false}}"#,
        ..CHILD
    },
    Kind {
        name: "Microsoft.Network/ipGroups",
        defaults: r#"{"properties":{"ipAddresses":[]}}"#,
        operations: ("nfvOperations", "nfvOperationResults"),
        ..OWN
    },
    only("Microsoft.Network/applicationSecurityGroups", OWN),
    only("Microsoft.Network/serviceGateways", OWN),
];

const ROUTES: &[Route] = &[
    get("locations/{}/usages", usages),
    get(
        "virtualNetworks/{}/CheckIPAddressAvailability",
        addresses::availability,
    ),
];

fn usages(turn: &mut Turn<'_>, call: &Call<'_>) -> Result<Reply, Fault> {
    const LIMITS: [(&str, &str, &str, u64); 4] = [
        (
            "VirtualNetworks",
            "Virtual Networks",
            "virtualNetworks",
            1000,
        ),
        (
            "PublicIPAddresses",
            "Public IP Addresses",
            "publicIPAddresses",
            1000,
        ),
        ("LoadBalancers", "Load Balancers", "loadBalancers", 1000),
        (
            "NetworkInterfaces",
            "Network Interfaces",
            "networkInterfaces",
            65536,
        ),
    ];
    let scope = format!("/subscriptions/{}", call.subscription());
    let shown = LIMITS.iter().map(|(value, title, kind, limit)| {
        let used = document::of_kind(turn, &scope, &format!("Microsoft.Network/{kind}"));
        json!({"currentValue": used.len(), "limit": limit, "unit": "Count",
            "name": {"value": value, "localizedValue": title}})
    });
    Ok(Reply::list(shown.collect()))
}

/// A GUID for life.
fn guid(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let own = draft.was("/properties/resourceGuid");
    draft.properties()["resourceGuid"] = if own.is_null() {
        json!(turn.chance.guid())
    } else {
        own
    };
    Ok(())
}
