//! Each row is a pod, what the runtime has, and what must follow.

use serde_json::{Value, json};

use super::*;
use crate::seen::Sandbox;

fn pod(spec: Value) -> Pod {
    serde_json::from_value(
        json!({"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}),
    )
    .expect("a pod")
}

fn plain(policy: &str) -> Pod {
    pod(
        json!({"restartPolicy": policy, "containers": [{"name": "a", "image": "i"}, {"name": "b", "image": "i"}]}),
    )
}

fn with_init(policy: &str) -> Pod {
    pod(json!({"restartPolicy": policy,
        "initContainers": [{"name": "i0"}, {"name": "s", "restartPolicy": "Always"}, {"name": "i1"}],
        "containers": [{"name": "a"}]}))
}

fn sandbox(ready: bool) -> Sandbox {
    Sandbox {
        id: "box".into(),
        ready,
        created_at: 1,
        attempt: 0,
        host_network: false,
        ips: vec!["10.0.0.2".into()],
    }
}

fn container(name: &str, state: ContainerState, exit_code: i32) -> seen::Container {
    seen::Container {
        id: format!("id-{name}"),
        name: name.to_owned(),
        sandbox_id: "box".to_owned(),
        state,
        restart_count: 0,
        created_at: 1,
        started_at: 2,
        finished_at: 3,
        exit_code,
        reason: String::new(),
        message: String::new(),
        image: "i".to_owned(),
        image_ref: String::new(),
        hash: String::new(),
        log_path: String::new(),
        message_file: String::new(),
        message_from_log: false,
        limits: None,
    }
}

/// Name, state, exit code.
type Row = (&'static str, ContainerState, i32);

fn seen(containers: &[Row]) -> Seen {
    Seen {
        sandboxes: vec![sandbox(true)],
        containers: containers
            .iter()
            .map(|(name, state, code)| container(name, *state, *code))
            .collect(),
    }
}

fn act(pod: &Pod, seen: &Seen) -> Actions {
    decide(pod, seen, &Verdicts::default(), &BTreeSet::new())
}

use ContainerState::{Created, Exited, Running, Unknown};

#[test]
fn a_new_pod_gets_a_sandbox_and_its_containers() {
    let actions = act(&plain("Always"), &Seen::default());
    assert!(actions.create_sandbox && actions.kill_pod);
    assert_eq!((actions.attempt, actions.main), (0, vec![0, 1]));
    let actions = act(&with_init("Always"), &Seen::default());
    assert_eq!((actions.init, actions.main), (vec![0], vec![]));
}

#[test]
fn what_runs_is_left_alone() {
    let all = seen(&[("a", Running, 0), ("b", Running, 0)]);
    assert_eq!(
        act(&plain("Always"), &all),
        Actions {
            sandbox_id: Some("box".into()),
            ..Actions::default()
        }
    );
}

#[test]
fn what_ended_restarts_as_its_policy_says() {
    let cases = [
        ("Always", 0, vec![0]),
        ("Always", 1, vec![0]),
        ("OnFailure", 0, vec![]),
        ("OnFailure", 1, vec![0]),
        ("Never", 0, vec![]),
        ("Never", 1, vec![]),
    ];
    for (policy, code, expected) in cases {
        let actions = act(
            &plain(policy),
            &seen(&[("a", Exited, code), ("b", Running, 0)]),
        );
        assert_eq!(actions.main, expected, "{policy} {code}");
        assert!(!actions.kill_pod);
    }
}

#[test]
fn when_all_have_ended_for_good_the_pod_is_stopped() {
    let actions = act(
        &plain("Never"),
        &seen(&[("a", Exited, 0), ("b", Exited, 1)]),
    );
    assert!(actions.kill_pod && !actions.create_sandbox);
}

#[test]
fn a_dead_sandbox_is_replaced_unless_nothing_is_to_run_in_it() {
    let mut dead = seen(&[("a", Exited, 0), ("b", Exited, 0)]);
    dead.sandboxes[0].ready = false;
    let actions = act(&plain("Always"), &dead);
    assert!(actions.create_sandbox);
    assert_eq!(actions.attempt, 1);
    assert!(!act(&plain("Never"), &dead).create_sandbox);
    assert!(!act(&plain("OnFailure"), &dead).create_sandbox);
    let mut no_address = seen(&[("a", Running, 0)]);
    no_address.sandboxes[0].ips.clear();
    assert!(act(&plain("Always"), &no_address).create_sandbox);
}

#[test]
fn init_containers_run_one_after_the_other() {
    let cases: [(&[Row], Vec<usize>, Vec<usize>); 7] = [
        (&[], vec![0], vec![]),
        (&[("i0", Running, 0)], vec![], vec![]),
        (&[("i0", Exited, 0)], vec![1], vec![]),
        (&[("i0", Exited, 1)], vec![0], vec![]),
        (&[("i0", Created, 0)], vec![0], vec![]),
        (&[("i0", Exited, 0), ("s", Running, 0)], vec![2], vec![]),
        (
            &[("i0", Exited, 0), ("s", Running, 0), ("i1", Exited, 0)],
            vec![],
            vec![0],
        ),
    ];
    for (state, init, main) in cases {
        let actions = act(&with_init("Always"), &seen(state));
        assert_eq!((actions.init, actions.main), (init, main), "{state:?}");
    }
}

#[test]
fn a_failed_init_container_that_may_not_restart_ends_the_pod() {
    let actions = act(&with_init("Never"), &seen(&[("i0", Exited, 1)]));
    assert!(actions.kill_pod && actions.init.is_empty());
}

#[test]
fn a_sidecar_is_kept_up_whatever_stage_the_pod_is_in() {
    let early = seen(&[("i0", Exited, 0), ("s", Exited, 0), ("i1", Running, 0)]);
    assert_eq!(act(&with_init("Always"), &early).init, [1]);
    let late = seen(&[("s", Exited, 3), ("a", Running, 0)]);
    let actions = act(&with_init("Never"), &late);
    assert_eq!((actions.init, actions.main), (vec![1], vec![]));
    let ended = seen(&[("s", Running, 0), ("a", Exited, 0)]);
    let actions = act(&with_init("Never"), &ended);
    assert!(actions.kill_pod && actions.init.is_empty());
}

#[test]
fn a_sidecar_with_a_startup_probe_is_waited_for() {
    let pod = pod(
        json!({"initContainers": [{"name": "s", "restartPolicy": "Always",
        "startupProbe": {"exec": {"command": ["x"]}}}], "containers": [{"name": "a"}]}),
    );
    let state = seen(&[("s", Running, 0)]);
    assert!(act(&pod, &state).main.is_empty());
    let mut verdicts = Verdicts::default();
    verdicts.startup.insert("id-s".to_owned(), Verdict::Success);
    assert_eq!(decide(&pod, &state, &verdicts, &BTreeSet::new()).main, [0]);
    verdicts.startup.insert("id-s".to_owned(), Verdict::Failure);
    let failed = decide(&pod, &state, &verdicts, &BTreeSet::new());
    assert_eq!(
        failed.kill[0].message,
        "Init container s failed startup probe"
    );
    assert_eq!(failed.init, [0]);
}

#[test]
fn a_failed_liveness_probe_restarts_what_may_restart() {
    let mut verdicts = Verdicts::default();
    verdicts
        .liveness
        .insert("id-a".to_owned(), Verdict::Failure);
    let state = seen(&[("a", Running, 0), ("b", Running, 0)]);
    let actions = decide(&plain("Always"), &state, &verdicts, &BTreeSet::new());
    assert_eq!(
        actions.kill[0].message,
        "Container a failed liveness probe, will be restarted"
    );
    assert_eq!(actions.main, [0]);
    let never = decide(&plain("Never"), &state, &verdicts, &BTreeSet::new());
    assert_eq!(never.kill[0].message, "Container a failed liveness probe");
    assert!(never.main.is_empty());
}

#[test]
fn another_image_is_another_container_but_another_kubelets_hash_is_not() {
    let mut state = seen(&[("a", Running, 0), ("b", Running, 0)]);
    state.containers[0].hash = format!("{OWN_HASH}1234");
    state.containers[1].hash = "5678abcd".to_owned();
    let actions = act(&plain("Always"), &state);
    assert_eq!(actions.kill.len(), 1);
    assert_eq!(
        actions.kill[0].message,
        "Container a definition changed, will be restarted"
    );
    assert_eq!(actions.main, [0]);
}

#[test]
fn a_container_in_an_unknown_state_is_stopped_first() {
    let actions = act(
        &plain("Always"),
        &seen(&[("a", Unknown, 0), ("b", Running, 0)]),
    );
    assert_eq!(actions.kill.len(), 1);
    assert_eq!(actions.main, [0]);
}

#[test]
fn ephemeral_containers_start_once() {
    let pod = pod(json!({"containers": [{"name": "a"}], "ephemeralContainers": [{"name": "e"}]}));
    assert_eq!(act(&pod, &seen(&[("a", Running, 0)])).ephemeral, [0]);
    assert!(
        act(&pod, &seen(&[("a", Running, 0), ("e", Exited, 1)]))
            .ephemeral
            .is_empty()
    );
}

#[test]
fn a_resize_that_needs_a_restart_gets_one() {
    let pod = pod(
        json!({"restartPolicy": "Never", "containers": [{"name": "a"}, {"name": "b"}],
        "initContainers": [{"name": "s", "restartPolicy": "Always"}]}),
    );
    let state = seen(&[("s", Running, 0), ("a", Running, 0), ("b", Running, 0)]);
    let resized = ["a", "s"].map(str::to_owned).into();
    let actions = decide(&pod, &state, &Verdicts::default(), &resized);
    let killed: Vec<&str> = actions.kill.iter().map(|k| k.message.as_str()).collect();
    assert_eq!(
        killed,
        [
            "Container s resize requires restart",
            "Container a resize requires restart"
        ]
    );
    assert_eq!((actions.init, actions.main), (vec![0], vec![0]));
}
