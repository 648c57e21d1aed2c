//! Pods and pod templates.

use serde_json::Value;

use super::{container, pod_annotations, pod_resize, pod_spec, pod_status, pod_update};
use crate::field::{Errors, Path};
use crate::validation::metadata;
use crate::validation::reading::{at, has, items, text};

/// A new pod.
pub(crate) fn create(pod: &Value, errors: &mut Errors) {
    whole(errors, pod);
    let path = Path::root("spec");
    let (metadata, spec) = (at(pod, "metadata"), at(pod, "spec"));
    if !items(spec, "ephemeralContainers").is_empty() {
        errors.forbidden(
            &path.child("ephemeralContainers"),
            "cannot be set on create",
        );
    }
    if !text(spec, "nodeName").is_empty() && !items(spec, "schedulingGates").is_empty() {
        let detail = "cannot be set until all schedulingGates have been cleared";
        errors.forbidden(&path.child("nodeName"), detail);
    }
    pod_annotations::agree_with_fields(errors, &path, metadata, spec);
}

/// A changed pod.
pub(crate) fn update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    match subresource {
        "status" => pod_status::update(errors, new, old),
        "ephemeralcontainers" => pod_update::ephemeral_containers(errors, new, old),
        "resize" => pod_resize::update(errors, new, old),
        // A binding is judged itself; the pod it changes is written as it is.
        "binding" => {}
        _ => pod_update::update(errors, new, old),
    }
}

/// What every version of a pod obeys.
pub(crate) fn whole(errors: &mut Errors, pod: &Value) {
    let (metadata, spec) = (at(pod, "metadata"), at(pod, "spec"));
    let (metadata_path, path) = (Path::root("metadata"), Path::root("spec"));
    let annotations = metadata_path.child("annotations");
    pod_annotations::values(errors, &annotations, metadata, spec);
    pod_spec::spec(errors, &path, spec, metadata);
    if text(spec, "serviceAccountName").is_empty() {
        no_account_tokens(errors, &path.child("volumes"), items(spec, "volumes"));
    }
    for list in ["containers", "initContainers"] {
        container::trimmed_images(errors, &path.child(list), items(spec, list));
    }
}

fn no_account_tokens(errors: &mut Errors, path: &Path<'_>, volumes: &[Value]) {
    for (i, volume) in volumes.iter().enumerate() {
        let element = path.index(i);
        let projected = element.child("projected");
        let sources = projected.child("sources");
        for (j, source) in items(at(volume, "projected"), "sources").iter().enumerate() {
            if has(source, "serviceAccountToken") {
                let path = sources.index(j);
                let detail = "must not be specified when serviceAccountName is not set";
                errors.forbidden(&path.child("serviceAccountToken"), detail);
            }
        }
    }
}

/// A pod template at `path`. Upstream reports its labels without the `metadata` in between.
pub(crate) fn template(errors: &mut Errors, path: &Path<'_>, template: &Value) {
    let (metadata, spec) = (at(template, "metadata"), at(template, "spec"));
    metadata::template(metadata, path, errors);
    pod_annotations::values(errors, &path.child("annotations"), metadata, spec);
    let spec_path = path.child("spec");
    pod_spec::spec(errors, &spec_path, spec, &Value::Null);
    pod_annotations::agree_with_fields(errors, &spec_path, metadata, spec);
    if !items(spec, "ephemeralContainers").is_empty() {
        let detail = "ephemeral containers not allowed in pod template";
        errors.forbidden(&spec_path.child("ephemeralContainers"), detail);
    }
}

/// A new PodTemplate.
pub(crate) fn create_template(object: &Value, errors: &mut Errors) {
    template(errors, &Path::root("template"), at(object, "template"));
}

/// A changed PodTemplate.
pub(crate) fn update_template(new: &Value, _old: &Value, _sub: &str, errors: &mut Errors) {
    create_template(new, errors);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;
    use crate::validation::pods::pod_spec::tests::complete;

    fn pod(extra: Value) -> Value {
        json!({"metadata": {"name": "p", "namespace": "default"}, "spec": complete(extra)})
    }

    #[test]
    fn a_new_pod_is_checked_field_by_field() {
        let check = |extra: Value| told(|e| create(&pod(extra), e)).join("|");
        assert_eq!(check(json!({"serviceAccountName": "default"})), "");
        assert_eq!(
            check(json!({"nodeName": "n", "schedulingGates": [{"name": "g"}]})),
            "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"
        );
        let debug = json!([{"name": "debug", "image": "x", "resources": {}}]);
        assert_eq!(
            check(json!({ "ephemeralContainers": debug })),
            "spec.ephemeralContainers: Forbidden: cannot be set on create"
        );
        let token = json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]);
        assert_eq!(
            check(json!({ "volumes": token })),
            "spec.volumes[0].projected.sources[0].serviceAccountToken: Forbidden: must not be specified when serviceAccountName is not set"
        );
        let padded = json!([{"name": "a", "image": "x ", "resources": {}}]);
        assert_eq!(
            check(json!({ "containers": padded })),
            "spec.containers[0].image: Invalid value: \"x \": must not have leading or trailing whitespace"
        );
    }

    #[test]
    fn only_a_binding_may_give_a_pod_its_node() {
        let pod = |extra| json!({"metadata": {"name": "p"}, "spec": complete(extra)});
        let (old, new) = (pod(json!({})), pod(json!({"nodeName": "n"})));
        let check = |subresource| told(|e| update(&new, &old, subresource, e)).len();
        assert_eq!((check("binding"), check("")), (0, 1));
    }

    #[test]
    fn a_template_is_checked_as_its_pods_would_be() {
        let check = |template: Value| {
            told(|e| create_template(&json!({ "template": template }), e)).join("|")
        };
        assert_eq!(check(json!({"spec": complete(json!({}))})), "");
        let bad = check(json!({"metadata": {"labels": {"a b": "c"}}, "spec": complete(json!({}))}));
        assert!(
            bad.starts_with("template.labels: Invalid value: \"a b\""),
            "{bad}"
        );
        let debug = json!([{"name": "debug", "image": "x", "resources": {}}]);
        let found = check(json!({"spec": complete(json!({ "ephemeralContainers": debug }))}));
        assert_eq!(
            found,
            "template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template"
        );
    }
}
