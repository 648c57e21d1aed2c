//! The resources we touch. Fields that are not named here are kept as they came, so that a write of the whole resource
//! takes nothing away.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// Azure says `null` where it means nothing.
fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Whether a field is left out of what is sent. A list never is: one that is left out is kept, and an empty one is not.
fn is_left_out<T: Default + PartialEq + Serialize>(value: &T) -> bool {
    is_default(value) && !serde_json::to_value(value).is_ok_and(|value| value.is_array())
}

macro_rules! model {
    ($(#[$doc:meta])* $model:ident { $($(#[$field_doc:meta])* $field:ident: $type:ty = $name:literal,)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default)]
        pub struct $model {
            $($(#[$field_doc])*
            #[serde(rename = $name, deserialize_with = "or_default", skip_serializing_if = "is_left_out")]
            pub $field: $type,)*
            /// What else there is.
            #[serde(flatten)]
            pub rest: Map<String, Value>,
        }
    };
}

/// A resource: what all have, and what its type has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(bound(deserialize = "P: Deserialize<'de> + Default"))]
pub struct Resource<P> {
    /// Its id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Its name.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// Its region.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub location: String,
    /// The mark of its version.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "String::is_empty"
    )]
    pub etag: String,
    /// Its tags.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub tags: BTreeMap<String, String>,
    /// Its zones.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub zones: Vec<String>,
    /// Its kind and size.
    #[serde(
        default,
        deserialize_with = "or_default",
        skip_serializing_if = "is_default"
    )]
    pub sku: Sku,
    /// What its type has.
    #[serde(default, deserialize_with = "or_default")]
    pub properties: P,
    /// What else there is.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

/// A part of a resource: a rule, a probe, a frontend, a route.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// Its id.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Its name.
    #[serde(default)]
    pub name: String,
    /// What it says.
    #[serde(default)]
    pub properties: Value,
    /// What else there is.
    #[serde(flatten)]
    pub rest: Map<String, Value>,
}

impl Part {
    /// A part of this name that says this.
    pub fn new(name: impl Into<String>, properties: Value) -> Part {
        Part {
            name: name.into(),
            properties,
            ..Part::default()
        }
    }

    /// A text among its properties.
    pub fn text(&self, pointer: &str) -> &str {
        let found = self.properties.pointer(pointer);
        found.and_then(Value::as_str).unwrap_or_default()
    }
}

/// A reference to a resource.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Reference {
    /// Its id.
    #[serde(default)]
    pub id: String,
}

model! {
    /// A kind and size.
    Sku {
        /// `Standard`, or the size of a machine.
        name: String = "name",
    }
}

model! {
    /// A load balancer.
    LoadBalancer {
        /// Addresses it listens on.
        frontends: Vec<Part> = "frontendIPConfigurations",
        /// Whom it hands connections to.
        pools: Vec<Part> = "backendAddressPools",
        /// Which connections.
        rules: Vec<Part> = "loadBalancingRules",
        /// Who is well.
        probes: Vec<Part> = "probes",
        /// Ways out.
        outbound_rules: Vec<Part> = "outboundRules",
        /// Ports that lead to one machine.
        nat_rules: Vec<Part> = "inboundNatRules",
        /// Ranges of such ports.
        nat_pools: Vec<Part> = "inboundNatPools",
    }
}

model! {
    /// A public address.
    PublicIp {
        /// The address.
        address: String = "ipAddress",
        /// `Static` or `Dynamic`.
        allocation: String = "publicIPAllocationMethod",
        /// `IPv4` or `IPv6`.
        version: String = "publicIPAddressVersion",
        /// Its name in DNS.
        dns: Option<Dns> = "dnsSettings",
        /// The range it is from.
        prefix: Option<Reference> = "publicIPPrefix",
        /// Tags of its routes.
        ip_tags: Vec<IpTag> = "ipTags",
        /// Who uses it.
        user: Option<Reference> = "ipConfiguration",
    }
}

model! {
    /// A name in DNS.
    Dns {
        /// The part that is chosen.
        label: String = "domainNameLabel",
    }
}

model! {
    /// A tag of an address' routes.
    IpTag {
        /// Its kind.
        kind: String = "ipTagType",
        /// Its value.
        tag: String = "tag",
    }
}

model! {
    /// A security group.
    SecurityGroup {
        /// Rules that somebody wrote.
        rules: Vec<Part> = "securityRules",
    }
}

model! {
    /// A table of routes.
    RouteTable {
        /// The routes.
        routes: Vec<Part> = "routes",
    }
}

model! {
    /// A subnet.
    Subnet {
        /// Its range.
        prefix: String = "addressPrefix",
        /// Its ranges, where they are several.
        prefixes: Vec<String> = "addressPrefixes",
    }
}

model! {
    /// A virtual machine, or one of a scale set.
    Machine {
        /// `Succeeded`, `Deleting` and so on.
        state: String = "provisioningState",
        /// An id for life.
        vm_id: String = "vmId",
        /// Its size.
        hardware: Hardware = "hardwareProfile",
        /// Its system.
        system: System = "osProfile",
        /// Its cards.
        network: Cards = "networkProfile",
        /// Of a machine of a set: how its cards are made.
        network_model: NetworkModel = "networkProfileConfiguration",
        /// What it does.
        view: Option<View> = "instanceView",
        /// The flexible set it is of.
        set: Option<Reference> = "virtualMachineScaleSet",
    }
}

model! {
    /// A size.
    Hardware {
        /// Its name.
        size: String = "vmSize",
    }
}

model! {
    /// A machine's system.
    System {
        /// Its host name.
        name: String = "computerName",
    }
}

model! {
    /// A machine's cards.
    Cards {
        /// Each of them.
        cards: Vec<CardReference> = "networkInterfaces",
    }
}

/// A reference to a card.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CardReference {
    /// The card.
    pub id: String,
    /// Whether it is the first.
    #[serde(deserialize_with = "or_default")]
    pub properties: Primary,
}

/// Whether something is the first.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Primary {
    /// Whether.
    pub primary: Option<bool>,
}

model! {
    /// How the cards of a set's machines are made.
    NetworkModel {
        /// Each of them.
        cards: Vec<Part> = "networkInterfaceConfigurations",
    }
}

model! {
    /// What a machine does.
    View {
        /// Codes such as `PowerState/running`.
        statuses: Vec<Status> = "statuses",
        /// The fault domain it is in.
        fault_domain: Option<u32> = "platformFaultDomain",
    }
}

model! {
    /// A status.
    Status {
        /// Its code.
        code: String = "code",
    }
}

model! {
    /// A scale set.
    ScaleSet {
        /// `Uniform` or `Flexible`.
        orchestration: String = "orchestrationMode",
        /// How its machines are made.
        profile: ScaleSetProfile = "virtualMachineProfile",
    }
}

model! {
    /// How a scale set's machines are made.
    ScaleSetProfile {
        /// Their names.
        system: ScaleSetSystem = "osProfile",
        /// Their cards.
        network: NetworkModel = "networkProfile",
    }
}

model! {
    /// Names of a scale set's machines.
    ScaleSetSystem {
        /// How they begin.
        prefix: String = "computerNamePrefix",
    }
}

model! {
    /// A network card.
    Card {
        /// Whether it is the first of its machine.
        primary: Option<bool> = "primary",
        /// Its addresses.
        addresses: Vec<Part> = "ipConfigurations",
        /// Its machine.
        machine: Option<Reference> = "virtualMachine",
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_not_known_is_kept() {
        let text = json!({"id": "/i", "name": "n", "location": "eastus", "etag": "W/\"1\"", "plan": {"a": 1},
            "sku": {"name": "Standard", "tier": "Regional"},
            "properties": {"frontendIPConfigurations": [{"id": "/f", "name": "f", "zones": ["1"],
                "properties": {"privateIPAddress": "10.0.0.4", "gatewayLoadBalancer": {"id": "/g"}}}],
                "resourceGuid": "g", "provisioningState": "Succeeded"}});
        let read: Resource<LoadBalancer> = serde_json::from_value(text.clone()).unwrap();
        assert_eq!(
            read.properties.frontends[0].text("/privateIPAddress"),
            "10.0.0.4"
        );
        let mut sent = serde_json::to_value(&read).unwrap();
        assert_eq!(
            sent["properties"]["probes"],
            json!([]),
            "an empty list is said"
        );
        let properties = sent["properties"].as_object_mut().unwrap();
        properties.retain(|_, value| *value != json!([]));
        assert_eq!(sent, text);
    }

    #[test]
    fn nothing_may_be_null() {
        let text = json!({"name": "n", "tags": null, "zones": null, "sku": null,
            "properties": {"ipAddress": null, "ipTags": null, "dnsSettings": null}});
        let read: Resource<PublicIp> = serde_json::from_value(text).unwrap();
        assert_eq!((read.tags.len(), read.properties.dns), (0, None));
    }
}
