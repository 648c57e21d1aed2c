//! The network configuration that a runtime hands over on standard input.

use std::net::IpAddr;
use std::path::PathBuf;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::bandwidth::Bandwidth;
use crate::call::is_identifier;
use crate::error::{Code, Error};
use crate::ipam::Range;
use crate::result::{Dns, Outcome, Route, Version};

/// Where the books are kept. They are void after a boot, as the namespaces they tell of: so not on a disk.
const DATA_DIRECTORY: &str = "/run/kyanite-cni";

/// Which plugin this call is for: ours, or one of the reference plugins that this program stands in for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Every pod on a cable of its own, routed by the node.
    Overlay,
    /// Pods on a bridge.
    Bridge,
    /// Ports of the node that lead to pods of another plugin.
    Portmap,
    /// The loopback of a pod.
    Loopback,
}

/// A configuration that was read and checked.
#[derive(Debug, Clone)]
pub struct Conf {
    /// Which version the runtime speaks.
    pub version: Version,
    /// The network.
    pub name: String,
    /// Who is called.
    pub role: Role,
    /// The settings.
    pub settings: Settings,
    /// What plugins before this one made.
    pub previous: Option<Outcome>,
    /// Address sets: a pod gets one of each.
    pub ranges: Vec<Vec<Range>>,
}

/// The keys of a configuration, as they are written.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Settings {
    cni_version: String,
    name: String,
    #[serde(rename = "type")]
    kind: String,
    mode: String,
    /// The bridge's name.
    pub bridge: String,
    /// Packet size; 0 takes that of the node's way out.
    pub mtu: u32,
    hairpin_mode: Option<bool>,
    /// Whether the bridge hears everything, as kubenet has it.
    pub promisc_mode: bool,
    ip_masq: Option<bool>,
    is_gateway: Option<bool>,
    is_default_gateway: bool,
    /// Ranges that see pods' own addresses.
    #[serde(rename = "nonMasqueradeCIDRs")]
    pub non_masquerade: Vec<IpNet>,
    ipam: Ipam,
    dns: Dns,
    runtime_config: RuntimeConfig,
    prev_result: Option<Value>,
    /// What a GC shall leave alone.
    #[serde(rename = "cni.dev/valid-attachments")]
    pub valid: Option<Vec<ValidAttachment>>,
}

/// An attachment that a runtime still knows.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct ValidAttachment {
    /// The container.
    #[serde(rename = "containerID")]
    pub container: String,
    /// Its interface.
    #[serde(rename = "ifname")]
    pub interface: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Ipam {
    #[serde(rename = "type")]
    kind: String,
    ranges: Vec<Vec<RangeText>>,
    #[serde(flatten)]
    only: RangeText,
    routes: Vec<Route>,
    data_dir: Option<PathBuf>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RangeText {
    subnet: Option<String>,
    range_start: Option<IpAddr>,
    range_end: Option<IpAddr>,
    gateway: Option<IpAddr>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct RuntimeConfig {
    port_mappings: Vec<PortMapping>,
    ip_ranges: Vec<Vec<RangeText>>,
    bandwidth: Bandwidth,
    ips: Vec<String>,
    mac: String,
}

/// A port of the node that leads to a pod.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PortMapping {
    /// The node's port.
    pub host_port: u16,
    /// The pod's.
    pub container_port: u16,
    /// `tcp`, `udp` or `sctp`.
    #[serde(default)]
    pub protocol: Protocol,
    /// Which of the node's addresses; all when there is none.
    #[serde(rename = "hostIP", default, deserialize_with = "some_address")]
    pub host_ip: Option<IpAddr>,
}

/// What ports are of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    #[default]
    #[serde(alias = "TCP")]
    Tcp,
    /// UDP.
    #[serde(alias = "UDP")]
    Udp,
    /// SCTP.
    #[serde(alias = "SCTP")]
    Sctp,
}

// containerd writes an empty text where Kubernetes says nothing.
fn some_address<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Option<IpAddr>, D::Error> {
    let text = Option::<String>::deserialize(from)?.unwrap_or_default();
    match text.as_str() {
        "" => Ok(None),
        text => text.parse().map(Some).map_err(serde::de::Error::custom),
    }
}

impl Conf {
    /// Reads and checks a configuration. What only making something needs is not asked of those that take away.
    pub fn read(text: &str) -> Result<Conf, Error> {
        let unreadable = |cause: serde_json::Error| {
            Error::new(Code::Decode, "cannot read the network configuration").because(cause)
        };
        let mut given: Value = serde_json::from_str(text).map_err(unreadable)?;
        given
            .get_mut("runtimeConfig")
            .into_iter()
            .for_each(small_initials);
        let mut settings: Settings = serde_json::from_value(given).map_err(unreadable)?;
        let version = Version::parse(&settings.cni_version)?;
        let name = std::mem::take(&mut settings.name);
        if !is_identifier(&name) {
            return Err(invalid(format!(
                "the network name `{name}` is not letters, digits, `_`, `.` and `-`"
            )));
        }
        let role = settings.role()?;
        let previous = settings.prev_result.take();
        let previous = previous.map(|value| Outcome::read(&value)).transpose()?;
        let ranges = settings.ranges()?;
        Ok(Conf {
            version,
            name,
            role,
            settings,
            previous,
            ranges,
        })
    }

    /// The directory of this network's books.
    pub fn directory(&self) -> PathBuf {
        let base = self.settings.ipam.data_dir.clone();
        let name = match self.role {
            Role::Portmap => format!("{}.ports", self.name),
            _ => self.name.clone(),
        };
        base.unwrap_or_else(|| DATA_DIRECTORY.into()).join(name)
    }

    /// The routes that pods get besides those to their own network.
    pub fn routes(&self) -> Vec<Route> {
        let settings = &self.settings;
        let mut routes = settings.ipam.routes.clone();
        let by_default = self.role == Role::Overlay || settings.kind != "bridge";
        if routes.is_empty() && by_default || settings.is_default_gateway {
            for range in self.ranges.iter().filter_map(|set| set.first()) {
                let any = everywhere(range.subnet);
                if !routes.iter().any(|route| route.dst == any) {
                    routes.push(Route::to(any));
                }
            }
        }
        routes
    }

    /// An error unless pods can get addresses by this configuration.
    pub fn needs_ranges(&self) -> Result<(), Error> {
        match self.ranges.is_empty() {
            true => Err(invalid(
                "the configuration has no address ranges (`ipam.ranges`); hint: has the node got its pod CIDR?",
            )),
            false => Ok(()),
        }
    }
}

impl Settings {
    fn role(&self) -> Result<Role, Error> {
        let own = ["", "host-local", "kyanite-cni"];
        if !own.contains(&self.ipam.kind.as_str()) {
            return Err(unsupported("ipam.type", &self.ipam.kind));
        }
        match (self.kind.as_str(), self.mode.as_str()) {
            ("loopback", _) => Ok(Role::Loopback),
            ("portmap", _) => Ok(Role::Portmap),
            ("bridge", _) | (_, "kubenet" | "bridge") => Ok(Role::Bridge),
            (_, "" | "overlay") => Ok(Role::Overlay),
            (_, other) => Err(unsupported("mode", other)),
        }
    }

    fn ranges(&self) -> Result<Vec<Vec<Range>>, Error> {
        let ipam = &self.ipam;
        let mut sets = ipam.ranges.clone();
        sets.extend(self.runtime_config.ip_ranges.clone());
        if ipam.only.subnet.is_some() {
            sets.insert(0, vec![ipam.only.clone()]);
        }
        let read = |set: &Vec<RangeText>| set.iter().map(RangeText::read).collect();
        let sets: Vec<Vec<Range>> = sets.iter().map(read).collect::<Result<_, _>>()?;
        let all: Vec<&Range> = sets.iter().flatten().collect();
        for (n, one) in all.iter().enumerate() {
            if let Some(other) = all[..n].iter().find(|other| other.overlaps(one)) {
                return Err(invalid(format!(
                    "the ranges {} and {} overlap",
                    other.subnet, one.subnet
                )));
            }
        }
        Ok(sets)
    }

    /// The bridge's name.
    pub fn bridge_name(&self) -> &str {
        match (self.bridge.as_str(), self.kind.as_str()) {
            ("", "bridge") => "cni0",
            ("", _) => "cbr0",
            (name, _) => name,
        }
    }

    /// Whether a pod may reach itself by way of the bridge.
    pub fn hairpin(&self) -> bool {
        self.hairpin_mode.unwrap_or(self.kind != "bridge") && !self.promisc_mode
    }

    /// Whether the bridge has pods' gateway addresses.
    pub fn is_gateway(&self) -> bool {
        self.is_gateway.unwrap_or(self.kind != "bridge") || self.is_default_gateway
    }

    /// Whether what pods send out of the cluster gets the node's address.
    pub fn masquerades(&self) -> bool {
        self.ip_masq.unwrap_or(self.kind != "bridge")
    }

    /// Ports that lead to this pod.
    pub fn ports(&self) -> Vec<PortMapping> {
        let mut ports = self.runtime_config.port_mappings.clone();
        ports.retain(|port| port.host_port != 0);
        ports
    }

    /// What the pod may send and receive.
    pub fn bandwidth(&self) -> Bandwidth {
        self.runtime_config.bandwidth
    }

    /// The configuration's own name servers.
    pub fn dns(&self) -> &Dns {
        &self.dns
    }

    /// Addresses and hardware address that the runtime asks for, if any.
    pub fn asked_for(&self) -> (Vec<IpAddr>, Option<String>) {
        let plain = |text: &String| {
            let address = text.split('/').next().unwrap_or_default();
            address.parse().ok()
        };
        let ips = self.runtime_config.ips.iter().filter_map(plain).collect();
        let mac = Some(self.runtime_config.mac.clone()).filter(|mac| !mac.is_empty());
        (ips, mac)
    }
}

impl RangeText {
    fn read(&self) -> Result<Range, Error> {
        let text = self.subnet.clone().unwrap_or_default();
        let subnet = text
            .parse()
            .map_err(|cause| invalid(format!("`{text}` is not a subnet")).because(cause))?;
        Range::new(subnet, self.range_start, self.range_end, self.gateway).map_err(invalid)
    }
}

// containerd writes `HostPort`, `IngressRate` and the like: Go's names of fields, which Go reads in either spelling.
fn small_initials(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, mut value) in std::mem::take(fields) {
                small_initials(&mut value);
                let mut letters = name.chars();
                let first = letters.next().map(|first| first.to_ascii_lowercase());
                fields.insert(first.into_iter().chain(letters).collect(), value);
            }
        }
        Value::Array(all) => all.iter_mut().for_each(small_initials),
        _ => {}
    }
}

/// Every address of the family of this one.
pub(crate) fn everywhere(like: IpNet) -> IpNet {
    match like {
        IpNet::V4(_) => IpNet::V4(ipnet::Ipv4Net::default()),
        IpNet::V6(_) => IpNet::V6(ipnet::Ipv6Net::default()),
    }
}

fn invalid(message: impl Into<String>) -> Error {
    Error::new(Code::InvalidConfiguration, message)
}

// The specification wants key and value in the message.
fn unsupported(key: &str, value: &str) -> Error {
    Error::new(
        Code::UnsupportedField,
        format!("the value `{value}` of the key `{key}` is not supported"),
    )
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(mut conf: Value) -> Result<Conf, Error> {
        conf["cniVersion"] = json!("1.1.0");
        if conf["name"].is_null() {
            conf["name"] = json!("pods");
        }
        Conf::read(&conf.to_string())
    }

    #[test]
    fn what_containerd_says_of_ports_and_rates_is_understood() {
        let conf = read(
            json!({"type": "kyanite-cni", "ipam": {"subnet": "10.0.0.0/24"}, "runtimeConfig": {
            "portMappings": [{"HostPort": 8081, "ContainerPort": 8080, "Protocol": "tcp", "HostIP": ""}],
            "bandwidth": {"IngressRate": 1000, "IngressBurst": 1000, "EgressRate": 0, "EgressBurst": 0}}}),
        );
        let conf = conf.expect("a configuration");
        let ports = conf.settings.ports();
        assert_eq!((ports[0].host_port, ports[0].container_port), (8081, 8080));
        let small = json!({"ingressRate": 1000, "ingressBurst": 1000});
        let small: Bandwidth = serde_json::from_value(small).expect("a bandwidth");
        assert_eq!(conf.settings.runtime_config.bandwidth, small);
    }

    #[test]
    fn reference_plugins_keep_their_defaults_and_ours_has_a_nodes() {
        let of = |conf| read(conf).expect("a configuration");
        let bridge =
            of(json!({"type": "bridge", "ipam": {"type": "host-local", "subnet": "10.0.0.0/24"}}));
        assert_eq!(
            (bridge.role, bridge.settings.bridge_name()),
            (Role::Bridge, "cni0")
        );
        let settings = &bridge.settings;
        assert!(!settings.hairpin() && !settings.is_gateway() && !settings.masquerades());
        assert_eq!(bridge.routes(), []);
        let ours = of(
            json!({"type": "kyanite-cni", "mode": "kubenet", "ipam": {"subnet": "10.0.0.0/24"}}),
        );
        assert_eq!(
            (ours.role, ours.settings.bridge_name()),
            (Role::Bridge, "cbr0")
        );
        let settings = &ours.settings;
        assert!(settings.hairpin() && settings.is_gateway() && settings.masquerades());
        assert_eq!(ours.routes().len(), 1, "a default route");
        let gateway = of(
            json!({"type": "bridge", "isDefaultGateway": true, "ipam": {"subnet": "fd00::/64"}}),
        );
        assert_eq!(gateway.routes()[0].dst.to_string(), "::/0");
        assert!(gateway.settings.is_gateway());
    }

    #[test]
    fn a_pod_gets_an_address_of_each_set() {
        let conf = read(json!({
            "ipam": {"ranges": [[{"subnet": "10.0.0.0/24"}, {"subnet": "10.0.1.0/24"}], [{"subnet": "fd00::/64"}]]},
        }));
        let sets: Vec<usize> = conf.expect("ranges").ranges.iter().map(Vec::len).collect();
        assert_eq!(sets, [2, 1]);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for (conf, code) in [
            (json!({"name": "a b"}), Code::InvalidConfiguration),
            (json!({"ipam": {"type": "dhcp"}}), Code::UnsupportedField),
            (json!({"mode": "magic"}), Code::UnsupportedField),
            (
                json!({"ipam": {"subnet": "ten"}}),
                Code::InvalidConfiguration,
            ),
            (
                json!({"ipam": {"ranges": [[{"subnet": "10.0.0.0/24"}], [{"subnet": "10.0.0.0/25"}]]}}),
                Code::InvalidConfiguration,
            ),
            (json!({"mtu": "wide"}), Code::Decode),
            (
                json!({"runtimeConfig": {"portMappings": [{"hostPort": 1, "containerPort": 1, "hostIP": "x"}]}}),
                Code::Decode,
            ),
        ] {
            assert_eq!(
                read(conf.clone()).expect_err("refused").code,
                code,
                "{conf}"
            );
        }
    }

    #[test]
    fn ports_are_as_kubernetes_says_them() {
        let conf = read(json!({"runtimeConfig": {"portMappings": [
            {"hostPort": 80, "containerPort": 8080, "protocol": "TCP", "hostIP": ""},
            {"hostPort": 53, "containerPort": 53, "protocol": "udp", "hostIP": "192.0.2.1"},
            {"hostPort": 0, "containerPort": 1},
        ]}}));
        let ports = conf.expect("a configuration").settings.ports();
        assert_eq!(ports.len(), 2, "port 0 is none");
        assert_eq!((ports[0].protocol, ports[0].host_ip), (Protocol::Tcp, None));
        assert_eq!(ports[1].protocol, Protocol::Udp);
    }

    #[test]
    fn books_of_ports_are_books_of_their_own() {
        let at = |kind: &str| {
            let conf = read(json!({"type": kind, "ipam": {"dataDir": "/x"}}));
            conf.expect("a configuration").directory()
        };
        assert_eq!(at("portmap"), PathBuf::from("/x/pods.ports"));
        assert_eq!(at("bridge"), PathBuf::from("/x/pods"));
    }
}
