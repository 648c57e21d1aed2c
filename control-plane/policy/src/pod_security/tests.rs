#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::json;

use super::*;

fn standard(level: Level, version: Version) -> Standard {
    Standard { level, version }
}

fn said(level: Level, version: Version, pod: &Value) -> String {
    sentence(&violations(standard(level, version), pod))
}

fn labels(pairs: &[(&str, &str)]) -> Value {
    let labels = pairs
        .iter()
        .map(|(key, value)| (format!("{PREFIX}{key}"), Value::from(*value)));
    Value::Object(labels.collect())
}

#[test]
fn a_plain_pod_breaks_the_restricted_level_in_four_ways() {
    let pod = json!({ "spec": { "containers": [{ "name": "a" }, { "name": "b" }] } });
    assert_eq!(
        said(Level::Restricted, Version::Latest, &pod),
        "allowPrivilegeEscalation != false (containers \"a\", \"b\" must set \
         securityContext.allowPrivilegeEscalation=false), unrestricted capabilities (containers \
         \"a\", \"b\" must set securityContext.capabilities.drop=[\"ALL\"]), runAsNonRoot != true \
         (pod or containers \"a\", \"b\" must set securityContext.runAsNonRoot=true), seccompProfile \
         (pod or containers \"a\", \"b\" must set securityContext.seccompProfile.type to \
         \"RuntimeDefault\" or \"Localhost\")"
    );
    assert_eq!(said(Level::Baseline, Version::Latest, &pod), "");
    assert_eq!(said(Level::Privileged, Version::Latest, &pod), "");
}

#[test]
fn baseline_checks_name_who_and_what() {
    for (pod, sentence) in [
        (
            json!({ "spec": { "hostNetwork": true, "hostIPC": true } }),
            "host namespaces (hostNetwork=true, hostIPC=true)",
        ),
        (
            json!({ "spec": { "containers": [
                { "name": "a", "ports": [{ "hostPort": 90 }, { "hostPort": 8080 }, { "hostPort": 0 }] }] } }),
            "hostPort (container \"a\" uses hostPorts 8080, 90)",
        ),
        (
            json!({ "spec": {
                "securityContext": { "seLinuxOptions": { "type": "spc_t", "user": "u" } },
                "containers": [{ "name": "a", "securityContext": { "seLinuxOptions": { "role": "r" } } }] } }),
            "seLinuxOptions (pod and container \"a\" set forbidden securityContext.seLinuxOptions: \
             type \"spc_t\"; user may not be set; role may not be set)",
        ),
        (
            json!({
                "metadata": { "annotations": {
                    "container.apparmor.security.beta.kubernetes.io/a": "unconfined" } },
                "spec": { "securityContext": { "appArmorProfile": { "type": "Unconfined" } } } }),
            "forbidden AppArmor profiles (pod and annotation must not set AppArmor profile type to \
             \"Unconfined\", \"container.apparmor.security.beta.kubernetes.io/a=\"unconfined\"\")",
        ),
        (
            json!({ "spec": { "ephemeralContainers": [{ "name": "e", "securityContext": {
                "privileged": true, "capabilities": { "add": ["NET_RAW", "CHOWN"] } } }] } }),
            "non-default capabilities (container \"e\" must not include \"NET_RAW\" in \
             securityContext.capabilities.add), privileged (container \"e\" must not set \
             securityContext.privileged=true)",
        ),
    ] {
        assert_eq!(said(Level::Baseline, Version::Latest, &pod), sentence);
    }
}

#[test]
fn checks_follow_the_version() {
    let sysctl =
        json!({ "spec": { "securityContext": { "sysctls": [{ "name": "net.ipv4.tcp_rmem" }] } } });
    let probe = json!({ "spec": { "containers": [
        { "name": "a", "livenessProbe": { "httpGet": { "host": "1.2.3.4" } } }] } });
    let unmasked = json!({ "spec": { "hostUsers": false, "containers": [
        { "name": "a", "securityContext": { "procMount": "Unmasked" } }] } });
    for (pod, minor, allowed) in [
        (&sysctl, 31, false),
        (&sysctl, 32, true),
        (&probe, 33, true),
        (&probe, 34, false),
        (&unmasked, 34, false),
        (&unmasked, 35, true),
    ] {
        let found = violations(standard(Level::Baseline, Version::Minor(minor)), pod);
        assert_eq!(found.is_empty(), allowed, "v1.{minor} {pod}");
    }
}

#[test]
fn stricter_checks_replace_their_baseline_counterparts() {
    let pod = json!({ "spec": { "volumes": [{ "name": "v", "hostPath": { "path": "/" } }] } });
    assert_eq!(
        said(Level::Restricted, Version::Minor(0), &pod),
        "restricted volume types (volume \"v\" uses restricted volume type \"hostPath\")"
    );
    assert_eq!(
        said(Level::Baseline, Version::Latest, &pod),
        "hostPath volumes (volume \"v\")"
    );
}

#[test]
fn windows_pods_need_no_linux_fields() {
    let pod = json!({ "spec": {
        "os": { "name": "windows" }, "securityContext": { "runAsNonRoot": true },
        "containers": [{ "name": "a" }] } });
    assert_eq!(said(Level::Restricted, Version::Minor(25), &pod), "");
    assert_ne!(said(Level::Restricted, Version::Minor(24), &pod), "");
}

#[test]
fn enforcing_implies_warning_unless_said_otherwise() {
    let (policy, errors) = Policy::of_labels(&labels(&[
        ("enforce", "baseline"),
        ("enforce-version", "v1.20"),
    ]));
    assert!(errors.is_empty());
    assert_eq!(policy.warn.to_string(), "baseline:v1.20");
    assert_eq!(policy.audit.to_string(), "privileged:latest");
    let (policy, _) =
        Policy::of_labels(&labels(&[("enforce", "baseline"), ("warn", "privileged")]));
    assert_eq!(policy.warn.level, Level::Privileged);
    assert!(Policy::of_labels(&json!({})).0.is_privileged());
}

#[test]
fn unreadable_labels_enforce_the_strictest_and_are_reported() {
    let (policy, errors) = Policy::of_labels(&labels(&[
        ("enforce", "none"),
        ("warn", "some"),
        ("warn-version", "v1.01"),
    ]));
    assert_eq!(policy.enforce.to_string(), "restricted:latest");
    assert_eq!(policy.warn.to_string(), "privileged:latest");
    let told: Vec<String> = errors.0.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "metadata.labels[pod-security.kubernetes.io/enforce]: Invalid value: \"none\": must be one of \
             privileged, baseline, restricted",
            "metadata.labels[pod-security.kubernetes.io/warn]: Invalid value: \"some\": must be one of \
             privileged, baseline, restricted",
            "metadata.labels[pod-security.kubernetes.io/warn-version]: Invalid value: \"v1.01\": must be \
             \"latest\" or \"v1.x\"",
        ]
    );
}

#[test]
fn only_a_tighter_enforcement_looks_at_existing_pods() {
    let policy = |pairs: &[(&str, &str)]| Policy::of_labels(&labels(pairs)).0;
    let (none, baseline) = (policy(&[]), policy(&[("enforce", "baseline")]));
    let restricted = policy(&[("enforce", "restricted")]);
    let older = policy(&[("enforce", "baseline"), ("enforce-version", "v1.20")]);
    assert!(
        baseline.tightens(&none) && restricted.tightens(&baseline) && older.tightens(&baseline)
    );
    assert!(!none.tightens(&baseline) && !baseline.tightens(&restricted));
    assert!(!baseline.tightens(&baseline));
}

#[test]
fn existing_pods_are_summed_up_by_what_they_break() {
    let pod = |name: &str, spec: Value| json!({ "metadata": { "name": name }, "spec": spec });
    let host = json!({ "hostPID": true });
    let pods = [
        pod("c", host.clone()),
        pod("b", host.clone()),
        pod("a", json!({})),
        pod(
            "d",
            json!({ "hostPID": true, "volumes": [{ "name": "v", "hostPath": {} }] }),
        ),
    ];
    let level = standard(Level::Baseline, Version::Latest);
    assert_eq!(
        existing_pod_warnings("ns", level, &pods, || true),
        [
            "existing pods in namespace \"ns\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "b (and 1 other pod): host namespaces",
            "d: host namespaces, hostPath volumes",
        ]
    );
    assert_eq!(
        existing_pod_warnings("ns", level, &pods, || false),
        [
            "new PodSecurity enforce level only checked against the first 1 of 4 existing pods",
            "existing pods in namespace \"ns\" violate the new PodSecurity enforce level \"baseline:latest\"",
            "c: host namespaces",
        ]
    );
}

#[test]
fn only_new_images_and_containers_make_an_update_significant() {
    let pod = json!({ "spec": { "containers": [{ "name": "a", "image": "x" }] } });
    let with = |field: &str, value: Value| {
        let mut changed = pod.clone();
        changed["spec"][field] = value;
        changed
    };
    assert!(!is_significant_update(
        &with("activeDeadlineSeconds", json!(5)),
        &pod
    ));
    assert!(is_significant_update(
        &with("containers", json!([{ "name": "a", "image": "y" }])),
        &pod
    ));
    let debugged = with(
        "ephemeralContainers",
        json!([{ "name": "e", "image": "x" }]),
    );
    assert!(is_significant_update(&debugged, &pod));
    assert!(!is_significant_update(&debugged, &debugged));
    assert!(!is_significant_update(&pod, &debugged));
}
