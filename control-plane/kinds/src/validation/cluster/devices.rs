//! Dynamic resource allocation: device classes, claims, claim templates and slices.
//!
//! Selectors are checked for presence and length; what their expressions mean is not known here.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::metadata;
use crate::validation::names;
use crate::validation::pods::affinity::node_selector;
use crate::validation::reading::{at, entries, flag, has, int, items, same, text, texts};
use crate::validation::rules::{IMMUTABLE, complain, immutable, one_of, required, unique};
use crate::validation::storage::classes::driver_name;

const SPEC: Path<'static> = Path::root("spec");
const REQUESTS_MAX: usize = 32;
const SELECTORS_MAX: usize = 32;
const ALTERNATIVES_MAX: usize = 8;
const EXPRESSION_MAX: usize = 10 * 1024;
const RESERVED_MAX: usize = 256;
const DEVICES_MAX: usize = 128;
const DETAILS_MAX: usize = 32;
const POOL_NAME_MAX: usize = 253;
const UNKNOWN_REQUEST: &str = "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";

/// A new DeviceClass.
pub fn class(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    selectors(spec, &SPEC, errors);
    configs(spec, &SPEC, &BTreeSet::new(), errors);
}

/// A changed DeviceClass.
pub fn class_update(new: &Value, _old: &Value, _: &str, errors: &mut Errors) {
    class(new, errors);
}

/// A new ResourceClaim.
pub fn claim(object: &Value, errors: &mut Errors) {
    claim_spec(at(object, "spec"), &SPEC, errors);
}

/// A changed ResourceClaim, or its status.
pub fn claim_update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        claim_status(new, old, errors);
    } else {
        immutable(errors, &SPEC, at(new, "spec"), at(old, "spec"));
    }
}

/// A new ResourceClaimTemplate.
pub fn template(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    metadata::template(at(spec, "metadata"), &SPEC.child("metadata"), errors);
    claim_spec(at(spec, "spec"), &SPEC.child("spec"), errors);
}

/// A changed ResourceClaimTemplate.
pub fn template_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    immutable(errors, &SPEC, at(new, "spec"), at(old, "spec"));
}

fn at_most(list: &[Value], max: usize, path: &Path<'_>, errors: &mut Errors) {
    if list.len() > max {
        errors.too_many(path, list.len(), max);
    }
}

fn claim_spec(spec: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (path, devices) = (path.child("devices"), at(spec, "devices"));
    let (requests_path, requests) = (path.child("requests"), items(devices, "requests"));
    at_most(requests, REQUESTS_MAX, &requests_path, errors);
    for (i, item) in requests.iter().enumerate() {
        request(item, &requests_path.index(i), errors);
    }
    unique(errors, &requests_path, requests, None, |r| {
        text(r, "name").to_owned()
    });
    let known = request_names(requests);
    let (path_to, constraints) = (path.child("constraints"), items(devices, "constraints"));
    at_most(constraints, REQUESTS_MAX, &path_to, errors);
    for (i, item) in constraints.iter().enumerate() {
        constraint(item, &path_to.index(i), &known, errors);
    }
    configs(devices, &path, &known, errors);
}

fn request_names(requests: &[Value]) -> BTreeSet<String> {
    let of_request = |request: &Value| {
        let name = text(request, "name").to_owned();
        let subs: Vec<_> = items(request, "firstAvailable")
            .iter()
            .map(|sub| format!("{name}/{}", text(sub, "name")))
            .collect();
        subs.into_iter().chain([name])
    };
    requests.iter().flat_map(of_request).collect()
}

fn request_name(name: &str, path: &Path<'_>, errors: &mut Errors) {
    if name.is_empty() {
        return errors.required(path, "");
    }
    complain(errors, path, name, names::dns1123_label(name));
}

fn request(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    request_name(text(request, "name"), &path.child("name"), errors);
    let alternatives = items(request, "firstAvailable");
    match (has(request, "exactly"), !alternatives.is_empty()) {
        (false, false) => {
            errors.required(
                path,
                "exactly one of `exactly` or `firstAvailable` is required",
            );
        }
        (true, true) => errors.invalid(
            path,
            &Value::Null,
            "exactly one of `exactly` or `firstAvailable` is required, but multiple fields are set",
        ),
        (true, false) => exact_request(at(request, "exactly"), &path.child("exactly"), errors),
        (false, true) => {
            let path = path.child("firstAvailable");
            at_most(alternatives, ALTERNATIVES_MAX, &path, errors);
            for (i, sub) in alternatives.iter().enumerate() {
                request_name(text(sub, "name"), &path.index(i).child("name"), errors);
                exact_request(sub, &path.index(i), errors);
            }
            unique(errors, &path, alternatives, None, |sub| {
                text(sub, "name").to_owned()
            });
        }
    }
}

fn exact_request(request: &Value, path: &Path<'_>, errors: &mut Errors) {
    if required(errors, path, request, "deviceClassName") {
        let class = text(request, "deviceClassName");
        complain(
            errors,
            &path.child("deviceClassName"),
            class,
            names::dns1123_subdomain(class),
        );
    }
    selectors(request, path, errors);
    let count = int(request, "count");
    match text(request, "allocationMode") {
        "All" if count != 0 => errors.invalid(
            &path.child("count"),
            &count.into(),
            "must not be specified when allocationMode is 'All'",
        ),
        "ExactCount" if count <= 0 => {
            errors.invalid(
                &path.child("count"),
                &count.into(),
                "must be greater than zero",
            );
        }
        "All" | "ExactCount" => {}
        _ => {
            one_of(
                errors,
                path,
                request,
                "allocationMode",
                &["All", "ExactCount"],
            );
        }
    }
}

fn selectors(object: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (path, list) = (path.child("selectors"), items(object, "selectors"));
    at_most(list, SELECTORS_MAX, &path, errors);
    for (i, selector) in list.iter().enumerate() {
        let path = path.index(i);
        let path = path.child("cel");
        if !has(selector, "cel") {
            errors.required(&path, "");
        } else if text(at(selector, "cel"), "expression").len() > EXPRESSION_MAX {
            errors.too_long(&path.child("expression"), EXPRESSION_MAX);
        }
    }
}

fn constraint(constraint: &Value, path: &Path<'_>, known: &BTreeSet<String>, errors: &mut Errors) {
    request_references(constraint, path, known, errors);
    let attribute = ["matchAttribute", "distinctAttribute"]
        .into_iter()
        .find(|a| has(constraint, a));
    match attribute {
        // The words are upstream's, also where none is set.
        None => errors.required(
            path,
            "exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
        ),
        Some(name) => {
            let value = text(constraint, name);
            if value.split('/').count() != 2 {
                let complaint =
                    "a fully qualified name must be a domain and a name separated by a slash";
                errors.invalid(&path.child(name), &value.into(), complaint);
            }
        }
    }
}

fn request_references(
    object: &Value,
    path: &Path<'_>,
    known: &BTreeSet<String>,
    errors: &mut Errors,
) {
    let path = path.child("requests");
    for (i, name) in texts(object, "requests").enumerate() {
        if !known.contains(name) {
            errors.invalid(&path.index(i), &name.into(), UNKNOWN_REQUEST);
        }
    }
    unique(
        errors,
        &path,
        items(object, "requests"),
        None,
        ToString::to_string,
    );
}

fn configs(object: &Value, path: &Path<'_>, known: &BTreeSet<String>, errors: &mut Errors) {
    let (path, list) = (path.child("config"), items(object, "config"));
    at_most(list, REQUESTS_MAX, &path, errors);
    for (i, config) in list.iter().enumerate() {
        let path = path.index(i);
        request_references(config, &path, known, errors);
        let opaque = path.child("opaque");
        if !has(config, "opaque") {
            errors.required(&opaque, "");
            continue;
        }
        let settings = at(config, "opaque");
        driver_name(text(settings, "driver"), &opaque.child("driver"), errors);
        match at(settings, "parameters") {
            Value::Null => errors.required(&opaque.child("parameters"), ""),
            Value::Object(_) => {}
            other => errors.invalid(
                &opaque.child("parameters"),
                other,
                "parameters must be a valid JSON object",
            ),
        }
    }
}

fn claim_status(new: &Value, old: &Value, errors: &mut Errors) {
    let path = Path::root("status");
    let (status, before) = (at(new, "status"), at(old, "status"));
    let reserved = items(status, "reservedFor");
    let reserved_path = path.child("reservedFor");
    at_most(reserved, RESERVED_MAX, &reserved_path, errors);
    for (i, consumer) in reserved.iter().enumerate() {
        for name in ["resource", "name", "uid"] {
            required(errors, &reserved_path.index(i), consumer, name);
        }
    }
    unique(errors, &reserved_path, reserved, None, |consumer| {
        text(consumer, "uid").to_owned()
    });
    let (allocation, was) = (at(status, "allocation"), at(before, "allocation"));
    if allocation.is_null() && !reserved.is_empty() {
        errors.forbidden(
            &reserved_path,
            "may not be specified when `allocated` is not set",
        );
    }
    if !was.is_null() && !allocation.is_null() && !same(allocation, was) {
        errors.invalid(&path.child("allocation"), allocation, IMMUTABLE);
    }
}

/// A new ResourceSlice.
pub fn slice(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    driver_name(text(spec, "driver"), &SPEC.child("driver"), errors);
    pool(at(spec, "pool"), &SPEC.child("pool"), errors);
    slice_nodes(spec, errors);
    let (path, devices) = (SPEC.child("devices"), items(spec, "devices"));
    at_most(devices, DEVICES_MAX, &path, errors);
    for (i, item) in devices.iter().enumerate() {
        device(
            item,
            flag(spec, "perDeviceNodeSelection"),
            &path.index(i),
            errors,
        );
    }
    unique(errors, &path, devices, None, |device| {
        text(device, "name").to_owned()
    });
    if !devices.is_empty() && !items(spec, "sharedCounters").is_empty() {
        let complaint = "only one of `sharedCounters` or `devices` is allowed";
        errors.invalid(&SPEC, &"".into(), complaint);
    }
}

/// A changed ResourceSlice: driver, pool and node stay.
pub fn slice_update(new: &Value, old: &Value, _: &str, errors: &mut Errors) {
    slice(new, errors);
    let (spec, before) = (at(new, "spec"), at(old, "spec"));
    for name in ["driver", "nodeName"] {
        immutable(errors, &SPEC.child(name), at(spec, name), at(before, name));
    }
    let name = |spec| at(at(spec, "pool"), "name");
    immutable(
        errors,
        &SPEC.child("pool").child("name"),
        name(spec),
        name(before),
    );
}

fn pool(pool: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (at_name, name) = (path.child("name"), text(pool, "name"));
    if required(errors, path, pool, "name") {
        if name.len() > POOL_NAME_MAX {
            errors.too_long(&at_name, POOL_NAME_MAX);
        }
        for part in name.split('/') {
            complain(errors, &at_name, part, names::dns1123_subdomain(part));
        }
    }
    let count = int(pool, "resourceSliceCount");
    if count <= 0 {
        let complaint = "must be greater than zero";
        errors.invalid(&path.child("resourceSliceCount"), &count.into(), complaint);
    }
    if int(pool, "generation") < 0 {
        let complaint = "must be greater than or equal to zero";
        errors.invalid(&path.child("generation"), at(pool, "generation"), complaint);
    }
}

fn slice_nodes(spec: &Value, errors: &mut Errors) {
    let mut set = Vec::new();
    if let Some(name) = at(spec, "nodeName").as_str() {
        set.push("`nodeName`");
        complain(
            errors,
            &SPEC.child("nodeName"),
            name,
            names::dns1123_subdomain(name),
        );
    }
    if has(spec, "nodeSelector") {
        set.push("`nodeSelector`");
        node_selector(
            errors,
            &SPEC.child("nodeSelector"),
            at(spec, "nodeSelector"),
        );
    }
    for (name, shown) in [
        ("allNodes", "`allNodes`"),
        ("perDeviceNodeSelection", "`perDeviceNodeSelection`"),
    ] {
        if flag(spec, name) {
            set.push(shown);
        }
    }
    let rule = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match set.len() {
        0 => errors.required(&SPEC, rule),
        1 => {}
        _ => {
            let shown = format!("{{{}}}", set.join(", "));
            let complaint = format!("{rule}, but multiple fields are set");
            errors.invalid(&SPEC, &shown.into(), &complaint);
        }
    }
}

fn device(device: &Value, selects_nodes: bool, path: &Path<'_>, errors: &mut Errors) {
    request_name(text(device, "name"), &path.child("name"), errors);
    let details = entries(device, "attributes").count() + entries(device, "capacity").count();
    if details > DETAILS_MAX {
        let complaint =
            format!("the total number of attributes and capacities must not exceed {DETAILS_MAX}");
        errors.invalid(path, &details.into(), &complaint);
    }
    let fields = ["nodeName", "nodeSelector", "allNodes"];
    let set = fields.iter().filter(|name| has(device, name)).count();
    if !selects_nodes && set > 0 {
        let complaint = "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        errors.invalid(path, &Value::Null, complaint);
    } else if selects_nodes && set == 0 {
        let complaint = "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when `perDeviceNodeSelection` is set to true in the ResourceSlice spec";
        errors.required(path, complaint);
    }
    for list in ["attributes", "capacity"] {
        for (name, _) in entries(device, list) {
            let identifier = name.rsplit('/').next().unwrap_or_default();
            complain(
                errors,
                &path.child(list),
                identifier,
                names::c_identifier(identifier),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates, with};

    fn claim_base() -> Value {
        json!({"spec": {"devices": {"requests": [{"name": "a", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}]}}})
    }

    #[test]
    fn claims_request_devices_one_way() {
        let request = |r: Value| json!({"spec": {"devices": {"requests": [r]}}});
        let exact = |patch: Value| {
            request(
                json!({"name": "a", "exactly": with(&json!({"deviceClassName": "gpu", "allocationMode": "All"}), &patch)}),
            )
        };
        let devices = |patch: Value| json!({"spec": {"devices": patch}});
        let one = claim_base()["spec"]["devices"]["requests"][0].clone();
        let cases = [
            (
                devices(json!({"requests": [one, one]})),
                "spec.devices.requests[1]: Duplicate value",
            ),
            (
                devices(json!({"requests": vec![one.clone(); 33]})),
                "spec.devices.requests: Too many: 33: must have at most 32 items",
            ),
            (
                request(json!({"name": "a"})),
                "spec.devices.requests[0]: Required value: exactly one of `exactly` or `firstAvailable` is required",
            ),
            (
                request(
                    json!({"name": "A", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}),
                ),
                "spec.devices.requests[0].name: Invalid value: \"A\"",
            ),
            (
                request(
                    json!({"name": "a", "firstAvailable": [{"name": "b", "deviceClassName": "gpu", "allocationMode": "All"}]}),
                ),
                "",
            ),
            (
                exact(json!({"deviceClassName": null})),
                "spec.devices.requests[0].exactly.deviceClassName: Required value",
            ),
            (
                exact(json!({"count": 1})),
                "spec.devices.requests[0].exactly.count: Invalid value: 1: must not be specified when allocationMode is 'All'",
            ),
            (
                exact(json!({"allocationMode": "ExactCount"})),
                "spec.devices.requests[0].exactly.count: Invalid value: 0: must be greater than zero",
            ),
            (
                exact(json!({"allocationMode": "Some"})),
                "spec.devices.requests[0].exactly.allocationMode: Unsupported value: \"Some\": supported values: \"All\", \"ExactCount\"",
            ),
            (
                exact(json!({"selectors": [{}]})),
                "spec.devices.requests[0].exactly.selectors[0].cel: Required value",
            ),
            (
                devices(json!({"constraints": [{"requests": ["z"], "matchAttribute": "a.b/c"}]})),
                "spec.devices.constraints[0].requests[0]: Invalid value: \"z\": must be the name of a request",
            ),
            (
                devices(json!({"constraints": [{"requests": ["a"]}]})),
                "spec.devices.constraints[0]: Required value: exactly one of \"matchAttribute\" or \"distinctAttribute\" is required, but multiple fields are set",
            ),
            (
                devices(
                    json!({"config": [{"requests": ["a"], "opaque": {"driver": "a.b", "parameters": {}}}]}),
                ),
                "",
            ),
            (
                devices(json!({"config": [{}]})),
                "spec.devices.config[0].opaque: Required value",
            ),
        ];
        creates(claim, &claim_base(), &cases);
        updates(
            claim_update,
            "",
            &claim_base(),
            &[(exact(json!({})), "spec: Invalid value: {")],
        );
        let template_base = json!({"spec": claim_base()});
        creates(
            template,
            &template_base,
            &[
                (
                    json!({"spec": {"metadata": {"labels": {"a b": "c"}}}}),
                    "spec.metadata.labels: Invalid value",
                ),
                (
                    json!({"spec": {"spec": {"devices": {"requests": [{"name": "a"}]}}}}),
                    "spec.spec.devices.requests[0]: Required value",
                ),
            ],
        );
        updates(
            template_update,
            "",
            &template_base,
            &[(
                json!({"spec": {"spec": null}}),
                "spec: Invalid value: {}: field is immutable",
            )],
        );
    }

    #[test]
    fn reserved_claims_are_allocated() {
        let consumer = json!({"resource": "pods", "name": "p", "uid": "u"});
        let allocated = json!({"status": {"allocation": {"devices": {}}}});
        updates(
            claim_update,
            "status",
            &with(&claim_base(), &allocated),
            &[
                (json!({"status": {"reservedFor": [consumer]}}), ""),
                (
                    json!({"status": {"reservedFor": [consumer, consumer]}}),
                    "status.reservedFor[1]: Duplicate value",
                ),
                (
                    json!({"status": {"reservedFor": [{"name": "p"}]}}),
                    "status.reservedFor[0].uid: Required value",
                ),
                (
                    json!({"status": {"allocation": {"devices": {"results": [1]}}}}),
                    "status.allocation: Invalid value",
                ),
                (json!({"status": {"allocation": null}}), ""),
            ],
        );
        updates(
            claim_update,
            "status",
            &claim_base(),
            &[(
                json!({"status": {"reservedFor": [consumer]}}),
                "status.reservedFor: Forbidden: may not be specified when `allocated` is not set",
            )],
        );
    }

    #[test]
    fn classes_select() {
        creates(
            class,
            &json!({"spec": {"selectors": [{"cel": {"expression": "true"}}]}}),
            &[(
                json!({"spec": {"selectors": [{"cel": {"expression": "x".repeat(EXPRESSION_MAX + 1)}}]}}),
                "spec.selectors[0].cel.expression: Too long",
            )],
        );
        updates(
            class_update,
            "",
            &json!({}),
            &[(
                json!({"spec": {"config": [{}]}}),
                "spec.config[0].opaque: Required value",
            )],
        );
    }

    #[test]
    fn slices_belong_to_a_driver_pool_and_node() {
        let base = json!({"spec": {"driver": "a.b", "nodeName": "n", "pool": {"name": "p", "resourceSliceCount": 1}, "devices": [{"name": "d"}]}});
        let devices = |list: Value| json!({"spec": {"devices": list}});
        creates(
            slice,
            &base,
            &[
                (
                    json!({"spec": {"driver": null}}),
                    "spec.driver: Required value",
                ),
                (
                    json!({"spec": {"pool": {"name": null}}}),
                    "spec.pool.name: Required value",
                ),
                (
                    json!({"spec": {"pool": {"resourceSliceCount": 0}}}),
                    "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
                ),
                (
                    json!({"spec": {"nodeName": null}}),
                    "spec: Required value: exactly one of `nodeName`",
                ),
                (
                    json!({"spec": {"allNodes": true}}),
                    "spec: Invalid value: \"{`nodeName`, `allNodes`}\": exactly one of",
                ),
                (
                    devices(json!([{"name": "d"}, {"name": "d"}])),
                    "spec.devices[1]: Duplicate value",
                ),
                (
                    devices(json!([{"name": "D"}])),
                    "spec.devices[0].name: Invalid value: \"D\"",
                ),
                (
                    devices(json!([{"name": "d", "allNodes": true}])),
                    "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can only be set",
                ),
                (
                    devices(json!([{"name": "d", "attributes": {"a.b/c-d": {"int": 1}}}])),
                    "spec.devices[0].attributes: Invalid value: \"c-d\"",
                ),
            ],
        );
        updates(
            slice_update,
            "",
            &base,
            &[
                (
                    json!({"spec": {"driver": "c.d"}}),
                    "spec.driver: Invalid value: \"c.d\": field is immutable",
                ),
                (
                    json!({"spec": {"pool": {"name": "q"}}}),
                    "spec.pool.name: Invalid value: \"q\": field is immutable",
                ),
                (devices(json!([])), ""),
            ],
        );
    }
}
