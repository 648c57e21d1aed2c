//! Annotations of a Service: a table of what each sets.

use std::collections::BTreeMap;
use std::net::IpAddr;

const PREFIX: &str = "service.beta.kubernetes.io/";

/// What a Service's annotations ask for.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Options {
    pub(crate) internal: bool,
    pub(crate) subnet: Option<String>,
    /// By family: the fourth version, the sixth.
    pub(crate) address: [Option<IpAddr>; 2],
    pub(crate) public_ip: [Option<String>; 2],
    pub(crate) prefix: [Option<String>; 2],
    pub(crate) public_ip_group: Option<String>,
    pub(crate) ip_tags: BTreeMap<String, String>,
    pub(crate) tags: BTreeMap<String, String>,
    /// An empty one takes the name away.
    pub(crate) dns_label: Option<String>,
    pub(crate) more_addresses: Vec<IpAddr>,
    pub(crate) allowed_tags: Vec<String>,
    pub(crate) allowed_ranges: Option<Vec<String>>,
    pub(crate) source_ranges: Option<Vec<String>>,
    pub(crate) deny_others: bool,
    pub(crate) no_floating_ip: bool,
    pub(crate) no_security_rule: bool,
    pub(crate) idle_minutes: Option<u32>,
    pub(crate) no_tcp_reset: bool,
    pub(crate) all_ports: bool,
    /// What is said of all probes.
    pub(crate) probe: ProbeOptions,
    /// What is said of single ports.
    pub(crate) ports: BTreeMap<i32, PortOptions>,
    /// What is asked for and not made here yet.
    pub(crate) later: Vec<&'static str>,
}

/// What is said of a probe.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct ProbeOptions {
    pub(crate) protocol: Option<String>,
    /// A number, or the name of a port.
    pub(crate) port: Option<String>,
    pub(crate) interval: Option<i32>,
    pub(crate) count: Option<i32>,
    pub(crate) path: Option<String>,
}

/// What is said of a port.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct PortOptions {
    pub(crate) no_rule: bool,
    pub(crate) no_probe: bool,
    pub(crate) probe: ProbeOptions,
}

type Read<T> = fn(&mut T, &str) -> Result<(), String>;

/// Every annotation of a Service, without its prefix.
#[rustfmt::skip]
const OPTIONS: &[(&str, Read<Options>)] = &[
    // Upstream reads some of these with their case and some without. Whoever writes `True` means it: a service that is
    // to be internal must not be seen from outside.
    ("azure-load-balancer-internal", |o, v| { o.internal = flag(v); Ok(()) }),
    ("azure-load-balancer-internal-subnet", |o, v| { o.subnet = text(v); Ok(()) }),
    ("azure-load-balancer-ipv4", |o, v| address(&mut o.address[0], v)),
    ("azure-load-balancer-ipv6", |o, v| address(&mut o.address[1], v)),
    ("azure-load-balancer-resource-group", |o, v| { o.public_ip_group = text(v); Ok(()) }),
    ("azure-pip-name", |o, v| { o.public_ip[0] = text(v); Ok(()) }),
    ("azure-pip-name-ipv6", |o, v| { o.public_ip[1] = text(v); Ok(()) }),
    ("azure-pip-prefix-id", |o, v| { o.prefix[0] = text(v); Ok(()) }),
    ("azure-pip-prefix-id-ipv6", |o, v| { o.prefix[1] = text(v); Ok(()) }),
    ("azure-pip-ip-tags", |o, v| { o.ip_tags = azure::config::parse_tags(v); Ok(()) }),
    ("azure-pip-tags", |o, v| { o.tags = azure::config::parse_tags(v); Ok(()) }),
    ("azure-dns-label-name", |o, v| { o.dns_label = Some(v.trim().to_owned()); Ok(()) }),
    ("azure-additional-public-ips", |o, v| addresses(&mut o.more_addresses, v)),
    ("azure-allowed-service-tags", |o, v| { o.allowed_tags = list(v); Ok(()) }),
    ("azure-allowed-ip-ranges", |o, v| { o.allowed_ranges = Some(list(v)); Ok(()) }),
    ("load-balancer-source-ranges", |o, v| { o.source_ranges = Some(list(v)); Ok(()) }),
    ("azure-deny-all-except-load-balancer-source-ranges", |o, v| { o.deny_others = flag(v); Ok(()) }),
    ("azure-disable-load-balancer-floating-ip", |o, v| { o.no_floating_ip = flag(v); Ok(()) }),
    ("azure-disable-load-balancer-nsg-rule", |o, v| { o.no_security_rule = flag(v); Ok(()) }),
    ("azure-load-balancer-tcp-idle-timeout", |o, v| { o.idle_minutes = Some(number(v, 4, 100)?); Ok(()) }),
    ("azure-load-balancer-disable-tcp-reset", |o, v| { o.no_tcp_reset = flag(v); Ok(()) }),
    ("azure-load-balancer-enable-high-availability-ports", |o, v| { o.all_ports = flag(v); Ok(()) }),
    ("azure-load-balancer-health-probe-protocol", |o, v| { o.probe.protocol = text(v); Ok(()) }),
    ("azure-load-balancer-health-probe-interval", |o, v| { o.probe.interval = Some(number(v, 5, 1 << 30)?); Ok(()) }),
    ("azure-load-balancer-health-probe-num-of-probe", |o, v| { o.probe.count = Some(number(v, 2, 1 << 30)?); Ok(()) }),
    ("azure-load-balancer-health-probe-request-path", |o, v| { o.probe.path = text(v); Ok(()) }),
    // Only basic load balancers have modes, and they are not made any more.
    ("azure-load-balancer-mode", |_, _| Ok(())),
    // Rules were shared by choice once; they always are now.
    ("azure-shared-securityrule", |_, _| Ok(())),
    ("azure-load-balancer-configurations", |o, _| { o.later.push("azure-load-balancer-configurations"); Ok(()) }),
    ("azure-pls-create", |o, v| { o.later.extend(flag(v).then_some("azure-pls-create")); Ok(()) }),
    ("azure-pls-name", |_, _| Ok(())),
    ("azure-pls-resource-group", |_, _| Ok(())),
    ("azure-pls-ip-configuration-subnet", |_, _| Ok(())),
    ("azure-pls-ip-configuration-ip-address-count", |_, _| Ok(())),
    ("azure-pls-ip-configuration-ip-address", |_, _| Ok(())),
    ("azure-pls-fqdns", |_, _| Ok(())),
    ("azure-pls-proxy-protocol", |_, _| Ok(())),
    ("azure-pls-visibility", |_, _| Ok(())),
    ("azure-pls-auto-approval", |_, _| Ok(())),
];

/// Every annotation of a port: what stands behind `port_N_`.
#[rustfmt::skip]
const PORT_OPTIONS: &[(&str, Read<PortOptions>)] = &[
    ("no_lb_rule", |o, v| { o.no_rule = flag(v); Ok(()) }),
    ("no_probe_rule", |o, v| { o.no_probe = flag(v); Ok(()) }),
    ("health-probe_protocol", |o, v| { o.probe.protocol = text(v); Ok(()) }),
    ("health-probe_port", |o, v| { o.probe.port = text(v); Ok(()) }),
    ("health-probe_interval", |o, v| { o.probe.interval = Some(number(v, 5, 1 << 30)?); Ok(()) }),
    ("health-probe_num-of-probe", |o, v| { o.probe.count = Some(number(v, 2, 1 << 30)?); Ok(()) }),
    ("health-probe_request-path", |o, v| { o.probe.path = text(v); Ok(()) }),
];

impl Options {
    /// Reads the annotations of a Service; what is wrong with one is said with its name.
    pub(crate) fn of(annotations: &BTreeMap<String, String>) -> Result<Options, String> {
        let mut options = Options::default();
        for (key, value) in annotations {
            let Some(key) = key.strip_prefix(PREFIX) else {
                continue;
            };
            let wrong = |cause: String| {
                format!("annotation {PREFIX}{key} has the value `{value}`: {cause}")
            };
            if let Some((_, read)) = OPTIONS.iter().find(|(name, _)| *name == key) {
                read(&mut options, value).map_err(wrong)?;
                continue;
            }
            let port = key
                .strip_prefix("port_")
                .and_then(|rest| rest.split_once('_'));
            if let Some((number, name)) = port
                && let Ok(number) = number.parse::<i32>()
                && let Some((_, read)) = PORT_OPTIONS.iter().find(|(own, _)| *own == name)
            {
                let port = options.ports.entry(number).or_default();
                read(port, value).map_err(wrong)?;
            }
        }
        Ok(options)
    }
}

fn flag(value: &str) -> bool {
    value.trim().eq_ignore_ascii_case("true")
}

fn text(value: &str) -> Option<String> {
    let value = value.trim();
    (!value.is_empty()).then(|| value.to_owned())
}

fn list(value: &str) -> Vec<String> {
    let words = value.split(',').map(str::trim);
    words.filter(|w| !w.is_empty()).map(str::to_owned).collect()
}

fn address(place: &mut Option<IpAddr>, value: &str) -> Result<(), String> {
    let parsed = value.trim().parse();
    *place = Some(parsed.map_err(|_| "it is no address".to_owned())?);
    Ok(())
}

fn addresses(place: &mut Vec<IpAddr>, value: &str) -> Result<(), String> {
    for word in list(value) {
        let parsed = word.parse();
        place.push(parsed.map_err(|_| format!("`{word}` is no address"))?);
    }
    Ok(())
}

fn number<N>(value: &str, least: N, most: N) -> Result<N, String>
where
    N: std::str::FromStr + PartialOrd + std::fmt::Display,
{
    let wrong = || format!("a whole number from {least} to {most} is needed");
    match value.trim().parse::<N>() {
        Ok(number) if number >= least && number <= most => Ok(number),
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn read(pairs: &[(&str, &str)]) -> Result<Options, String> {
        let full = pairs
            .iter()
            .map(|(k, v)| (format!("{PREFIX}{k}"), (*v).to_owned()));
        Options::of(&full.collect())
    }

    #[test]
    fn each_annotation_sets_its_field() {
        let options = read(&[
            ("azure-load-balancer-internal", "True"),
            ("azure-load-balancer-internal-subnet", "apps"),
            ("azure-load-balancer-ipv4", "10.0.0.9"),
            ("azure-dns-label-name", ""),
            ("azure-allowed-service-tags", "A, B,"),
            ("azure-load-balancer-tcp-idle-timeout", "30"),
            ("port_80_health-probe_port", "http"),
            ("port_80_no_probe_rule", "false"),
            ("port_443_no_lb_rule", "true"),
            ("port_x_no_lb_rule", "true"),
            ("unknown", "x"),
        ])
        .unwrap();
        assert!(options.internal);
        assert_eq!(options.subnet.as_deref(), Some("apps"));
        assert_eq!(options.address[0], Some("10.0.0.9".parse().unwrap()));
        assert_eq!(options.dns_label.as_deref(), Some(""));
        assert_eq!(options.allowed_tags, ["A", "B"]);
        assert_eq!(options.idle_minutes, Some(30));
        assert_eq!(options.ports[&80].probe.port.as_deref(), Some("http"));
        assert!(options.ports[&443].no_rule && !options.ports[&80].no_probe);
        assert_eq!(read(&[]), Ok(Options::default()));
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (key, value) in [
            ("azure-load-balancer-tcp-idle-timeout", "3"),
            ("azure-load-balancer-tcp-idle-timeout", "x"),
            ("azure-load-balancer-ipv4", "no"),
            ("azure-additional-public-ips", "1.2.3.4,x"),
            ("port_80_health-probe_interval", "4"),
        ] {
            let error = read(&[(key, value)]).unwrap_err();
            assert!(error.contains(key) && error.contains(value), "{error}");
        }
    }
}
