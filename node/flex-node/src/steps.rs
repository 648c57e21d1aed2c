//! The steps that make a machine a node, as one table, in three phases: identity, installation, activation.
//!
//! Phases are what people see. What waits for what is said by each row: installation does not wait for identity.
//! The journal's order is the order of undo turned around, so what must end first is written down last: the kubelet stops,
//! then pods, then containerd, and only then go their files and data.

mod activation;
mod data;
pub(crate) mod fetch;
mod identity;
mod installation;
pub(crate) mod programs;

use std::sync::Arc;
use std::time::Duration;

use ::steps::engine::{Change, Failure, Retry, Scene, Step};

use crate::codes as code;
use crate::config::{Config, Join};

pub use activation::cluster_of;

type Changes = Result<Vec<Change>, Failure>;
type Finding = Result<String, Failure>;

/// What steps know besides the machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wish {
    /// What is asked for.
    pub config: Config,
    /// The file that says so, for what is run later.
    pub file: String,
    /// How this program is run: its path, and the word that makes it the agent where its name does not.
    pub program: Vec<String>,
    /// The node's name.
    pub name: String,
    /// Another file that this program is to be a copy of, where an upgrade chose one.
    pub agent: Option<String>,
    /// A file that has everything that would be fetched.
    pub bundle: Option<String>,
}

impl Wish {
    /// A command of this program.
    pub fn own(&self, words: &[&str]) -> ::steps::host::Command {
        let (program, rest) = self.program.split_first().expect("a program has a path");
        let rest: Vec<&str> = rest.iter().map(String::as_str).collect();
        let mut all = rest;
        all.extend_from_slice(words);
        ::steps::host::Command::new(program, &all)
    }
}

/// A part of the journey, as people see it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// Who the machine is.
    Identity,
    /// What it runs.
    Installation,
    /// It becomes a node.
    Activation,
}

impl Phase {
    /// All, in order.
    pub const ALL: [Phase; 3] = [Phase::Identity, Phase::Installation, Phase::Activation];

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Identity => "identity",
            Phase::Installation => "installation",
            Phase::Activation => "activation",
        }
    }
}

/// What a row does.
#[derive(Clone, Copy)]
enum Act {
    Change(fn(&Wish, &Scene<'_>) -> Changes),
    Look(fn(&Wish, &Scene<'_>) -> Finding),
}

struct Row {
    name: &'static str,
    phase: Phase,
    code: u8,
    act: Act,
    wanted: fn(&Wish) -> bool,
    after: &'static [&'static str],
    retry: Retry,
    deadline: Duration,
}

const fn row(name: &'static str, phase: Phase, code: u8, act: Act) -> Row {
    Row {
        name,
        phase,
        code,
        act,
        wanted: |_| true,
        after: &[],
        retry: Retry::ONCE,
        deadline: Duration::from_secs(30),
    }
}

const fn does(
    name: &'static str,
    phase: Phase,
    code: u8,
    act: fn(&Wish, &Scene<'_>) -> Changes,
) -> Row {
    row(name, phase, code, Act::Change(act))
}

const fn looks(
    name: &'static str,
    phase: Phase,
    code: u8,
    act: fn(&Wish, &Scene<'_>) -> Finding,
) -> Row {
    row(name, phase, code, Act::Look(act))
}

impl Row {
    const fn when(self, wanted: fn(&Wish) -> bool) -> Row {
        Row { wanted, ..self }
    }

    const fn after(self, after: &'static [&'static str]) -> Row {
        Row { after, ..self }
    }

    /// So many attempts, so many milliseconds apart, so many seconds for one and for all.
    const fn trying(self, attempts: u32, pause: u64, attempt: u64, deadline: u64) -> Row {
        let (pause, attempt) = (Duration::from_millis(pause), Duration::from_secs(attempt));
        Row {
            retry: Retry::times(attempts, pause, attempt),
            deadline: Duration::from_secs(deadline),
            ..self
        }
    }
}

use Phase::{Activation, Identity, Installation};

/// What every other step waits for.
const FIRST: &str = "check-machine";

#[rustfmt::skip]
const TABLE: &[Row] = &[
    looks(FIRST, Installation, code::PREFLIGHT, installation::fit),
    does("connect-arc", Identity, code::AUTH, identity::arc).when(is_arc).trying(4, 5000, 120, 300),
    does("assign-roles", Identity, code::PERMISSION, identity::roles).when(is_arc).after(&["connect-arc"]).trying(6, 5000, 60, 180),
    does("serve-identity", Identity, code::HOST, identity::serve).when(is_arc).after(&["connect-arc"]).trying(3, 2000, 60, 120),
    looks("identity-token", Identity, code::AUTH, identity::token).when(has_exec).after(&["serve-identity"]).trying(60, 500, 30, 120),
    does("claim-directories", Installation, code::HOST, data::claim).after(&["check-machine"]),
    does("configure-kernel", Installation, code::HOST, installation::kernel),
    does("disable-swap", Installation, code::HOST, installation::swap).trying(2, 1000, 60, 120),
    does("unpack-bundle", Installation, code::INTEGRITY, fetch::unpack_bundle).when(has_bundle).after(&["claim-directories"]).trying(1, 0, 300, 300),
    does("install-program", Installation, code::HOST, programs::own).when(|wish| wish.agent.is_some()).after(&["claim-directories"]).trying(1, 0, 120, 120),
    does("install-runc", Installation, code::INTEGRITY, programs::runc).after(&["claim-directories", "unpack-bundle"]).trying(4, 2000, 300, 900),
    does("install-containerd", Installation, code::INTEGRITY, programs::containerd).after(&["claim-directories", "unpack-bundle"]).trying(4, 2000, 300, 900),
    does("install-kubelet", Installation, code::INTEGRITY, programs::kubelet).after(&["claim-directories", "unpack-bundle", "install-program"]).trying(4, 2000, 300, 900),
    does("install-cni", Installation, code::INTEGRITY, programs::cni).after(&["claim-directories", "unpack-bundle"]).trying(4, 2000, 300, 900),
    does("configure-containerd", Installation, code::HOST, installation::containerd).after(&["install-containerd", "install-runc", "install-cni"]),
    does("start-containerd", Installation, code::HOST, installation::start_containerd)
        .after(&["configure-containerd", "configure-kernel"]).trying(3, 2000, 60, 120),
    looks("containerd-ready", Installation, code::HOST, installation::containerd_ready).after(&["start-containerd"]).trying(600, 100, 10, 60),
    does("load-images", Installation, code::HOST, installation::images).when(has_bundle).after(&["containerd-ready", "unpack-bundle"]).trying(2, 1000, 120, 240),
    does("cluster-credentials", Activation, code::PERMISSION, activation::credentials).when(asks_azure)
        .after(&["identity-token", "assign-roles", "claim-directories"]).trying(240, 2500, 60, 660),
    looks("api-server", Activation, code::NETWORK, activation::server_answers).after(&["cluster-credentials"]).trying(30, 500, 10, 60),
    does("grant-access", Activation, code::PERMISSION, identity::access).when(grants)
        .after(&["cluster-credentials", "api-server"]).trying(120, 2500, 60, 300),
    does("sign-serving", Activation, code::CLUSTER, identity::serving).when(has_signed_serving)
        .after(&["cluster-credentials", "grant-access", "claim-directories"]).trying(10, 2000, 60, 180),
    does("configure-kubelet", Activation, code::HOST, activation::files)
        .after(&["claim-directories", "cluster-credentials", "install-kubelet"]),
    does("start-kubelet", Activation, code::HOST, activation::start)
        .after(&["configure-kubelet", "containerd-ready", "disable-swap", "api-server", "identity-token", "grant-access", "sign-serving", "load-images"]).trying(3, 2000, 60, 180),
    looks("kubelet-healthy", Activation, code::HOST, activation::healthy).after(&["start-kubelet"]).trying(900, 200, 5, 180),
    looks("node-ready", Activation, code::CLUSTER, activation::ready).after(&["start-kubelet"]).trying(1, 0, 300, 300),
    does("install-agent", Activation, code::HOST, activation::agent).after(&["node-ready", "kubelet-healthy"]),
];

fn is_arc(wish: &Wish) -> bool {
    matches!(wish.config.join, Join::Arc(_))
}

/// The kubelet runs this program for its tokens.
fn has_exec(wish: &Wish) -> bool {
    !matches!(wish.config.join, Join::BootstrapToken(_))
}

/// The identity's rights in the cluster are the agent's to give: it has credentials of its own.
fn grants(wish: &Wish) -> bool {
    has_exec(wish) && wish.config.credentials.is_some() && wish.config.azure.cluster.is_some()
}

fn has_bundle(wish: &Wish) -> bool {
    wish.bundle.is_some()
}

fn has_signed_serving(wish: &Wish) -> bool {
    grants(wish) && wish.config.node.signed_serving
}

/// The server and its authority are asked of Azure, unless the configuration says both.
fn asks_azure(wish: &Wish) -> bool {
    let node = &wish.config.node;
    node.server.is_empty() || node.authority.is_empty()
}

/// What a later run of these steps needs from elsewhere, brought into the cache: nothing that is in use changes. `program` is the
/// one that an upgrade of this program replaces.
pub fn prepare(wish: &Wish, program: &str) -> Vec<Step> {
    let wish = &Arc::new(wish.clone());
    let limit = Retry::times(4, Duration::from_secs(2), Duration::from_secs(600));
    let fetching = programs::PREPARED.iter().map(|&(name, work)| {
        let wish = Arc::clone(wish);
        Step::changes(name, code::INTEGRITY, move |scene| work(&wish, scene))
    });
    let probe = wish.agent.clone().map(|agent| {
        let program = program.to_owned();
        Step::probe("check-program", code::INTEGRITY, move |scene| {
            programs::runs(scene, &agent, &program)
        })
    });
    let bundle = wish.bundle.is_some().then(|| {
        let wish = Arc::clone(wish);
        Step::changes("unpack-bundle", code::INTEGRITY, move |scene| {
            fetch::unpack_bundle(&wish, scene)
        })
    });
    let all = bundle
        .into_iter()
        .chain(fetching.map(|step| step.after(&["unpack-bundle"])))
        .chain(probe);
    all.map(|step| step.within(Duration::from_secs(900)).retrying(limit))
        .collect()
}

/// The programs that an upgrade may change.
pub fn programs_of(wish: &Wish) -> Vec<std::path::PathBuf> {
    let mut all: Vec<std::path::PathBuf> = programs::PLACES.iter().map(Into::into).collect();
    all.extend(wish.agent.is_some().then(|| wish.program[0].clone().into()));
    all
}

/// Every step this configuration asks for.
pub fn steps(wish: &Wish) -> Vec<Step> {
    let wish = &Arc::new(wish.clone());
    let rows = TABLE.iter().filter(|row| (row.wanted)(wish));
    rows.map(|row| step(row, Arc::clone(wish))).collect()
}

fn step(row: &'static Row, wish: Arc<Wish>) -> Step {
    let step = match row.act {
        Act::Change(work) => Step::changes(row.name, row.code, move |scene| work(&wish, scene)),
        Act::Look(work) => Step::probe(row.name, row.code, move |scene| work(&wish, scene)),
    };
    let first: &[&str] = if row.name == FIRST { &[] } else { &[FIRST] };
    step.after(first)
        .after(row.after)
        .within(row.deadline)
        .retrying(row.retry)
}

/// The phase of a step.
pub fn phase_of(step: &str) -> Option<Phase> {
    TABLE
        .iter()
        .find(|row| row.name == step)
        .map(|row| row.phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_step_that_another_waits_for_is_in_the_table_before_it() {
        for (n, row) in TABLE.iter().enumerate() {
            for need in row.after {
                let at = TABLE.iter().position(|other| other.name == *need);
                assert!(at.is_some_and(|at| at < n), "{} waits for {need}", row.name);
            }
        }
    }

    #[test]
    fn the_kubelet_is_written_down_after_containerd_so_that_it_is_undone_before() {
        let needs = |name: &str| {
            TABLE
                .iter()
                .find(|row| row.name == name)
                .map(|row| row.after)
                .unwrap_or_default()
        };
        assert!(needs("start-kubelet").contains(&"containerd-ready"));
        assert!(needs("containerd-ready").contains(&"start-containerd"));
        assert!(needs("configure-kubelet").contains(&"claim-directories"));
        assert_eq!(phase_of("node-ready"), Some(Phase::Activation));
    }
}
