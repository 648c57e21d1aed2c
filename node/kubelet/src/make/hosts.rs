//! The hosts file and the names of pods.

use k8s_openapi::api::core::v1::{HostAlias, Pod};

use crate::spec;

const FIXED: &str = "127.0.0.1\tlocalhost\n\
    ::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::0\tip6-localnet\n\
    fe00::0\tip6-mcastprefix\n\
    fe00::1\tip6-allnodes\n\
    fe00::2\tip6-allrouters\n";

/// The pod's host name and domain. A name that is too long for the kernel is an error.
pub fn names(pod: &Pod, cluster_domain: &str) -> Result<(String, String), String> {
    let spec = spec::spec(pod);
    if let Some(name) = spec.hostname_override.as_deref().filter(|n| !n.is_empty()) {
        return Ok((name.to_owned(), String::new()));
    }
    let given = spec.hostname.as_deref().filter(|name| !name.is_empty());
    let mut name = given.unwrap_or(spec::name(pod));
    if name.len() > 63 {
        name = name[..63].trim_end_matches(['-', '.']);
    }
    let subdomain = spec.subdomain.as_deref().filter(|name| !name.is_empty());
    let domain =
        subdomain.map(|sub| format!("{sub}.{}.svc.{cluster_domain}", spec::namespace(pod)));
    let domain = domain.unwrap_or_default();
    if spec.set_hostname_as_fqdn == Some(true) && !domain.is_empty() {
        let full = format!("{name}.{domain}");
        if full.len() > 64 {
            return Err(format!(
                "failed to construct FQDN from Pod hostname and cluster domain, FQDN {full} is too long (64 is the max length, {} characters requested)",
                full.len()
            ));
        }
        return Ok((full, domain));
    }
    Ok((name.to_owned(), domain))
}

/// The file for a pod with a network of its own.
pub fn of_pod(ips: &[String], host: &str, domain: &str, aliases: &[HostAlias]) -> String {
    let mut text = format!("# Kubernetes-managed hosts file.\n{FIXED}");
    for ip in ips {
        text += &match domain {
            "" => format!("{ip}\t{host}\n"),
            _ if host.contains('.') => format!("{ip}\t{host}\n"),
            _ => format!("{ip}\t{host}.{domain}\t{host}\n"),
        };
    }
    text + &entries(aliases)
}

/// The file for a pod on the host's network: the node's own.
pub fn of_host(node: &str, aliases: &[HostAlias]) -> String {
    format!("# Kubernetes-managed hosts file (host network).\n{node}") + &entries(aliases)
}

fn entries(aliases: &[HostAlias]) -> String {
    if aliases.is_empty() {
        return String::new();
    }
    let line = |alias: &HostAlias| {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        format!("{}\t{names}\n", alias.ip)
    };
    let lines: String = aliases.iter().map(line).collect();
    format!("\n# Entries added by HostAliases.\n{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_file_is_upstreams() {
        let aliases: Vec<HostAlias> =
            serde_json::from_value(json!([{"ip": "1.2.3.4", "hostnames": ["a", "b"]}]))
                .expect("aliases");
        let text = of_pod(
            &["10.0.0.5".to_owned()],
            "p",
            "sub.ns.svc.cluster.local",
            &aliases,
        );
        assert!(text.starts_with("# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n"));
        assert!(text.ends_with(
            "10.0.0.5\tp.sub.ns.svc.cluster.local\tp\n\n# Entries added by HostAliases.\n1.2.3.4\ta\tb\n"
        ));
    }

    #[test]
    fn names_are_cut_to_what_dns_allows() {
        let pod: Pod = serde_json::from_value(
            json!({"metadata": {"name": format!("{}-b", "a".repeat(62)), "namespace": "n"},
            "spec": {"containers": [], "subdomain": "s"}}),
        )
        .expect("a pod");
        let (name, domain) = names(&pod, "cluster.local").expect("names");
        assert_eq!(name, "a".repeat(62));
        assert_eq!(domain, "s.n.svc.cluster.local");
    }
}
