//! Security groups: rules that every one has, and those that somebody wrote.

use std::net::IpAddr;

use ipnet::IpNet;
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
        check_words(rule)?;
    }
    draft.properties()["defaultSecurityRules"] = json!(default_rules(&own));
    guid(turn, draft)
}

/// What may stand in the place of an address: a service, or with a dot after it a service in a region.
const TAGS: &str = "\
    ActionGroup ApiManagement ApplicationInsightsAvailability AppConfiguration AppService AppServiceManagement \
    AzureActiveDirectory AzureActiveDirectoryDomainServices AzureAdvancedThreatProtection AzureArcInfrastructure \
    AzureBackup AzureBotService AzureCloud AzureCognitiveSearch AzureConnectors AzureContainerRegistry \
    AzureCosmosDB AzureDatabricks AzureDataExplorerManagement AzureDeviceUpdate AzureDevOps AzureDigitalTwins \
    AzureEventGrid AzureFrontDoor AzureHealthcareAPIs AzureInformationProtection AzureIoTHub AzureKeyVault \
    AzureLoadBalancer AzureMachineLearning AzureMachineLearningInference AzureManagedGrafana AzureMonitor \
    AzureOpenDatasets AzurePlatformDNS AzurePlatformIMDS AzurePlatformLKM AzureResourceManager AzureSentinel \
    AzureSignalR AzureSiteRecovery AzureSphere AzureSpringCloud AzureStack AzureTrafficManager \
    AzureUpdateDelivery AzureWebPubSub BatchNodeManagement ChaosStudio CognitiveServicesFrontend \
    CognitiveServicesManagement DataFactory DataFactoryManagement Dynamics365BusinessCentral \
    Dynamics365ForMarketingEmail EventHub GatewayManager GuestAndHybridManagement HDInsight Internet \
    KustoAnalytics LogicApps LogicAppsManagement M365ManagementActivityApi Marketplace MicrosoftAzureFluidRelay \
    MicrosoftCloudAppSecurity MicrosoftContainerRegistry MicrosoftDefenderForEndpoint \
    MicrosoftPurviewPolicyDistribution PowerBI PowerPlatformInfra PowerPlatformPlex PowerQueryOnline Scuba \
    SerialConsole ServiceBus ServiceFabric Sql SqlManagement Storage StorageSyncService VideoIndexer \
    VirtualDesktop VirtualNetwork WindowsAdminCenter WindowsVirtualDesktop";

/// Addresses and ports that mean something.
fn check_words(rule: &Value) -> Result<(), Fault> {
    let said = |field: String| {
        let many = rule[format!("{field}s")].as_array();
        let many = many.or(rule[format!("{field}es")].as_array()).into_iter();
        let one = rule[field].as_str().into_iter();
        let all: Vec<&str> = one
            .chain(many.flatten().filter_map(Value::as_str))
            .collect();
        all.into_iter().filter(|text| !text.is_empty())
    };
    for side in ["source", "destination"] {
        for text in said(format!("{side}AddressPrefix")) {
            if !is_place(text) {
                let message =
                    format!("Security rule has invalid Address prefix. Value provided: {text}");
                return Err(Fault::bad("SecurityRuleInvalidAddressPrefix", message));
            }
        }
        for text in said(format!("{side}PortRange")) {
            if !is_port_range(text) {
                let message = format!(
                    "Security rule has invalid Port range. Value provided: {text}. Value should be an integer OR \
                    integer range with '-' delimiter. Valid range 0-65535."
                );
                return Err(Fault::bad("SecurityRuleInvalidPortRange", message));
            }
        }
    }
    Ok(())
}

fn is_place(text: &str) -> bool {
    let tag = text.split('.').next().unwrap_or_default();
    text == "*"
        || text.parse::<IpNet>().is_ok()
        || text.parse::<IpAddr>().is_ok()
        || TAGS
            .split_whitespace()
            .any(|known| known.eq_ignore_ascii_case(tag))
}

fn is_port_range(text: &str) -> bool {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (from.trim().parse::<u16>(), to.trim().parse::<u16>());
    text == "*" || matches!((from, to), (Ok(from), Ok(to)) if from <= to)
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
