//! Each row is a pod, what the runtime has, and the phase and conditions that follow.

use serde_json::{Value, json};

use super::*;
use crate::cri::ContainerState;
use crate::seen::{Container, Sandbox};
use ContainerState::{Created, Exited, Running};

fn pod(spec: Value, status: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 3}, "spec": spec, "status": status,
    }))
    .expect("a pod")
}

fn container(name: &str, state: ContainerState, exit_code: i32) -> Container {
    Container {
        id: format!("id-{name}"),
        name: name.to_owned(),
        sandbox_id: "box".to_owned(),
        state,
        restart_count: 2,
        created_at: 1_000_000_000,
        started_at: 2_000_000_000,
        finished_at: 3_000_000_000,
        exit_code,
        reason: if exit_code == 0 { "Completed" } else { "Error" }.to_owned(),
        message: String::new(),
        image: "i".to_owned(),
        image_ref: "sha256:1".to_owned(),
        hash: String::new(),
        log_path: String::new(),
        message_file: String::new(),
        message_from_log: false,
        limits: None,
    }
}

/// Name, state, exit code.
type Row = (&'static str, ContainerState, i32);

struct Case {
    pod: Pod,
    seen: Seen,
    waiting: BTreeMap<String, Waiting>,
    verdicts: Verdicts,
    readiness: BTreeMap<String, Verdict>,
    terminating: bool,
    terminal: bool,
    ending: Option<Ending>,
}

impl Case {
    fn new(spec: Value, containers: &[Row]) -> Case {
        let containers = containers
            .iter()
            .map(|(name, state, code)| container(name, *state, *code))
            .collect();
        let sandbox = Sandbox {
            id: "box".to_owned(),
            ready: true,
            ips: vec!["10.0.0.2".to_owned()],
            ..Sandbox::default()
        };
        Case {
            pod: pod(spec, json!({})),
            seen: Seen {
                sandboxes: vec![sandbox],
                containers,
            },
            waiting: BTreeMap::new(),
            verdicts: Verdicts::default(),
            readiness: BTreeMap::new(),
            terminating: false,
            terminal: false,
            ending: None,
        }
    }

    fn status(&self) -> PodStatus {
        generate(&Facts {
            pod: &self.pod,
            seen: &self.seen,
            waiting: &self.waiting,
            verdicts: &self.verdicts,
            readiness: &self.readiness,
            messages: &BTreeMap::from([("id-a".to_owned(), "last words".to_owned())]),
            terminating: self.terminating,
            terminal: self.terminal,
            ending: self.ending.as_ref(),
            host_ips: &["192.168.0.1".to_owned()],
            actuated: &PodResources::default(),
            resizes: &[],
            now: Timestamp::from_second(100).expect("a time"),
        })
    }

    fn phase(&self) -> String {
        self.status().phase.expect("a phase")
    }
}

fn two(policy: &str) -> Value {
    json!({"restartPolicy": policy, "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]})
}

fn condition(status: &PodStatus, kind: &str) -> (String, Option<String>, Option<String>) {
    let all = status.conditions.as_deref().unwrap_or_default();
    let found = all.iter().find(|c| c.type_ == kind).expect("the condition");
    (
        found.status.clone(),
        found.reason.clone(),
        found.message.clone(),
    )
}

#[test]
fn phases_follow_the_containers() {
    let cases: [(&str, &[Row], bool, &str); 10] = [
        ("Always", &[], false, "Pending"),
        ("Always", &[("a", Running, 0)], false, "Pending"),
        (
            "Always",
            &[("a", Created, 0), ("b", Running, 0)],
            false,
            "Pending",
        ),
        (
            "Always",
            &[("a", Running, 0), ("b", Running, 0)],
            false,
            "Running",
        ),
        (
            "Always",
            &[("a", Exited, 1), ("b", Exited, 1)],
            false,
            "Running",
        ),
        (
            "OnFailure",
            &[("a", Exited, 0), ("b", Exited, 0)],
            false,
            "Succeeded",
        ),
        (
            "OnFailure",
            &[("a", Exited, 0), ("b", Exited, 1)],
            false,
            "Running",
        ),
        (
            "Never",
            &[("a", Exited, 0), ("b", Exited, 1)],
            false,
            "Failed",
        ),
        (
            "Never",
            &[("a", Exited, 0), ("b", Running, 0)],
            false,
            "Running",
        ),
        (
            "Always",
            &[("a", Exited, 0), ("b", Exited, 0)],
            true,
            "Succeeded",
        ),
    ];
    for (policy, containers, ending, expected) in cases {
        let mut case = Case::new(two(policy), containers);
        case.terminating = ending;
        case.terminal = ending;
        assert_eq!(case.phase(), expected, "{policy} {containers:?}");
    }
}

#[test]
fn a_phase_that_is_over_stays_over() {
    let mut case = Case::new(two("Always"), &[("a", Running, 0), ("b", Running, 0)]);
    case.pod.status = serde_json::from_value(json!({"phase": "Failed", "reason": "Evicted"})).ok();
    let status = case.status();
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Failed"), Some("Evicted"))
    );
}

#[test]
fn an_end_that_is_put_to_a_pod_waits_for_its_containers() {
    let mut case = Case::new(two("Always"), &[("a", Running, 0), ("b", Running, 0)]);
    case.pod.status = serde_json::from_value(json!({"phase": "Running"})).ok();
    case.terminating = true;
    case.ending = Some(Ending {
        reason: "Evicted".into(),
        message: "m".into(),
        disruption: true,
    });
    assert_eq!(case.phase(), "Running");
    case.seen.containers = vec![container("a", Exited, 137), container("b", Exited, 137)];
    case.terminal = true;
    let status = case.status();
    assert_eq!(
        (status.phase.as_deref(), status.reason.as_deref()),
        (Some("Failed"), Some("Evicted"))
    );
    assert_eq!(
        condition(&status, "DisruptionTarget").1.as_deref(),
        Some("TerminationByKubelet")
    );
    assert_eq!(condition(&status, "Ready").1.as_deref(), Some("PodFailed"));
}

#[test]
fn init_containers_hold_the_pod_pending_or_fail_it() {
    let spec = |policy: &str| json!({"restartPolicy": policy, "initContainers": [{"name": "i"}], "containers": [{"name": "a"}]});
    let running = Case::new(spec("Always"), &[("i", Running, 0)]);
    assert_eq!(running.phase(), "Pending");
    let status = running.status();
    let (holds, reason, message) = condition(&status, "Initialized");
    assert_eq!(
        (holds.as_str(), reason.as_deref()),
        ("False", Some("ContainersNotInitialized"))
    );
    assert_eq!(
        message.as_deref(),
        Some("containers with incomplete status: [i]")
    );
    let main = &status.container_statuses.expect("statuses")[0];
    let waiting = main
        .state
        .as_ref()
        .and_then(|s| s.waiting.as_ref())
        .expect("it waits");
    assert_eq!(waiting.reason.as_deref(), Some("PodInitializing"));
    assert_eq!(
        Case::new(spec("Never"), &[("i", Exited, 1)]).phase(),
        "Failed"
    );
    assert_eq!(
        Case::new(spec("Always"), &[("i", Exited, 1)]).phase(),
        "Pending"
    );
    let done = Case::new(spec("Never"), &[("i", Exited, 0), ("a", Running, 0)]).status();
    assert_eq!(condition(&done, "Initialized").0, "True");
    assert_eq!(done.phase.as_deref(), Some("Running"));
}

#[test]
fn readiness_needs_every_container_and_gate() {
    let mut spec = two("Always");
    spec["containers"][0]["readinessProbe"] = json!({"tcpSocket": {"port": 1}});
    spec["readinessGates"] = json!([{"conditionType": "lb"}]);
    let mut case = Case::new(spec, &[("a", Running, 0), ("b", Running, 0)]);
    let (holds, reason, message) = condition(&case.status(), "Ready");
    assert_eq!(
        (holds.as_str(), reason.as_deref()),
        ("False", Some("ContainersNotReady"))
    );
    assert_eq!(
        message.as_deref(),
        Some("containers with unready status: [a]")
    );
    case.readiness.insert("id-a".to_owned(), Verdict::Success);
    let status = case.status();
    assert_eq!(condition(&status, "ContainersReady").0, "True");
    assert_eq!(
        condition(&status, "Ready").1.as_deref(),
        Some("ReadinessGatesNotReady")
    );
    case.pod.status =
        serde_json::from_value(json!({"conditions": [{"type": "lb", "status": "True"}]})).ok();
    let status = case.status();
    assert_eq!(condition(&status, "Ready").0, "True");
    assert_eq!(condition(&status, "lb").0, "True");
}

#[test]
fn a_crash_loop_shows_why_it_waits_and_how_it_ended() {
    let mut case = Case::new(two("Always"), &[("a", Exited, 1), ("b", Running, 0)]);
    let waiting = Waiting {
        reason: "CrashLoopBackOff".into(),
        message: "back-off 10s".into(),
    };
    case.waiting.insert("a".to_owned(), waiting);
    let status = case.status();
    assert_eq!(status.phase.as_deref(), Some("Running"));
    let found = &status.container_statuses.expect("statuses")[0];
    let waiting = found
        .state
        .as_ref()
        .and_then(|s| s.waiting.as_ref())
        .expect("it waits");
    assert_eq!(waiting.reason.as_deref(), Some("CrashLoopBackOff"));
    let last = found
        .last_state
        .as_ref()
        .and_then(|s| s.terminated.as_ref())
        .expect("it ended");
    assert_eq!(
        (last.exit_code, last.message.as_deref()),
        (1, Some("last words"))
    );
    assert_eq!(found.restart_count, 2);
    assert!(!found.ready);
}

#[test]
fn what_the_runtime_lost_is_said_to_be_lost() {
    let mut case = Case::new(two("Always"), &[("b", Running, 0)]);
    case.pod.status =
        serde_json::from_value(json!({"containerStatuses": [{"name": "a", "ready": true,
        "restartCount": 4, "image": "i", "imageID": "", "state": {"running": {}}}]}))
        .ok();
    let status = case.status();
    let found = &status.container_statuses.expect("statuses")[0];
    assert_eq!(found.restart_count, 5);
    let last = found
        .last_state
        .as_ref()
        .and_then(|s| s.terminated.as_ref())
        .expect("it ended");
    assert_eq!(
        (last.exit_code, last.reason.as_deref()),
        (137, Some("ContainerStatusUnknown"))
    );
}

#[test]
fn addresses_stay_when_the_sandbox_goes() {
    let mut case = Case::new(two("Never"), &[]);
    let status = case.status();
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.2"));
    assert_eq!(status.host_ip.as_deref(), Some("192.168.0.1"));
    assert_eq!(status.observed_generation, Some(3));
    case.pod.status = Some(status);
    case.seen = Seen::default();
    assert_eq!(case.status().pod_ip.as_deref(), Some("10.0.0.2"));
}
