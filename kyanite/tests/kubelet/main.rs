//! Our kubelet with a real containerd and kubectl on the other side: from a token to pods that run, end, and outlive
//! their kubelet. Needs root and containerd; skipped, loudly, without.

mod csi;
mod driver;
mod place;
mod resize;
mod shutdown;

use harness::eventually;
use place::{IMAGE, Place};
use serde_json::{Value, json};

fn pod(name: &str, extra: Value) -> Value {
    let mut spec = json!({
        "nodeName": "node1", "terminationGracePeriodSeconds": 1, "automountServiceAccountToken": false,
        "containers": [{"name": "main", "image": IMAGE, "imagePullPolicy": "Never",
            "command": ["/busybox", "sleep", "100000"]}],
    });
    for (key, value) in extra.as_object().expect("an object") {
        spec[key] = value.clone();
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec})
}

fn shell(script: &str) -> Value {
    json!([{"name": "main", "image": IMAGE, "imagePullPolicy": "Never", "command": ["/busybox", "sh", "-c", script]}])
}

/// Waits until a field of a pod has a value.
fn expect(place: &Place, name: &str, path: &str, wanted: &str) {
    eventually(&format!("{name}: {path} is {wanted}"), || {
        let found = place.kubectl(&["get", "pod", name, &format!("-ojsonpath={path}")])?;
        match found == wanted {
            true => Ok(()),
            false => {
                let whole = place
                    .kubectl(&["get", "pod", name, "-ojson"])
                    .unwrap_or_default();
                Err(format!("it is {found:?}: {whole}"))
            }
        }
    });
}

const READY: &str = "{.status.conditions[?(@.type==\"Ready\")].status}";

#[test]
fn a_node_joins_with_a_token_and_runs_pods_that_outlive_its_kubelet() {
    let Some(mut place) = Place::open() else {
        return;
    };
    refuses_a_mistake(&mut place);
    place.start_kubelet();
    eventually("the node is ready", || {
        let ready = place.kubectl(&["get", "node", "node1", &format!("-ojsonpath={READY}")])?;
        if ready == "True" {
            Ok(())
        } else {
            Err(format!("Ready is {ready:?}"))
        }
    });
    gets_a_serving_certificate(&place);
    lives_and_dies(&mut place);
    ends_well_and_says_why(&place);
    starts_in_order_with_an_environment(&place);
    crashes_and_backs_off(&place);
    refuses_what_does_not_fit(&place);
    runs_in_the_runtime_of_its_class(&place);
    has_users_of_its_own_or_says_why_not(&place);
}

// A field that nobody knows is not passed over.
fn refuses_a_mistake(place: &mut Place) {
    let refusal = place.kubelet_refuses(json!({"authentication": {"anonymus": {"enabled": true}}}));
    let words = "unknown field \"authentication.anonymus\"";
    assert!(
        refusal.contains(words) && refusal.contains("kubelet.json"),
        "{refusal}"
    );
}

// The API server asks kubelets for certificates of the cluster; nodes get them for what they are called.
fn gets_a_serving_certificate(place: &Place) {
    let serving = "--field-selector=spec.signerName=kubernetes.io/kubelet-serving";
    eventually("the certificate is issued", || {
        let issued = place.kubectl(&[
            "get",
            "csr",
            serving,
            "-ojsonpath={.items[0].status.certificate}",
        ])?;
        match issued.is_empty() {
            true => Err("there is none yet".to_owned()),
            false => Ok(()),
        }
    });
}

fn lives_and_dies(place: &mut Place) {
    place.create(&pod("lives", json!({})));
    expect(place, "lives", READY, "True");
    expect(place, "lives", "{.status.phase}", "Running");
    let field = |path: &str| place.kubectl(&["get", "pod", "lives", &format!("-ojsonpath={path}")]);
    let address = field("{.status.podIP}").expect("an address");
    assert!(address.starts_with("10.99."), "{address:?}");
    let before = field("{.status.containerStatuses[0].containerID}").expect("an id");
    place.kill_kubelet();
    place.start_kubelet();
    place.create(&pod("second", json!({})));
    expect(place, "second", READY, "True");
    let field = |path: &str| place.kubectl(&["get", "pod", "lives", &format!("-ojsonpath={path}")]);
    assert_eq!(
        field("{.status.containerStatuses[0].containerID}").expect("an id"),
        before
    );
    assert_eq!(
        field("{.status.containerStatuses[0].restartCount}").expect("a count"),
        "0"
    );
    place
        .kubectl(&["delete", "pod", "lives", "second", "--timeout=120s"])
        .expect("they can be deleted");
    eventually("nothing of them is left", || {
        match place.tasks().is_empty() {
            true => Ok(()),
            false => Err(place.tasks()),
        }
    });
}

fn ends_well_and_says_why(place: &Place) {
    let script = "echo said; echo done > /dev/termination-log; exit 3";
    place.create(&pod(
        "ends",
        json!({"restartPolicy": "Never", "containers": shell(script)}),
    ));
    expect(place, "ends", "{.status.phase}", "Failed");
    let state = "{.status.containerStatuses[0].state.terminated";
    expect(place, "ends", &format!("{state}.exitCode}}"), "3");
    expect(place, "ends", &format!("{state}.message}}"), "done\n");
    expect(place, "ends", &format!("{state}.reason}}"), "Error");
    assert_eq!(place.kubectl(&["logs", "ends"]).as_deref(), Ok("said\n"));
    place
        .kubectl(&["delete", "pod", "ends", "--timeout=120s"])
        .expect("it can be deleted");
}

fn starts_in_order_with_an_environment(place: &Place) {
    place.create(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"k": "v"}}));
    let init = json!([{"name": "first", "image": IMAGE, "imagePullPolicy": "Never",
        "command": ["/busybox", "sh", "-c", "echo $(WHO) $K > /shared/said"],
        "env": [{"name": "WHO", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                {"name": "K", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "k"}}}],
        "volumeMounts": [{"name": "shared", "mountPath": "/shared"}]}]);
    let mut main = shell("/busybox cat /shared/said > /dev/termination-log");
    main[0]["volumeMounts"] = json!([{"name": "shared", "mountPath": "/shared"}]);
    place.create(&pod(
        "ordered",
        json!({"restartPolicy": "Never", "initContainers": init, "containers": main,
            "volumes": [{"name": "shared", "emptyDir": {}}]}),
    ));
    expect(place, "ordered", "{.status.phase}", "Succeeded");
    expect(
        place,
        "ordered",
        "{.status.containerStatuses[0].state.terminated.message}",
        "ordered v\n",
    );
    place
        .kubectl(&["delete", "pod", "ordered", "--timeout=120s"])
        .expect("it can be deleted");
}

fn crashes_and_backs_off(place: &Place) {
    place.create(&pod("crashes", json!({"containers": shell("exit 1")})));
    expect(
        place,
        "crashes",
        "{.status.containerStatuses[0].state.waiting.reason}",
        "CrashLoopBackOff",
    );
    expect(place, "crashes", "{.status.phase}", "Running");
    place
        .kubectl(&["delete", "pod", "crashes", "--timeout=120s"])
        .expect("it can be deleted");
}

fn refuses_what_does_not_fit(place: &Place) {
    let mut containers = shell("true");
    containers[0]["resources"] = json!({"requests": {"cpu": "10000"}});
    place.create(&pod("large", json!({"containers": containers})));
    expect(place, "large", "{.status.reason}", "OutOfcpu");
    expect(place, "large", "{.status.phase}", "Failed");
    place
        .kubectl(&["delete", "pod", "large", "--timeout=120s"])
        .expect("it can be deleted");
}

fn runs_in_the_runtime_of_its_class(place: &Place) {
    for (name, handler) in [("usual", "runc"), ("unknown", "nowhere")] {
        place.create(
            &json!({"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass",
            "metadata": {"name": name}, "handler": handler}),
        );
        place.create(&pod(name, json!({"runtimeClassName": name})));
    }
    expect(place, "usual", READY, "True");
    eventually("the runtime's word about a class it does not know", || {
        let of_pod = "--field-selector=involvedObject.name=unknown,reason=FailedCreatePodSandBox";
        let said = place.kubectl(&["get", "events", of_pod, "-ojsonpath={.items[*].message}"])?;
        match said.contains("no runtime for \"nowhere\" is configured") {
            true => Ok(()),
            false => Err(said),
        }
    });
    place
        .kubectl(&["delete", "pod", "usual", "unknown", "--timeout=120s"])
        .expect("they can be deleted");
}

// containerd before 2.0 cannot.
fn has_users_of_its_own_or_says_why_not(place: &Place) {
    let able = "-ojsonpath={.status.runtimeHandlers[?(@.name==\"\")].features.userNamespaces}";
    let able = place
        .kubectl(&["get", "node", "node1", able])
        .expect("a node");
    place.create(&pod("apart", json!({"hostUsers": false})));
    if able == "true" {
        expect(place, "apart", READY, "True");
    } else {
        eventually("why it cannot have users of its own", || {
            let of_pod = "--field-selector=involvedObject.name=apart,reason=FailedCreatePodSandBox";
            let said =
                place.kubectl(&["get", "events", of_pod, "-ojsonpath={.items[*].message}"])?;
            let words = "Failed to create pod sandbox: can't set `spec.hostUsers: false`, runtime does not support user namespaces";
            match said.contains(words) {
                true => Ok(()),
                false => Err(said),
            }
        });
    }
    place.delete("apart");
}
