//! PodSecurity: pods keep to the level that their namespace's labels ask for.

use std::time::Duration;

use futures::FutureExt as _;
use policy::pod_security::{self, Policy};
use serde_json::Value;
use tokio::time::Instant;

use super::{Attributes, Operation, Plugin, lookup};
use crate::api::Api;
use crate::status::{ApiError, Result};

/// The row of this plugin.
pub(super) const PLUGIN: Plugin = Plugin {
    name: "PodSecurity",
    handles,
    mutate: None,
    validate: Some(|api, attributes, object| check(api, attributes, object).boxed()),
};

/// How long existing pods are looked at when a namespace becomes stricter.
const LOOK_AT_PODS: Duration = Duration::from_secs(1);

/// Objects that carry a pod template, beside pods themselves.
const TEMPLATED: [(&str, &str); 8] = [
    ("", "replicationcontrollers"),
    ("", "podtemplates"),
    ("apps", "replicasets"),
    ("apps", "deployments"),
    ("apps", "statefulsets"),
    ("apps", "daemonsets"),
    ("batch", "jobs"),
    ("batch", "cronjobs"),
];

/// Subresources of pods that leave the spec alone. Any other one is looked at.
const HARMLESS: [&str; 8] = [
    "exec",
    "attach",
    "binding",
    "eviction",
    "log",
    "portforward",
    "proxy",
    "status",
];

fn handles(attributes: &Attributes<'_>) -> bool {
    if !matches!(attributes.operation, Operation::Create | Operation::Update) {
        return false;
    }
    if attributes.is("", "pods") {
        return !HARMLESS.contains(&attributes.subresource);
    }
    let known = attributes.is("", "namespaces")
        || TEMPLATED
            .iter()
            .any(|(group, plural)| attributes.is(group, plural));
    known && attributes.subresource.is_empty()
}

async fn check(api: &Api, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<()> {
    let Some(object) = object else { return Ok(()) };
    if attributes.is("", "namespaces") {
        return check_namespace(api, attributes, object).await;
    }
    let namespaces = lookup::resource("", "v1", "namespaces");
    let name = attributes.namespace();
    let labels = match lookup::get(api, namespaces, "", name).await? {
        Some(namespace) => namespace["metadata"]["labels"].clone(),
        None if attributes.is("", "pods") => {
            let why = format!("failed to lookup namespace {name:?}");
            return Err(ApiError::internal(why));
        }
        None => return Ok(()),
    };
    check_pod(attributes, &Policy::of_labels(&labels).0, object)
}

fn check_pod(attributes: &Attributes<'_>, policy: &Policy, object: &Value) -> Result<()> {
    let unchanged = attributes
        .old
        .is_some_and(|old| !pod_security::is_significant_update(object, old));
    let is_pod = attributes.is("", "pods");
    if is_pod {
        let key = "pod-security.kubernetes.io/enforce-policy";
        attributes.annotate(key, &policy.enforce.to_string());
    }
    if policy.is_privileged() || (is_pod && unchanged) {
        return Ok(());
    }
    let template = pod_security::template_of(attributes.resource().kind, object);
    if !template.is_object() {
        return Ok(());
    }
    let found = |standard| {
        let violations = pod_security::violations(standard, template);
        (!violations.is_empty()).then(|| {
            let sentence = pod_security::sentence(&violations);
            format!("PodSecurity \"{standard}\": {sentence}")
        })
    };
    if attributes.call.trail.is_some()
        && let Some(violation) = found(policy.audit)
    {
        let key = "pod-security.kubernetes.io/audit-violations";
        attributes.annotate(key, &format!("would violate {violation}"));
    }
    if is_pod && let Some(violation) = found(policy.enforce) {
        return Err(attributes.forbid(Some(object), &format!("violates {violation}")));
    }
    if let Some(violation) = found(policy.warn) {
        attributes.warn(format!("would violate {violation}"));
    }
    Ok(())
}

async fn check_namespace(api: &Api, attributes: &Attributes<'_>, namespace: &Value) -> Result<()> {
    let Some(policy) = namespace_policy(attributes, namespace)? else {
        return Ok(());
    };
    let pods = lookup::resource("", "v1", "pods");
    let Ok(pods) = lookup::list(api, pods, attributes.name).await else {
        attributes.warn("failed to list pods while checking new PodSecurity enforce level");
        return Ok(());
    };
    let started = Instant::now();
    let in_time = || started.elapsed() < LOOK_AT_PODS;
    let warnings =
        pod_security::existing_pod_warnings(attributes.name, policy.enforce, &pods, in_time);
    warnings
        .into_iter()
        .for_each(|warning| attributes.warn(warning));
    Ok(())
}

// The policy that existing pods are held against, if it is a stricter one. Labels that make no sense
// are refused unless they were there before.
fn namespace_policy(attributes: &Attributes<'_>, namespace: &Value) -> Result<Option<Policy>> {
    let (policy, errors) = Policy::of_labels(&namespace["metadata"]["labels"]);
    let old = attributes
        .old
        .map(|old| Policy::of_labels(&old["metadata"]["labels"]));
    let known = old.as_ref().is_some_and(|(_, old)| old.0 == errors.0);
    if !errors.is_empty() && !known {
        let name = attributes.name;
        return Err(ApiError::invalid("", "Namespace", name, &errors));
    }
    Ok(old.filter(|(old, _)| policy.tightens(old)).map(|_| policy))
}

#[cfg(test)]
mod tests {
    use super::super::trial;
    use super::*;
    use serde_json::json;

    const PODS: (&str, &str, &str) = ("", "v1", "pods");
    const DEPLOYMENTS: (&str, &str, &str) = ("apps", "v1", "deployments");

    fn policy(mode: &str, level: &str) -> Policy {
        let label = format!("pod-security.kubernetes.io/{mode}");
        Policy::of_labels(&json!({ label: level })).0
    }

    #[test]
    fn pods_that_violate_the_enforced_level_are_refused_without_warnings() {
        let call = trial::call(PODS, "team", "");
        let attributes = trial::attributes(&call, Operation::Create, "", None);
        let pod = json!({ "metadata": { "name": "p" }, "spec": { "hostPID": true } });
        let refused = check_pod(&attributes, &policy("enforce", "baseline"), &pod);
        assert_eq!(
            refused.expect_err("violates").message,
            "pods \"p\" is forbidden: violates PodSecurity \"baseline:latest\": host namespaces (hostPID=true)"
        );
        assert!(call.warnings.take().is_empty());
        check_pod(&attributes, &policy("warn", "baseline"), &pod).expect("only a warning");
        assert_eq!(
            call.warnings.take(),
            ["would violate PodSecurity \"baseline:latest\": host namespaces (hostPID=true)"]
        );
        let same = trial::attributes(&call, Operation::Update, "", Some(&pod));
        check_pod(&same, &policy("enforce", "baseline"), &pod).expect("nothing new");
    }

    #[test]
    fn templates_are_only_warned_about() {
        let call = trial::call(DEPLOYMENTS, "team", "web");
        let attributes = trial::attributes(&call, Operation::Create, "", None);
        let deployment = json!({ "spec": { "template": { "spec": { "hostPID": true } } } });
        check_pod(&attributes, &policy("enforce", "baseline"), &deployment).expect("not a pod");
        assert_eq!(call.warnings.take().len(), 1);
    }

    #[test]
    fn labels_of_namespaces_must_make_sense_once_they_change() {
        let namespace = |level: &str, other: &str| {
            json!({ "metadata": { "name": "team", "labels": {
                "pod-security.kubernetes.io/enforce": level, "other": other } } })
        };
        let call = trial::call(("", "v1", "namespaces"), "", "team");
        let created = trial::attributes(&call, Operation::Create, "", None);
        assert_eq!(
            namespace_policy(&created, &namespace("nope", ""))
                .expect_err("bad")
                .message,
            "Namespace \"team\" is invalid: metadata.labels[pod-security.kubernetes.io/enforce]: Invalid \
             value: \"nope\": must be one of privileged, baseline, restricted"
        );
        let old = namespace("nope", "");
        let updated = trial::attributes(&call, Operation::Update, "", Some(&old));
        assert_eq!(
            namespace_policy(&updated, &namespace("nope", "x")).expect("as before"),
            None
        );
        assert!(namespace_policy(&updated, &namespace("neither", "")).is_err());
        let old = namespace("privileged", "");
        let updated = trial::attributes(&call, Operation::Update, "", Some(&old));
        let stricter = namespace_policy(&updated, &namespace("restricted", "")).expect("good");
        assert_eq!(
            stricter.map(|p| p.enforce.to_string()).as_deref(),
            Some("restricted:latest")
        );
    }

    #[test]
    fn subresources_that_leave_the_spec_alone_are_not_looked_at() {
        for (resource, subresource, handled) in [
            (PODS, "", true),
            (PODS, "ephemeralcontainers", true),
            (PODS, "status", false),
            (PODS, "binding", false),
            (DEPLOYMENTS, "", true),
            (DEPLOYMENTS, "scale", false),
            (("", "v1", "services"), "", false),
        ] {
            let call = trial::call(resource, "team", "x");
            let attributes = trial::attributes(&call, Operation::Update, subresource, None);
            assert_eq!(handles(&attributes), handled, "{resource:?} {subresource}");
        }
    }
}
