//! Namespaces: their finalizers and phase.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, deep, has, text, texts};
use crate::validation::rules::complain;

const STANDARD_FINALIZERS: &[&str] = &["kubernetes", "orphan", "foregroundDeletion"];

/// A new Namespace. Its finalizers are reported at the path of the list.
pub fn create(object: &Value, errors: &mut Errors) {
    let spec = Path::root("spec");
    for name in texts(at(object, "spec"), "finalizers") {
        finalizer(name, &spec.child("finalizers"), errors);
    }
}

/// A changed Namespace, its status, or its finalizers.
pub fn update(new: &Value, _old: &Value, subresource: &str, errors: &mut Errors) {
    match subresource {
        "status" => phase(new, errors),
        "finalize" => {
            let spec = Path::root("spec");
            let path = spec.child("finalizers");
            for (i, name) in texts(at(new, "spec"), "finalizers").enumerate() {
                finalizer(name, &path.index(i), errors);
            }
        }
        _ => {}
    }
}

fn finalizer(name: &str, path: &Path<'_>, errors: &mut Errors) {
    complain(errors, path, name, names::qualified_name(name));
    if !name.contains('/') && !STANDARD_FINALIZERS.contains(&name) {
        let complaint = "name is neither a standard finalizer name nor is it fully qualified";
        errors.invalid(path, &name.into(), complaint);
    }
}

fn phase(object: &Value, errors: &mut Errors) {
    let phase = text(at(object, "status"), "phase");
    let is_dying = has(at(object, "metadata"), "deletionTimestamp");
    let complaint = match (is_dying, phase) {
        (false, "Active") | (true, "Terminating") => return,
        (false, _) => "may only be 'Active' if `deletionTimestamp` is empty",
        (true, _) => "may only be 'Terminating' if `deletionTimestamp` is not empty",
    };
    let value = deep(object, &["status", "phase"])
        .as_str()
        .unwrap_or_default();
    errors.invalid(
        &Path::root("status").child("Phase"),
        &value.into(),
        complaint,
    );
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    #[test]
    fn finalizers_are_known_or_qualified() {
        let plain = json!({"spec": {"finalizers": ["plain"]}});
        creates(
            create,
            &json!({"spec": {"finalizers": ["kubernetes", "a.b/c"]}}),
            &[(
                plain.clone(),
                "spec.finalizers: Invalid value: \"plain\": name is neither a standard finalizer name",
            )],
        );
        updates(
            update,
            "finalize",
            &json!({}),
            &[(plain, "spec.finalizers[0]: Invalid value: \"plain\"")],
        );
    }

    #[test]
    fn the_phase_follows_the_deletion() {
        let dying = json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "status": {"phase": "Terminating"}});
        updates(
            update,
            "status",
            &json!({"status": {"phase": "Active"}}),
            &[(
                json!({"status": {"phase": "Terminating"}}),
                "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty",
            )],
        );
        updates(
            update,
            "status",
            &dying,
            &[(
                json!({"status": {"phase": "Active"}}),
                "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty",
            )],
        );
    }
}
