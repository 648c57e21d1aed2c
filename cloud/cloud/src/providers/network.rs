//! Microsoft.Network: the table, and what addresses do.

mod addresses;
mod balancer;

pub(super) use addresses::{lease, release};

use std::net::Ipv4Addr;

use ipnet::Ipv4Net;
use serde_json::{Value, json};

use super::{Call, Provider, Route, get};
use crate::arm::document;
use crate::arm::fault::Fault;
use crate::arm::kind::{Draft, Goes, Kind, PLAIN, Tag};
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

/// A part of a balancer.
const PART: Kind = Kind {
    shows: &[("loadBalancingRules", "/loadBalancingRules/", true)],
    ..CHILD
};

const PRIVATE_DNS: Kind = Kind {
    put: (202, 202),
    write: Goes::Both,
    delete: Goes::Both,
    tag: Tag::Quoted,
    milliseconds: 150,
    operations: ("privateDnsOperationStatuses", "privateDnsOperationResults"),
    ..PLAIN
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
    kinds: KINDS,
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
        decide: Some(balancer::decide),
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
    Kind {
        name: "Microsoft.Network/privateDnsZones/A",
        ..RECORD
    },
    Kind {
        name: "Microsoft.Network/privateDnsZones/AAAA",
        ..RECORD
    },
    Kind {
        name: "Microsoft.Network/privateDnsZones/CNAME",
        ..RECORD
    },
    Kind {
        name: "Microsoft.Network/privateDnsZones/TXT",
        ..RECORD
    },
    Kind {
        name: "Microsoft.Network/ipGroups",
        defaults: r#"{"properties":{"ipAddresses":[]}}"#,
        operations: ("nfvOperations", "nfvOperationResults"),
        ..OWN
    },
    Kind {
        name: "Microsoft.Network/applicationSecurityGroups",
        ..OWN
    },
    Kind {
        name: "Microsoft.Network/serviceGateways",
        ..OWN
    },
];

const RECORD: Kind = Kind {
    has_location: false,
    tag: Tag::Quoted,
    defaults: r#"{"properties":{"ttl":3600}}"#,
    ..PLAIN
};

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

/// A card: an address of its subnet for each configuration, and a hardware address.
fn card(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    let before = draft.was("/properties/ipConfigurations");
    let mut configurations = draft.body["properties"]["ipConfigurations"].take();
    let is_only = configurations.as_array().is_some_and(|all| all.len() == 1);
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
        addresses::private(turn, configuration, own)?;
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

/// The addresses of a subnet that somebody can have: without the first four and the last.
pub(super) fn usable(net: Ipv4Net) -> impl Iterator<Item = Ipv4Addr> {
    let (first, last) = (u32::from(net.network()) + 4, u32::from(net.broadcast()));
    (first..last).map(Ipv4Addr::from)
}
