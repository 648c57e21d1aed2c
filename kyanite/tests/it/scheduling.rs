//! The scheduler of `kyanite up`, seen through kubectl: pods get nodes, or people are told why not. The nodes are objects
//! only: nothing runs.

use super::harness::{Kubectl, ServerOptions, eventually};

fn start() -> Option<Kubectl> {
    Kubectl::start_with(ServerOptions {
        flags: vec!["--scheduler=true"],
    })
}

/// Nodes of two CPUs each that take pods.
fn nodes(kubectl: &Kubectl, names: &[&str]) {
    for name in names {
        kubectl.create(&format!(
            "apiVersion: v1\nkind: Node\nmetadata: {{name: {name}, labels: {{kubernetes.io/hostname: {name}}}}}\n\
             status: {{allocatable: {{cpu: '2', memory: 4Gi, pods: '110'}}, capacity: {{cpu: '2', memory: 4Gi, pods: '110'}},\n\
             conditions: [{{type: Ready, status: 'True'}}]}}\n"
        ));
        // The API server taints nodes that are new; a controller would take this away.
        kubectl.run(&format!(
            "taint node {name} node.kubernetes.io/not-ready:NoSchedule-"
        ));
    }
}

fn pod(kubectl: &Kubectl, name: &str, cpu: &str, more: &str) {
    let document = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, labels: {{app: web}}}}\n\
         spec:\n  automountServiceAccountToken: false\n  containers: [{{name: a, image: web, resources: {{requests: {{cpu: '{cpu}'}}}}}}]\n{more}"
    );
    // The account that every pod has comes a moment after its namespace.
    eventually("pods can be made", || {
        let made = kubectl.with_input("create -f -", &document);
        match made.stdout.contains("created") {
            true => Ok(()),
            false => Err(made.to_string()),
        }
    });
}

/// The node of a pod, once it has one.
fn node_of(kubectl: &Kubectl, pod: &str) -> String {
    eventually(&format!("a node for {pod}"), || {
        let node = kubectl.field(&format!("pod {pod}"), ".spec.nodeName");
        match node.is_empty() {
            true => Err(kubectl.run(&format!("describe pod {pod}")).to_string()),
            false => Ok(node),
        }
    })
}

/// What is said about a pod that has no node, once it is this.
fn said(kubectl: &Kubectl, pod: &str, sentence: &str) {
    eventually(&format!("{pod}: {sentence}"), || {
        let events = kubectl.run(&format!(
            "get events --field-selector involvedObject.name={pod},reason=FailedScheduling -o jsonpath={{.items[*].message}}"
        ));
        match events.stdout.contains(sentence) {
            true => Ok(()),
            false => Err(events.to_string()),
        }
    });
}

#[test]
fn pods_get_nodes_and_the_cluster_fills_up_evenly() {
    let Some(kubectl) = start() else { return };
    nodes(&kubectl, &["n1", "n2"]);
    for name in ["a", "b", "c", "d"] {
        pod(&kubectl, name, "1", "");
    }
    let mut used: Vec<String> = ["a", "b", "c", "d"]
        .map(|name| node_of(&kubectl, name))
        .to_vec();
    used.sort();
    assert_eq!(used, ["n1", "n1", "n2", "n2"]);
    let scheduled = kubectl.field(
        "pod a",
        ".status.conditions[?(@.type==\"PodScheduled\")].status",
    );
    assert_eq!(scheduled, "True");
    eventually("the event of a's placement", || {
        let events =
            kubectl.run("get events --field-selector involvedObject.name=a,reason=Scheduled");
        match events
            .stdout
            .contains("Successfully assigned default/a to ")
        {
            true => Ok(()),
            false => Err(events.to_string()),
        }
    });
    pod(&kubectl, "e", "1", "");
    let sentence = "0/2 nodes are available: 2 Insufficient cpu. preemption: 0/2 nodes are available: 2 No preemption victims found for incoming pod.";
    said(&kubectl, "e", sentence);
    let condition = eventually("the condition of e", || {
        let message = kubectl.field(
            "pod e",
            ".status.conditions[?(@.type==\"PodScheduled\")].message",
        );
        if message.is_empty() {
            Err(message)
        } else {
            Ok(message)
        }
    });
    assert_eq!(condition, sentence);
    kubectl.run("delete pod a --force --grace-period=0").ok();
    node_of(&kubectl, "e");
}

#[test]
fn what_keeps_a_pod_waiting_is_said_and_ends_when_it_ends() {
    let Some(kubectl) = start() else { return };
    pod(&kubectl, "early", "1", "");
    said(&kubectl, "early", "no nodes available to schedule pods");
    nodes(&kubectl, &["n1", "n2", "n3"]);
    node_of(&kubectl, "early");
    kubectl.run("taint node n1 n2 spot=true:NoSchedule").ok();
    kubectl.run("cordon n3").ok();
    pod(&kubectl, "held", "1", "");
    said(
        &kubectl,
        "held",
        "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) had untolerated taint(s). \
         preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling.",
    );
    kubectl.run("uncordon n3").ok();
    assert_eq!(node_of(&kubectl, "held"), "n3");
    pod(
        &kubectl,
        "gated",
        "100m",
        "  schedulingGates: [{name: example.com/wait}]\n",
    );
    let bears = "  tolerations: [{key: spot, operator: Exists}]\n  affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: \
                 [{topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}]}}\n";
    pod(&kubectl, "apart", "100m", bears);
    let alone = node_of(&kubectl, "apart");
    let others = [node_of(&kubectl, "early"), node_of(&kubectl, "held")];
    assert!(!others.contains(&alone), "{alone} is one of {others:?}");
    assert_eq!(kubectl.field("pod gated", ".spec.nodeName"), "");
}

#[test]
fn an_important_pod_takes_the_place_of_another() {
    let Some(kubectl) = start() else { return };
    nodes(&kubectl, &["n1"]);
    kubectl.create("apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: vip}\nvalue: 1000\n");
    pod(&kubectl, "low", "2", "  terminationGracePeriodSeconds: 0\n");
    assert_eq!(node_of(&kubectl, "low"), "n1");
    pod(&kubectl, "high", "2", "  priorityClassName: vip\n");
    assert_eq!(node_of(&kubectl, "high"), "n1");
    eventually("the event about the victim", || {
        let events =
            kubectl.run("get events --field-selector involvedObject.name=low,reason=Preempted");
        match events.stdout.contains("Preempted by pod ") {
            true => Ok(()),
            false => Err(events.to_string()),
        }
    });
}
