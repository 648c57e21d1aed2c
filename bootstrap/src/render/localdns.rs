//! The DNS server on the node: its Corefile, its environment and its limits.

use std::fmt::Write as _;

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::config::{Configuration, LocalDnsOverrides};

/// The Corefile in use.
pub const COREFILE: &str = "/opt/azure/containers/localdns/localdns.corefile";
/// What the unit reads: both Corefiles, so that it can choose at each start.
pub const ENVIRONMENT: &str = "/etc/localdns/environment";
/// Names that must resolve whatever happens, filled in by a timer.
pub const HOSTS: &str = "/etc/localdns/hosts";
/// The unit's slice.
pub const SLICE: &str = "/etc/systemd/system/localdns.slice";

const NODE_LISTENER: &str = "169.254.10.10";
const POD_LISTENER: &str = "169.254.10.11";
const AZURE_DNS: &str = "168.63.129.16";

/// One of the two ways pods ask: through the node's resolver or through the cluster's.
struct Side<'a> {
    listener: &'a str,
    id: &'a str,
    /// The root zone never goes to the cluster's DNS: it is where that one asks.
    root_stays: bool,
}

/// The Corefile, with or without names from the hosts file.
pub fn corefile(config: &Configuration, with_hosts: bool) -> String {
    let profile = &config.local_dns_profile;
    let node = Side { listener: NODE_LISTENER, id: "localdns", root_stays: true };
    let pods = Side { listener: POD_LISTENER, id: "localdns-pod", root_stays: false };
    let mut text = format!(
        "health-check.localdns.local:53 {{\n    bind {NODE_LISTENER} {POD_LISTENER}\n    whoami\n}}\n"
    );
    for (side, overrides) in [(node, &profile.vnet_dns_overrides), (pods, &profile.kube_dns_overrides)]
    {
        for (domain, wish) in overrides {
            zone(config, &side, domain, wish, with_hosts, &mut text);
        }
    }
    text
}

fn zone(
    config: &Configuration,
    side: &Side<'_>,
    domain: &str,
    wish: &LocalDnsOverrides,
    with_hosts: bool,
    out: &mut String,
) {
    let root = domain == ".";
    let mut lines: Vec<String> = Vec::new();
    match wish.query_logging.as_str() {
        "Error" => lines.push("errors".to_owned()),
        "Log" => lines.push("log".to_owned()),
        _ => {}
    }
    lines.push(format!("bind {}", side.listener));
    if root && with_hosts {
        lines.extend(block(&format!("hosts {HOSTS}"), &["ttl 5", "reload 5s", "fallthrough"].map(str::to_owned)));
    }
    let target = upstream(config, side, domain, wish);
    lines.extend(block(&format!("forward . {target}"), &forwarding(wish)));
    lines.push(format!("ready {}:8181", side.listener));
    lines.extend(cache(wish));
    lines.extend(["loop".to_owned(), format!("nsid {}", side.id), "prometheus :9253".to_owned()]);
    if root {
        lines.extend(NOWHERE.map(str::to_owned));
    }
    let _ = writeln!(out, "{domain}:53 {{");
    for line in lines {
        let _ = writeln!(out, "    {line}");
    }
    out.push_str("}\n");
}

/// Names that search domains make up and that no server knows.
const NOWHERE: [&str; 8] = [
    "template ANY ANY internal.cloudapp.net {",
    r#"    match "^(?:[^.]+\.){4,}internal\.cloudapp\.net\.$""#,
    "    rcode NXDOMAIN",
    "    fallthrough",
    "}",
    "template ANY ANY reddog.microsoft.com {",
    "    rcode NXDOMAIN",
    "}",
];

fn block(head: &str, lines: &[String]) -> Vec<String> {
    let inner = lines.iter().map(|line| format!("    {line}"));
    [format!("{head} {{")].into_iter().chain(inner).chain(["}".to_owned()]).collect()
}

fn upstream<'a>(
    config: &'a Configuration,
    side: &Side<'_>,
    domain: &str,
    wish: &LocalDnsOverrides,
) -> &'a str {
    let asked = domain.ends_with("cluster.local") || wish.forward_destination == "ClusterCoreDNS";
    if !asked || (side.root_stays && domain == ".") {
        return AZURE_DNS;
    }
    match config.cluster_config.cluster_network_config.core_dns_service_ip.as_str() {
        "" => "10.0.0.10",
        address => address,
    }
}

fn forwarding(wish: &LocalDnsOverrides) -> Vec<String> {
    let mut lines = Vec::new();
    match wish.protocol.as_str() {
        "ForceTCP" => lines.push("force_tcp".to_owned()),
        "PreferUDP" => lines.push("prefer_udp".to_owned()),
        _ => {}
    }
    let policy = match wish.forward_policy.as_str() {
        "RoundRobin" => "round_robin",
        "Random" => "random",
        _ => "sequential",
    };
    lines.push(format!("policy {policy}"));
    lines.extend(wish.max_concurrent.map(|n| format!("max_concurrent {n}")));
    lines.extend(health_check(wish));
    if wish.failfast_all_unhealthy_upstreams == Some(true) {
        lines.push("failfast_all_unhealthy_upstreams".to_owned());
    }
    lines
}

fn health_check(wish: &LocalDnsOverrides) -> Option<String> {
    let check = &wish.health_check;
    let duration = check.duration.as_deref().filter(|d| !d.is_empty())?;
    let recursion = if check.no_rec == Some(true) { " no_rec" } else { "" };
    let domain = check.domain.as_deref().filter(|d| !d.is_empty());
    let domain = domain.map_or_else(String::new, |domain| format!(" domain {domain}"));
    Some(format!("health_check {duration}{recursion}{domain}"))
}

fn cache(wish: &LocalDnsOverrides) -> Vec<String> {
    let mut lines = vec!["success 9984".to_owned(), "denial 9984".to_owned()];
    let mode = match wish.serve_stale.as_str() {
        "Verify" => Some("verify"),
        "Immediate" => Some("immediate"),
        _ => None,
    };
    if let (Some(mode), Some(seconds)) = (mode, wish.serve_stale_duration_in_seconds) {
        lines.push(format!("serve_stale {seconds}s {mode}"));
    }
    lines.push("servfail 0".to_owned());
    let head = wish.cache_duration_in_seconds.map_or("cache".to_owned(), |n| format!("cache {n}"));
    block(&head, &lines)
}

/// Whether names come from the hosts file first.
pub fn uses_hosts(config: &Configuration) -> bool {
    let profile = &config.local_dns_profile;
    profile.enable_local_dns && profile.enable_hosts_plugin
}

/// The unit's environment; the first key is the one old images know.
pub fn environment(config: &Configuration) -> String {
    let base = STANDARD.encode(corefile(config, false));
    let hosts = STANDARD.encode(corefile(config, true));
    let names: Vec<&str> =
        config.local_dns_profile.critical_fqdns.iter().map(|name| name.trim()).collect();
    format!(
        "LOCALDNS_BASE64_ENCODED_COREFILE={base}\nLOCALDNS_COREFILE_BASE={base}\n\
         LOCALDNS_COREFILE_WITH_HOSTS={hosts}\nSHOULD_ENABLE_HOSTS_PLUGIN={}\n\
         LOCALDNS_CRITICAL_FQDNS={}\n",
        uses_hosts(config),
        names.join(",")
    )
}

/// The unit's slice with its limits.
pub fn slice(config: &Configuration) -> String {
    let profile = &config.local_dns_profile;
    let memory = profile.memory_limit_in_mb.unwrap_or(128);
    let cores = f64::from(profile.cpu_limit_in_milli_cores.unwrap_or(2000)) / 10.0;
    format!(
        "[Unit]\nDescription=localdns Slice\nDefaultDependencies=no\nBefore=slices.target\n\
         Requires=system.slice\nAfter=system.slice\n[Slice]\nMemoryMax={memory}M\nCPUQuota={cores:.1}%\n"
    )
}
