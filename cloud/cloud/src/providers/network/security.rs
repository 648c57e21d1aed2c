//! Security groups: rules that every one has, and those that somebody wrote.

use serde_json::{Value, json};

use super::{CHILD, OWN, guid};
use crate::arm::fault::Fault;
use crate::arm::kind::{Draft, Kind};
use crate::turn::Turn;

pub(super) const KINDS: &[Kind] = &[
    Kind {
        name: "Microsoft.Network/networkSecurityGroups",
        defaults: r#"{"properties":{"securityRules":[]}}"#,
        guarded: true,
        shows: &[
            ("subnets", "/subnets/", true),
            ("networkInterfaces", "/networkInterfaces/", true),
        ],
        decide: Some(security_group),
        ..OWN
    },
    Kind {
        name: "Microsoft.Network/networkSecurityGroups/securityRules",
        within: Some("securityRules"),
        defaults: r#"{"properties":{"sourceAddressPrefixes":[],"destinationAddressPrefixes":[],
            "sourcePortRanges":[],"destinationPortRanges":[]}}"#,
        ..CHILD
    },
];

/// The rules that every group has, and priorities that nobody else has.
fn security_group(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let own = draft.body["id"].as_str().unwrap_or_default().to_owned();
    let mut seen: Vec<(String, i64, String)> = Vec::new();
    let rules = draft.body["properties"]["securityRules"]
        .as_array()
        .into_iter()
        .flatten();
    for rule in rules {
        let (name, rule) = (
            rule["name"].as_str().unwrap_or_default().to_owned(),
            &rule["properties"],
        );
        let priority = rule["priority"].as_i64().unwrap_or(0);
        if !(100..=4096).contains(&priority) {
            let message = format!(
                "Security rule has invalid Priority. Value provided: {priority} Allowed range 100-4096."
            );
            return Err(Fault::bad("SecurityRuleInvalidPriority", message));
        }
        let direction = rule["direction"].as_str().unwrap_or_default().to_owned();
        if let Some((_, _, other)) = seen
            .iter()
            .find(|(d, p, _)| *d == direction && *p == priority)
        {
            let message = format!(
                "Security rule {name} conflicts with rule {other}. Rules cannot have the same Priority \
                and Direction. To learn more, see aka.ms/nsgrules."
            );
            return Err(Fault::bad("SecurityRuleConflict", message));
        }
        seen.push((direction, priority, name));
    }
    draft.properties()["defaultSecurityRules"] = json!(default_rules(&own));
    guid(turn, draft)
}

fn default_rules(group: &str) -> Vec<Value> {
    const RULES: [(&str, &str, &str, &str, &str, i64); 6] = [
        (
            "AllowVnetInBound",
            "Allow",
            "VirtualNetwork",
            "VirtualNetwork",
            "Inbound",
            65000,
        ),
        (
            "AllowAzureLoadBalancerInBound",
            "Allow",
            "AzureLoadBalancer",
            "*",
            "Inbound",
            65001,
        ),
        ("DenyAllInBound", "Deny", "*", "*", "Inbound", 65500),
        (
            "AllowVnetOutBound",
            "Allow",
            "VirtualNetwork",
            "VirtualNetwork",
            "Outbound",
            65000,
        ),
        (
            "AllowInternetOutBound",
            "Allow",
            "*",
            "Internet",
            "Outbound",
            65001,
        ),
        ("DenyAllOutBound", "Deny", "*", "*", "Outbound", 65500),
    ];
    let rule = |(name, access, from, to, direction, priority): &(
        &str,
        &str,
        &str,
        &str,
        &str,
        i64,
    )| {
        json!({
            "name": name, "id": format!("{group}/defaultSecurityRules/{name}"),
            "type": "Microsoft.Network/networkSecurityGroups/defaultSecurityRules",
            "properties": {"provisioningState": "Succeeded", "protocol": "*", "sourcePortRange": "*",
                "destinationPortRange": "*", "sourceAddressPrefix": from, "destinationAddressPrefix": to,
                "access": access, "priority": priority, "direction": direction, "sourcePortRanges": [],
                "destinationPortRanges": [], "sourceAddressPrefixes": [], "destinationAddressPrefixes": []},
        })
    };
    RULES.iter().map(rule).collect()
}
