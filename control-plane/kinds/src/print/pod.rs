//! Pods. The status cell sums up what the containers are doing (upstream's `printPod`).

use jiff::Timestamp;
use kube_kit::duration;
use serde_json::Value;

use super::column::{AGE, NAME, text, wide};
use super::row::{self, Row, int, is_set, is_true, list};
use super::{Column, Printer};

pub(super) const PRINTERS: [Printer; 1] = [Printer("", "Pod", &COLUMNS, cells)];

const COLUMNS: [Column; 9] = [
    NAME,
    text("Ready", "Ready containers and all containers."),
    text("Status", "What the pod's containers are doing."),
    text("Restarts", "How often containers restarted, and when last."),
    AGE,
    wide("IP", "First address of the pod."),
    wide("Node", "Node the pod runs on."),
    wide(
        "Nominated Node",
        "Node where room is being made for the pod.",
    ),
    wide(
        "Readiness Gates",
        "Readiness gates that are met and all of them.",
    ),
];

fn cells(row: &Row<'_>) -> Vec<Value> {
    let summary = Summary::of(row.object);
    let restarts = match summary.restarts {
        Restarts {
            count,
            last: Some(last),
        } if count != 0 => {
            format!(
                "{count} ({} ago)",
                duration::human(row.now.duration_since(last))
            )
        }
        Restarts { count, .. } => count.to_string(),
    };
    vec![
        row.name(),
        format!("{}/{}", summary.ready, summary.total).into(),
        summary.reason.into(),
        restarts.into(),
        row.age(),
        row::non_empty(pod_ip(row), "<none>").into(),
        row.text_or("/spec/nodeName", "<none>"),
        row.text_or("/status/nominatedNodeName", "<none>"),
        readiness_gates(row).into(),
    ]
}

// The single address wins over the list, as when upstream reads a pod.
fn pod_ip<'a>(row: &Row<'a>) -> &'a str {
    row::non_empty(row.text("/status/podIP"), row.text("/status/podIPs/0/ip"))
}

fn readiness_gates(row: &Row<'_>) -> String {
    let gates = row.list("/spec/readinessGates");
    if gates.is_empty() {
        return "<none>".to_owned();
    }
    let conditions = row.list("/status/conditions");
    let met = gates
        .iter()
        .filter(|gate| is_true(conditions, row::text(gate, "/conditionType")))
        .count();
    format!("{met}/{}", gates.len())
}

/// Restarts and the newest time at which a container ended before it was started again.
#[derive(Clone, Copy, Default)]
struct Restarts {
    count: i64,
    last: Option<Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += int(container, "/restartCount");
        let ended = row::text(container, "/lastState/terminated/finishedAt")
            .parse()
            .ok();
        self.last = self.last.max(ended);
    }
}

/// What the cells of a pod are made of.
struct Summary {
    ready: usize,
    total: usize,
    reason: String,
    restarts: Restarts,
}

impl Summary {
    fn of(pod: &Value) -> Summary {
        let conditions = list(pod, "/status/conditions");
        let sidecars = list(pod, "/spec/initContainers")
            .iter()
            .filter(|c| is_restartable(c))
            .count();
        let mut summary = Summary {
            ready: 0,
            total: list(pod, "/spec/containers").len() + sidecars,
            reason: starting_reason(pod),
            restarts: Restarts::default(),
        };
        let (initialized, sidecar_restarts) = summary.add_init_containers(pod);
        if initialized || is_true(conditions, "Initialized") {
            summary.restarts = sidecar_restarts;
            summary.add_containers(pod, is_true(conditions, "Ready"));
        }
        summary.apply_deletion(pod);
        summary
    }

    /// Goes through the init containers up to the first that is not done, whose state becomes the
    /// reason. Gives whether all are done, and the restarts of the sidecars seen.
    fn add_init_containers(&mut self, pod: &Value) -> (bool, Restarts) {
        let total = list(pod, "/spec/initContainers").len();
        let mut sidecars = Restarts::default();
        for (i, container) in list(pod, "/status/initContainerStatuses")
            .iter()
            .enumerate()
        {
            self.restarts.add(container);
            let is_sidecar = is_sidecar(pod, container);
            if is_sidecar {
                sidecars.add(container);
            }
            if is_set(container, "/state/terminated")
                && int(container, "/state/terminated/exitCode") == 0
            {
                continue;
            }
            if is_sidecar && row::flag(container, "/started") {
                self.ready += usize::from(row::flag(container, "/ready"));
                continue;
            }
            self.reason = init_reason(container).unwrap_or_else(|| format!("Init:{i}/{total}"));
            return (false, sidecars);
        }
        (true, sidecars)
    }

    /// Goes through the containers from the last to the first: the first one's state wins.
    fn add_containers(&mut self, pod: &Value, pod_is_ready: bool) {
        let mut running = false;
        let mut failure = None;
        for container in list(pod, "/status/containerStatuses").iter().rev() {
            self.restarts.add(container);
            if !row::text(container, "/state/waiting/reason").is_empty() {
                self.reason = row::text(container, "/state/waiting/reason").to_owned();
            } else if is_set(container, "/state/terminated") {
                self.reason = ended_reason(container);
                if int(container, "/state/terminated/exitCode") != 0 {
                    failure = Some(self.reason.clone());
                }
            } else if row::flag(container, "/ready") && is_set(container, "/state/running") {
                running = true;
                self.ready += 1;
            }
        }
        // One finished container does not make a finished pod.
        if self.reason == "Completed" {
            self.reason = match failure {
                _ if running && pod_is_ready => "Running".to_owned(),
                Some(failure) => failure,
                None if running => "NotReady".to_owned(),
                None => return,
            };
        }
    }

    fn apply_deletion(&mut self, pod: &Value) {
        if !is_set(pod, "/metadata/deletionTimestamp") {
            return;
        }
        if row::text(pod, "/status/reason") == "NodeLost" {
            self.reason = "Unknown".to_owned();
        } else if !matches!(row::text(pod, "/status/phase"), "Succeeded" | "Failed") {
            self.reason = "Terminating".to_owned();
        }
    }
}

fn starting_reason(pod: &Value) -> String {
    let scheduled = list(pod, "/status/conditions")
        .iter()
        .filter(|c| row::text(c, "/type") == "PodScheduled");
    if scheduled
        .into_iter()
        .any(|c| row::text(c, "/reason") == "SchedulingGated")
    {
        return "SchedulingGated".to_owned();
    }
    row::non_empty(
        row::text(pod, "/status/reason"),
        row::text(pod, "/status/phase"),
    )
    .to_owned()
}

fn is_restartable(container: &Value) -> bool {
    row::text(container, "/restartPolicy") == "Always"
}

/// Whether a status belongs to a sidecar: an init container that keeps running.
fn is_sidecar(pod: &Value, status: &Value) -> bool {
    let name = row::text(status, "/name");
    let container = list(pod, "/spec/initContainers")
        .iter()
        .rfind(|c| row::text(c, "/name") == name);
    container.is_some_and(is_restartable)
}

fn init_reason(container: &Value) -> Option<String> {
    if is_set(container, "/state/terminated") {
        return Some(format!("Init:{}", ended_reason(container)));
    }
    match row::text(container, "/state/waiting/reason") {
        "" | "PodInitializing" => None,
        reason => Some(format!("Init:{reason}")),
    }
}

fn ended_reason(container: &Value) -> String {
    match (
        row::text(container, "/state/terminated/reason"),
        int(container, "/state/terminated/signal"),
    ) {
        ("", 0) => format!("ExitCode:{}", int(container, "/state/terminated/exitCode")),
        ("", signal) => format!("Signal:{signal}"),
        (reason, _) => reason.to_owned(),
    }
}
