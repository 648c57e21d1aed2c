//! Changes through `resize`: cpu and memory of containers, and nothing else.

use serde_json::{Map, Value};

use super::pod;
use super::pod_annotations::MIRROR;
use super::pod_update::restore;
use crate::field::{Errors, Path};
use crate::pod_resources::is_sidecar;
use crate::qos::qos_class;
use crate::validation::reading::{at, has, items, same, text};

const ONLY_COMPUTE: &str = "only cpu and memory resources are mutable";
const ONLY_COMPUTE_OF_INIT: &str =
    "only cpu and memory resources for init or sidecar containers are mutable";

/// A resized pod.
pub(crate) fn update(errors: &mut Errors, new: &Value, old: &Value) {
    if let Some(what) = cannot_be_resized(old) {
        return errors.forbidden(&Path::root(""), &format!("{what} pods cannot be resized"));
    }
    pod::whole(errors, new);
    let path = Path::root("spec");
    let class = match text(at(old, "status"), "qosClass") {
        "" => qos_class(old),
        class => class,
    };
    if class != qos_class(new) {
        let shown = text(at(new, "status"), "qosClass");
        let detail = "Pod QOS Class may not change as a result of resizing";
        errors.invalid(&path, &shown.into(), detail);
    }
    if !node_can_resize(old) {
        errors.forbidden(&path, "Pod running on node without support for resize");
    }
    if !items(at(old, "status"), "nodeAllocatableResourceClaimStatuses").is_empty() {
        let detail = "pods with node allocatable resource claims cannot be resized";
        errors.forbidden(&path, detail);
    }
    spec(errors, &path, at(new, "spec"), at(old, "spec"));
}

fn cannot_be_resized(pod: &Value) -> Option<&'static str> {
    if at(at(pod, "metadata"), "annotations").get(MIRROR).is_some() {
        return Some("static");
    }
    (text(at(at(pod, "spec"), "os"), "name") == "windows").then_some("windows")
}

// A node that can resize reports the resources of what runs.
fn node_can_resize(pod: &Value) -> bool {
    items(at(pod, "status"), "containerStatuses")
        .iter()
        .find(|status| has(at(status, "state"), "running"))
        .is_none_or(|status| has(status, "resources"))
}

fn spec(errors: &mut Errors, path: &Path<'_>, new: &Value, old: &Value) {
    let mut rest = new.clone();
    pod_level(errors, path, &mut rest, new, old);
    let lists = ["initContainers", "containers"];
    let in_order = lists
        .iter()
        .filter(|list| same_order(errors, path, list, new, old))
        .count();
    if in_order != lists.len() {
        return;
    }
    for list in lists {
        for (i, before) in items(old, list).iter().enumerate() {
            let list_path = path.child(list);
            let element = list_path.index(i);
            let after = &items(new, list)[i];
            nothing_removed(
                errors,
                &element.child("resources"),
                after,
                before,
                "resource",
            );
            restore_compute(&mut rest[list][i], before);
            if !same(&rest[list][i], before) {
                match list {
                    "containers" => errors.forbidden(path, ONLY_COMPUTE),
                    _ => errors.forbidden(&element, ONLY_COMPUTE_OF_INIT),
                }
            }
            if list == "initContainers" && !same(after, before) {
                restarting_init(errors, &element, after);
            }
        }
    }
    if errors.is_empty() && !same(&rest, old) {
        errors.forbidden(path, ONLY_COMPUTE);
    }
}

fn restarting_init(errors: &mut Errors, path: &Path<'_>, container: &Value) {
    let restarts = |policy: &&Value| text(policy, "restartPolicy") == "RestartContainer";
    let count = items(container, "resizePolicy")
        .iter()
        .filter(restarts)
        .count();
    for _ in 0..if is_sidecar(container) { 0 } else { count } {
        let detail = "non-sidecar init containers with a resize policy of RestartContainer cannot be resized";
        errors.forbidden(path, detail);
    }
}

fn same_order(errors: &mut Errors, path: &Path<'_>, list: &str, new: &Value, old: &Value) -> bool {
    let (new, old) = (items(new, list), items(old, list));
    let list_path = path.child(list);
    if new.len() != old.len() {
        errors.forbidden(
            &list_path,
            &format!("{list} may not be added or removed on resize"),
        );
        return false;
    }
    let mut in_order = true;
    for (i, (new, old)) in new.iter().zip(old).enumerate() {
        if text(new, "name") != text(old, "name") {
            in_order = false;
            let detail = format!("{list} may not be renamed or reordered on resize");
            errors.forbidden(&list_path.index(i).child("name"), &detail);
        }
    }
    in_order
}

fn pod_level(errors: &mut Errors, path: &Path<'_>, rest: &mut Value, new: &Value, old: &Value) {
    let is_set = |spec: &Value| {
        let own = at(spec, "resources");
        has(own, "requests") || has(own, "limits")
    };
    if !is_set(new) && !is_set(old) {
        return;
    }
    let resources = path.child("resources");
    if has(old, "resources") && !has(new, "resources") {
        return errors.forbidden(&resources, "pod-level resources cannot be removed");
    }
    nothing_removed(errors, &resources, new, old, "pod-level resource");
    restore_compute(rest, old);
    let is_empty = |value: &Value| value.as_object().is_some_and(Map::is_empty);
    if !has(old, "resources") && is_empty(at(rest, "resources")) {
        restore(rest, old, "resources");
    }
    if !same(at(rest, "resources"), at(old, "resources")) {
        errors.forbidden(path, &format!("{ONLY_COMPUTE} at pod-level"));
    }
}

fn nothing_removed(errors: &mut Errors, path: &Path<'_>, new: &Value, old: &Value, what: &str) {
    for list in ["requests", "limits"] {
        let (new, old) = (
            at(at(new, "resources"), list),
            at(at(old, "resources"), list),
        );
        if old
            .as_object()
            .into_iter()
            .flatten()
            .any(|(name, _)| new.get(name).is_none())
        {
            errors.forbidden(
                &path.child(list),
                &format!("{what} {list} cannot be removed"),
            );
        }
    }
}

// Puts cpu and memory back to what they were, so that any difference left is a forbidden one.
fn restore_compute(new: &mut Value, old: &Value) {
    for list in ["requests", "limits"] {
        let mut amounts = at(at(new, "resources"), list)
            .as_object()
            .cloned()
            .unwrap_or_default();
        let before = at(at(old, "resources"), list);
        for name in ["cpu", "memory"] {
            match before.get(name) {
                Some(amount) => amounts.insert(name.to_owned(), amount.clone()),
                None => amounts.remove(name),
            };
        }
        if let Some(Value::Object(resources)) = new.get_mut("resources") {
            match amounts.is_empty() {
                true => resources.remove(list),
                false => resources.insert(list.to_owned(), Value::Object(amounts)),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;
    use crate::validation::pods::pod_spec::tests::complete;

    fn pod(resources: Value, extra: Value) -> Value {
        let mut spec = complete(json!({
            "containers": [{"name": "app", "image": "nginx", "resources": resources}]
        }));
        for (name, value) in extra.as_object().expect("an object") {
            spec[name] = value.clone();
        }
        json!({"metadata": {"name": "p", "namespace": "default"}, "spec": spec})
    }

    fn resize(old: Value, new: Value) -> String {
        told(|e| update(e, &pod(new, json!({})), &pod(old, json!({})))).join("|")
    }

    #[test]
    fn cpu_and_memory_may_change() {
        let ask = |cpu: &str| json!({"requests": {"cpu": cpu, "memory": "1Gi"}});
        assert_eq!(resize(ask("1"), ask("2")), "");
        assert_eq!(
            resize(ask("1"), json!({"requests": {"cpu": "1"}})),
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed"
        );
        assert_eq!(
            resize(json!({}), ask("1")),
            "spec: Invalid value: \"\": Pod QOS Class may not change as a result of resizing"
        );
        let disk = json!({"requests": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"}});
        assert_eq!(
            resize(ask("1"), disk),
            "spec: Forbidden: only cpu and memory resources are mutable"
        );
    }

    #[test]
    fn nothing_else_may_change() {
        let ask = json!({"requests": {"cpu": "1"}});
        let old = pod(ask.clone(), json!({}));
        let check = |new: &Value, old: &Value| told(|e| update(e, new, old)).join("|");
        assert_eq!(
            check(&pod(ask.clone(), json!({"hostname": "a"})), &old),
            "spec: Forbidden: only cpu and memory resources are mutable"
        );
        let mut renamed = old.clone();
        renamed["spec"]["containers"][0]["name"] = "other".into();
        assert_eq!(
            check(&renamed, &old),
            "spec.containers[0].name: Forbidden: containers may not be renamed or reordered on resize"
        );
        let mut fixed = old.clone();
        fixed["metadata"]["annotations"] = json!({MIRROR: "x"});
        assert_eq!(
            check(&old, &fixed),
            ": Forbidden: static pods cannot be resized"
        );
        let mut unable = old.clone();
        unable["status"] = json!({"containerStatuses": [{"state": {"running": {}}}]});
        assert_eq!(
            check(&old, &unable),
            "spec: Forbidden: Pod running on node without support for resize"
        );
    }

    #[test]
    fn resources_of_the_pod_as_a_whole() {
        let with = |own: Value| {
            pod(
                json!({"requests": {"cpu": "1"}}),
                json!({ "resources": own }),
            )
        };
        let check = |new: Value, old: Value| told(|e| update(e, &with(new), &with(old))).join("|");
        let (small, large) = (
            json!({"requests": {"cpu": "1"}}),
            json!({"requests": {"cpu": "2"}}),
        );
        assert_eq!(check(large.clone(), small.clone()), "");
        assert_eq!(
            check(json!({"limits": {"cpu": "2"}}), small),
            "spec.resources.requests: Forbidden: pod-level resource requests cannot be removed"
        );
    }
}
