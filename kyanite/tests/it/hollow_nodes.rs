//! Hollow nodes of `kyanite up --hollow`, seen through kubectl: pods that run on paper, nodes that are lost, and what is
//! collected as garbage.

use super::harness::{Kubectl, ServerOptions, eventually};

fn start(flags: &[&'static str]) -> Option<Kubectl> {
    Kubectl::start_with(ServerOptions {
        flags: flags.to_vec(),
    })
}

/// Waits until a field of an object is as it should be.
fn becomes(kubectl: &Kubectl, object: &str, path: &str, wanted: impl Fn(&str) -> bool) -> String {
    eventually(&format!("{path} of {object}"), || {
        let got = kubectl.run(&format!("get {object} -o jsonpath={{{path}}}"));
        match got.code == Some(0) && wanted(&got.stdout) {
            true => Ok(got.stdout.clone()),
            false => Err(format!("{got}")),
        }
    })
}

fn goes(kubectl: &Kubectl, object: &str) {
    eventually(&format!("{object} goes"), || {
        let got = kubectl.run(&format!("get {object} -o name --ignore-not-found"));
        match got.code == Some(0) && got.stdout.is_empty() {
            true => Ok(()),
            false => Err(format!("{got}")),
        }
    });
}

fn all_ready(kubectl: &Kubectl, count: usize) {
    let path = ".items[*].status.conditions[?(@.type==\"Ready\")].status";
    let all = vec!["True"; count].join(" ");
    becomes(kubectl, "nodes", path, |ready| ready == all);
}

fn pod(name: &str, node: &str, more: &str, annotations: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}, annotations: {{{annotations}}}}}\n\
         spec: {{nodeName: {node}, containers: [{{name: main, image: app}}], {more}}}\n"
    )
}

/// Pods can be made once their namespace has its account.
fn create_pod(kubectl: &Kubectl, document: &str) {
    eventually("the pod is made", || {
        let made = kubectl.with_input("create -f -", document);
        (made.code == Some(0))
            .then_some(())
            .ok_or(format!("{made}"))
    });
}

#[test]
fn hollow_nodes_are_ready_spread_over_zones_and_keep_their_ranges() {
    let Some(mut kubectl) = start(&["--hollow=4"]) else {
        return;
    };
    all_ready(&kubectl, 4);
    let zones = ".items[*].metadata.labels.topology\\.kubernetes\\.io/zone";
    let zones = kubectl.field("nodes", zones);
    assert_eq!(zones, "local-1 local-2 local-3 local-1");
    let ranges = becomes(&kubectl, "nodes", ".items[*].spec.podCIDR", |ranges| {
        ranges.split(' ').count() == 4
    });
    let mut sorted: Vec<&str> = ranges.split(' ').collect();
    sorted.sort_unstable();
    assert_eq!(
        sorted,
        [
            "10.244.0.0/24",
            "10.244.1.0/24",
            "10.244.2.0/24",
            "10.244.3.0/24"
        ]
    );
    let leases = "leases -n kube-node-lease";
    becomes(
        &kubectl,
        leases,
        ".items[*].spec.holderIdentity",
        |holders| holders == "hollow-0 hollow-1 hollow-2 hollow-3",
    );
    let provider = kubectl.field("node hollow-2", ".spec.providerID");
    assert!(
        provider.starts_with("azure:///subscriptions/"),
        "{provider}"
    );
    // Registered ones lose the taint they start with.
    becomes(&kubectl, "nodes", ".items[*].spec.taints", str::is_empty);
    kubectl.server.kill();
    kubectl.server.start_again();
    all_ready(&kubectl, 4);
    assert_eq!(kubectl.field("nodes", ".items[*].spec.podCIDR"), ranges);
}

#[test]
fn a_bound_pod_runs_on_paper_and_stops_within_its_grace() {
    let Some(kubectl) = start(&["--hollow=2"]) else {
        return;
    };
    all_ready(&kubectl, 2);
    let slow = "hollow.kyanite.dev/stop-seconds: \"2\"";
    create_pod(&kubectl, &pod("web", "hollow-1", "", slow));
    kubectl
        .run("wait --for=condition=Ready pod/web --timeout=90s")
        .ok();
    kubectl
        .run("get pod web")
        .ok()
        .prints("1/1")
        .prints("Running");
    let range = kubectl.field("node hollow-1", ".spec.podCIDR");
    let address = kubectl.field("pod web", ".status.podIP");
    let network = range.trim_end_matches("0/24");
    assert!(address.starts_with(network), "{address} is not of {range}");
    kubectl.run("delete pod web --wait=false").ok();
    let grace = kubectl
        .run("get pod web -o jsonpath={.metadata.deletionGracePeriodSeconds} --ignore-not-found");
    assert_eq!(grace.stdout, "30", "it is still there while it stops");
    goes(&kubectl, "pod/web");
}

#[test]
fn a_pod_that_is_to_end_ends_as_its_annotations_say() {
    let Some(kubectl) = start(&["--hollow=1"]) else {
        return;
    };
    for (name, code, phase) in [("good", 0, "Succeeded"), ("bad", 3, "Failed")] {
        let script = format!(
            "hollow.kyanite.dev/run-seconds: \"1\", hollow.kyanite.dev/exit-code: \"{code}\""
        );
        create_pod(
            &kubectl,
            &pod(name, "hollow-0", "restartPolicy: Never", &script),
        );
        becomes(&kubectl, &format!("pod {name}"), ".status.phase", |got| {
            got == phase
        });
        let exit = ".status.containerStatuses[0].state.terminated.exitCode";
        let got = kubectl.field(&format!("pod {name}"), exit);
        assert_eq!(got, code.to_string());
    }
}

#[test]
fn a_silent_node_is_marked_tainted_and_emptied_and_may_come_back() {
    let Some(kubectl) = start(&[
        "--hollow=3",
        "--node-monitor-period=500ms",
        "--node-monitor-grace-period=15s",
        "--pod-eviction-timeout=5m",
    ]) else {
        return;
    };
    all_ready(&kubectl, 3);
    let soon = "tolerations: [{key: node.kubernetes.io/unreachable, operator: Exists, effect: NoExecute, tolerationSeconds: 1}]";
    create_pod(&kubectl, &pod("moves", "hollow-0", soon, ""));
    create_pod(&kubectl, &pod("stays", "hollow-0", "", ""));
    kubectl
        .run("wait --for=condition=Ready pod/moves pod/stays --timeout=90s")
        .ok();
    kubectl
        .run("annotate node hollow-0 hollow.kyanite.dev/silent=true")
        .ok();
    let ready = ".status.conditions[?(@.type==\"Ready\")]";
    becomes(&kubectl, "node hollow-0", &format!("{ready}.status"), |s| {
        s == "Unknown"
    });
    assert_eq!(
        kubectl.field("node hollow-0", &format!("{ready}.reason")),
        "NodeStatusUnknown"
    );
    kubectl.run("get node hollow-0").ok().prints("NotReady");
    becomes(&kubectl, "node hollow-0", ".spec.taints", |taints| {
        taints.contains("node.kubernetes.io/unreachable")
            && taints.contains("NoSchedule")
            && taints.contains("NoExecute")
    });
    becomes(&kubectl, "pod stays", &format!("{ready}.status"), |s| {
        s == "False"
    });
    becomes(&kubectl, "pod moves", ".metadata.deletionTimestamp", |at| {
        !at.is_empty()
    });
    let target = ".status.conditions[?(@.type==\"DisruptionTarget\")].reason";
    assert_eq!(kubectl.field("pod moves", target), "DeletionByTaintManager");
    let events = |reason: &str| {
        let events = format!("events -A --field-selector=reason={reason}");
        becomes(&kubectl, &events, ".items[*].reason", |found| {
            !found.is_empty()
        });
    };
    events("NodeNotReady");
    events("TaintManagerEviction");
    // Nobody is there to stop it: it goes once the node is written off.
    kubectl
        .run("taint node hollow-0 node.kubernetes.io/out-of-service=nodeshutdown:NoExecute")
        .ok();
    goes(&kubectl, "pod/moves");
    kubectl
        .run("taint node hollow-0 node.kubernetes.io/out-of-service-")
        .ok();
    kubectl
        .run("annotate node hollow-0 hollow.kyanite.dev/silent-")
        .ok();
    becomes(&kubectl, "node hollow-0", &format!("{ready}.status"), |s| {
        s == "True"
    });
    becomes(&kubectl, "node hollow-0", ".spec.taints", str::is_empty);
}

fn map(name: &str, more: &str) -> String {
    format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {name}, {more}}}\n")
}

/// An owner and two dependents, one of which its owner waits for.
fn family(kubectl: &Kubectl, owner: &str) {
    kubectl.create(&map(owner, ""));
    let uid = kubectl.field(&format!("configmap {owner}"), ".metadata.uid");
    for (child, blocks) in [("a", true), ("b", false)] {
        let reference = format!(
            "ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: {owner}, uid: {uid}, blockOwnerDeletion: {blocks}}}]"
        );
        kubectl.create(&map(&format!("{owner}-{child}"), &reference));
    }
}

#[test]
fn dependents_follow_their_owner_as_the_policy_says() {
    let Some(kubectl) = start(&[]) else {
        return;
    };
    family(&kubectl, "background");
    kubectl
        .run("delete configmap background --cascade=background")
        .ok();
    goes(&kubectl, "configmap/background-a");
    goes(&kubectl, "configmap/background-b");

    family(&kubectl, "foreground");
    kubectl
        .run("delete configmap foreground --cascade=foreground --timeout=90s")
        .ok();
    let blocking = kubectl.run("get configmap foreground-a -o name --ignore-not-found");
    assert_eq!(blocking.stdout, "", "the owner went before what blocks it");
    goes(&kubectl, "configmap/foreground-b");

    family(&kubectl, "orphan");
    kubectl
        .run("delete configmap orphan --cascade=orphan --timeout=90s")
        .ok();
    for child in ["orphan-a", "orphan-b"] {
        let owners = kubectl.field(&format!("configmap {child}"), ".metadata.ownerReferences");
        assert_eq!(owners, "", "{child}");
    }
}

#[test]
fn owners_that_never_were_or_are_elsewhere_do_not_keep_their_dependents() {
    let Some(kubectl) = start(&[]) else {
        return;
    };
    let never = "ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: never, uid: 11111111-1111-1111-1111-111111111111}]";
    kubectl.create(&map("child-of-nobody", never));
    goes(&kubectl, "configmap/child-of-nobody");
    // A kind that nobody serves may be served later.
    let unknown = "ownerReferences: [{apiVersion: example.com/v1, kind: Unknown, name: x, uid: 22222222-2222-2222-2222-222222222222}]";
    kubectl.create(&map("child-of-the-unknown", unknown));
    kubectl.create(&map("here", ""));
    let uid = kubectl.field("configmap here", ".metadata.uid");
    let elsewhere = format!(
        "namespace: kube-public, ownerReferences: [{{apiVersion: v1, kind: ConfigMap, name: here, uid: {uid}}}]"
    );
    kubectl.create(&map("stranger", &elsewhere));
    let events = "events -A --field-selector=reason=OwnerRefInvalidNamespace";
    becomes(&kubectl, events, ".items[*].message", |message| {
        message.contains("does not exist in namespace \"kube-public\"")
    });
    goes(&kubectl, "configmap/stranger -n kube-public");
    kubectl.run("get configmap here child-of-the-unknown").ok();
}
