//! Configurations of our own: a conflist for a node whose pod ranges are known, and the template that containerd
//! makes one of once it is told them.

use ipnet::IpNet;
use serde_json::{Value, json};

/// What a node's pod network is to be.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Network {
    /// A bridge as kubenet has, instead of a route for each pod.
    pub bridge: bool,
    /// Packet size; 0 takes that of the node's way out.
    pub mtu: u32,
    /// Ranges that see pods' own addresses: the cluster's pods, and the nodes' network where it knows the way back.
    pub inside: Vec<IpNet>,
}

/// The file that a runtime reads first.
pub const CONFLIST: &str = "/etc/cni/net.d/10-kyanite.conflist";

const RANGES: &str = "@ranges@";
/// As containerd fills in templates: Go's.
const TEMPLATE_RANGES: &str = r#"[{{range $i, $range := .PodCIDRRanges}}{{if $i}}, {{end}}[{"subnet": "{{$range}}"}]{{end}}]"#;

impl Network {
    /// The configuration of a node with these pod ranges, one for each family.
    pub fn conflist(&self, ranges: &[IpNet]) -> String {
        let ranges: Vec<Value> = ranges.iter().map(|r| json!([{"subnet": r}])).collect();
        pretty(&self.value(json!(ranges)))
    }

    /// The template for containerd's `conf_template`.
    pub fn template(&self) -> String {
        let quoted = format!("\"{RANGES}\"");
        pretty(&self.value(json!(RANGES))).replace(&quoted, TEMPLATE_RANGES)
    }

    fn value(&self, ranges: Value) -> Value {
        let mut plugin = json!({
            "type": "kyanite-cni",
            "mode": if self.bridge { "kubenet" } else { "overlay" },
            "ipMasq": true,
            "nonMasqueradeCIDRs": self.inside,
            "ipam": {"type": "kyanite-cni", "ranges": ranges},
            "capabilities": {"portMappings": true, "bandwidth": true, "ips": true, "mac": true},
        });
        if self.mtu > 0 {
            plugin["mtu"] = json!(self.mtu);
        }
        // containerd up to 1.7 speaks no later version; it reads this one as all do.
        json!({"cniVersion": "1.0.0", "cniVersions": ["0.4.0", "1.0.0", "1.1.0"], "name": "kyanite", "plugins": [plugin]})
    }
}

fn pretty(value: &Value) -> String {
    let text = serde_json::to_string_pretty(value).expect("a value is JSON");
    text + "\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conf::{Conf, Role};

    fn net(text: &str) -> IpNet {
        text.parse().expect("a range")
    }

    // As a runtime hands a plugin of a list over.
    fn as_called(conflist: &str) -> Conf {
        let list: Value = serde_json::from_str(conflist).expect("JSON");
        let mut plugin = list["plugins"][0].clone();
        plugin["cniVersion"] = list["cniVersion"].clone();
        plugin["name"] = list["name"].clone();
        Conf::read(&plugin.to_string()).expect("a configuration")
    }

    #[test]
    fn what_is_written_can_be_read() {
        let network = Network {
            bridge: true,
            mtu: 1400,
            inside: vec![net("10.244.0.0/16")],
        };
        let conf = as_called(&network.conflist(&[net("10.244.3.0/24"), net("fd00:3::/64")]));
        assert_eq!((conf.role, conf.ranges.len()), (Role::Bridge, 2));
        assert_eq!((conf.settings.mtu, conf.routes().len()), (1400, 2));
        assert!(conf.settings.masquerades() && conf.settings.hairpin());
        let conf = as_called(&Network::default().conflist(&[net("10.244.3.0/24")]));
        assert_eq!(conf.role, Role::Overlay);
    }

    #[test]
    fn a_filled_template_is_the_conflist() {
        let network = Network::default();
        let filled = network
            .template()
            .replace(TEMPLATE_RANGES, r#"[[{"subnet": "10.244.3.0/24"}]]"#);
        let read = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
        assert_eq!(
            read(&filled),
            read(&network.conflist(&[net("10.244.3.0/24")]))
        );
    }
}
