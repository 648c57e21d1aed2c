//! What is kept of a pod.

use std::net::IpAddr;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// How long the containers of a pod run before they end by themselves, in seconds.
const RUN_SECONDS: &str = "hollow.kyanite.dev/run-seconds";
/// What they end with.
const EXIT_CODE: &str = "hollow.kyanite.dev/exit-code";
/// How long they take to stop when they are asked to, in seconds; at most their grace period.
const STOP_SECONDS: &str = "hollow.kyanite.dev/stop-seconds";
/// How long the pods of a job run that say nothing about it.
const JOB_RUNS: Duration = Duration::from_secs(1);

/// A pod of one of our nodes, by what counts on paper.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resident {
    pub(crate) uid: String,
    /// The number of its node.
    pub(crate) node: usize,
    pub(crate) generation: Option<i64>,
    pub(crate) is_on_host_network: bool,
    pub(crate) restarts: Restarts,
    pub(crate) containers: Vec<Part>,
    pub(crate) init_containers: Vec<Part>,
    pub(crate) gates: Vec<String>,
    pub(crate) conditions: Vec<(String, bool)>,
    pub(crate) phase: Phase,
    pub(crate) start: Option<Timestamp>,
    /// When its containers were last started, and how often they were started again.
    pub(crate) running_since: Option<Timestamp>,
    pub(crate) restart_count: i32,
    pub(crate) addresses: Vec<IpAddr>,
    pub(crate) deletion: Option<Deletion>,
    /// When its containers end by themselves, if they do, and how.
    pub(crate) run: Option<Duration>,
    pub(crate) exit_code: i32,
    pub(crate) stop: Duration,
}

/// A container by name and image; `stays` if it is a sidecar among the init containers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) name: String,
    pub(crate) image: String,
    pub(crate) stays: bool,
}

/// When containers that end are started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Restarts {
    Always,
    OnFailure,
    Never,
}

/// How far a pod is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Phase {
    Pending,
    Running,
    Ended,
}

/// When a pod was deleted, and how long it may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deletion {
    /// When its time is over.
    pub(crate) due: Timestamp,
    pub(crate) grace: i64,
}

impl Resident {
    /// What is kept of a pod; nothing of one that is not on our nodes.
    pub(crate) fn of(pod: Pod, number: impl Fn(&str) -> Option<usize>) -> Option<Resident> {
        let (meta, spec) = (pod.metadata, pod.spec?);
        let node = number(spec.node_name.as_deref()?)?;
        let status = pod.status.unwrap_or_default();
        let (run, exit_code, stop) = script(&meta);
        let (running_since, restart_count) = last_start(&status);
        Some(Resident {
            node,
            run,
            exit_code,
            stop,
            running_since,
            restart_count,
            generation: meta.generation,
            is_on_host_network: spec.host_network == Some(true),
            restarts: match spec.restart_policy.as_deref() {
                Some("Never") => Restarts::Never,
                Some("OnFailure") => Restarts::OnFailure,
                _ => Restarts::Always,
            },
            containers: parts(spec.containers),
            init_containers: parts(spec.init_containers.unwrap_or_default()),
            gates: spec
                .readiness_gates
                .into_iter()
                .flatten()
                .map(|gate| gate.condition_type)
                .collect(),
            conditions: conditions(status.conditions.as_deref()),
            phase: match status.phase.as_deref() {
                Some("Succeeded" | "Failed") => Phase::Ended,
                Some("Running") => Phase::Running,
                _ => Phase::Pending,
            },
            addresses: addresses(&status),
            start: status.start_time.map(|at| at.0),
            deletion: meta.deletion_timestamp.map(|due| Deletion {
                due: due.0,
                grace: meta.deletion_grace_period_seconds.unwrap_or(0),
            }),
            uid: meta.uid?,
        })
    }

    /// Whether a condition is true.
    pub(crate) fn is(&self, condition: &str) -> bool {
        self.conditions
            .iter()
            .any(|(kind, is)| kind == condition && *is)
    }
}

fn script(meta: &ObjectMeta) -> (Option<Duration>, i32, Duration) {
    let text = |name: &str| meta.annotations.as_ref().and_then(|all| all.get(name));
    let seconds = |name: &str| Some(Duration::from_secs(text(name)?.parse().ok()?));
    let mut owners = meta.owner_references.iter().flatten();
    let of_job = owners.any(|owner| owner.kind == "Job").then_some(JOB_RUNS);
    let run = match text(RUN_SECONDS) {
        Some(_) => seconds(RUN_SECONDS),
        None => of_job,
    };
    let exit_code = text(EXIT_CODE).and_then(|code| code.parse().ok());
    (
        run,
        exit_code.unwrap_or(0),
        seconds(STOP_SECONDS).unwrap_or_default(),
    )
}

fn parts(containers: Vec<Container>) -> Vec<Part> {
    containers
        .into_iter()
        .map(|container| Part {
            name: container.name,
            image: container.image.unwrap_or_default(),
            stays: container.restart_policy.as_deref() == Some("Always"),
        })
        .collect()
}

fn conditions(conditions: Option<&[PodCondition]>) -> Vec<(String, bool)> {
    let conditions = conditions.unwrap_or_default().iter();
    conditions
        .map(|condition| (condition.type_.clone(), condition.status == "True"))
        .collect()
}

fn addresses(status: &PodStatus) -> Vec<IpAddr> {
    let addresses = status.pod_ips.iter().flatten();
    addresses.filter_map(|ip| ip.ip.parse().ok()).collect()
}

fn last_start(status: &PodStatus) -> (Option<Timestamp>, i32) {
    let first = status.container_statuses.iter().flatten().next();
    let running = first
        .and_then(|first| first.state.as_ref())
        .and_then(|state| state.running.as_ref())
        .and_then(|running| running.started_at.as_ref());
    (
        running.map(|at| at.0),
        first.map_or(0, |first| first.restart_count),
    )
}
