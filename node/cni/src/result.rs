//! What a plugin answers, in the shape of the version that was asked for.

use std::net::IpAddr;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::error::{Code, Error};

/// Versions of the specification that are spoken here, oldest first.
pub const VERSIONS: [&str; 7] = [
    "0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0",
];

/// One of [`VERSIONS`]; later ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(usize);

impl Version {
    /// The newest.
    pub const NEWEST: Version = Version(VERSIONS.len() - 1);
    /// The first with CHECK.
    pub const CHECK: Version = Version(4);
    /// The first with GC and STATUS.
    pub const GC: Version = Version(6);
    const INTERFACES: Version = Version(2);
    const WITHOUT_FAMILY: Version = Version(5);

    /// Reads a version; a configuration without one is as old as can be.
    pub fn parse(text: &str) -> Result<Version, Error> {
        let text = if text.is_empty() { VERSIONS[0] } else { text };
        let found = VERSIONS.iter().position(|version| *version == text);
        found.map(Version).ok_or_else(|| {
            Error::new(Code::IncompatibleVersion, "incompatible CNI versions")
                .because(format!("config is `{text}`, plugin supports {VERSIONS:?}"))
        })
    }

    /// Its text.
    pub fn text(self) -> &'static str {
        VERSIONS[self.0]
    }
}

/// An interface, here or in a container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its hardware address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub mac: String,
    /// Its packet size.
    #[serde(skip_serializing_if = "is_zero")]
    pub mtu: u32,
    /// The namespace it is in; empty for those of the node.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub sandbox: String,
}

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// An address of a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    /// Which of the interfaces has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<usize>,
    /// The address and its network.
    pub address: IpNet,
    /// The way out of that network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway: Option<IpAddr>,
}

/// A route in a container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// Where to.
    pub dst: IpNet,
    /// By which neighbour; the interface's gateway when there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gw: Option<IpAddr>,
    /// Packet size on the way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mtu: Option<u32>,
    /// The segment size to announce.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub advmss: Option<u32>,
    /// Less is better.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u32>,
    /// The table it is in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub table: Option<u32>,
    /// How far it reaches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<u8>,
}

impl Route {
    /// A plain route.
    pub fn to(dst: IpNet) -> Route {
        Route {
            dst,
            gw: None,
            mtu: None,
            advmss: None,
            priority: None,
            table: None,
            scope: None,
        }
    }
}

/// Name servers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Dns {
    /// Their addresses.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub nameservers: Vec<String>,
    /// The domain of short names.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub domain: String,
    /// More such domains.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub search: Vec<String>,
    /// Options of the resolver.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub options: Vec<String>,
}

/// What an ADD made.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Outcome {
    /// Interfaces of the node first, then the container's.
    pub interfaces: Vec<Interface>,
    /// The container's addresses.
    pub ips: Vec<Address>,
    /// The container's routes.
    pub routes: Vec<Route>,
    /// Its name servers.
    pub dns: Dns,
}

impl Outcome {
    /// Reads what another plugin, or this one, answered in any version.
    pub fn read(value: &Value) -> Result<Outcome, Error> {
        let odd = |cause| Error::new(Code::Decode, "cannot read prevResult").because(cause);
        if value.get("ip4").is_some() || value.get("ip6").is_some() {
            return Outcome::read_oldest(value).map_err(odd);
        }
        Outcome::deserialize(value).map_err(odd)
    }

    fn read_oldest(value: &Value) -> Result<Outcome, serde_json::Error> {
        let mut outcome = Outcome::default();
        for family in ["ip4", "ip6"] {
            let Some(found) = value.get(family) else {
                continue;
            };
            let mut address = found.clone();
            address["address"] = found["ip"].clone();
            outcome.ips.push(Address::deserialize(address)?);
            if let Some(routes) = found.get("routes") {
                outcome.routes.extend(Vec::<Route>::deserialize(routes)?);
            }
        }
        if let Some(dns) = value.get("dns") {
            outcome.dns = Dns::deserialize(dns)?;
        }
        Ok(outcome)
    }

    /// The object that a runtime reads from standard output.
    pub fn to_json(&self, version: Version) -> Value {
        if version < Version::INTERFACES {
            return self.to_oldest(version);
        }
        let mut value = json!({
            "cniVersion": version.text(),
            "interfaces": self.interfaces,
            "ips": self.ips,
            "routes": self.routes,
            "dns": self.dns,
        });
        if version < Version::GC {
            each(&mut value["interfaces"], |interface| {
                interface.remove("mtu");
            });
            each(&mut value["routes"], |route| {
                route.retain(|key, _| key == "dst" || key == "gw");
            });
        }
        if version < Version::WITHOUT_FAMILY {
            each(&mut value["ips"], |ip| {
                let text = ip["address"].as_str().unwrap_or_default();
                let family = if text.contains(':') { "6" } else { "4" };
                ip.insert("version".to_owned(), json!(family));
            });
        }
        value
    }

    fn to_oldest(&self, version: Version) -> Value {
        let mut value = json!({"cniVersion": version.text(), "dns": self.dns});
        for (key, is_4) in [("ip4", true), ("ip6", false)] {
            let mut ips = self.ips.iter();
            let Some(ip) = ips.find(|ip| ip.address.addr().is_ipv4() == is_4) else {
                continue;
            };
            let routes = self.routes.iter();
            let routes: Vec<Value> = routes
                .filter(|route| route.dst.addr().is_ipv4() == is_4)
                .map(|route| match route.gw {
                    Some(gw) => json!({"dst": route.dst, "gw": gw}),
                    None => json!({"dst": route.dst}),
                })
                .collect();
            value[key] = json!({"ip": ip.address, "routes": routes});
            if let Some(gateway) = ip.gateway {
                value[key]["gateway"] = json!(gateway);
            }
        }
        value
    }
}

fn each(list: &mut Value, change: impl Fn(&mut Map<String, Value>)) {
    let items = list.as_array_mut().into_iter().flatten();
    items.filter_map(Value::as_object_mut).for_each(change);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome() -> Outcome {
        let inside = Interface {
            name: "eth0".to_owned(),
            mac: "0a:58:0a:f4:03:07".to_owned(),
            mtu: 1500,
            sandbox: "/run/netns/x".to_owned(),
        };
        let address = |text: &str, gateway: &str| Address {
            interface: Some(0),
            address: text.parse().expect("an address"),
            gateway: gateway.parse().ok(),
        };
        Outcome {
            interfaces: vec![inside],
            ips: vec![
                address("10.244.3.7/24", "10.244.3.1"),
                address("fd00::7/64", "fd00::1"),
            ],
            routes: vec![Route {
                mtu: Some(1400),
                ..Route::to("0.0.0.0/0".parse().expect("a range"))
            }],
            dns: Dns::default(),
        }
    }

    #[test]
    fn each_version_has_its_shape() {
        let newest = outcome().to_json(Version::NEWEST);
        assert_eq!(newest["interfaces"][0]["mtu"], 1500);
        assert_eq!(newest["routes"][0]["mtu"], 1400);
        let one = outcome().to_json(Version::parse("1.0.0").expect("a version"));
        assert!(one["interfaces"][0].get("mtu").is_none());
        assert!(one["routes"][0].get("mtu").is_none());
        assert!(one["ips"][0].get("version").is_none());
        let four = outcome().to_json(Version::parse("0.4.0").expect("a version"));
        assert_eq!(four["ips"][0]["version"], "4");
        assert_eq!(four["ips"][1]["version"], "6");
        let two = outcome().to_json(Version::parse("0.2.0").expect("a version"));
        assert_eq!(
            two,
            json!({"cniVersion": "0.2.0", "dns": {},
                "ip4": {"ip": "10.244.3.7/24", "gateway": "10.244.3.1", "routes": [{"dst": "0.0.0.0/0"}]},
                "ip6": {"ip": "fd00::7/64", "gateway": "fd00::1", "routes": []}})
        );
    }

    #[test]
    fn what_was_answered_in_any_version_can_be_read_again() {
        for version in VERSIONS {
            let version = Version::parse(version).expect("a version");
            let read = Outcome::read(&outcome().to_json(version)).expect("an outcome");
            assert_eq!(read.ips.len(), 2, "{}", version.text());
            assert_eq!(read.ips[1].address, outcome().ips[1].address);
        }
    }

    #[test]
    fn a_version_nobody_knows_is_refused_by_name() {
        let error = Version::parse("2.0.0").expect_err("too new");
        assert_eq!(error.code, Code::IncompatibleVersion);
        assert!(error.details.contains("2.0.0") && error.details.contains("1.1.0"));
    }
}
