//! The Corefile of the node's own DNS server.
//!
//! A number that was not given is left out, and CoreDNS's default holds; upstream writes `<nil>`, which CoreDNS
//! does not read. Upstream's comments are not written.

use crate::config::{Configuration, LocalDnsOverrides};

const NODE_LISTENER: &str = "169.254.10.10";
const CLUSTER_LISTENER: &str = "169.254.10.11";
const AZURE_DNS: &str = "168.63.129.16";
const CLUSTER_DNS: &str = "10.0.0.10";

/// CoreDNS's own default, which must be said where the mode is.
const STALE_SECONDS: i32 = 3600;

/// For whom a server block is.
struct Audience {
    listener: &'static str,
    nsid: &'static str,
    /// Whether `.` goes to Azure's DNS whatever the override says.
    root_is_azure: bool,
}

const NODE: Audience = Audience {
    listener: NODE_LISTENER,
    nsid: "localdns",
    root_is_azure: true,
};

const PODS: Audience = Audience {
    listener: CLUSTER_LISTENER,
    nsid: "localdns-pod",
    root_is_azure: false,
};

/// The Corefile; with `hosts`, names of `/etc/localdns/hosts` are answered from there. Empty where there is
/// no local DNS.
pub fn corefile(config: &Configuration, hosts: bool) -> String {
    let profile = &config.local_dns_profile;
    if !profile.enable_local_dns {
        return String::new();
    }
    let mut out = format!(
        "health-check.localdns.local:53 {{\n    bind {NODE_LISTENER} {CLUSTER_LISTENER}\n    whoami\n}}\n"
    );
    let node = profile
        .vnet_dns_overrides
        .iter()
        .map(|entry| (&NODE, entry));
    let pods = profile
        .kube_dns_overrides
        .iter()
        .map(|entry| (&PODS, entry));
    for (audience, (domain, rules)) in node.chain(pods) {
        server(
            &mut out,
            audience,
            domain,
            rules,
            cluster_dns(config),
            hosts,
        );
    }
    out
}

/// Where the cluster's own DNS is.
fn cluster_dns(config: &Configuration) -> &str {
    let given = &config
        .cluster_config
        .cluster_network_config
        .core_dns_service_ip;
    if given.is_empty() { CLUSTER_DNS } else { given }
}

fn server(
    out: &mut String,
    audience: &Audience,
    domain: &str,
    rules: &LocalDnsOverrides,
    cluster_dns: &str,
    hosts: bool,
) {
    let is_root = domain == ".";
    let mut lines = vec![format!("{domain}:53 {{")];
    lines.extend(named(
        &rules.query_logging,
        &[("Error", "    errors"), ("Log", "    log")],
    ));
    lines.push(format!("    bind {}", audience.listener));
    if is_root && hosts {
        lines.extend(HOSTS.iter().map(|&line| line.to_owned()));
    }
    let to_cluster =
        domain.ends_with("cluster.local") || rules.forward_destination == "ClusterCoreDNS";
    let to_azure = !to_cluster || (is_root && audience.root_is_azure);
    forward(
        &mut lines,
        rules,
        if to_azure { AZURE_DNS } else { cluster_dns },
    );
    lines.push(format!("    ready {}:8181", audience.listener));
    cache(&mut lines, rules);
    lines.push("    loop".into());
    lines.push(format!("    nsid {}", audience.nsid));
    lines.push("    prometheus :9253".into());
    if is_root {
        lines.extend(NEVER_THERE.iter().map(|&line| line.to_owned()));
    }
    lines.push("}\n".into());
    out.push_str(&lines.join("\n"));
}

const HOSTS: &[&str] = &[
    "    hosts /etc/localdns/hosts {",
    "        ttl 5",
    "        reload 5s",
    "        fallthrough",
    "    }",
];

/// Names that search lists make up and no server knows.
const NEVER_THERE: &[&str] = &[
    "    template ANY ANY internal.cloudapp.net {",
    r#"        match "^(?:[^.]+\.){4,}internal\.cloudapp\.net\.$""#,
    "        rcode NXDOMAIN",
    "        fallthrough",
    "    }",
    "    template ANY ANY reddog.microsoft.com {",
    "        rcode NXDOMAIN",
    "    }",
];

fn forward(lines: &mut Vec<String>, rules: &LocalDnsOverrides, target: &str) {
    lines.push(format!("    forward . {target} {{"));
    let protocols = [
        ("ForceTCP", "        force_tcp"),
        ("PreferUDP", "        prefer_udp"),
    ];
    lines.extend(named(&rules.protocol, &protocols));
    let policies = [("RoundRobin", "round_robin"), ("Random", "random")];
    let policy = named(&rules.forward_policy, &policies);
    lines.push(format!(
        "        policy {}",
        policy.as_deref().unwrap_or("sequential")
    ));
    if let Some(most) = rules.max_concurrent {
        lines.push(format!("        max_concurrent {most}"));
    }
    lines.extend(health_check(rules));
    if rules.failfast_all_unhealthy_upstreams == Some(true) {
        lines.push("        failfast_all_unhealthy_upstreams".into());
    }
    lines.push("    }".into());
}

fn health_check(rules: &LocalDnsOverrides) -> Option<String> {
    let check = &rules.health_check;
    let given = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    let mut line = format!("        health_check {}", given(&check.duration)?);
    if check.no_rec == Some(true) {
        line.push_str(" no_rec");
    }
    if let Some(domain) = given(&check.domain) {
        line.push_str(" domain ");
        line.push_str(&domain);
    }
    Some(line)
}

fn cache(lines: &mut Vec<String>, rules: &LocalDnsOverrides) {
    lines.push(match rules.cache_duration_in_seconds {
        Some(seconds) => format!("    cache {seconds} {{"),
        None => "    cache {".into(),
    });
    lines.push("        success 9984\n        denial 9984".into());
    let modes = [("Verify", "verify"), ("Immediate", "immediate")];
    if let Some(mode) = named(&rules.serve_stale, &modes) {
        let seconds = rules
            .serve_stale_duration_in_seconds
            .unwrap_or(STALE_SECONDS);
        lines.push(format!("        serve_stale {seconds}s {mode}"));
    }
    lines.push("        servfail 0\n    }".into());
}

fn named(value: &str, table: &[(&str, &str)]) -> Option<String> {
    let row = table.iter().find(|(name, _)| *name == value);
    row.map(|(_, text)| (*text).to_owned())
}
