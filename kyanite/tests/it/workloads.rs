//! Workloads seen through kubectl: what is asked for happens. There are no nodes here; the test plays them by
//! writing the status of pods.

use serde_json::{Value, json};

use super::harness::{Kubectl, eventually};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// What a pod's containers do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    Ready,
    Succeeds,
    Fails,
}

fn pods(kubectl: &Kubectl) -> Vec<Value> {
    let list = kubectl.server.admin().get(PODS).ok();
    list["items"].as_array().cloned().unwrap_or_default()
}

fn names(kubectl: &Kubectl) -> Vec<String> {
    let alive = pods(kubectl);
    let alive = alive
        .iter()
        .filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    alive
        .filter_map(|pod| pod["metadata"]["name"].as_str().map(str::to_owned))
        .collect()
}

/// Gives every pod that waits what its containers do.
fn play(kubectl: &Kubectl, fate: Fate) {
    for (number, pod) in pods(kubectl).iter().enumerate() {
        let is_waiting = pod["status"]["phase"] == "Pending";
        if !is_waiting || !pod["metadata"]["deletionTimestamp"].is_null() {
            continue;
        }
        let now = jiff::Timestamp::now().to_string();
        let status = match fate {
            Fate::Ready => json!({ "phase": "Running", "podIP": format!("10.9.0.{number}"),
                "conditions": [{ "type": "Ready", "status": "True", "lastTransitionTime": now }] }),
            Fate::Succeeds => json!({ "phase": "Succeeded" }),
            Fate::Fails => json!({ "phase": "Failed" }),
        };
        let name = pod["metadata"]["name"].as_str().expect("pods have names");
        // A pod may go while it is looked at.
        kubectl.server.admin().patch(
            &format!("{PODS}/{name}/status"),
            &json!({ "status": status }),
        );
    }
}

/// A field of an object that may not be there at the moment.
fn seen(kubectl: &Kubectl, object: &str, path: &str) -> String {
    kubectl
        .run(&format!("get {object} -o jsonpath={{{path}}}"))
        .stdout
}

/// Plays until a field of an object is as expected.
fn until(kubectl: &Kubectl, fate: Fate, object: &str, path: &str, expected: &str) {
    play_until(kubectl, fate, &format!("{path} of {object}"), || {
        let seen = seen(kubectl, object, path);
        if seen == expected { Ok(()) } else { Err(seen) }
    });
}

/// Plays until kubectl has nothing to wait for.
fn rolled_out(kubectl: &Kubectl, object: &str) {
    play_until(kubectl, Fate::Ready, object, || {
        let said = kubectl.run(&format!("rollout status {object} --watch=false"));
        let is_waiting = said.stdout.to_lowercase().contains("waiting");
        if is_waiting { Err(said.stdout) } else { Ok(()) }
    });
    kubectl
        .run(&format!("rollout status {object} --timeout=60s"))
        .ok();
}

// Three times as patient as others: each look is several commands on a machine that may be busy.
fn play_until(kubectl: &Kubectl, fate: Fate, what: &str, look: impl Fn() -> Result<(), String>) {
    for attempt in 1..=3 {
        let start = std::time::Instant::now();
        let is_done = eventually(what, || {
            play(kubectl, fate);
            let is_late = attempt < 3 && start.elapsed() > std::time::Duration::from_secs(20);
            match look() {
                Ok(()) => Ok(true),
                Err(_) if is_late => Ok(false),
                Err(seen) => Err(seen),
            }
        });
        if is_done {
            return;
        }
    }
}

#[test]
fn a_deployment_rolls_out_and_back_pauses_and_scales() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl
        .run("create deployment web --image=web:1 --replicas=3")
        .ok();
    until(
        &kubectl,
        Fate::Ready,
        "deployment web",
        ".status.availableReplicas",
        "3",
    );
    rolled_out(&kubectl, "deployment/web");
    kubectl.run("set image deployment/web web=web:2").ok();
    until(
        &kubectl,
        Fate::Ready,
        "deployment web",
        ".status.updatedReplicas",
        "3",
    );
    until(
        &kubectl,
        Fate::Ready,
        "deployment web",
        ".status.replicas",
        "3",
    );
    rolled_out(&kubectl, "deployment/web");
    let images = |expected: &str| {
        for pod in pods(&kubectl) {
            assert_eq!(pod["spec"]["containers"][0]["image"], expected);
        }
    };
    images("web:2");
    kubectl.run("rollout undo deployment/web").ok();
    until(
        &kubectl,
        Fate::Ready,
        "deployment web",
        ".metadata.annotations.deployment\\.kubernetes\\.io/revision",
        "3",
    );
    until(
        &kubectl,
        Fate::Ready,
        "deployment web",
        ".status.updatedReplicas",
        "3",
    );
    rolled_out(&kubectl, "deployment/web");
    images("web:1");
    kubectl
        .run("rollout history deployment/web")
        .ok()
        .prints("2")
        .prints("3");
    kubectl.run("rollout pause deployment/web").ok();
    kubectl.run("set image deployment/web web=web:3").ok();
    kubectl.run("scale deployment/web --replicas=5").ok();
    until(
        &kubectl,
        Fate::Ready,
        "deployment web",
        ".status.availableReplicas",
        "5",
    );
    images("web:1");
    kubectl.run("rollout resume deployment/web").ok();
    until(
        &kubectl,
        Fate::Ready,
        "deployment web",
        ".status.updatedReplicas",
        "5",
    );
    rolled_out(&kubectl, "deployment/web");
    images("web:3");
    kubectl
        .run("wait deployment/web --for=condition=Available --timeout=60s")
        .ok();
    kubectl
        .run("get events")
        .ok()
        .prints("ScalingReplicaSet")
        .prints("SuccessfulCreate")
        .prints("SuccessfulDelete");
}

#[test]
fn a_replica_set_adopts_replaces_and_releases() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.create(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: lonely, labels: {app: web}}\n\
         spec: {containers: [{name: c, image: web}]}\n",
    );
    kubectl.create(
        "apiVersion: apps/v1\nkind: ReplicaSet\nmetadata: {name: web}\n\
         spec: {replicas: 2, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, \
         spec: {containers: [{name: c, image: web}]}}}\n",
    );
    until(
        &kubectl,
        Fate::Ready,
        "rs web",
        ".status.readyReplicas",
        "2",
    );
    assert!(
        names(&kubectl).contains(&"lonely".to_owned()),
        "{:?}",
        names(&kubectl)
    );
    assert_eq!(
        kubectl.field("pod lonely", ".metadata.ownerReferences[0].kind"),
        "ReplicaSet"
    );
    kubectl.run("label pod lonely app=free --overwrite").ok();
    until(
        &kubectl,
        Fate::Ready,
        "pod lonely",
        ".metadata.ownerReferences[*].kind",
        "",
    );
    eventually("a replacement", || match names(&kubectl).len() {
        3 => Ok(()),
        other => Err(other.to_string()),
    });
    kubectl.run("scale rs/web --replicas=0").ok();
    until(&kubectl, Fate::Ready, "rs web", ".status.replicas", "0");
    assert_eq!(names(&kubectl), ["lonely"]);
}

#[test]
fn a_stateful_set_comes_up_in_order_and_keeps_its_storage() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.create(
        "apiVersion: apps/v1\nkind: StatefulSet\nmetadata: {name: db}\n\
         spec: {replicas: 3, serviceName: db, selector: {matchLabels: {app: db}}, \
         template: {metadata: {labels: {app: db}}, spec: {containers: [{name: c, image: db}]}}, \
         volumeClaimTemplates: [{metadata: {name: data}, spec: {accessModes: [ReadWriteOnce], \
         resources: {requests: {storage: 1Gi}}}}]}\n",
    );
    for count in 1..=3 {
        eventually("the next pod", || match names(&kubectl) {
            names if names.len() == count => Ok(()),
            other => Err(format!("{other:?}")),
        });
        assert!(names(&kubectl).contains(&format!("db-{}", count - 1)));
        play(&kubectl, Fate::Ready);
    }
    until(
        &kubectl,
        Fate::Ready,
        "sts db",
        ".status.readyReplicas",
        "3",
    );
    rolled_out(&kubectl, "sts/db");
    kubectl.run("set image sts/db c=db:2").ok();
    until(
        &kubectl,
        Fate::Ready,
        "sts db",
        ".status.updatedReplicas",
        "3",
    );
    rolled_out(&kubectl, "sts/db");
    kubectl.run("rollout undo sts/db").ok();
    until(
        &kubectl,
        Fate::Ready,
        "pod db-0",
        ".spec.containers[0].image",
        "db",
    );
    kubectl.run("scale sts/db --replicas=1").ok();
    until(&kubectl, Fate::Ready, "sts db", ".status.replicas", "1");
    assert_eq!(names(&kubectl), ["db-0"]);
    kubectl
        .run("get pvc -o name")
        .ok()
        .prints("data-db-0")
        .prints("data-db-2");
}

#[test]
fn jobs_run_to_their_end_one_way_or_the_other() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.create(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: good}\n\
         spec: {completions: 5, parallelism: 2, completionMode: Indexed, template: {spec: {restartPolicy: Never, \
         containers: [{name: c, image: job}]}}}\n",
    );
    until(
        &kubectl,
        Fate::Succeeds,
        "job good",
        ".status.succeeded",
        "5",
    );
    kubectl
        .run("wait job/good --for=condition=complete --timeout=60s")
        .ok();
    assert_eq!(kubectl.field("job good", ".status.completedIndexes"), "0-4");
    assert_eq!(pods(&kubectl).len(), 5);
    kubectl.create(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: bad}\n\
         spec: {backoffLimit: 0, template: {spec: {restartPolicy: Never, containers: [{name: c, image: job}]}}}\n",
    );
    until(&kubectl, Fate::Fails, "job bad", ".status.failed", "1");
    kubectl
        .run("wait job/bad --for=condition=failed --timeout=60s")
        .ok();
    let reason = ".status.conditions[?(@.type==\"Failed\")].reason";
    assert_eq!(kubectl.field("job bad", reason), "BackoffLimitExceeded");
    kubectl.create(
        "apiVersion: batch/v1\nkind: Job\nmetadata: {name: later}\n\
         spec: {suspend: true, template: {spec: {restartPolicy: Never, containers: [{name: c, image: job}]}}}\n",
    );
    let suspended = ".status.conditions[?(@.type==\"Suspended\")].status";
    until(&kubectl, Fate::Succeeds, "job later", suspended, "True");
    kubectl
        .args(&[
            "patch",
            "job",
            "later",
            "-p",
            "{\"spec\":{\"suspend\":false}}",
        ])
        .ok();
    until(
        &kubectl,
        Fate::Succeeds,
        "job later",
        ".status.succeeded",
        "1",
    );
    kubectl
        .run("get events")
        .ok()
        .prints("Completed")
        .prints("BackoffLimitExceeded")
        .prints("Suspended");
}

#[test]
fn a_cron_job_makes_jobs_when_their_time_has_come() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.create(
        "apiVersion: batch/v1\nkind: CronJob\nmetadata: {name: tick}\n\
         spec: {schedule: '@every 1s', timeZone: Europe/Berlin, successfulJobsHistoryLimit: 3, jobTemplate: {spec: \
         {template: {spec: {restartPolicy: Never, containers: [{name: c, image: job}]}}}}}\n",
    );
    eventually("a job that has ended", || {
        play(&kubectl, Fate::Succeeds);
        match kubectl.field("cronjob tick", ".status.lastSuccessfulTime") {
            time if time.is_empty() => Err("none yet".to_owned()),
            time => Ok(time),
        }
    });
    kubectl
        .args(&[
            "patch",
            "cronjob",
            "tick",
            "-p",
            "{\"spec\":{\"suspend\":true}}",
        ])
        .ok();
    kubectl.run("create job now --from=cronjob/tick").ok();
    until(
        &kubectl,
        Fate::Succeeds,
        "job now",
        ".status.succeeded",
        "1",
    );
    kubectl.run("get events").ok().prints("Created job tick-");
}

#[test]
fn a_service_reaches_pods_as_they_become_ready() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.create("apiVersion: v1\nkind: Node\nmetadata: {name: n1, labels: {topology.kubernetes.io/zone: z1}}\n");
    kubectl.create(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: web, labels: {app: web}}\n\
         spec: {nodeName: n1, containers: [{name: c, image: web, ports: [{name: http, containerPort: 8080}]}]}\n",
    );
    kubectl.create(
        "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n\
         spec: {selector: {app: web}, trafficDistribution: PreferClose, ports: [{port: 80, targetPort: http}]}\n",
    );
    let slice = "endpointslices -l kubernetes.io/service-name=web";
    until(
        &kubectl,
        Fate::Ready,
        slice,
        ".items[*].endpoints[*].conditions.ready",
        "true",
    );
    assert_eq!(kubectl.field(slice, ".items[*].endpoints[*].zone"), "z1");
    assert_eq!(
        kubectl.field(slice, ".items[*].endpoints[*].hints.forZones[*].name"),
        "z1"
    );
    assert_eq!(kubectl.field(slice, ".items[*].ports[*].port"), "8080");
    until(
        &kubectl,
        Fate::Ready,
        "endpoints web",
        ".subsets[*].addresses[*].targetRef.name",
        "web",
    );
    kubectl.run("delete pod web --wait=false").ok();
    until(
        &kubectl,
        Fate::Ready,
        slice,
        ".items[*].endpoints[*].conditions.terminating",
        "true",
    );
    assert_eq!(
        kubectl.field(slice, ".items[*].endpoints[*].conditions.ready"),
        "false"
    );
    kubectl.run("delete pod web --force --grace-period=0").ok();
    until(
        &kubectl,
        Fate::Ready,
        slice,
        ".items[*].endpoints[*].addresses",
        "",
    );
    kubectl.create(
        "apiVersion: v1\nkind: Service\nmetadata: {name: out}\nspec: {ports: [{port: 80}]}\n",
    );
    kubectl.create(
        "apiVersion: v1\nkind: Endpoints\nmetadata: {name: out}\nsubsets: [{addresses: [{ip: 192.0.2.1}], ports: [{port: 80}]}]\n",
    );
    let mirror = "endpointslices -l kubernetes.io/service-name=out";
    until(
        &kubectl,
        Fate::Ready,
        mirror,
        ".items[*].endpoints[*].addresses[*]",
        "192.0.2.1",
    );
}

#[test]
fn a_daemon_set_runs_on_every_node_and_a_budget_guards_pods() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    for node in ["n1", "n2"] {
        kubectl.create(&format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {node}}}\n"
        ));
        // What a kubelet does once it is well.
        kubectl
            .args(&[
                "patch",
                "node",
                node,
                "-p",
                "{\"spec\":{\"taints\":null}}",
                "--type=merge",
            ])
            .ok();
    }
    kubectl.create(
        "apiVersion: apps/v1\nkind: DaemonSet\nmetadata: {name: agent}\n\
         spec: {selector: {matchLabels: {app: agent}}, template: {metadata: {labels: {app: agent}}, \
         spec: {containers: [{name: c, image: agent}]}}}\n",
    );
    until(
        &kubectl,
        Fate::Ready,
        "ds agent",
        ".status.numberAvailable",
        "2",
    );
    rolled_out(&kubectl, "ds/agent");
    kubectl.run("set image ds/agent c=agent:2").ok();
    until(
        &kubectl,
        Fate::Ready,
        "ds agent",
        ".status.updatedNumberScheduled",
        "2",
    );
    rolled_out(&kubectl, "ds/agent");
    kubectl
        .run("rollout history ds/agent")
        .ok()
        .prints("1")
        .prints("2");
    kubectl.run("delete node n2").ok();
    until(
        &kubectl,
        Fate::Ready,
        "ds agent",
        ".status.desiredNumberScheduled",
        "1",
    );
    kubectl
        .run("create pdb guard --selector=app=agent --min-available=1")
        .ok();
    until(
        &kubectl,
        Fate::Ready,
        "pdb guard",
        ".status.currentHealthy",
        "1",
    );
    assert_eq!(
        kubectl.field("pdb guard", ".status.disruptionsAllowed"),
        "0"
    );
}

#[test]
fn a_full_quota_is_said_and_not_asked_again_and_again() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.run("create quota few --hard=pods=2").ok();
    until(&kubectl, Fate::Ready, "quota few", ".status.hard.pods", "2");
    kubectl
        .run("create deployment web --image=web --replicas=4")
        .ok();
    until(
        &kubectl,
        Fate::Ready,
        "deployment web",
        ".status.readyReplicas",
        "2",
    );
    let failure = ".status.conditions[?(@.type==\"ReplicaFailure\")].reason";
    until(
        &kubectl,
        Fate::Ready,
        "deployment web",
        failure,
        "FailedCreate",
    );
    kubectl.run("get events").ok().prints("exceeded quota");
    kubectl
        .args(&[
            "patch",
            "quota",
            "few",
            "-p",
            "{\"spec\":{\"hard\":{\"pods\":\"4\"}}}",
        ])
        .ok();
    until(
        &kubectl,
        Fate::Ready,
        "deployment web",
        ".status.readyReplicas",
        "4",
    );
}
