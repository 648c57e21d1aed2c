//! What can be wrong with the machine, the cluster's reach and the node: each finding says what, why it matters, and the
//! command that mends it. Before the first change (`preflight`) and any time later (`doctor`), one table.

mod reach;

use std::time::Duration;

use ::steps::engine::{Scene, Stop};
use ::steps::host::{Command, Host, Request};
use serde::Serialize;

use crate::config::{Credentials, Join, rules};
use crate::machine::{self, Machine};
use crate::render::system;
use crate::steps::{Wish, cluster_of};
use crate::{codes, paths};

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Pass,
    /// It works, and could be better or will change.
    Warning,
    /// It cannot work.
    Fatal,
}

/// What a check found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Names the check: stable, and what `--ignore-preflight-errors` takes.
    pub check: &'static str,
    /// How bad it is.
    pub severity: Severity,
    /// What was found.
    pub what: String,
    /// Why it matters; empty where all is well.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub why: String,
    /// What mends it.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub remedy: String,
}

impl Finding {
    /// It cannot work.
    pub fn is_fatal(&self) -> bool {
        self.severity == Severity::Fatal
    }
}

/// What a check says: how it is, or what is wrong.
enum Verdict {
    Fine(String),
    Wrong(Severity, String, &'static str, String),
}

use Verdict::Fine;

fn warning(what: String, why: &'static str, remedy: impl Into<String>) -> Verdict {
    Verdict::Wrong(Severity::Warning, what, why, remedy.into())
}

fn fatal(what: String, why: &'static str, remedy: impl Into<String>) -> Verdict {
    Verdict::Wrong(Severity::Fatal, what, why, remedy.into())
}

type Check = fn(&Wish, &Scene<'_>) -> Verdict;

/// Of the machine alone; quick, and asked again at the beginning of every bootstrap.
#[rustfmt::skip]
const MACHINE: &[(&str, Check)] = &[
    ("distribution", distribution), ("architecture", architecture), ("systemd", systemd), ("cgroups", cgroups),
    ("node-name", node_name), ("foreign-kubelet", foreign_kubelet), ("foreign-runtime", foreign_runtime), ("port-10250", port),
    ("swap", swap), ("disk", disk), ("memory", memory), ("secrets", secrets),
];

/// Of what it must reach.
const REACH: &[(&str, Check)] = &[("api-server", api_server), ("himds", himds)];

/// Of a node that there is.
const NODE: &[(&str, Check)] = &[
    ("containerd", containerd),
    ("kubelet", kubelet),
    ("token", identity_token),
    ("node-ready", node_ready),
];

fn ask(table: &[(&'static str, Check)], wish: &Wish, scene: &Scene<'_>) -> Vec<Finding> {
    let found = table.iter().map(|(check, look)| match look(wish, scene) {
        Fine(what) => Finding {
            check,
            severity: Severity::Pass,
            what,
            why: String::new(),
            remedy: String::new(),
        },
        Verdict::Wrong(severity, what, why, remedy) => Finding {
            check,
            severity,
            what,
            why: why.to_owned(),
            remedy,
        },
    });
    found.collect()
}

/// Checks of the machine alone.
pub fn machine(wish: &Wish, scene: &Scene<'_>) -> Vec<Finding> {
    ask(MACHINE, wish, scene)
}

/// Everything that can be known before the first change.
pub fn preflight(wish: &Wish, host: &dyn Host, stop: &Stop) -> Vec<Finding> {
    let scene = scene(host, stop);
    let mut found = ask(MACHINE, wish, &scene);
    found.extend(ask(reach::CHECKS, wish, &scene));
    found.extend(ask(REACH, wish, &scene));
    found
}

/// Everything, of a machine that is a node or should be one.
pub fn doctor(wish: &Wish, host: &dyn Host, stop: &Stop) -> Vec<Finding> {
    let scene = scene(host, stop);
    let mut found = preflight(wish, host, stop);
    found.extend(ask(NODE, wish, &scene));
    found
}

/// A scene for looking.
pub fn scene<'a>(host: &'a dyn Host, stop: &'a Stop) -> Scene<'a> {
    Scene {
        host,
        stop,
        until: host.elapsed().saturating_add(Duration::from_secs(60)),
        planning: true,
    }
}

fn distribution(_: &Wish, scene: &Scene<'_>) -> Verdict {
    let text = machine::text(scene, "/etc/os-release");
    let value = |key: &str| {
        let line = text
            .lines()
            .find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
        line.unwrap_or_default().trim_matches('"').to_owned()
    };
    let (id, like, name) = (value("ID"), value("ID_LIKE"), value("PRETTY_NAME"));
    let is_known = |id: &str| ["ubuntu", "debian"].contains(&id);
    match is_known(&id) || like.split(' ').any(is_known) {
        true => Fine(name),
        false => warning(
            format!("this is {name:?}, neither Ubuntu nor Debian"),
            "paths and packages were only seen to work there",
            "use Ubuntu 22.04 or 24.04, or go on at your own risk",
        ),
    }
}

fn architecture(_: &Wish, _: &Scene<'_>) -> Verdict {
    match std::env::consts::ARCH {
        arch @ ("x86_64" | "aarch64") => Fine(arch.to_owned()),
        other => fatal(
            format!("this machine is {other}"),
            "Kubernetes' node programs are built for amd64 and arm64",
            "use such a machine",
        ),
    }
}

fn systemd(_: &Wish, scene: &Scene<'_>) -> Verdict {
    let answer = scene.run(&Command::new("systemctl", &["--version"]));
    match answer.is_ok_and(|answer| answer.success()) {
        true => Fine("systemd is there".to_owned()),
        false => fatal(
            "systemctl does not run".to_owned(),
            "the kubelet and containerd are units of systemd",
            "use a machine that runs systemd as its first process",
        ),
    }
}

fn cgroups(_: &Wish, scene: &Scene<'_>) -> Verdict {
    match machine::look(scene).unified_cgroups {
        true => Fine("control groups are version 2's".to_owned()),
        false => warning(
            "control groups are version 1's".to_owned(),
            "newer kubelets refuse them",
            "boot with `systemd.unified_cgroup_hierarchy=1`",
        ),
    }
}

fn node_name(wish: &Wish, _: &Scene<'_>) -> Verdict {
    match rules::is_dns_name(&wish.name) {
        true => Fine(format!("the node is called {}", wish.name)),
        false => fatal(
            format!("`{}` is not a name of a node", wish.name),
            "the cluster would refuse it",
            "set `agent.nodeName`, or `hostnamectl set-hostname NAME` with small letters, digits and hyphens",
        ),
    }
}

fn foreign_kubelet(_: &Wish, scene: &Scene<'_>) -> Verdict {
    match machine::find_unit(scene, "kubelet.service") {
        Some(path) if machine::is_foreign_unit(scene, "kubelet.service") => fatal(
            format!("{path} is somebody else's kubelet"),
            "this machine is a node already, or was one: what runs there is not ours to stop",
            format!(
                "take it out of its cluster first; then `systemctl disable --now kubelet` and remove {path}"
            ),
        ),
        _ => Fine("no kubelet but ours".to_owned()),
    }
}

fn foreign_runtime(_: &Wish, scene: &Scene<'_>) -> Verdict {
    let config = machine::text(scene, paths::CONTAINERD_CONFIG);
    let is_ours = config.is_empty() || config.contains(paths::CNI_TEMPLATE);
    match is_ours {
        true => Fine("containerd has no configuration but ours".to_owned()),
        false => warning(
            format!("{} is somebody else's", paths::CONTAINERD_CONFIG),
            "it is replaced while this machine is a node, and containerd restarted; unbootstrap brings it back",
            "look whether something else on this machine needs it",
        ),
    }
}

fn port(_: &Wish, scene: &Scene<'_>) -> Verdict {
    let has_unit = machine::find_unit(scene, "kubelet.service").is_some();
    let listens = scene
        .host
        .connect("127.0.0.1", 10250, Duration::from_secs(2));
    match listens.is_ok() && !has_unit {
        true => fatal(
            "something listens on port 10250".to_owned(),
            "it is the kubelet's, and the API server comes to it",
            "see what it is with `ss -ltnp sport = :10250`, and stop it",
        ),
        false => Fine("port 10250 is free or ours".to_owned()),
    }
}

fn swap(_: &Wish, scene: &Scene<'_>) -> Verdict {
    let swaps = system::swaps(&machine::text(scene, "/proc/swaps"));
    let Machine { is_container, .. } = machine::look(scene);
    match (swaps.is_empty(), is_container) {
        (true, _) => Fine("no swap".to_owned()),
        (false, true) => Fine("swap is the host's, and left alone".to_owned()),
        (false, false) => warning(
            format!("swap is on: {}", swaps.join(", ")),
            "a kubelet refuses it: it is turned off while this machine is a node, and on again after",
            "nothing, or `swapoff -a` yourself",
        ),
    }
}

const GIB_IN_KB: u64 = 1 << 20;

fn disk(_: &Wish, scene: &Scene<'_>) -> Verdict {
    let answer = scene.run(&Command::new("df", &["-Pk", "/var/lib"]));
    let text = answer.map(|answer| answer.text()).unwrap_or_default();
    let free = text
        .lines()
        .nth(1)
        .and_then(|line| line.split_whitespace().nth(3));
    let Some(free) = free.and_then(|free| free.parse::<u64>().ok()) else {
        return Fine("how much is free is not known".to_owned());
    };
    let gib = free / GIB_IN_KB;
    match gib {
        0 => fatal(
            "less than 1 GiB is free in /var/lib".to_owned(),
            "images and logs go there, and the kubelet evicts pods when it fills up",
            "free some space, or mount a larger disk at /var/lib",
        ),
        1..10 => warning(
            format!("{gib} GiB are free in /var/lib"),
            "images and logs go there; upstream asks for 25 GB",
            "free some space, or mount a larger disk at /var/lib",
        ),
        _ => Fine(format!("{gib} GiB are free in /var/lib")),
    }
}

fn memory(_: &Wish, scene: &Scene<'_>) -> Verdict {
    let text = machine::text(scene, "/proc/meminfo");
    let total = text.lines().find_map(|l| l.strip_prefix("MemTotal:"));
    let total = total.and_then(|t| t.split_whitespace().next()?.parse::<u64>().ok());
    match total.map(|kb| kb / GIB_IN_KB) {
        Some(gib) if gib < 2 => warning(
            format!("this machine has {gib} GiB of memory"),
            "upstream asks for 2 GiB; few pods will fit",
            "use a larger machine",
        ),
        _ => Fine("there is enough memory".to_owned()),
    }
}

fn secrets(wish: &Wish, scene: &Scene<'_>) -> Verdict {
    let has_secret = matches!(wish.config.join, Join::BootstrapToken(_))
        || matches!(wish.config.credentials, Some(Credentials::Secret { .. }));
    let entry = scene.host.files().entry(&wish.file).ok().flatten();
    match entry.filter(|entry| has_secret && entry.mode & 0o077 != 0) {
        Some(entry) => fatal(
            format!(
                "{} holds a secret and has mode {:04o}",
                wish.file, entry.mode
            ),
            "everybody on this machine could join nodes to the cluster",
            format!("chmod 600 {}", wish.file),
        ),
        None => Fine("secrets are root's alone".to_owned()),
    }
}

fn api_server(wish: &Wish, scene: &Scene<'_>) -> Verdict {
    let Some(cluster) = cluster_of(wish, scene) else {
        return Fine("the API server is not known yet; Azure is asked at bootstrap".to_owned());
    };
    let request = Request::get(format!("{}/version", cluster.server))
        .trusting(cluster.authority)
        .at_most(Duration::from_secs(5));
    match scene.host.http(&request, &mut Vec::new(), scene.stop) {
        Ok(_) => Fine(format!(
            "{} answers, and its authority is the right one",
            cluster.server
        )),
        Err(error) => {
            let failure = ::steps::engine::Failure::from(error);
            fatal(failure.cause, "the kubelet joins there", failure.remedy)
        }
    }
}

fn himds(wish: &Wish, scene: &Scene<'_>) -> Verdict {
    if !matches!(wish.config.join, Join::Arc(_)) {
        return Fine("no Arc identity is asked for".to_owned());
    }
    match scene
        .host
        .connect("127.0.0.1", 40342, Duration::from_secs(2))
    {
        Ok(()) => Fine("the agent of Arc listens".to_owned()),
        Err(_) => warning(
            "nothing listens at 127.0.0.1:40342".to_owned(),
            "tokens of the Arc identity come from there; bootstrap connects the machine first",
            "after bootstrap: `systemctl status himdsd`",
        ),
    }
}

fn unit(scene: &Scene<'_>, name: &str) -> Verdict {
    let answer = scene.run(&Command::new("systemctl", &["is-active", name]));
    match answer
        .map(|answer| answer.text())
        .unwrap_or_default()
        .as_str()
    {
        "active" => Fine(format!("{name} runs")),
        state => fatal(
            format!(
                "{name} is {}",
                if state.is_empty() { "unknown" } else { state }
            ),
            "without it no pod runs here",
            format!(
                "`journalctl -u {name} -n 50` says why; `aks-flex-node bootstrap` mends what is ours"
            ),
        ),
    }
}

fn containerd(_: &Wish, scene: &Scene<'_>) -> Verdict {
    unit(scene, "containerd")
}

fn kubelet(_: &Wish, scene: &Scene<'_>) -> Verdict {
    unit(scene, "kubelet")
}

fn identity_token(wish: &Wish, scene: &Scene<'_>) -> Verdict {
    if matches!(wish.config.join, Join::BootstrapToken(_)) {
        return Fine("the kubelet has a certificate of its own".to_owned());
    }
    let ask = wish.own(&["token", "--config", &wish.file, "--check"]);
    match scene.run(&ask) {
        Ok(answer) if answer.success() => Fine(format!("{} gives tokens", wish.config.join.name())),
        other => fatal(
            other.map_or_else(|failure| failure.cause, |answer| answer.last_words()),
            "the kubelet cannot prove who it is",
            "see all of it with `aks-flex-node token --check`",
        ),
    }
}

fn node_ready(wish: &Wish, scene: &Scene<'_>) -> Verdict {
    let words = ["node", "wait", "--name", &wish.name, "--timeout", "0"];
    let answer = scene.run(&wish.own(&words));
    match answer {
        Ok(answer) if answer.success() => Fine(format!("node {} is Ready", wish.name)),
        other => fatal(
            format!(
                "node {} is not Ready: {}",
                wish.name,
                other.map_or_else(|e| e.cause, |a| a.last_words())
            ),
            "no pod is sent to it",
            format!(
                "`kubectl describe node {}` and `journalctl -u kubelet` say more",
                wish.name
            ),
        ),
    }
}

/// The exit code of a report: fatal findings count, warnings where they are asked to.
pub fn code(findings: &[Finding], ignored: &[String], warnings_count: bool) -> u8 {
    let counts = |finding: &&Finding| {
        let is_ignored = ignored
            .iter()
            .any(|name| name == finding.check || name == "all");
        match finding.severity {
            Severity::Pass => false,
            Severity::Warning => warnings_count && !is_ignored,
            Severity::Fatal => !is_ignored,
        }
    };
    match findings.iter().find(counts) {
        Some(_) => codes::PREFLIGHT,
        None => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(check: &'static str, severity: Severity) -> Finding {
        Finding {
            check,
            severity,
            what: String::new(),
            why: String::new(),
            remedy: String::new(),
        }
    }

    #[test]
    fn only_what_is_fatal_and_not_ignored_fails_unless_warnings_count() {
        let found = [
            finding("swap", Severity::Warning),
            finding("disk", Severity::Fatal),
        ];
        let names = |names: &[&str]| names.iter().map(|n| (*n).to_owned()).collect::<Vec<_>>();
        let cases = [
            (names(&[]), false, codes::PREFLIGHT),
            (names(&["disk"]), false, 0),
            (names(&["disk"]), true, codes::PREFLIGHT),
            (names(&["disk", "swap"]), true, 0),
            (names(&["all"]), true, 0),
        ];
        for (ignored, warnings, expected) in cases {
            assert_eq!(
                code(&found, &ignored, warnings),
                expected,
                "{ignored:?} {warnings}"
            );
        }
    }

    #[test]
    fn no_two_checks_have_one_name() {
        let mut names: Vec<_> = MACHINE
            .iter()
            .chain(REACH)
            .chain(NODE)
            .map(|(name, _)| name)
            .collect();
        let all = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), all);
    }
}
