//! Activation: the kubelet's files, its start, and the wait until the node is Ready.

use std::time::Duration;

use ::steps::engine::{Change, Check, CommandChange, Failure, Goal, Scene, Unit};
use ::steps::host::{Command, Request};
use serde::{Deserialize, Serialize};

use super::{Changes, Finding, Wish};
use crate::config::{Join, Kubelet};
use crate::render::kubeconfig::{self, Server};
use crate::render::kubelet::{self, Credential};
use crate::{machine, paths};

/// What is known of the cluster.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster {
    /// `https://…`.
    pub server: String,
    /// PEM.
    pub authority: String,
    /// Its name.
    pub name: String,
}

/// The cluster, from the configuration and from what Azure said.
pub fn cluster_of(wish: &Wish, scene: &Scene<'_>) -> Option<Cluster> {
    let text = machine::text(scene, paths::CLUSTER);
    let said: Cluster = serde_json::from_str(&text).unwrap_or_default();
    let node = &wish.config.node;
    let or = |own: &String, other: String| match own.is_empty() {
        true => other,
        false => own.clone(),
    };
    let azure = wish.config.azure.cluster.as_ref().map(|c| c.name.clone());
    let cluster = Cluster {
        server: or(&node.server, said.server),
        authority: or(&node.authority, said.authority),
        name: azure.unwrap_or_else(|| or(&said.name, "kubernetes".to_owned())),
    };
    (!cluster.server.is_empty() && !cluster.authority.is_empty()).then_some(cluster)
}

/// Asked of Azure with the least that gives it: a user's credential has server and authority too.
pub(super) fn credentials(wish: &Wish, _: &Scene<'_>) -> Changes {
    let words = ["azure", "cluster", "make", "--config", &wish.file];
    Ok(vec![Change::Command(CommandChange {
        name: "the cluster's address and authority".to_owned(),
        check: Check::Exists(paths::CLUSTER.into()),
        apply: wish.own(&words).at_most(Duration::from_secs(60)),
        undo: Some(Command::new("rm", &["-f", paths::CLUSTER])),
    })])
}

fn known(wish: &Wish, scene: &Scene<'_>) -> Result<Cluster, Failure> {
    cluster_of(wish, scene).ok_or_else(|| {
        Failure::permanent(
            "the cluster's address and authority are not known",
            "give `node.kubelet.serverURL` and `node.kubelet.caCertData`, or credentials for Azure",
        )
    })
}

/// The server answers, and the authority of the configuration vouches for it.
pub(super) fn server_answers(wish: &Wish, scene: &Scene<'_>) -> Finding {
    let cluster = known(wish, scene)?;
    let url = format!("{}/readyz", cluster.server);
    let request = Request::get(&url)
        .trusting(cluster.authority.clone())
        .at_most(scene.remaining().min(Duration::from_secs(10)));
    let response = scene.host.http(&request, &mut Vec::new(), scene.stop)?;
    match response.status {
        200 | 401 | 403 => Ok(format!("{} answers", cluster.server)),
        status => Err(Failure::new(
            format!("{url} answers {status}"),
            "wait until the cluster's control plane is ready: `az aks show`",
        )),
    }
}

fn credential(wish: &Wish) -> Credential {
    match wish.config.join {
        Join::BootstrapToken(_) => Credential::Certificate,
        _ => Credential::Exec,
    }
}

/// Everything the kubelet reads.
pub(super) fn files(wish: &Wish, scene: &Scene<'_>) -> Changes {
    let cluster = match known(wish, scene) {
        Ok(cluster) => cluster,
        Err(_) if scene.planning => Cluster::default(),
        Err(failure) => return Err(failure),
    };
    let machine = machine::look(scene);
    let node = &wish.config.node;
    let credential = credential(wish);
    let server = Server {
        url: cluster.server,
        cluster: cluster.name,
    };
    let mut changes = vec![
        Change::directory("/etc/kubernetes/manifests", 0o755),
        Change::directory("/etc/kubernetes/volumeplugins", 0o755),
        Change::file(paths::CLUSTER_CA, 0o644, cluster.authority),
        Change::file(
            paths::KUBELET_CONFIG,
            0o644,
            kubelet::configuration(node, &machine, credential),
        ),
        Change::file(
            paths::KUBELET_DEFAULTS,
            0o644,
            kubelet::defaults(node, &wish.name),
        ),
        Change::file(paths::KUBELET_UNIT, 0o644, kubelet::unit()),
    ];
    changes.extend(kubelet::drop_ins(credential).map(|(name, text)| {
        Change::file(format!("{}/{name}", paths::KUBELET_DROP_INS), 0o644, text)
    }));
    match &wish.config.join {
        Join::BootstrapToken(token) => changes.push(Change::secret_file(
            paths::BOOTSTRAP_KUBECONFIG,
            kubeconfig::with_token(&server, &token.0),
        )),
        _ => {
            let words = ["token", "--config", &wish.file];
            let command = wish.own(&words);
            let text = kubeconfig::with_exec(&server, &command.program, &command.arguments);
            changes.push(Change::file(paths::KUBECONFIG, 0o600, text));
            let all: Vec<String> = wish
                .program
                .iter()
                .cloned()
                .chain(words.map(str::to_owned))
                .collect();
            changes.push(Change::file(
                paths::TOKEN_SCRIPT,
                0o755,
                kubeconfig::token_script(&all),
            ));
        }
    }
    Ok(changes)
}

/// What plugins of the pod network leave when the last pod is gone: their tables of rules, and the bridge if it is theirs.
const CLEAR_NETWORK: &str = r#"if command -v nft > /dev/null; then
nft list tables | awk '$3 ~ /^kyanite-cni\./ { print $2, $3 }' | while read -r family table; do nft delete table "$family" "$table"; done
fi
if [ "$1" = bridge ] && ip link show cbr0 > /dev/null 2>&1; then ip link delete cbr0; fi"#;

/// Starts it, and again when what it reads has changed. Written down before it: that its pods must end, and then their
/// network, which the undo does between the kubelet's end and containerd's.
pub(super) fn start(wish: &Wish, scene: &Scene<'_>) -> Changes {
    let mut inputs = vec![
        paths::KUBELET_DEFAULTS,
        paths::KUBELET_CONFIG,
        paths::KUBELET_DROP_INS,
        paths::KUBELET_UNIT,
        paths::CLUSTER_CA,
        paths::KUBELET,
    ];
    if wish.agent.is_some() && wish.config.components.kubelet == Kubelet::Own {
        inputs.push(&wish.program[0]);
    }
    let once = || Check::Inputs {
        paths: Vec::new(),
        per_boot: false,
    };
    let bridge = match scene.host.files().exists("/sys/class/net/cbr0") {
        true => "",
        false => "bridge",
    };
    let stop = wish
        .own(&["pods", "stop"])
        .at_most(Duration::from_secs(120));
    Ok(vec![
        Change::Command(CommandChange {
            name: "network of pods".to_owned(),
            check: once(),
            apply: Command::new("true", &[]),
            undo: Some(Command::new("sh", &["-c", CLEAR_NETWORK, "sh", bridge])),
        }),
        Change::Command(CommandChange {
            name: "pods of this node".to_owned(),
            check: once(),
            apply: Command::new("true", &[]),
            undo: Some(stop),
        }),
        Change::Unit(Unit {
            name: "kubelet.service".to_owned(),
            enabled: Some(true),
            goal: Goal::Running,
            inputs: inputs.into_iter().map(Into::into).collect(),
            no_block: true,
        }),
    ])
}

/// Asks the kubelet itself; if it does not answer, its log says why.
pub(super) fn healthy(_: &Wish, scene: &Scene<'_>) -> Finding {
    let request = Request::get("http://127.0.0.1:10248/healthz")
        .at_most(scene.remaining().min(Duration::from_secs(5)));
    let problem = match scene.host.http(&request, &mut Vec::new(), scene.stop) {
        Ok(answer) if answer.status == 200 => return Ok("the kubelet says it is well".to_owned()),
        Ok(answer) => format!("it says {}", answer.status),
        Err(error) => error.to_string(),
    };
    Err(Failure::new(
        format!(
            "the kubelet is not well: {problem}; its last words: {}",
            last_words(scene)
        ),
        "see `journalctl -u kubelet` for what it waits for: mostly its first certificate or the container runtime",
    ))
}

fn last_words(scene: &Scene<'_>) -> String {
    let log = ["-u", "kubelet", "-n", "1", "-o", "cat", "--no-pager"];
    let answer = scene.run(&Command::new("journalctl", &log));
    answer.map(|answer| answer.last_words()).unwrap_or_default()
}

/// Waits in one process, which asks often: the node's own word for it is its Ready condition.
pub(super) fn ready(wish: &Wish, scene: &Scene<'_>) -> Finding {
    let patience = scene.remaining().saturating_sub(Duration::from_secs(2));
    let seconds = patience.as_secs().to_string();
    let words = ["node", "wait", "--name", &wish.name, "--timeout", &seconds];
    let answer = scene.run(&wish.own(&words).at_most(scene.remaining()))?;
    match answer.success() {
        true => Ok(format!("node {} is Ready", wish.name)),
        false => Err(Failure::new(
            format!("node {} is not Ready: {}", wish.name, answer.last_words()),
            "see `journalctl -u kubelet` here, and `kubectl get csr` and `kubectl describe node` at the cluster",
        )),
    }
}

/// The loop that keeps the node well, once it is one.
pub(super) fn agent(wish: &Wish, _: &Scene<'_>) -> Changes {
    let mut inputs = vec![paths::AGENT_UNIT];
    inputs.extend(wish.agent.is_some().then_some(wish.program[0].as_str()));
    Ok(vec![
        Change::file(paths::AGENT_UNIT, 0o644, crate::agent::unit(wish)),
        Change::running_unit("aks-flex-node-agent.service", &inputs),
    ])
}
