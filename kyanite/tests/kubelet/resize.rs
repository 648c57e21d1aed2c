//! Pods that get other resources while they run: what the kernel is told, what the pod's status says, and who waits.

use harness::eventually;
use serde_json::{Value, json};

use crate::place::{IMAGE, Place};
use crate::{READY, expect, pod};

fn sized(script: &str, resources: Value, extra: Value) -> Value {
    let mut container = json!({"name": "main", "image": IMAGE, "imagePullPolicy": "Never",
        "command": ["/busybox", "sh", "-c", script], "resources": resources});
    for (key, value) in extra.as_object().expect("an object") {
        container[key] = value.clone();
    }
    json!({"containers": [container]})
}

fn both(cpu: &str, memory: &str) -> Value {
    json!({"requests": {"cpu": cpu, "memory": memory}, "limits": {"cpu": cpu, "memory": memory}})
}

const SLEEP: &str = "exec /busybox sleep 100000";

fn resize(place: &Place, name: &str, resources: Value) {
    let patch = json!({"spec": {"containers": [{"name": "main", "resources": resources}]}});
    let flags = ["patch", "pod", name, "--subresource=resize", "--patch"];
    let patch = patch.to_string();
    let words: Vec<&str> = flags.into_iter().chain([patch.as_str()]).collect();
    place.kubectl(&words).expect("it may be resized");
}

fn field(place: &Place, name: &str, path: &str) -> String {
    let path = format!("-ojsonpath={path}");
    let found = place.kubectl(&["get", "pod", name, &path]);
    found.expect("there is such a pod")
}

fn condition(kind: &str, field: &str) -> String {
    format!("{{.status.conditions[?(@.type==\"{kind}\")].{field}}}")
}

fn said(place: &Place, name: &str, reason: &str, words: &str) {
    eventually(&format!("{name}: {reason} says {words}"), || {
        let of_pod = format!("--field-selector=involvedObject.name={name},reason={reason}");
        let said = place.kubectl(&["get", "events", &of_pod, "-ojsonpath={.items[*].message}"])?;
        if said.contains(words) {
            Ok(())
        } else {
            Err(said)
        }
    });
}

/// What the kernel lets the pod use and its container: quota and bytes of each.
fn allowed(place: &Place, name: &str) -> [(String, String); 2] {
    let uid = field(place, name, "{.metadata.uid}");
    let id = field(place, name, "{.status.containerStatuses[0].containerID}");
    let id = id.trim_start_matches("containerd://");
    let of = |path: &str| {
        let quota = place.cgroup(path, "cpu", &["cpu.cfs_quota_us", "cpu.max"]);
        let quota = quota.split(' ').next().unwrap_or_default().to_owned();
        let memory = place.cgroup(path, "memory", &["memory.limit_in_bytes", "memory.max"]);
        (quota, memory)
    };
    [of(&format!("pod{uid}")), of(&format!("pod{uid}/{id}"))]
}

fn has(place: &Place, name: &str, milli: u64, mebibytes: u64) {
    let wanted = ((milli * 100).to_string(), (mebibytes << 20).to_string());
    eventually(&format!("{name} has {wanted:?}"), || {
        let found = allowed(place, name);
        if found == [wanted.clone(), wanted.clone()] {
            Ok(())
        } else {
            Err(format!("pod and container have {found:?}"))
        }
    });
}

#[test]
fn a_pod_is_resized_while_it_runs_and_its_status_says_what_is_true() {
    let Some(mut place) = Place::open() else {
        return;
    };
    place.start_kubelet();
    grows_and_shrinks_without_a_restart(&place);
    restarts_where_its_policy_says_so(&place);
    keeps_memory_that_is_in_use(&place);
    waits_for_room_and_outlives_its_kubelet(&mut place);
}

fn grows_and_shrinks_without_a_restart(place: &Place) {
    place.create(&pod("sized", sized(SLEEP, both("100m", "64Mi"), json!({}))));
    expect(place, "sized", READY, "True");
    has(place, "sized", 100, 64);
    let before = field(place, "sized", "{.status.containerStatuses[0].containerID}");
    for (milli, mebibytes) in [(200, 96), (50, 80), (150, 32)] {
        let (cpu, memory) = (format!("{milli}m"), format!("{mebibytes}Mi"));
        resize(place, "sized", both(&cpu, &memory));
        has(place, "sized", milli, mebibytes);
        for (path, wanted) in [
            ("resources.limits.cpu", &cpu),
            ("resources.requests.memory", &memory),
            ("allocatedResources.cpu", &cpu),
            ("allocatedResources.memory", &memory),
        ] {
            let path = format!("{{.status.containerStatuses[0].{path}}}");
            expect(place, "sized", &path, wanted);
        }
        for kind in ["PodResizePending", "PodResizeInProgress"] {
            expect(place, "sized", &condition(kind, "status"), "");
        }
    }
    assert_eq!(
        field(place, "sized", "{.status.containerStatuses[0].containerID}"),
        before
    );
    said(
        place,
        "sized",
        "ResizeStarted",
        "Pod resize started: {\"containers\":[{",
    );
    said(
        place,
        "sized",
        "ResizeCompleted",
        "Pod resize completed: {\"containers\":[{",
    );
    let generation = field(place, "sized", "{.metadata.generation}");
    expect(place, "sized", "{.status.observedGeneration}", &generation);
    place.delete("sized");
}

fn restarts_where_its_policy_says_so(place: &Place) {
    let policy = json!({"resizePolicy": [
        {"resourceName": "memory", "restartPolicy": "RestartContainer"},
        {"resourceName": "cpu", "restartPolicy": "NotRequired"}]});
    place.create(&pod("restarts", sized(SLEEP, both("100m", "64Mi"), policy)));
    expect(place, "restarts", READY, "True");
    let restarts = "{.status.containerStatuses[0].restartCount}";
    resize(place, "restarts", both("200m", "64Mi"));
    has(place, "restarts", 200, 64);
    assert_eq!(field(place, "restarts", restarts), "0");
    resize(place, "restarts", both("200m", "128Mi"));
    expect(place, "restarts", restarts, "1");
    has(place, "restarts", 200, 128);
    said(
        place,
        "restarts",
        "Killing",
        "Container main resize requires restart",
    );
    expect(place, "restarts", READY, "True");
    place.delete("restarts");
}

fn keeps_memory_that_is_in_use(place: &Place) {
    let script =
        "/busybox dd if=/dev/zero of=/dev/shm/held bs=1M count=48; exec /busybox sleep 100000";
    place.create(&pod(
        "holds",
        sized(script, both("100m", "128Mi"), json!({})),
    ));
    expect(place, "holds", READY, "True");
    eventually("the memory is taken", || {
        let uid = field(place, "holds", "{.metadata.uid}");
        let files = ["memory.usage_in_bytes", "memory.current"];
        let used = place.cgroup(&format!("pod{uid}"), "memory", &files);
        if used.parse::<u64>().is_ok_and(|bytes| bytes > 48 << 20) {
            Ok(())
        } else {
            Err(used)
        }
    });
    resize(place, "holds", both("100m", "32Mi"));
    expect(
        place,
        "holds",
        &condition("PodResizeInProgress", "reason"),
        "Error",
    );
    let message = field(place, "holds", &condition("PodResizeInProgress", "message"));
    let begin = "cannot decrease memory limits: [attempting to set pod memory limit (33554432) below current usage (";
    assert!(message.starts_with(begin), "{message}");
    expect(
        place,
        "holds",
        "{.status.containerStatuses[0].resources.limits.memory}",
        "128Mi",
    );
    has(place, "holds", 100, 128);
    said(place, "holds", "ResizeError", "Pod resize error: {");
    place.delete("holds");
}

/// Takes so much of the node that the next cannot grow.
fn waits_for_room_and_outlives_its_kubelet(place: &mut Place) {
    let cores = place
        .kubectl(&[
            "get",
            "node",
            "node1",
            "-ojsonpath={.status.allocatable.cpu}",
        ])
        .expect("a node");
    let milli = match cores.strip_suffix('m') {
        Some(milli) => milli.parse().expect("a number"),
        None => cores.parse::<u64>().expect("a number") * 1000,
    };
    let most = format!("{}m", milli - 300);
    place.create(&pod(
        "takes",
        sized(SLEEP, json!({"requests": {"cpu": most}}), json!({})),
    ));
    expect(place, "takes", READY, "True");
    place.create(&pod("waits", sized(SLEEP, both("100m", "64Mi"), json!({}))));
    expect(place, "waits", READY, "True");
    resize(place, "waits", both("400m", "64Mi"));
    let pending = |field: &str| condition("PodResizePending", field);
    expect(place, "waits", &pending("reason"), "Deferred");
    let text = format!(
        "Node didn't have enough resource: cpu, requested: 400, used: {}, capacity: {milli}",
        milli - 300
    );
    assert_eq!(field(place, "waits", &pending("message")), text);
    assert_eq!(field(place, "waits", &pending("observedGeneration")), "2");
    said(place, "waits", "ResizeDeferred", "Pod resize Deferred: {");
    expect(
        place,
        "waits",
        "{.status.containerStatuses[0].allocatedResources.cpu}",
        "100m",
    );
    has(place, "waits", 100, 64);
    place.kill_kubelet();
    place.start_kubelet();
    resize(place, "waits", both("1000", "64Mi"));
    expect(place, "waits", &pending("reason"), "Infeasible");
    let text =
        format!("Node didn't have enough capacity: cpu, requested: 1000000, capacity: {milli}");
    assert_eq!(field(place, "waits", &pending("message")), text);
    has(place, "waits", 100, 64);
    resize(place, "waits", both("400m", "64Mi"));
    expect(place, "waits", &pending("reason"), "Deferred");
    place.delete("takes");
    has(place, "waits", 400, 64);
    expect(place, "waits", &pending("status"), "");
    expect(
        place,
        "waits",
        "{.status.containerStatuses[0].restartCount}",
        "0",
    );
    place.delete("waits");
}
