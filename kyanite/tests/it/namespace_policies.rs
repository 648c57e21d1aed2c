//! What a namespace allows, as kubectl's user meets it: Pod Security, limit ranges, quotas.

use crate::harness::{Finished, Kubectl, eventually};

/// A namespace whose pods may be created at once.
fn namespace(kubectl: &Kubectl, name: &str) {
    kubectl.run(&format!("create namespace {name}")).ok();
    // Whoever comes first, this or the controller that makes it: it is there.
    kubectl.run(&format!("-n {name} create serviceaccount default"));
}

fn pod(namespace: &str, name: &str, container: &str) -> String {
    format!(
        r#"{{"apiVersion":"v1","kind":"Pod","metadata":{{"name":"{name}","namespace":"{namespace}"}},
           "spec":{{"containers":[{{"name":"c","image":"i:1"{container}}}]}}}}"#
    )
}

/// Tries to create an object.
fn attempt(kubectl: &Kubectl, document: &str) -> Finished {
    kubectl.with_input("create -f -", document)
}

const HARDENED: &str = r#","securityContext":{"allowPrivilegeEscalation":false,"runAsNonRoot":true,
    "capabilities":{"drop":["ALL"]},"seccompProfile":{"type":"RuntimeDefault"}}"#;

#[test]
fn pods_keep_to_the_level_of_their_namespace() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    namespace(&kubectl, "team");
    kubectl.create(&pod("team", "old", "")).ok();
    kubectl
        .run("label namespace team pod-security.kubernetes.io/enforce=strict")
        .exits_with(1)
        .complains(
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"strict\": must be one of \
             privileged, baseline, restricted",
        );
    kubectl
        .run("label namespace team pod-security.kubernetes.io/enforce=restricted")
        .ok()
        .complains(
            "Warning: existing pods in namespace \"team\" violate the new PodSecurity enforce level \
             \"restricted:latest\"",
        )
        .complains(
            "Warning: old: allowPrivilegeEscalation != false, unrestricted capabilities, runAsNonRoot != \
             true, seccompProfile",
        );
    attempt(&kubectl, &pod("team", "plain", ""))
        .exits_with(1)
        .complains(
            "pods \"plain\" is forbidden: violates PodSecurity \"restricted:latest\": \
             allowPrivilegeEscalation != false (container \"c\" must set \
             securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (container \"c\" must \
             set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true (pod or container \"c\" \
             must set securityContext.runAsNonRoot=true), seccompProfile (pod or container \"c\" must set \
             securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\")",
        );
    kubectl.create(&pod("team", "hard", HARDENED)).ok();
    kubectl
        .run("-n team create deployment web --image=i:1")
        .ok()
        .complains(
            "Warning: would violate PodSecurity \"restricted:latest\": allowPrivilegeEscalation != false",
        );
    // What was there may change in what the level does not look at, and may not get a new image.
    kubectl.run("-n team label pod old a=b").ok();
    kubectl
        .run("-n team set image pod/old c=i:2")
        .exits_with(1)
        .complains("violates PodSecurity");
}

#[test]
fn limit_ranges_fill_in_and_bound_what_containers_ask_for() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    namespace(&kubectl, "team");
    kubectl
        .create(
            r#"{"apiVersion":"v1","kind":"LimitRange","metadata":{"name":"l","namespace":"team"},"spec":{"limits":[
                {"type":"Container","default":{"cpu":"500m"},"defaultRequest":{"cpu":"250m"},"max":{"cpu":"1"}},
                {"type":"PersistentVolumeClaim","max":{"storage":"1Gi"}}]}}"#,
        )
        .ok();
    kubectl.create(&pod("team", "p", "")).ok();
    assert_eq!(
        kubectl.field("-n team pod p", ".spec.containers[0].resources"),
        r#"{"limits":{"cpu":"500m"},"requests":{"cpu":"250m"}}"#
    );
    assert_eq!(
        kubectl.field(
            "-n team pod p",
            r".metadata.annotations.kubernetes\.io/limit-ranger"
        ),
        "LimitRanger plugin set: cpu request for container c; cpu limit for container c"
    );
    let greedy = r#","resources":{"limits":{"cpu":"2"}}"#;
    attempt(&kubectl, &pod("team", "greedy", greedy))
        .exits_with(1)
        .complains(
            "pods \"greedy\" is forbidden: maximum cpu usage per Container is 1, but limit is 2",
        );
    attempt(&kubectl,
            r#"{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"v","namespace":"team"},
                "spec":{"accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"2Gi"}}}}"#,
        )
        .exits_with(1)
        .complains(
            "persistentvolumeclaims \"v\" is forbidden: maximum storage usage per PersistentVolumeClaim is \
             1Gi, but request is 2Gi",
        );
}

#[test]
fn quotas_are_charged_before_anything_is_stored() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    namespace(&kubectl, "team");
    kubectl
        .run("-n team create quota q --hard=pods=2,requests.cpu=1,services.nodeports=1,count/deployments.apps=1")
        .ok();
    settle(
        &kubectl,
        r#"{"pods":"0","requests.cpu":"0","services.nodeports":"0","count/deployments.apps":"0"}"#,
    );
    let cpu = |amount: &str| format!(r#","resources":{{"requests":{{"cpu":"{amount}"}}}}"#);
    attempt(&kubectl, &pod("team", "silent", ""))
        .exits_with(1)
        .complains(
            "pods \"silent\" is forbidden: failed quota: q: must specify requests.cpu for: c",
        );
    kubectl.create(&pod("team", "a", &cpu("600m"))).ok();
    attempt(&kubectl, &pod("team", "b", &cpu("600m")))
        .exits_with(1)
        .complains(
            "pods \"b\" is forbidden: exceeded quota: q, requested: requests.cpu=600m, used: \
             requests.cpu=600m, limited: requests.cpu=1",
        );
    let dry = kubectl.with_input(
        "create --dry-run=server -f -",
        &pod("team", "d", &cpu("400m")),
    );
    dry.ok();
    kubectl.create(&pod("team", "c", &cpu("400m"))).ok();
    assert_eq!(kubectl.field("-n team quota q", ".status.used.pods"), "2");
    kubectl
        .run("-n team create service nodeport np --tcp=80,81")
        .exits_with(1)
        .complains(
            "exceeded quota: q, requested: services.nodeports=2, used: services.nodeports=0, limited: \
             services.nodeports=1",
        );
    kubectl
        .run("-n team create deployment one --image=i:1")
        .ok();
    kubectl
        .run("-n team create deployment two --image=i:1")
        .exits_with(1)
        .complains("exceeded quota: q, requested: count/deployments.apps=1");
}

// Waits until the quota has a status; writes the one that the controller would where none runs.
fn settle(kubectl: &Kubectl, used: &str) {
    let hard = kubectl.field("-n team quota q", ".spec.hard");
    let patch = format!(r#"{{"status":{{"hard":{hard},"used":{used}}}}}"#);
    let args = ["-n", "team", "patch", "quota", "q", "--subresource=status"];
    let args = [&args[..], &["--type=merge", "-p", &patch]].concat();
    kubectl.args(&args).ok();
    eventually("the quota has a status", || {
        let seen = kubectl.field("-n team quota q", ".status.hard");
        if seen == hard { Ok(()) } else { Err(seen) }
    });
}
