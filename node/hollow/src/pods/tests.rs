#![allow(clippy::unwrap_used, reason = "tests")]
use k8s_openapi::api::core::v1::Pod;

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn place() -> Option<Place> {
    Some(Place {
        host: "10.224.0.4".parse().unwrap(),
        addresses: vec!["10.244.0.2".parse().unwrap()],
    })
}

/// A pod on paper: what is written to it, it has.
struct OnPaper(Value);

impl OnPaper {
    fn new(spec: Value, annotations: Value) -> OnPaper {
        let mut spec = spec;
        spec["nodeName"] = "hollow-0".into();
        spec["containers"] = json!([{ "name": "main", "image": "app:1" }]);
        OnPaper(
            json!({ "metadata": { "name": "p", "uid": "u", "annotations": annotations },
            "spec": spec, "status": { "phase": "Pending" } }),
        )
    }

    fn step(&mut self, second: i64) -> Step {
        let pod: Pod = serde_json::from_value(self.0.clone()).unwrap();
        let pod = Resident::of(pod, |_| Some(0)).unwrap();
        let step = decide(&pod, place, at(second));
        if let Step::Tell(status) | Step::Let { go: Some(status) } = &step {
            for (field, value) in status.as_object().unwrap() {
                self.0["status"][field] = value.clone();
            }
        }
        step
    }

    fn delete(&mut self, second: i64, grace: i64) {
        self.0["metadata"]["deletionTimestamp"] = json!(Time(at(second + grace)));
        self.0["metadata"]["deletionGracePeriodSeconds"] = grace.into();
    }

    fn phase(&self) -> &str {
        self.0["status"]["phase"].as_str().unwrap()
    }

    fn is(&self, condition: &str) -> bool {
        let conditions = self.0["status"]["conditions"].as_array().unwrap();
        let found = conditions.iter().find(|c| c["type"] == condition).unwrap();
        found["status"] == "True"
    }
}

#[test]
fn a_pod_runs_is_ready_and_has_an_address() {
    let mut pod = OnPaper::new(json!({}), json!({}));
    assert!(matches!(pod.step(0), Step::Tell(_)));
    assert_eq!(pod.phase(), "Running");
    assert!(pod.is("Ready") && pod.is("Initialized") && pod.is("PodScheduled"));
    assert_eq!(pod.0["status"]["podIP"], "10.244.0.2");
    assert_eq!(pod.0["status"]["hostIP"], "10.224.0.4");
    assert_eq!(pod.step(1), Step::Nothing, "once is enough");
}

#[test]
fn a_pod_of_the_host_network_has_its_address() {
    let mut pod = OnPaper::new(json!({ "hostNetwork": true }), json!({}));
    pod.step(0);
    assert_eq!(pod.0["status"]["podIP"], "10.224.0.4");
}

#[test]
fn a_pod_waits_until_its_node_has_a_range() {
    let pod = OnPaper::new(json!({}), json!({}));
    let pod: Pod = serde_json::from_value(pod.0).unwrap();
    let pod = Resident::of(pod, |_| Some(0)).unwrap();
    assert_eq!(decide(&pod, || None, at(0)), Step::Nothing);
}

#[test]
fn a_pod_that_is_to_end_ends_as_it_is_told() {
    for (code, phase) in [("0", "Succeeded"), ("3", "Failed")] {
        let script =
            json!({ "hollow.kyanite.dev/run-seconds": "5", "hollow.kyanite.dev/exit-code": code });
        let mut pod = OnPaper::new(json!({ "restartPolicy": "Never" }), script);
        pod.step(0);
        assert_eq!(pod.step(2), Step::Wait(Duration::from_secs(3)));
        assert!(matches!(pod.step(5), Step::Tell(_)));
        assert_eq!(pod.phase(), phase);
        assert!(!pod.is("Ready"));
        assert_eq!(pod.step(6), Step::Nothing);
    }
}

#[test]
fn a_pod_that_always_restarts_is_counted_and_does_not_spin() {
    let script =
        json!({ "hollow.kyanite.dev/run-seconds": "0", "hollow.kyanite.dev/exit-code": "1" });
    let mut pod = OnPaper::new(json!({}), script);
    pod.step(0);
    assert_eq!(pod.step(0), Step::Wait(BACK_OFF));
    pod.step(10);
    let status = &pod.0["status"]["containerStatuses"][0];
    assert_eq!(status["restartCount"], 1);
    assert_eq!(status["lastState"]["terminated"]["exitCode"], 1);
    assert_eq!(pod.step(11), Step::Wait(Duration::from_secs(9)));
}

#[test]
fn the_pods_of_a_job_end_by_themselves() {
    let mut pod = OnPaper::new(json!({ "restartPolicy": "OnFailure" }), json!({}));
    pod.0["metadata"]["ownerReferences"] =
        json!([{ "apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "j" }]);
    pod.step(0);
    pod.step(1);
    assert_eq!(pod.phase(), "Succeeded");
}

#[test]
fn a_deleted_pod_stops_within_its_grace_and_goes() {
    for (stop, grace, ends_at, code) in [
        ("0", 30, 100_i64, 0),
        ("4", 30, 104, 0),
        ("60", 30, 130, 137),
    ] {
        let mut pod = OnPaper::new(
            json!({}),
            json!({ "hollow.kyanite.dev/stop-seconds": stop }),
        );
        pod.step(0);
        pod.delete(100, grace);
        if ends_at > 100 {
            let left = Duration::from_secs((ends_at - 100).unsigned_abs());
            assert_eq!(pod.step(100), Step::Wait(left), "{stop}");
        }
        assert!(
            matches!(pod.step(ends_at), Step::Let { go: Some(_) }),
            "{stop}"
        );
        let state = &pod.0["status"]["containerStatuses"][0]["state"];
        assert_eq!(state["terminated"]["exitCode"], code, "{stop}");
        assert_eq!(pod.step(ends_at), Step::Let { go: None }, "written once");
        pod.delete(ends_at, 0);
        assert_eq!(pod.step(ends_at), Step::Nothing, "finalizers are not ours");
    }
}

#[test]
fn a_pod_called_unready_says_that_it_is_not() {
    let mut pod = OnPaper::new(json!({}), json!({}));
    pod.step(0);
    for condition in pod.0["status"]["conditions"].as_array_mut().unwrap() {
        if condition["type"] == "Ready" {
            condition["status"] = "False".into();
        }
    }
    assert!(matches!(pod.step(60), Step::Tell(_)));
    assert!(pod.is("Ready"));
}

#[test]
fn a_gate_keeps_a_running_pod_unready_until_it_opens() {
    let mut pod = OnPaper::new(
        json!({ "readinessGates": [{ "conditionType": "example.com/up" }] }),
        json!({}),
    );
    pod.step(0);
    assert!(!pod.is("Ready") && pod.is("ContainersReady"));
    assert_eq!(pod.step(1), Step::Nothing);
    let open = json!({ "type": "example.com/up", "status": "True" });
    pod.0["status"]["conditions"]
        .as_array_mut()
        .unwrap()
        .push(open);
    pod.step(2);
    assert!(pod.is("Ready"));
}
