//! Migrations of stored objects.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::names::{dns1035_label, dns1123_subdomain};
use crate::validation::reading::{at, text};
use crate::validation::rules::immutable;

/// A new StorageVersionMigration.
pub fn create(object: &Value, errors: &mut Errors) {
    let (spec, resource) = (Path::root("spec"), at(at(object, "spec"), "resource"));
    let path = spec.child("resource");
    match text(resource, "resource") {
        "" => errors.required(&path.child("resource"), "resource is required to be set"),
        name => {
            let problems = dns1035_label(name);
            if !problems.is_empty() {
                let value = at(resource, "resource");
                errors.invalid(&path.child("resource"), value, &problems.join(","));
            }
        }
    }
    let group = text(resource, "group");
    let problems = dns1123_subdomain(group);
    if !group.is_empty() && !problems.is_empty() {
        let value = at(resource, "group");
        errors.invalid(&path.child("group"), value, &problems.join(","));
    }
}

/// A changed StorageVersionMigration.
pub fn update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        return status(new, old, errors);
    }
    create(new, errors);
    immutable(
        errors,
        &Path::root("spec"),
        at(new, "spec"),
        at(old, "spec"),
    );
}

fn status(new: &Value, old: &Value, errors: &mut Errors) {
    let root = Path::root("status");
    let (new, old) = (at(new, "status"), at(old, "status"));
    let path = root.child("resourceVersion");
    let (now, before) = (text(new, "resourceVersion"), text(old, "resourceVersion"));
    if !before.is_empty() && before != now {
        let value = at(new, "resourceVersion");
        errors.invalid(&path, value, "field is immutable");
    }
    let conditions = root.child("conditions");
    let value = at(new, "conditions");
    let is = |status: &Value, ty: &str| {
        let mut all = at(status, "conditions").as_array().into_iter().flatten();
        all.any(|c| c["type"] == ty && c["status"] == "True")
    };
    if is(new, "Succeeded") && is(new, "Failed") {
        let why = "Both success and failed conditions cannot be true at the same time";
        errors.invalid(&conditions, value, why);
    }
    for (ty, word) in [("Succeeded", "Success"), ("Failed", "Failed")] {
        if is(old, ty) && !is(new, ty) {
            let why = format!("{word} condition cannot be set to false once it is true");
            errors.invalid(&conditions, value, &why);
        }
    }
}
