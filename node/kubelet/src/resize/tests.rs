//! Each row is what a container had, what it gets, and what follows.

use serde_json::{Value, json};

use super::*;
use crate::seen::Sandbox;

fn pod(containers: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u", "generation": 2},
        "spec": {"containers": containers},
    }))
    .expect("a pod")
}

fn sized(name: &str, cpu: &str, memory: &str) -> Value {
    json!({"name": name, "resources": {
        "requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}}})
}

fn seen(names: &[&str]) -> Seen {
    let container = |name: &&str| seen::Container {
        id: format!("id-{name}"),
        name: (*name).to_owned(),
        sandbox_id: "box".to_owned(),
        state: ContainerState::Running,
        ..seen::Container::default()
    };
    Seen {
        sandboxes: vec![Sandbox {
            id: "box".to_owned(),
            ready: true,
            ..Sandbox::default()
        }],
        containers: names.iter().map(container).collect(),
    }
}

fn names(updates: &[Update]) -> Vec<&str> {
    updates.iter().map(|u| u.name.as_str()).collect()
}

#[test]
fn what_gets_less_goes_first_and_the_rest_is_left_alone() {
    let before = pod(json!([
        sized("grows", "100m", "64Mi"),
        sized("shrinks", "300m", "64Mi"),
        sized("stays", "100m", "64Mi"),
        sized("moves", "100m", "128Mi"),
    ]));
    let after = pod(json!([
        sized("grows", "200m", "64Mi"),
        sized("shrinks", "100m", "64Mi"),
        sized("stays", "0.1", "65536Ki"),
        sized("moves", "100m", "64Mi"),
    ]));
    let actuated = PodResources::of(&before);
    let running = seen(&["grows", "shrinks", "stays", "moves"]);
    let found = plan(&after, &actuated, &running);
    assert_eq!(names(&found.cpu), ["shrinks", "grows"]);
    assert_eq!(names(&found.memory), ["moves"]);
    assert_eq!(found.memory[0].lower_memory, Some(64 << 20));
    assert!(found.pod && found.restart.is_empty());
    assert!(is_in_progress(&after, &actuated, &running));
    assert!(plan(&before, &actuated, &running).is_empty());
    assert!(!is_in_progress(&before, &actuated, &running));
}

#[test]
fn containers_that_do_not_run_wait_for_their_start() {
    let actuated = PodResources::of(&pod(json!([sized("a", "100m", "64Mi")])));
    let after = pod(json!([sized("a", "200m", "64Mi")]));
    let found = plan(&after, &actuated, &seen(&[]));
    assert!(found.pod && found.cpu.is_empty());
    assert!(!is_in_progress(&after, &actuated, &seen(&[])));
    // A container of which nothing was noted is left as it is.
    assert!(plan(&after, &PodResources::default(), &seen(&["a"])).is_empty());
}

#[test]
fn a_policy_restarts_only_for_its_resource() {
    let mut after = sized("a", "200m", "64Mi");
    after["resizePolicy"] = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"},
        {"resourceName": "cpu", "restartPolicy": "NotRequired"}]);
    for (cpu, memory, restarts) in [("100m", "64Mi", false), ("200m", "32Mi", true)] {
        let actuated = PodResources::of(&pod(json!([sized("a", cpu, memory)])));
        let found = plan(&pod(json!([after.clone()])), &actuated, &seen(&["a"]));
        assert_eq!(found.restart.contains("a"), restarts, "{cpu} {memory}");
        assert_eq!(found.cpu.is_empty(), restarts);
    }
}

#[test]
fn a_node_grants_defers_or_refuses_in_upstreams_words() {
    let allocatable = BTreeMap::from([("cpu".to_owned(), 2000), ("memory".to_owned(), 1 << 30)]);
    let other = pod(json!([sized("o", "1500m", "64Mi")]));
    let cases = [
        ("500m", Verdict::Granted),
        (
            "600m",
            Verdict::Deferred(
                "Node didn't have enough resource: cpu, requested: 600, used: 1500, capacity: 2000"
                    .to_owned(),
            ),
        ),
        (
            "3",
            Verdict::Infeasible(
                "Node didn't have enough capacity: cpu, requested: 3000, capacity: 2000".to_owned(),
            ),
        ),
    ];
    for (cpu, verdict) in cases {
        let pod = pod(json!([sized("a", cpu, "64Mi")]));
        assert_eq!(judge(&pod, &[&other], &allocatable), verdict, "{cpu}");
    }
}

#[test]
fn those_that_take_nothing_come_first_then_the_important_then_the_patient() {
    let second = |n| Timestamp::from_second(n).ok();
    let with = |cpu: &str, priority: i32| {
        let mut pod = pod(json!([sized("a", cpu, "64Mi")]));
        pod.spec.as_mut().expect("a spec").priority = Some(priority);
        pod
    };
    let small = with("100m", 0);
    let shrinks = turn(&small, &with("200m", 0), second(9));
    let patient = turn(&with("200m", 0), &small, second(1));
    let late = turn(&with("200m", 0), &small, second(2));
    let important = turn(&with("200m", 5), &small, second(3));
    assert!(shrinks < important && important < patient && patient < late);
}

#[test]
fn a_step_changes_one_resource_and_keeps_the_other() {
    let requirements = |value: Value| serde_json::from_value(value).expect("requirements");
    let had: ResourceRequirements =
        requirements(json!({"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "1"}}));
    let gets = requirements(json!({"limits": {"cpu": "2", "memory": "2Gi"}}));
    let memory = step(Resource::Memory, &had, &gets);
    assert_eq!(
        memory,
        requirements(json!({"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "1"}}))
    );
    assert_eq!(step(Resource::Cpu, &memory, &gets), gets);
}

#[test]
fn a_status_tells_what_the_runtime_has_and_otherwise_what_it_accepted() {
    let requirements = |cpu: &str, memory: &str| -> ResourceRequirements {
        serde_json::from_value(json!({"requests": {"cpu": cpu, "memory": memory},
            "limits": {"cpu": cpu, "memory": memory}}))
        .expect("requirements")
    };
    let (allocated, accepted) = (requirements("500m", "64Mi"), requirements("250m", "32Mi"));
    assert_eq!(in_effect(&allocated, Some(&accepted), None), accepted);
    assert_eq!(in_effect(&allocated, None, None), allocated);
    // What the kernel does not tell apart is told as it was asked for.
    let same = seen::Limits {
        cpu_shares: 256,
        cpu_quota: 25_000,
        memory: 32 << 20,
    };
    assert_eq!(
        in_effect(&allocated, Some(&accepted), Some(&same)),
        accepted
    );
    let other = seen::Limits {
        cpu_shares: 512,
        cpu_quota: 50_000,
        memory: 1000,
    };
    let told = in_effect(&allocated, Some(&accepted), Some(&other));
    let limits = told.limits.expect("limits");
    assert_eq!(
        (limits["cpu"].0.as_str(), limits["memory"].0.as_str()),
        ("500m", "1000")
    );
    assert_eq!(told.requests.expect("requests")["cpu"].0, "500m");
}

#[test]
fn a_container_that_asks_for_no_cpu_is_told_to_have_none() {
    let allocated: ResourceRequirements =
        serde_json::from_value(json!({"requests": {"memory": "35Mi"}})).expect("requirements");
    let least = seen::Limits {
        cpu_shares: 2,
        ..seen::Limits::default()
    };
    let told = in_effect(&allocated, Some(&allocated), Some(&least));
    assert_eq!(told, allocated);
}

#[test]
fn events_carry_the_resources_as_upstream_writes_them() {
    let pod = pod(json!([{"name": "a", "resources": {"requests": {"cpu": "1"}}}]));
    assert_eq!(
        event("Pod resize started", &pod, Some(2), ""),
        r#"Pod resize started: {"containers":[{"name":"a","resources":{"requests":{"cpu":"1"}}}],"generation":2}"#
    );
}
