//! What a Service of type LoadBalancer asks for, read once: from its spec, its annotations and its status.

use std::net::IpAddr;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Service;

use super::names::{Family, Names, base};
use super::options::Options;

/// Keeps a Service until its load balancer is gone.
pub(crate) const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// A port of a Service.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Port {
    pub(crate) name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub(crate) protocol: String,
    pub(crate) port: i32,
    pub(crate) node_port: i32,
    pub(crate) app_protocol: Option<String>,
}

/// A Service that has, wants or had a load balancer.
#[derive(Debug, Clone)]
pub(crate) struct Wish {
    /// Namespace and name.
    pub(crate) key: String,
    pub(crate) names: Names,
    pub(crate) created: Option<Timestamp>,
    /// It wants none any more: what it had is to go.
    pub(crate) leaving: bool,
    pub(crate) options: Options,
    pub(crate) families: Vec<Family>,
    pub(crate) ports: Vec<Port>,
    /// Only nodes with its pods are to get its connections, and this port says which these are.
    pub(crate) health_port: Option<i32>,
    /// Clients stay with their node.
    pub(crate) sticky: bool,
    /// Who may come, as written; none for everybody.
    pub(crate) ranges: Option<Vec<String>>,
    /// Addresses it shows now.
    pub(crate) shown: Vec<IpAddr>,
    /// The address it asks for the older way.
    address: Option<IpAddr>,
}

/// Whether a Service wants a load balancer of ours.
pub(crate) fn wants(service: &Service) -> bool {
    let spec = service.spec.as_ref();
    let is_type = spec.and_then(|spec| spec.type_.as_deref()) == Some("LoadBalancer");
    let class = spec.and_then(|spec| spec.load_balancer_class.as_ref());
    is_type && class.is_none() && service.metadata.deletion_timestamp.is_none()
}

fn has_finalizer(service: &Service) -> bool {
    let mut all = service.metadata.finalizers.iter().flatten();
    all.any(|finalizer| finalizer == FINALIZER)
}

/// Whether a Service had a load balancer of ours and wants none any more.
pub(crate) fn leaves(service: &Service) -> bool {
    !wants(service) && has_finalizer(service)
}

fn ingress(service: &Service) -> Vec<IpAddr> {
    let status = service.status.as_ref();
    let ingress = status.and_then(|s| s.load_balancer.as_ref()?.ingress.as_ref());
    let all = ingress.into_iter().flatten();
    all.filter_map(|one| one.ip.as_ref()?.parse().ok())
        .collect()
}

impl Wish {
    /// Reads a Service; an error says what is wrong with it. One that is leaving is read as far as that goes.
    pub(crate) fn of(service: &Service) -> Result<Wish, String> {
        let leaving = leaves(service);
        let (meta, spec) = (&service.metadata, service.spec.clone().unwrap_or_default());
        let annotations = meta.annotations.clone().unwrap_or_default();
        let options = match Options::of(&annotations) {
            Err(_) if leaving => Options::default(),
            read => read?,
        };
        let families: Vec<Family> = match spec.ip_families.as_deref() {
            None | Some([]) => vec![Family::V4],
            Some(named) => named
                .iter()
                .map(|name| match name.as_str() {
                    "IPv6" => Family::V6,
                    _ => Family::V4,
                })
                .collect(),
        };
        let is_local = spec.external_traffic_policy.as_deref() == Some("Local");
        let names = Names {
            base: base(meta.uid.as_deref().unwrap_or_default()),
            subnet: options.subnet.clone().filter(|_| options.internal),
            is_dual: families.len() > 1,
        };
        let ports = spec.ports.unwrap_or_default().into_iter();
        let ranges = spec
            .load_balancer_source_ranges
            .filter(|all| !all.is_empty());
        let wish = Wish {
            key: key(service),
            names,
            created: meta.creation_timestamp.as_ref().map(|time| time.0),
            leaving,
            families,
            ports: ports
                .map(|port| Port {
                    name: port.name.unwrap_or_default(),
                    protocol: port.protocol.unwrap_or_else(|| "TCP".into()),
                    port: port.port,
                    node_port: port.node_port.unwrap_or_default(),
                    app_protocol: port.app_protocol,
                })
                .collect(),
            health_port: spec
                .health_check_node_port
                .filter(|port| is_local && *port > 0),
            sticky: spec.session_affinity.as_deref() == Some("ClientIP"),
            ranges: ranges.or_else(|| options.source_ranges.clone()),
            shown: ingress(service),
            address: spec.load_balancer_ip.and_then(|ip| ip.trim().parse().ok()),
            options,
        };
        match wish.contradiction().filter(|_| !leaving) {
            Some(cause) => Err(cause),
            None => Ok(wish),
        }
    }

    fn contradiction(&self) -> Option<String> {
        let restricts = self.ranges.is_some() && self.options.allowed_ranges.is_some();
        if restricts {
            return Some(
                "spec.loadBalancerSourceRanges (or its annotation) and the annotation azure-allowed-ip-ranges are both \
                 set; only one of them may say who comes in"
                    .into(),
            );
        }
        let has_sctp = self.ports.iter().any(|port| port.protocol == "SCTP");
        (has_sctp && !self.options.internal).then(|| {
            "SCTP needs an internal load balancer (annotation azure-load-balancer-internal)".into()
        })
    }

    /// The address it asks for, in a family.
    pub(crate) fn address(&self, family: Family) -> Option<IpAddr> {
        let own = self.options.address[family as usize];
        own.or(self.address.filter(|address| Family::of(address) == family))
    }

    /// Whether a part of a load balancer is this Service's, by its name.
    pub(crate) fn owns(&self, part: &str) -> bool {
        let own = part.get(..self.names.base.len());
        own.is_some_and(|own| own.eq_ignore_ascii_case(&self.names.base))
    }

    /// Whether its connections arrive at nodes with the address of the load balancer, as upstream has it: only then may
    /// several Services share a port of nodes.
    pub(crate) fn floats(&self, family: Family) -> bool {
        let is_internal_v6 = self.options.internal && family == Family::V6;
        !self.options.no_floating_ip && !is_internal_v6
    }
}

/// Namespace and name of a Service, as tags have them.
pub(crate) fn key(service: &Service) -> String {
    let meta = &service.metadata;
    let (namespace, name) = (
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    );
    format!("{namespace}/{name}")
}

#[cfg(test)]
pub(super) mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::{Value, json};

    /// A Service of tests: its number makes its uid, its node ports and its age.
    pub(crate) fn service(number: u32, annotations: Value, spec: Value) -> Service {
        let prefixed: serde_json::Map<String, Value> = annotations
            .as_object()
            .into_iter()
            .flatten()
            .map(|(k, v)| (format!("service.beta.kubernetes.io/{k}"), v.clone()))
            .collect();
        let mut whole = json!({"type": "LoadBalancer", "ipFamilies": ["IPv4"],
            "ports": [{"port": 80, "protocol": "TCP", "nodePort": 30000 + number}]});
        for (name, value) in spec.as_object().into_iter().flatten() {
            whole[name] = value.clone();
        }
        serde_json::from_value(
            json!({"metadata": {"namespace": "default", "name": format!("s{number}"),
            "uid": format!("{number:08x}-0000-0000-0000-000000000000"), "annotations": prefixed,
            "creationTimestamp": format!("2026-01-01T00:00:{:02}Z", number % 60)}, "spec": whole}),
        )
        .unwrap()
    }

    pub(crate) fn wish(number: u32, annotations: Value, spec: Value) -> Wish {
        Wish::of(&service(number, annotations, spec)).unwrap()
    }

    #[test]
    fn who_wants_and_who_leaves() {
        let mut one = service(1, json!({}), json!({}));
        assert!(wants(&one) && !leaves(&one));
        one.metadata.finalizers = Some(vec![FINALIZER.into()]);
        assert!(!leaves(&one));
        one.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
        assert!(!wants(&one) && leaves(&one));
        let other = service(1, json!({}), json!({"loadBalancerClass": "x"}));
        assert!(!wants(&other) && !leaves(&other));
    }

    #[test]
    fn addresses_asked_for_are_of_a_family() {
        let one = wish(
            1,
            json!({"azure-load-balancer-ipv6": "fd00::1"}),
            json!({"loadBalancerIP": "10.0.0.7"}),
        );
        assert_eq!(one.address(Family::V4), Some("10.0.0.7".parse().unwrap()));
        assert_eq!(one.address(Family::V6), Some("fd00::1".parse().unwrap()));
        assert!(one.owns("A0000000100000000000000000000000-TCP-80") && !one.owns("a"));
    }

    #[test]
    fn contradictions_are_said_unless_it_leaves() {
        let both = (
            json!({"azure-allowed-ip-ranges": "1.0.0.0/8"}),
            json!({"loadBalancerSourceRanges": ["2.0.0.0/8"]}),
        );
        assert!(Wish::of(&service(1, both.0.clone(), both.1.clone())).is_err());
        let sctp = json!({"ports": [{"port": 80, "protocol": "SCTP", "nodePort": 1}]});
        assert!(Wish::of(&service(1, json!({}), sctp.clone())).is_err());
        assert!(
            Wish::of(&service(
                1,
                json!({"azure-load-balancer-internal": "true"}),
                sctp
            ))
            .is_ok()
        );
        let mut leaving = service(1, both.0, both.1);
        leaving.metadata.finalizers = Some(vec![FINALIZER.into()]);
        leaving.spec.as_mut().unwrap().type_ = Some("ClusterIP".into());
        assert!(Wish::of(&leaving).unwrap().leaving);
    }
}
