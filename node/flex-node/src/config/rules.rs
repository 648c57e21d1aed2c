//! What must hold of a configuration, as a table: where, what is wrong, and what to do.

use super::{Config, Join, Problem};

/// A rule: the field it is about, whether it is broken and how, and the remedy.
type Rule = (&'static str, fn(&Config) -> Option<String>, &'static str);

/// AKS' own name for the label that keeps the cloud controller from deleting nodes it does not know.
const FORCED: &str = "kubernetes.azure.com/managed";

#[rustfmt::skip]
const RULES: &[Rule] = &[
    ("azure.targetCluster.resourceId", |c| (needs_azure(c) && c.azure.cluster.is_none()).then(|| "is missing".to_owned()),
        "give the cluster's id: `az aks show --query id`, or join with `azure.bootstrapToken`"),
    ("azure.targetCluster.location", |c| (is_arc(c) && arc_place(c).1.is_empty()).then(|| "is missing".to_owned()),
        "give the cluster's location, or `azure.arc.location`"),
    ("azure.subscriptionId", |c| (needs_azure(c) && c.azure.subscription.is_empty()).then(|| "is missing".to_owned()),
        "give the subscription of the cluster"),
    ("azure.tenantId", |c| (is_arc(c) && c.azure.tenant.is_empty()).then(|| "is missing".to_owned()),
        "give the tenant: `az account show --query tenantId`"),
    ("azure.cloud", |c| unknown_cloud(&c.azure.cloud),
        "write AzurePublicCloud, AzureUSGovernmentCloud or AzureChinaCloud; another cloud is named by `azure.resourceManagerEndpoint`"),
    ("azure.servicePrincipal", |c| (is_arc(c) && c.credentials.is_none()).then(|| "is missing: the agent has no way to speak to Azure".to_owned()),
        "give a service principal that may onboard machines and assign roles"),
    ("azure.bootstrapToken.token", |c| match &c.join {
        Join::BootstrapToken(token) if !is_token(&token.0) => Some("is not of the form `abcdef.0123456789abcdef`".to_owned()),
        _ => None,
    }, "make one with `kubeadm token create` or `kyanite token create`"),
    ("node.kubelet.serverURL", |c| (is_token_join(c) && c.azure.cluster.is_none() && c.node.server.is_empty()).then(|| "is missing".to_owned()),
        "a bootstrap token needs the API server's address: `kubectl cluster-info`"),
    ("node.kubelet.serverURL", |c| (!c.node.server.is_empty() && !c.node.server.starts_with("https://")).then(|| format!("`{}` is not https", c.node.server)),
        "the API server speaks https only"),
    ("node.kubelet.caCertData", |c| (is_token_join(c) && !c.node.server.is_empty() && c.node.authority.is_empty()).then(|| "is missing".to_owned()),
        "a server that nobody vouches for is not believed: copy certificate-authority-data of a kubeconfig of the cluster"),
    ("agent.nodeName", |c| (!c.node.name.is_empty() && !is_dns_name(&c.node.name)).then(|| format!("`{}` is not a name of a node", c.node.name)),
        "use small letters, digits, hyphens and dots, 253 at most"),
    ("node.maxPods", |c| (!(1..=1000).contains(&c.node.max_pods)).then(|| format!("{} is not between 1 and 1000", c.node.max_pods)),
        "110 is usual"),
    ("node.kubelet.imageGCLowThreshold", |c| {
        let (low, high) = (c.node.image_gc_low, c.node.image_gc_high);
        (low >= high || low < 0 || high > 100).then(|| format!("{low} and imageGCHighThreshold {high} do not go together"))
    }, "the low one must be below the high one, both between 0 and 100"),
    ("node.kubelet.nodeIP", |c| (!c.node.node_ip.is_empty() && !all_addresses(&c.node.node_ip)).then(|| format!("`{}` is no address", c.node.node_ip)),
        "give an IP address of this machine, or leave it out"),
    ("node.kubelet.dnsServiceIP", |c| (!all_addresses(&c.node.dns)).then(|| format!("`{}` is no address", c.node.dns)),
        "give the address of the service kube-dns: `kubectl -n kube-system get svc kube-dns`"),
    ("node.labels", |c| c.node.labels.iter().find(|(k, v)| !is_label(k, v)).map(|(k, v)| format!("`{k}={v}` is no label")),
        "a label is [prefix/]name=value of letters, digits, `-`, `_` and `.`, 63 at most"),
    ("node.labels", |c| c.node.labels.get(FORCED).filter(|v| *v != "false").map(|v| format!("`{FORCED}={v}` would have the cloud controller delete this node")),
        "leave it out: it is always `false` here"),
    ("node.taints", |c| c.node.taints.iter().find(|t| taint(t).is_none()).map(|t| format!("`{t}` is no taint")),
        "a taint is key=value:Effect with NoSchedule, PreferNoSchedule or NoExecute"),
];

/// Adds every rule that is broken.
pub(super) fn check(config: &Config, problems: &mut Vec<Problem>) {
    for (path, broken, remedy) in RULES {
        // What could not be read was said already.
        let is_said = problems.iter().any(|p| p.path == *path);
        if let Some(cause) = broken(config).filter(|_| !is_said) {
            problems.push(Problem::new(path, cause, *remedy));
        }
    }
}

fn is_arc(config: &Config) -> bool {
    matches!(config.join, Join::Arc(_))
}

fn is_token_join(config: &Config) -> bool {
    matches!(config.join, Join::BootstrapToken(_))
}

/// Everything but a token that comes with the server's address.
fn needs_azure(config: &Config) -> bool {
    !is_token_join(config)
}

fn arc_place(config: &Config) -> (&str, &str) {
    match &config.join {
        Join::Arc(arc) => (&arc.group, &arc.location),
        _ => ("", ""),
    }
}

fn unknown_cloud(name: &str) -> Option<String> {
    const KNOWN: [&str; 5] = [
        "azurepubliccloud",
        "azurecloud",
        "azureusgovernmentcloud",
        "azureusgovernment",
        "azurechinacloud",
    ];
    let is_known = KNOWN.contains(&name.to_lowercase().as_str());
    (!is_known).then(|| format!("`{name}` is no cloud that is known here"))
}

/// `^[a-z0-9]{6}\.[a-z0-9]{16}$`.
fn is_token(text: &str) -> bool {
    let plain = |part: &str, length: usize| {
        part.len() == length
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    text.split_once('.')
        .is_some_and(|(id, secret)| plain(id, 6) && plain(secret, 16))
}

pub(crate) fn is_dns_name(text: &str) -> bool {
    let part = |part: &str| {
        let legal = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        !part.is_empty()
            && part.len() <= 63
            && part.bytes().all(legal)
            && !part.starts_with('-')
            && !part.ends_with('-')
    };
    text.len() <= 253 && text.split('.').all(part)
}

fn all_addresses(text: &str) -> bool {
    text.split(',')
        .all(|one| one.trim().parse::<std::net::IpAddr>().is_ok())
}

fn is_word(text: &str) -> bool {
    let legal = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let ends = |c: char| c.is_ascii_alphanumeric();
    text.len() <= 63 && text.chars().all(legal) && text.starts_with(ends) && text.ends_with(ends)
}

fn is_key(key: &str) -> bool {
    match key.split_once('/') {
        Some((prefix, name)) => is_dns_name(prefix) && is_word(name),
        None => is_word(key),
    }
}

fn is_label(key: &str, value: &str) -> bool {
    is_key(key) && (value.is_empty() || is_word(value))
}

/// Key, value and effect of `key=value:Effect` or `key:Effect`.
pub(crate) fn taint(text: &str) -> Option<(&str, &str, &str)> {
    const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
    let (rest, effect) = text.rsplit_once(':')?;
    let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
    (EFFECTS.contains(&effect) && is_label(key, value)).then_some((key, value, effect))
}
