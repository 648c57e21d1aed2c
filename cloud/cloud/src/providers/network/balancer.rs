//! Load balancers: what belongs together fits together.

use std::collections::HashSet;

use serde_json::{Value, json};

use super::{CHILD, OWN, addresses};
use crate::arm::document;
use crate::arm::fault::Fault;
use crate::arm::kind::{Draft, Kind};
use crate::turn::Turn;

/// A part that rules refer to.
const PART: Kind = Kind {
    shows: &[("loadBalancingRules", "/loadBalancingRules/", true)],
    ..CHILD
};

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "Microsoft.Network/loadBalancers",
        states: ("Succeeded", "Succeeded"),
        defaults: r#"{"sku":{"name":"Basic","tier":"Regional"},"properties":{"frontendIPConfigurations":[],
            "backendAddressPools":[],"loadBalancingRules":[],"probes":[],"inboundNatRules":[],"inboundNatPools":[],
            "outboundRules":[]}}"#,
        references: &[
            "properties/frontendIPConfigurations/[]/properties/publicIPAddress/id",
            "properties/frontendIPConfigurations/[]/properties/subnet/id",
            "properties/loadBalancingRules/[]/properties/frontendIPConfiguration/id",
            "properties/loadBalancingRules/[]/properties/backendAddressPool/id",
            "properties/loadBalancingRules/[]/properties/probe/id",
            "properties/outboundRules/[]/properties/frontendIPConfigurations/[]/id",
            "properties/outboundRules/[]/properties/backendAddressPool/id",
            "properties/inboundNatRules/[]/properties/frontendIPConfiguration/id",
        ],
        decide: Some(decide),
        ..OWN
    },
    Kind {
        name: "Microsoft.Network/loadBalancers/frontendIPConfigurations",
        within: Some("frontendIPConfigurations"),
        defaults: r#"{"properties":{"privateIPAllocationMethod":"Dynamic"}}"#,
        guarded: true,
        shows: &[
            ("loadBalancingRules", "/loadBalancingRules/", true),
            ("outboundRules", "/outboundRules/", true),
            ("inboundNatRules", "/inboundNatRules/", true),
        ],
        ..CHILD
    },
    Kind {
        name: "Microsoft.Network/loadBalancers/backendAddressPools",
        within: Some("backendAddressPools"),
        guarded: true,
        defaults: r#"{"properties":{"loadBalancerBackendAddresses":[]}}"#,
        shows: &[
            ("backendIPConfigurations", "/ipConfigurations/", true),
            ("loadBalancingRules", "/loadBalancingRules/", true),
            ("outboundRules", "/outboundRules/", true),
        ],
        ..CHILD
    },
    Kind {
        name: "Microsoft.Network/loadBalancers/loadBalancingRules",
        within: Some("loadBalancingRules"),
        defaults: r#"{"properties":{"enableFloatingIP":false,"idleTimeoutInMinutes":4,"enableTcpReset":false,
            "disableOutboundSnat":false,"loadDistribution":"Default","enableDestinationServiceEndpoint":false,
            "allowBackendPortConflict":false}}"#,
        ..CHILD
    },
    Kind {
        name: "Microsoft.Network/loadBalancers/probes",
        within: Some("probes"),
        defaults: r#"{"properties":{"intervalInSeconds":15,"numberOfProbes":2,"probeThreshold":1,
            "noHealthyBackendsBehavior":"AllProbedDown"}}"#,
        ..PART
    },
    Kind {
        name: "Microsoft.Network/loadBalancers/outboundRules",
        within: Some("outboundRules"),
        defaults: r#"{"properties":{"allocatedOutboundPorts":0,"idleTimeoutInMinutes":4,"enableTcpReset":false}}"#,
        ..CHILD
    },
    Kind {
        name: "Microsoft.Network/loadBalancers/inboundNatRules",
        within: Some("inboundNatRules"),
        defaults: r#"{"properties":{"enableFloatingIP":false,"idleTimeoutInMinutes":4,"enableTcpReset":false,
            "allowBackendPortConflict":false,"enableDestinationServiceEndpoint":false}}"#,
        ..CHILD
    },
    Kind {
        name: "Microsoft.Network/loadBalancers/inboundNatPools",
        within: Some("inboundNatPools"),
        ..CHILD
    },
];

/// Decides on a balancer: addresses of its frontends, and rules that do not get into each other's way.
pub(super) fn decide(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let sku = draft.body["sku"]["name"]
        .as_str()
        .unwrap_or("Basic")
        .to_owned();
    let before = draft.was("/properties/frontendIPConfigurations");
    let mut frontends = draft.body["properties"]["frontendIPConfigurations"].take();
    let mut given = HashSet::new();
    for frontend in frontends.as_array_mut().into_iter().flatten() {
        check_sku(turn, &sku, draft, frontend)?;
        let own = before
            .as_array()
            .into_iter()
            .flatten()
            .find(|f| f["name"] == frontend["name"]);
        addresses::private(turn, frontend, own, &mut given)?;
    }
    draft.properties()["frontendIPConfigurations"] = frontends;
    check_rules(draft)?;
    super::guid(turn, draft)
}

fn check_sku(turn: &Turn<'_>, sku: &str, draft: &Draft<'_>, frontend: &Value) -> Result<(), Fault> {
    let address = frontend["properties"]["publicIPAddress"]["id"].as_str();
    let address = address.and_then(|id| document::get(turn, id));
    let Some(address) = address else {
        return Ok(());
    };
    match address.body["sku"]["name"] == sku {
        true => Ok(()),
        false => Err(Fault::bad(
            "DifferentSkuLoadBalancersAndPublicIPAddressNotAllowed",
            format!(
                "Different sku load balancer {} and public IP address {} are not allowed.",
                draft.id,
                address.id()
            ),
        )),
    }
}

fn check_rules(draft: &Draft<'_>) -> Result<(), Fault> {
    let own = draft.body["id"].as_str().unwrap_or_default();
    let rules = draft.body["properties"]["loadBalancingRules"]
        .as_array()
        .into_iter()
        .flatten();
    let mut seen = HashSet::new();
    for rule in rules {
        let (name, rule) = (&rule["name"], &rule["properties"]);
        for field in ["frontendIPConfiguration", "backendAddressPool", "probe"] {
            check_inside(draft, own, &rule[field]["id"])?;
        }
        let frontend = rule["frontendIPConfiguration"]["id"]
            .as_str()
            .unwrap_or_default()
            .to_lowercase();
        let place = (
            frontend,
            rule["frontendPort"].as_i64(),
            rule["protocol"].to_string(),
        );
        if !seen.insert(place) {
            let message = format!(
                "Load balancing rule {} of {own} uses the same frontend IP configuration, port and \
                protocol as another rule.",
                name.as_str().unwrap_or_default()
            );
            return Err(Fault::bad(
                "RulesUseSameFrontendPortProtocolAndIPConfig",
                message,
            ));
        }
    }
    Ok(())
}

/// A reference to a part of the same balancer leads to a part that it has.
fn check_inside(draft: &Draft<'_>, own: &str, id: &Value) -> Result<(), Fault> {
    let Some(id) = id.as_str() else {
        return Ok(());
    };
    let mut ends = id.rsplitn(3, '/');
    let (name, field) = (
        ends.next().unwrap_or_default(),
        ends.next().unwrap_or_default(),
    );
    let parts = draft.body["properties"].as_object().into_iter().flatten();
    let mut of_field = parts
        .filter(|(key, _)| key.eq_ignore_ascii_case(field))
        .flat_map(|(_, v)| v.as_array())
        .flatten();
    match of_field.any(|part| {
        part["name"]
            .as_str()
            .is_some_and(|n| n.eq_ignore_ascii_case(name))
    }) {
        true => Ok(()),
        false => {
            let message = format!(
                "Resource {id} referenced by resource {own} was not found. Please make sure that the \
                referenced resource exists, and that both resources are in the same region."
            );
            let fault = Fault::bad("InvalidResourceReference", message);
            Err(fault.detail("NotFound", json!(id).to_string()))
        }
    }
}
