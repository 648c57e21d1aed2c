//! The resolver of pods.

use k8s_openapi::api::core::v1::Pod;

use crate::cri::DnsConfig;
use crate::spec;

const SERVERS: usize = 3;
const SEARCHES: usize = 32;
const SEARCH_CHARACTERS: usize = 2048;

/// What the cluster and this machine have.
#[derive(Clone, Debug, Default)]
pub struct Resolvers {
    /// The cluster's name servers.
    pub cluster: Vec<String>,
    /// The cluster's domain.
    pub domain: String,
    /// This machine's `resolv.conf`; `None` if it is not to be used.
    pub host: Option<DnsConfig>,
}

/// Reads a `resolv.conf`.
pub fn parse(text: &str) -> DnsConfig {
    let mut config = DnsConfig::default();
    for line in text.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("nameserver") => config.servers.extend(words.next().map(str::to_owned)),
            Some("search") => {
                let names = words
                    .filter(|w| *w != ".")
                    .map(|w| w.trim_end_matches('.').to_owned());
                config.searches = names.collect();
            }
            Some("options") => config.options = words.map(str::to_owned).collect(),
            _ => {}
        }
    }
    config
}

/// The resolver of a pod, and what to warn about: an event's reason and message.
pub fn of_pod(pod: &Pod, resolvers: &Resolvers) -> (DnsConfig, Option<(&'static str, String)>) {
    let mut warning = None;
    let spec = spec::spec(pod);
    let policy = spec.dns_policy.as_deref().unwrap_or("ClusterFirst");
    let of_cluster = match policy {
        "ClusterFirstWithHostNet" => true,
        "ClusterFirst" => !spec::host_network(pod),
        _ => false,
    };
    let mut config = match policy {
        "None" => DnsConfig::default(),
        _ if of_cluster && resolvers.cluster.is_empty() => {
            warning = Some((
                "MissingClusterDNS",
                format!(
                    "pod: {:?}. kubelet does not have ClusterDNS IP configured and cannot create Pod using \
                     {policy:?} policy. Falling back to \"Default\" policy.",
                    spec::full_name(pod)
                ),
            ));
            of_host(resolvers)
        }
        _ if of_cluster => of_cluster_first(pod, resolvers),
        _ => of_host(resolvers),
    };
    if let Some(extra) = &spec.dns_config {
        append(
            &mut config.servers,
            extra.nameservers.as_deref().unwrap_or_default(),
        );
        append(
            &mut config.searches,
            extra.searches.as_deref().unwrap_or_default(),
        );
        for option in extra.options.as_deref().unwrap_or_default() {
            let name = option.name.as_deref().unwrap_or_default();
            config.options.retain(|o| o.split(':').next() != Some(name));
            config.options.push(match option.value.as_deref() {
                Some(value) if !value.is_empty() => format!("{name}:{value}"),
                _ => name.to_owned(),
            });
        }
    }
    if limit(&mut config) && warning.is_none() {
        let text = "Nameserver or search limits were exceeded, some have been omitted, the applied nameserver line is: ";
        warning = Some((
            "DNSConfigForming",
            format!("{text}{}", config.servers.join(" ")),
        ));
    }
    (config, warning)
}

fn of_host(resolvers: &Resolvers) -> DnsConfig {
    resolvers.host.clone().unwrap_or_else(|| DnsConfig {
        servers: vec!["127.0.0.1".to_owned()],
        searches: vec![".".to_owned()],
        options: Vec::new(),
    })
}

fn of_cluster_first(pod: &Pod, resolvers: &Resolvers) -> DnsConfig {
    let mut searches = Vec::new();
    if !resolvers.domain.is_empty() {
        let domain = &resolvers.domain;
        searches.push(format!("{}.svc.{domain}", spec::namespace(pod)));
        searches.push(format!("svc.{domain}"));
        searches.push(domain.clone());
    }
    let host = resolvers.host.as_ref();
    append(
        &mut searches,
        host.map(|h| h.searches.as_slice()).unwrap_or_default(),
    );
    DnsConfig {
        servers: resolvers.cluster.clone(),
        searches,
        options: vec!["ndots:5".to_owned()],
    }
}

fn append(list: &mut Vec<String>, more: &[String]) {
    for item in more {
        if !list.contains(item) {
            list.push(item.clone());
        }
    }
}

/// Cuts what resolvers do not read; whether anything was cut.
fn limit(config: &mut DnsConfig) -> bool {
    let before = (config.servers.len(), config.searches.len());
    config.servers.truncate(SERVERS);
    config.searches.truncate(SEARCHES);
    while config.searches.join(" ").len() > SEARCH_CHARACTERS {
        config.searches.pop();
    }
    before != (config.servers.len(), config.searches.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn resolved(spec: Value) -> DnsConfig {
        let pod = serde_json::from_value(json!({"metadata": {"namespace": "ns"}, "spec": spec}))
            .expect("a pod");
        let resolvers = Resolvers {
            cluster: vec!["10.0.0.10".to_owned()],
            domain: "cluster.local".to_owned(),
            host: Some(parse(
                "nameserver 1.1.1.1\nsearch corp.example. .\noptions timeout:2\n",
            )),
        };
        of_pod(&pod, &resolvers).0
    }

    #[test]
    fn each_policy_has_its_servers_and_searches() {
        let first = resolved(json!({"containers": []}));
        assert_eq!(first.servers, ["10.0.0.10"]);
        assert_eq!(
            first.searches,
            [
                "ns.svc.cluster.local",
                "svc.cluster.local",
                "cluster.local",
                "corp.example"
            ]
        );
        assert_eq!(first.options, ["ndots:5"]);
        let host = resolved(json!({"containers": [], "hostNetwork": true}));
        assert_eq!(
            (host.servers, host.options),
            (vec!["1.1.1.1".to_owned()], vec!["timeout:2".to_owned()])
        );
        let both = resolved(
            json!({"containers": [], "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet"}),
        );
        assert_eq!(both.servers, ["10.0.0.10"]);
        let none = resolved(json!({"containers": [], "dnsPolicy": "None", "dnsConfig":
            {"nameservers": ["9.9.9.9"], "searches": ["a.b"], "options": [{"name": "ndots", "value": "2"}, {"name": "edns0"}]}}));
        assert_eq!(none.servers, ["9.9.9.9"]);
        assert_eq!(none.options, ["ndots:2", "edns0"]);
    }

    #[test]
    fn options_of_the_pod_win_and_limits_hold() {
        let config = resolved(
            json!({"containers": [], "dnsConfig": {"nameservers": ["1.1.1.1", "2.2.2.2", "3.3.3.3"],
            "options": [{"name": "ndots", "value": "1"}]}}),
        );
        assert_eq!(config.servers, ["10.0.0.10", "1.1.1.1", "2.2.2.2"]);
        assert_eq!(config.options, ["ndots:1"]);
    }
}
