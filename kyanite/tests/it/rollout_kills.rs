//! The control plane killed in every phase of a rollout, on the same data: what was asked for happens, once.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::harness::{Kubectl, ServerOptions, eventually};

const REPLICAS: usize = 5;
const NODES: usize = 3;

fn list(kubectl: &Kubectl, path: &str) -> Vec<Value> {
    let list = kubectl.server.admin().get(path).ok();
    list["items"].as_array().cloned().unwrap_or_default()
}

fn pods_of(kubectl: &Kubectl, app: &str) -> Vec<Value> {
    list(
        kubectl,
        &format!("/api/v1/namespaces/default/pods?labelSelector=app%3D{app}"),
    )
}

fn image(pod: &Value) -> &str {
    pod["spec"]["containers"][0]["image"].as_str().unwrap_or("")
}

fn is_staying(pod: &&Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_null()
}

fn workload(kind: &str, app: &str, spec: &Value) -> String {
    let mut spec = spec.clone();
    spec["selector"] = json!({"matchLabels": {"app": app}});
    spec["template"] = json!({"metadata": {"labels": {"app": app}},
        "spec": {"containers": [{"name": "main", "image": "app:0"}], "terminationGracePeriodSeconds": 0}});
    json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": app}, "spec": spec})
        .to_string()
}

/// Asks all three for another image.
fn change(kubectl: &Kubectl, image: &str) {
    for object in ["deployment/web", "statefulset/data", "daemonset/agent"] {
        kubectl
            .run(&format!("set image {object} main={image}"))
            .ok();
    }
}

fn settled(kubectl: &Kubectl) {
    for object in ["deployment/web", "statefulset/data", "daemonset/agent"] {
        kubectl
            .run(&format!("rollout status {object} --timeout=180s"))
            .ok();
    }
}

/// What there is of an application, once everything else has gone.
fn only(kubectl: &Kubectl, app: &str, count: usize, wanted: &str) -> Vec<Value> {
    eventually(&format!("{count} pods of {app} with {wanted}"), || {
        let pods = pods_of(kubectl, app);
        let is_right = pods.len() == count && pods.iter().all(|pod| image(pod) == wanted);
        is_right.then_some(pods.clone()).ok_or_else(|| {
            let seen: Vec<String> = pods
                .iter()
                .map(|pod| format!("{} {}", pod["metadata"]["name"], image(pod)))
                .collect();
            seen.join(", ")
        })
    })
}

#[test]
fn a_rollout_whose_control_plane_dies_in_every_phase_ends_as_one_that_was_left_alone() {
    let Some(mut kubectl) = Kubectl::start_with(ServerOptions {
        flags: vec!["--scheduler=true", "--hollow=3"],
    }) else {
        return;
    };
    for document in [
        workload("Deployment", "web", &json!({"replicas": REPLICAS})),
        workload(
            "StatefulSet",
            "data",
            &json!({"replicas": 2, "serviceName": "data"}),
        ),
        workload("DaemonSet", "agent", &json!({})),
    ] {
        kubectl.with_input("create -f -", &document).ok();
    }
    kubectl
        .with_input(
            "create -f -",
            "apiVersion: batch/v1\nkind: Job\nmetadata: {name: sums}\n\
             spec: {completions: 8, parallelism: 2, completionMode: Indexed, template: {metadata: {labels: {app: sums}}, \
             spec: {restartPolicy: Never, containers: [{name: main, image: sum}]}}}\n",
        )
        .ok();
    settled(&kubectl);

    for phase in 0..=REPLICAS {
        let wanted = format!("app:{}", phase + 1);
        change(&kubectl, &wanted);
        eventually(&format!("{phase} pods with {wanted}"), || {
            let pods = pods_of(&kubectl, "web");
            let new = pods
                .iter()
                .filter(is_staying)
                .filter(|pod| image(pod) == wanted);
            let new = new.count();
            if new >= phase { Ok(()) } else { Err(new) }
        });
        kubectl.server.kill();
        kubectl.server.start_again();
    }
    let last = format!("app:{}", REPLICAS + 1);
    settled(&kubectl);

    only(&kubectl, "web", REPLICAS, &last);
    let data = only(&kubectl, "data", 2, &last);
    let names: BTreeSet<&str> = data
        .iter()
        .filter_map(|pod| pod["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, BTreeSet::from(["data-0", "data-1"]));
    let agents = only(&kubectl, "agent", NODES, &last);
    let on: BTreeSet<&str> = agents
        .iter()
        .filter_map(|pod| pod["spec"]["nodeName"].as_str())
        .collect();
    assert_eq!(on.len(), NODES, "{on:?}");

    let sets = list(&kubectl, "/apis/apps/v1/namespaces/default/replicasets");
    let wanted: Vec<&Value> = sets
        .iter()
        .filter(|set| set["spec"]["replicas"] != json!(0))
        .collect();
    assert_eq!(wanted.len(), 1, "{wanted:?}");
    // One set for each image and none besides: nobody made one twice.
    assert_eq!(sets.len(), REPLICAS + 2);

    kubectl
        .run("wait job/sums --for=condition=Complete --timeout=180s")
        .ok();
    let indexes: Vec<Value> = pods_of(&kubectl, "sums")
        .iter()
        .filter(|pod| pod["status"]["phase"] == "Succeeded")
        .map(|pod| {
            pod["metadata"]["annotations"]["batch.kubernetes.io/job-completion-index"].clone()
        })
        .collect();
    let different: BTreeSet<String> = indexes.iter().map(Value::to_string).collect();
    assert_eq!((indexes.len(), different.len()), (8, 8), "{indexes:?}");
    assert_eq!(kubectl.field("job/sums", ".status.succeeded"), "8");
}
