//! Checks of what is around the machine: names, ways out, clocks, and what Azure and the cluster say.

use std::time::Duration;

use ::steps::engine::Scene;
use ::steps::host::{Command, Request};

use super::{Check, Fine, Verdict, fatal, warning};
use crate::config::Join;
use crate::machine::{self, Version};
use crate::steps::{Wish, cluster_of, programs};

/// In the order in which one stands on the other.
pub(super) const CHECKS: &[(&str, Check)] = &[
    ("kernel", kernel),
    ("clock", clock),
    ("proxy", proxy),
    ("dns", dns),
    ("egress", egress),
    ("bootstrap-token", bootstrap_token),
    ("azure", azure),
    ("cluster", cluster),
];

/// The oldest kernel that newer kubelets and runtimes are tried on.
const KERNEL: Version = Version([4, 19, 0]);

fn kernel(_: &Wish, scene: &Scene<'_>) -> Verdict {
    let release = machine::text(scene, "/proc/sys/kernel/osrelease");
    match Version::parse(&release) {
        Some(version) if version < KERNEL => warning(
            format!("the kernel is {release}"),
            "newer kubelets and runtimes are not tried on it",
            "use a newer release of the distribution",
        ),
        _ => Fine(format!("kernel {release}")),
    }
}

fn clock(_: &Wish, scene: &Scene<'_>) -> Verdict {
    let words = ["show", "-p", "NTPSynchronized", "--value"];
    let answer = scene.run(&Command::new("timedatectl", &words));
    let said = answer.map(|answer| answer.text()).unwrap_or_default();
    match said.as_str() {
        "no" => warning(
            "the clock is not kept by anybody".to_owned(),
            "tokens and certificates are refused by whose clock differs by minutes",
            "timedatectl set-ntp true",
        ),
        _ => Fine("the clock is kept, or nobody says that it is not".to_owned()),
    }
}

/// The host of an address.
fn host_of(url: &str) -> &str {
    let rest = url.split("://").nth(1).unwrap_or(url);
    let rest = rest.split('/').next().unwrap_or_default();
    rest.rsplit_once(':').map_or(rest, |(host, _)| host)
}

/// The port of an address, said or meant.
fn port_of(url: &str) -> u16 {
    let rest = url.split("://").nth(1).unwrap_or(url);
    let place = rest.split('/').next().unwrap_or_default();
    let said = place
        .rsplit_once(':')
        .and_then(|(_, port)| port.parse().ok());
    said.unwrap_or(if url.starts_with("https") { 443 } else { 80 })
}

fn proxy(wish: &Wish, scene: &Scene<'_>) -> Verdict {
    let variable = |name: &str| {
        let found = std::env::var(name).or_else(|_| std::env::var(name.to_lowercase()));
        found.ok().filter(|value| !value.is_empty())
    };
    let Some(proxy) = variable("HTTPS_PROXY") else {
        return Fine("no proxy".to_owned());
    };
    let server = cluster_of(wish, scene).map(|cluster| cluster.server);
    let exceptions = variable("NO_PROXY").unwrap_or_default();
    let is_direct = |host: &str| {
        let mut entries = exceptions.split(',').map(str::trim);
        entries.any(|entry| !entry.is_empty() && host.ends_with(entry))
    };
    let hosts = server.as_deref().map(host_of);
    let through: Vec<&str> = hosts.into_iter().filter(|host| !is_direct(host)).collect();
    match through.is_empty() {
        true => Fine(format!("through {proxy}, but not to the cluster")),
        false => warning(
            format!(
                "HTTPS_PROXY is {proxy}, and NO_PROXY lacks {}",
                through.join(", ")
            ),
            "the kubelet's own connections would go through the proxy too",
            format!("add {} to NO_PROXY", through.join(",")),
        ),
    }
}

fn dns(wish: &Wish, scene: &Scene<'_>) -> Verdict {
    let server = cluster_of(wish, scene).map(|cluster| cluster.server);
    let urls = server
        .into_iter()
        .chain([wish.config.azure.manager.clone()]);
    for url in urls.filter(|url| !url.is_empty()) {
        if let Err(error) = scene.host.resolve(host_of(&url), Duration::from_secs(5)) {
            return fatal(
                error.to_string(),
                "what has no address cannot be reached",
                "check `resolvectl status`, and that the name is the right one",
            );
        }
    }
    Fine("names that are needed have addresses".to_owned())
}

fn egress(wish: &Wish, scene: &Scene<'_>) -> Verdict {
    if wish.bundle.is_some() {
        return Fine("everything comes from a bundle".to_owned());
    }
    let mut closed: Vec<String> = Vec::new();
    for place in programs::places(wish, scene) {
        let host = host_of(&place).to_owned();
        let way = scene
            .host
            .connect(&host, port_of(&place), Duration::from_secs(5));
        if way.is_err() && !closed.contains(&host) {
            closed.push(host);
        }
    }
    match closed.is_empty() {
        true => Fine("what is missing can be fetched".to_owned()),
        false => fatal(
            format!("no way to {}", closed.join(", ")),
            "programs that are missing here are fetched from there",
            "open it, name another place in `mirrors`, or bring a bundle: `aks-flex-node bundle create`",
        ),
    }
}

fn bootstrap_token(wish: &Wish, scene: &Scene<'_>) -> Verdict {
    let (Join::BootstrapToken(token), Some(cluster)) = (&wish.config.join, cluster_of(wish, scene))
    else {
        return Fine("no bootstrap token is used".to_owned());
    };
    if scene.host.files().exists(crate::paths::KUBECONFIG) {
        return Fine("the kubelet has its certificate, and needs the token no more".to_owned());
    }
    let request = Request::get(format!("{}/api", cluster.server))
        .trusting(cluster.authority)
        .with_header("Authorization", &format!("Bearer {}", token.0))
        .at_most(Duration::from_secs(5));
    match scene.host.http(&request, &mut Vec::new(), scene.stop) {
        Ok(answer) if answer.status == 401 => fatal(
            "the cluster refuses the bootstrap token".to_owned(),
            "it has expired, or was never this cluster's: no certificate is given for it",
            "make another one: `kubeadm token create`, or `kyanite token create`",
        ),
        Ok(_) => Fine("the cluster knows the bootstrap token".to_owned()),
        Err(_) => Fine("the API server says nothing of the token".to_owned()),
    }
}

fn own(wish: &Wish, scene: &Scene<'_>, what: &str) -> Result<String, String> {
    let ask = wish.own(&["azure", what, "check", "--config", &wish.file]);
    match scene.run(&ask.at_most(Duration::from_secs(30))) {
        Ok(answer) if answer.success() => Ok(answer.text()),
        Ok(answer) => Err(answer.last_words()),
        Err(failure) => Err(failure.cause),
    }
}

fn azure(wish: &Wish, scene: &Scene<'_>) -> Verdict {
    if !matches!(wish.config.join, Join::Arc(_)) {
        return Fine("no machine is connected to Azure Arc".to_owned());
    }
    match own(wish, scene, "arc") {
        Ok(said) => Fine(said),
        Err(said) if said.contains("is not there") => {
            Fine("Azure lets us look for the machine".to_owned())
        }
        Err(said) => fatal(
            said,
            "the machine's identity and its role are made there",
            "check `azure.servicePrincipal` and its roles: `az role assignment list --assignee`",
        ),
    }
}

fn cluster(wish: &Wish, scene: &Scene<'_>) -> Verdict {
    if wish.config.azure.cluster.is_none() || wish.config.credentials.is_none() {
        return Fine("Azure is not asked about the cluster".to_owned());
    }
    match own(wish, scene, "conditions") {
        Ok(said) => Fine(said),
        Err(said) => fatal(said, "the node would not get Ready", "see `az aks show`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_and_ports_are_found_in_addresses() {
        let cases = [
            ("https://a.example:6443/x", "a.example", 6443),
            ("https://a.example", "a.example", 443),
            ("http://10.0.0.1/y", "10.0.0.1", 80),
        ];
        for (url, host, port) in cases {
            assert_eq!((host_of(url), port_of(url)), (host, port), "{url}");
        }
    }
}
