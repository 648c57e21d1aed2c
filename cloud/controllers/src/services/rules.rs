//! Rules and probes of one Service on its load balancer.

use azure::CloudConfig;
use azure::models::Part;
use serde_json::{Value, json};

use super::names::Family;
use super::options::{PortOptions, ProbeOptions};
use super::wish::{Port, Wish};

/// The probe that all services without a policy of their own share, where that is asked for.
pub(crate) const SHARED_PROBE: &str = "cluster-service-shared-health-probe";

/// What a rule refers to.
#[derive(Debug, Clone)]
pub(crate) struct Around<'a> {
    /// The load balancer's id.
    pub(crate) balancer: &'a str,
    /// The frontend's id.
    pub(crate) frontend: &'a str,
    /// The pool's id.
    pub(crate) pool: &'a str,
    pub(crate) cloud: &'a CloudConfig,
}

/// Rules and probes of a Service in a family.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Wanted {
    pub(crate) rules: Vec<Part>,
    pub(crate) probes: Vec<Part>,
}

/// Works out the rules and probes that a Service should have.
pub(crate) fn wanted(wish: &Wish, family: Family, around: &Around<'_>) -> Result<Wanted, String> {
    let mut wanted = Wanted::default();
    let usual = PortOptions::default();
    let has_all_ports = wish.options.internal && wish.options.all_ports;
    for port in &wish.ports {
        let options = wish.options.ports.get(&port.port).unwrap_or(&usual);
        if options.no_rule {
            continue;
        }
        let probe = probe(wish, family, port, options, around.cloud)?;
        let rule = rule(wish, family, port, probe.as_ref(), around, has_all_ports);
        wanted.rules.push(rule);
        if let Some(probe) = probe
            && !wanted.probes.iter().any(|p| p.name == probe.name)
        {
            wanted.probes.push(probe);
        }
        if has_all_ports {
            break;
        }
    }
    Ok(wanted)
}

fn rule(
    wish: &Wish,
    family: Family,
    port: &Port,
    probe: Option<&Part>,
    around: &Around<'_>,
    has_all_ports: bool,
) -> Part {
    let floats = wish.floats(family);
    let protocol = match port.protocol.as_str() {
        _ if has_all_ports => "All",
        "TCP" => "Tcp",
        "UDP" => "Udp",
        _ => "All",
    };
    let (front, back) = match (has_all_ports, floats) {
        (true, _) => (0, 0),
        (false, true) => (port.port, port.port),
        (false, false) => (port.port, port.node_port),
    };
    let probe = probe.map_or(
        Value::Null,
        |probe| json!({"id": format!("{}/probes/{}", around.balancer, probe.name)}),
    );
    let properties = json!({
        "protocol": protocol, "frontendPort": front, "backendPort": back, "enableFloatingIP": floats,
        "loadDistribution": if wish.sticky { "SourceIP" } else { "Default" },
        "idleTimeoutInMinutes": wish.options.idle_minutes.unwrap_or(4),
        "disableOutboundSnat": around.cloud.disable_outbound_snat,
        "enableTcpReset": protocol != "Udp" && !wish.options.no_tcp_reset,
        "frontendIPConfiguration": {"id": around.frontend}, "backendAddressPool": {"id": around.pool}, "probe": probe,
    });
    Part::new(
        wish.names.rule(&port.protocol, port.port, family),
        properties,
    )
}

/// The probe of a port; none for those that cannot be asked, or must not be.
fn probe(
    wish: &Wish,
    family: Family,
    port: &Port,
    options: &PortOptions,
    cloud: &CloudConfig,
) -> Result<Option<Part>, String> {
    if options.no_probe {
        return Ok(None);
    }
    // Nodes that have pods of the Service say so themselves, for all ports.
    if let (Some(health), None) = (wish.health_port, &options.probe.port) {
        let properties = timed(
            &wish.options.probe,
            &ProbeOptions::default(),
            "Http",
            health,
            "/healthz",
        )?;
        return Ok(Some(Part::new(
            wish.names.rule("TCP", health, family),
            properties,
        )));
    }
    let is_shared = cloud
        .cluster_service_load_balancer_health_probe_mode
        .eq_ignore_ascii_case("shared");
    if is_shared && wish.health_port.is_none() {
        let (port, path) = (
            cloud.cluster_service_shared_load_balancer_health_probe_port,
            &cloud.cluster_service_shared_load_balancer_health_probe_path,
        );
        let usual = ProbeOptions::default();
        let properties = timed(&usual, &usual, "Http", i32::from(port), path)?;
        return Ok(Some(Part::new(SHARED_PROBE, properties)));
    }
    if port.protocol != "TCP" {
        return Ok(None);
    }
    let (all, own) = (&wish.options.probe, &options.probe);
    let protocol = own
        .protocol
        .as_deref()
        .or(port.app_protocol.as_deref())
        .or(all.protocol.as_deref());
    let protocol = match protocol.map(str::to_lowercase).as_deref() {
        Some("http") => "Http",
        Some("https") => "Https",
        _ => "Tcp",
    };
    let path = own.path.as_deref().or(all.path.as_deref()).unwrap_or("/");
    let asked = probed_port(wish, port, own)?;
    let properties = timed(all, own, protocol, asked, path)?;
    Ok(Some(Part::new(
        wish.names.rule(&port.protocol, port.port, family),
        properties,
    )))
}

/// The node's port that is asked: by number, or by the name or number of another port of the Service.
fn probed_port(wish: &Wish, port: &Port, own: &ProbeOptions) -> Result<i32, String> {
    let Some(text) = &own.port else {
        return Ok(port.node_port);
    };
    let other = wish
        .ports
        .iter()
        .find(|other| text.eq_ignore_ascii_case(&other.name) || text.parse() == Ok(other.port));
    match (other, text.parse::<i32>()) {
        (Some(other), _) => Ok(other.node_port),
        (None, Ok(number)) if (1..=65535).contains(&number) => Ok(number),
        _ => Err(format!(
            "the probe of port {} asks for port `{text}`, which there is none of",
            port.port
        )),
    }
}

fn timed(
    all: &ProbeOptions,
    own: &ProbeOptions,
    protocol: &str,
    port: i32,
    path: &str,
) -> Result<Value, String> {
    let interval = own.interval.or(all.interval).unwrap_or(5);
    let count = own.count.or(all.count).unwrap_or(2);
    // Azure's own limit.
    if interval.saturating_mul(count) >= 120 {
        return Err(format!(
            "{count} probes every {interval} seconds take too long: together they must be less than 120 seconds"
        ));
    }
    let mut probe = json!({"protocol": protocol, "port": port, "intervalInSeconds": interval, "probeThreshold": count});
    if protocol != "Tcp" {
        probe["requestPath"] = json!(path);
    }
    Ok(probe)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::super::wish::tests::wish;
    use super::*;

    fn made(annotations: Value, spec: Value, config: &str) -> Result<Wanted, String> {
        let cloud = CloudConfig::parse(config, |_| None).unwrap();
        let around = Around {
            balancer: "/lb",
            frontend: "/lb/f",
            pool: "/lb/p",
            cloud: &cloud,
        };
        wanted(&wish(1, annotations, spec), Family::V4, &around)
    }

    /// One field of the first rule, and one of the first probe.
    fn first(annotations: Value, spec: Value, rule: &str, probe: &str) -> (Value, Value) {
        let made = made(annotations, spec, "{}").unwrap();
        let of = |parts: &[Part], field: &str| {
            parts
                .first()
                .map(|part| part.properties[field].clone())
                .unwrap_or_default()
        };
        (of(&made.rules, rule), of(&made.probes, probe))
    }

    #[test]
    fn annotations_and_what_comes_of_them() {
        let none = || json!({});
        let internal = |more: Value| {
            let mut all = json!({"azure-load-balancer-internal": "true"});
            all.as_object_mut()
                .unwrap()
                .extend(more.as_object().unwrap().clone());
            all
        };
        let udp = json!({"ports": [{"port": 53, "protocol": "UDP", "nodePort": 30053}]});
        let https = json!({"ports": [{"port": 443, "protocol": "TCP", "nodePort": 30443, "appProtocol": "HTTPS"}]});
        let local = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000});
        #[rustfmt::skip]
        let cases = [
            (none(), none(), "backendPort", json!(80), "port", json!(30001)),
            (none(), none(), "enableTcpReset", json!(true), "protocol", json!("Tcp")),
            (none(), none(), "idleTimeoutInMinutes", json!(4), "probeThreshold", json!(2)),
            (none(), udp, "enableTcpReset", json!(false), "protocol", Value::Null),
            (none(), https, "frontendPort", json!(443), "protocol", json!("Https")),
            (none(), local.clone(), "loadDistribution", json!("Default"), "port", json!(32000)),
            (none(), local, "protocol", json!("Tcp"), "requestPath", json!("/healthz")),
            (none(), json!({"sessionAffinity": "ClientIP"}), "loadDistribution", json!("SourceIP"), "requestPath", Value::Null),
            (json!({"azure-disable-load-balancer-floating-ip": "true"}), none(), "backendPort", json!(30001), "port", json!(30001)),
            (json!({"azure-load-balancer-tcp-idle-timeout": "10"}), none(), "idleTimeoutInMinutes", json!(10), "port", json!(30001)),
            (json!({"azure-load-balancer-disable-tcp-reset": "true"}), none(), "enableTcpReset", json!(false), "port", json!(30001)),
            (json!({"azure-load-balancer-health-probe-protocol": "http"}), none(), "protocol", json!("Tcp"), "requestPath", json!("/")),
            (json!({"port_80_health-probe_protocol": "http", "port_80_health-probe_request-path": "/x"}), none(), "protocol", json!("Tcp"), "requestPath", json!("/x")),
            (json!({"port_80_health-probe_port": "8080"}), none(), "protocol", json!("Tcp"), "port", json!(8080)),
            (json!({"port_80_no_probe_rule": "true"}), none(), "probe", Value::Null, "port", Value::Null),
            (json!({"port_80_no_lb_rule": "true"}), none(), "protocol", Value::Null, "port", Value::Null),
            (internal(json!({"azure-load-balancer-enable-high-availability-ports": "true"})), none(), "protocol", json!("All"), "port", json!(30001)),
            (internal(json!({"azure-load-balancer-enable-high-availability-ports": "true"})), none(), "frontendPort", json!(0), "port", json!(30001)),
        ];
        for (annotations, spec, rule, rule_value, probe, probe_value) in cases {
            let said = format!("{annotations} {spec}");
            let got = first(annotations, spec, rule, probe);
            assert_eq!(got, (rule_value, probe_value), "{said}: {rule}, {probe}");
        }
    }

    #[test]
    fn one_probe_may_be_for_all() {
        let ports = json!({"ports": [{"port": 80, "protocol": "TCP", "nodePort": 1}, {"port": 443, "protocol": "TCP", "nodePort": 2}]});
        let shared = r#"{"clusterServiceLoadBalancerHealthProbeMode": "shared"}"#;
        let made = made(json!({}), ports, shared).unwrap();
        assert_eq!((made.rules.len(), made.probes.len()), (2, 1));
        assert_eq!(made.probes[0].name, SHARED_PROBE);
        assert_eq!(made.probes[0].properties["port"], 10256);
    }

    #[test]
    fn probes_that_cannot_be_are_refused() {
        let slow = json!({"azure-load-balancer-health-probe-interval": "60", "azure-load-balancer-health-probe-num-of-probe": "2"});
        assert!(made(slow, json!({}), "{}").unwrap_err().contains("120"));
        let nobody = json!({"port_80_health-probe_port": "nobody"});
        assert!(made(nobody, json!({}), "{}").is_err());
    }
}
