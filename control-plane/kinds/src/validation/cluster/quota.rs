//! Resource quotas and limit ranges.

use std::collections::BTreeSet;

use kube_kit::quantity::{Format, Quantity};
use serde_json::Value;

use crate::field::{Errors, Path};
use crate::pod_resources;
use crate::validation::names;
use crate::validation::pods::resources::quantity;
use crate::validation::reading::{at, entries, has, items, text, texts};
use crate::validation::rules::{complain, unique};

const SPEC: Path<'static> = Path::root("spec");

// What a quota can count without naming a domain.
const COUNTED: &[&str] = &[
    "cpu",
    "memory",
    "ephemeral-storage",
    "requests.cpu",
    "requests.memory",
    "requests.storage",
    "requests.ephemeral-storage",
    "limits.cpu",
    "limits.memory",
    "limits.ephemeral-storage",
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "persistentvolumeclaims",
    "configmaps",
    "services.nodeports",
    "services.loadbalancers",
];
const COMPUTE: &[&str] = &[
    "cpu",
    "memory",
    "limits.cpu",
    "limits.memory",
    "requests.cpu",
    "requests.memory",
];
const SCOPES: &[&str] = &[
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "VolumeAttributesClass",
    "CrossNamespacePodAffinity",
];
const CONFLICTS: &[[&str; 2]] = &[
    ["BestEffort", "NotBestEffort"],
    ["Terminating", "NotTerminating"],
];

/// A new ResourceQuota.
pub fn quota(object: &Value, errors: &mut Errors) {
    quota_spec(at(object, "spec"), errors);
    quota_status(at(object, "status"), errors);
}

/// A changed ResourceQuota, or its status.
pub fn quota_update(new: &Value, old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource == "status" {
        return quota_status(at(new, "status"), errors);
    }
    quota_spec(at(new, "spec"), errors);
    let scopes = |o| texts(at(o, "spec"), "scopes").collect::<BTreeSet<_>>();
    if scopes(new) != scopes(old) {
        let list = Value::from(items(at(new, "spec"), "scopes"));
        errors.invalid(
            &SPEC.child("scopes"),
            &list,
            crate::validation::rules::IMMUTABLE,
        );
    }
}

fn quota_spec(spec: &Value, errors: &mut Errors) {
    amounts(spec, "hard", &SPEC, errors);
    scopes(spec, errors);
    if has(spec, "scopeSelector") {
        scope_selector(spec, errors);
    }
}

fn quota_status(status: &Value, errors: &mut Errors) {
    for list in ["hard", "used"] {
        amounts(status, list, &Path::root("status"), errors);
    }
}

fn amounts(object: &Value, list: &str, path: &Path<'_>, errors: &mut Errors) {
    let path = path.child(list);
    for (resource, amount) in entries(object, list) {
        let path = path.key(resource);
        quota_name(resource, &path, errors);
        quantity(errors, &path, resource, amount);
    }
}

fn is_counted(resource: &str) -> bool {
    COUNTED.contains(&resource)
        || ["hugepages-", "requests.hugepages-"]
            .iter()
            .any(|prefix| resource.starts_with(prefix))
}

fn quota_name(resource: &str, path: &Path<'_>, errors: &mut Errors) {
    if resource_name(resource, path, errors) && !resource.contains('/') && !is_counted(resource) {
        let complaint = "must be a standard resource for quota";
        errors.invalid(path, &resource.into(), complaint);
    }
}

// Whether the spelling is good; upstream goes on to the kind's own list then.
fn resource_name(resource: &str, path: &Path<'_>, errors: &mut Errors) -> bool {
    let complaints = names::qualified_name(resource);
    let is_spelt_well = complaints.is_empty();
    complain(errors, path, resource, complaints);
    if is_spelt_well && !resource.contains('/') && !is_counted(resource) && resource != "storage" {
        let complaint = "must be a standard resource type or fully qualified";
        errors.invalid(path, &resource.into(), complaint);
    }
    is_spelt_well
}

fn fits_scope(scope: &str, resource: &str) -> bool {
    match scope {
        "Terminating"
        | "NotTerminating"
        | "NotBestEffort"
        | "PriorityClass"
        | "CrossNamespacePodAffinity" => resource == "pods" || COMPUTE.contains(&resource),
        "BestEffort" => resource == "pods",
        "VolumeAttributesClass" => {
            matches!(resource, "persistentvolumeclaims" | "requests.storage")
        }
        _ => true,
    }
}

fn misfits(spec: &Value, scope: &str) -> usize {
    let hard = entries(spec, "hard").map(|(resource, _)| resource);
    hard.filter(|resource| is_counted(resource) && !fits_scope(scope, resource))
        .count()
}

fn has_conflict(scopes: &[&str]) -> bool {
    CONFLICTS
        .iter()
        .any(|pair| pair.iter().all(|scope| scopes.contains(scope)))
}

fn scopes(spec: &Value, errors: &mut Errors) {
    let (path, list) = (SPEC.child("scopes"), at(spec, "scopes"));
    let scopes: Vec<_> = texts(spec, "scopes").collect();
    for scope in &scopes {
        if !SCOPES.contains(scope) {
            errors.invalid(&path, list, "unsupported scope");
        }
        for _ in 0..misfits(spec, scope) {
            errors.invalid(&path, list, "unsupported scope applied to resource");
        }
    }
    if has_conflict(&scopes) {
        errors.invalid(&path, list, "conflicting scopes");
    }
}

fn scope_selector(spec: &Value, errors: &mut Errors) {
    let selector = at(spec, "scopeSelector");
    let parent = SPEC.child("scopeSelector");
    let path = parent.child("matchExpressions");
    let requirements = items(selector, "matchExpressions");
    for requirement in requirements {
        let scope = text(requirement, "scopeName");
        if !SCOPES.contains(&scope) {
            errors.invalid(&path.child("scopeName"), &scope.into(), "unsupported scope");
        }
        for _ in 0..misfits(spec, scope) {
            errors.invalid(&path, selector, "unsupported scope applied to resource");
        }
        scope_operator(requirement, scope, &path, errors);
    }
    let scopes: Vec<_> = requirements.iter().map(|r| text(r, "scopeName")).collect();
    if has_conflict(&scopes) {
        errors.invalid(&path, at(spec, "scopes"), "conflicting scopes");
    }
}

fn scope_operator(requirement: &Value, scope: &str, path: &Path<'_>, errors: &mut Errors) {
    let operator = text(requirement, "operator");
    let only_exists = !matches!(scope, "PriorityClass" | "VolumeAttributesClass");
    if only_exists && SCOPES.contains(&scope) && operator != "Exists" {
        errors.invalid(&path.child("operator"), &operator.into(), "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity");
    }
    let (values, has_values) = (
        path.child("values"),
        !items(requirement, "values").is_empty(),
    );
    match operator {
        "In" | "NotIn" if !has_values => errors.required(
            &values,
            "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector",
        ),
        "Exists" | "DoesNotExist" if has_values => errors.invalid(
            &values,
            at(requirement, "values"),
            "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector",
        ),
        "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
        other => errors.invalid(
            &path.child("operator"),
            &other.into(),
            "not a valid selector operator",
        ),
    }
}

/// A new LimitRange.
pub fn limit_range(object: &Value, errors: &mut Errors) {
    let path = SPEC.child("limits");
    let limits = items(at(object, "spec"), "limits");
    for (i, limit) in limits.iter().enumerate() {
        limit_item(limit, &path.index(i), errors);
    }
    unique(errors, &path, limits, Some("type"), |limit| {
        text(limit, "type").to_owned()
    });
}

/// A changed LimitRange.
pub fn limit_range_update(new: &Value, _old: &Value, _: &str, errors: &mut Errors) {
    limit_range(new, errors);
}

fn limit_item(limit: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ty = text(limit, "type");
    limit_type(ty, &path.child("type"), errors);
    let mut lists = vec!["max", "min", "maxLimitRequestRatio"];
    for list in ["default", "defaultRequest"] {
        if ty != "Pod" {
            lists.push(list);
        } else if entries(limit, list).next().is_some() {
            errors.forbidden(
                &path.child(list),
                "may not be specified when `type` is 'Pod'",
            );
        }
    }
    let mut resources = BTreeSet::new();
    for list in &lists {
        for (resource, _) in entries(limit, list) {
            limit_resource(ty, resource, &path.child(list).key(resource), errors);
            resources.insert(resource);
        }
    }
    let bounds_storage = ["min", "max"]
        .iter()
        .any(|list| has(at(limit, list), "storage"));
    if ty == "PersistentVolumeClaim" && !bounds_storage {
        let complaint =
            "either minimum or maximum storage value is required, but neither was provided";
        errors.required(&path.child("limits"), complaint);
    }
    for resource in resources {
        Bounds::read(limit, resource, ty != "Pod").check(resource, path, errors);
    }
}

fn limit_type(ty: &str, path: &Path<'_>, errors: &mut Errors) {
    let complaints = names::qualified_name(ty);
    let is_known = matches!(ty, "Pod" | "Container" | "PersistentVolumeClaim");
    if complaints.is_empty() && !ty.contains('/') && !is_known {
        let complaint = "must be a standard limit type or fully qualified";
        errors.invalid(path, &ty.into(), complaint);
    }
    complain(errors, path, ty, complaints);
}

fn limit_resource(ty: &str, resource: &str, path: &Path<'_>, errors: &mut Errors) {
    let is_spelt_well = resource_name(resource, path, errors);
    let is_for_containers = matches!(resource, "cpu" | "memory" | "ephemeral-storage")
        || resource.starts_with("hugepages-")
        || resource.contains('/');
    if is_spelt_well && matches!(ty, "Pod" | "Container") && !is_for_containers {
        let complaint = "must be a standard resource for containers";
        errors.invalid(path, &resource.into(), complaint);
    }
}

// What a limit says about one resource.
struct Bounds {
    min: Option<Quantity>,
    max: Option<Quantity>,
    default: Option<Quantity>,
    request: Option<Quantity>,
    ratio: Option<Quantity>,
}

impl Bounds {
    fn read(limit: &Value, resource: &str, with_defaults: bool) -> Bounds {
        let amount = |list| pod_resources::parse(at(at(limit, list), resource));
        Bounds {
            min: amount("min"),
            max: amount("max"),
            default: amount("default").filter(|_| with_defaults),
            request: amount("defaultRequest").filter(|_| with_defaults),
            ratio: amount("maxLimitRequestRatio"),
        }
    }

    fn check(&self, resource: &str, path: &Path<'_>, errors: &mut Errors) {
        let Bounds {
            min,
            max,
            default,
            request,
            ..
        } = self;
        // The smaller and the larger side, what each is called, the list at fault, and which side
        // upstream shows.
        for (low, high, low_name, high_name, list, shows_low) in [
            (min, max, "min", "max", "min", true),
            (
                min,
                request,
                "min",
                "default request",
                "defaultRequest",
                false,
            ),
            (
                request,
                max,
                "default request",
                "max",
                "defaultRequest",
                true,
            ),
            (
                request,
                default,
                "default request",
                "default limit",
                "defaultRequest",
                true,
            ),
            (min, default, "min", "default", "default", true),
            (default, max, "default", "max", "default", false),
        ] {
            let (Some(low), Some(high)) = (low, high) else {
                continue;
            };
            if low > high {
                let shown = if shows_low { low } else { high }.to_string();
                let complaint =
                    format!("{low_name} value {low} is greater than {high_name} value {high}");
                errors.invalid(&path.child(list).key(resource), &shown.into(), &complaint);
            }
        }
        self.check_ratio(resource, path, errors);
        self.check_overcommit(resource, path, errors);
    }

    fn check_ratio(&self, resource: &str, path: &Path<'_>, errors: &mut Errors) {
        let Some(ratio) = &self.ratio else { return };
        let path = path.child("maxLimitRequestRatio");
        let (path, shown) = (path.key(resource), Value::from(ratio.to_string()));
        if *ratio < Quantity::from_integer(1, Format::DecimalSi) {
            errors.invalid(&path, &shown, &format!("ratio {ratio} is less than 1"));
        }
        let (Some(min), Some(max)) = (&self.min, &self.max) else {
            return;
        };
        let limit = max.nanos() as f64 / min.nanos() as f64;
        if ratio.nanos() as f64 / 1e9 > limit {
            let complaint = format!("ratio {ratio} is greater than max/min = {limit:.6}");
            errors.invalid(&path, &shown, &complaint);
        }
    }

    // What cannot be lent out twice has one amount.
    fn check_overcommit(&self, resource: &str, path: &Path<'_>, errors: &mut Errors) {
        let overcommits = !resource.starts_with("hugepages-") && !resource.contains('/');
        let (Some(default), Some(request)) = (&self.default, &self.request) else {
            return;
        };
        if !overcommits && default != request {
            let complaint = format!(
                "default value {default} must equal to defaultRequest value {request} in {resource}"
            );
            let path = path.child("defaultRequest");
            errors.invalid(&path.key(resource), &request.to_string().into(), &complaint);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates};

    #[test]
    fn quotas_count_known_things() {
        let base = json!({"spec": {"hard": {"pods": "1", "count/deployments.apps": "1", "requests.example.com/gpu": "1"}}});
        let scopes = |list: &[&str]| json!({"spec": {"scopes": list}});
        let selector = |r: Value| json!({"spec": {"hard": {"pods": "1"}, "scopeSelector": {"matchExpressions": [r]}}});
        creates(
            quota,
            &base,
            &[
                (
                    json!({"spec": {"hard": {"apples": "1"}}}),
                    "spec.hard[apples]: Invalid value: \"apples\": must be a standard resource type or fully qualified",
                ),
                (
                    json!({"spec": {"hard": {"storage": "1"}}}),
                    "spec.hard[storage]: Invalid value: \"storage\": must be a standard resource for quota",
                ),
                (
                    json!({"spec": {"hard": {"pods": "-1"}}}),
                    "spec.hard[pods]: Invalid value: \"-1\": must be greater than or equal to 0",
                ),
                (
                    json!({"spec": {"hard": {"pods": "0.5"}}}),
                    "spec.hard[pods]: Invalid value",
                ),
                (
                    scopes(&["Odd"]),
                    "spec.scopes: Invalid value: [\"Odd\"]: unsupported scope",
                ),
                (scopes(&["BestEffort"]), ""),
                (
                    scopes(&["BestEffort", "NotBestEffort"]),
                    "spec.scopes: Invalid value: [\"BestEffort\",\"NotBestEffort\"]: conflicting scopes",
                ),
                (
                    json!({"spec": {"hard": {"services": "1"}, "scopes": ["BestEffort"]}}),
                    "spec.scopes: Invalid value: [\"BestEffort\"]: unsupported scope applied to resource",
                ),
                (
                    selector(
                        json!({"scopeName": "PriorityClass", "operator": "In", "values": ["high"]}),
                    ),
                    "",
                ),
                (
                    selector(json!({"scopeName": "PriorityClass", "operator": "In"})),
                    "spec.scopeSelector.matchExpressions.values: Required value: must be at least one value",
                ),
                (
                    selector(
                        json!({"scopeName": "PriorityClass", "operator": "Exists", "values": ["a"]}),
                    ),
                    "spec.scopeSelector.matchExpressions.values: Invalid value: [\"a\"]",
                ),
                (
                    selector(json!({"scopeName": "BestEffort", "operator": "In", "values": ["a"]})),
                    "spec.scopeSelector.matchExpressions.operator: Invalid value: \"In\": must be 'Exists'",
                ),
                (
                    selector(json!({"scopeName": "PriorityClass", "operator": "Gt"})),
                    "spec.scopeSelector.matchExpressions.operator: Invalid value: \"Gt\": not a valid selector operator",
                ),
                (
                    json!({"status": {"used": {"apples": "1"}}}),
                    "status.used[apples]: Invalid value",
                ),
            ],
        );
        updates(
            quota_update,
            "",
            &base,
            &[(
                scopes(&["BestEffort"]),
                "spec.scopes: Invalid value: [\"BestEffort\"]: field is immutable",
            )],
        );
        updates(
            quota_update,
            "status",
            &base,
            &[(
                json!({"status": {"hard": {"pods": "-1"}}}),
                "status.hard[pods]: Invalid value",
            )],
        );
    }

    #[test]
    fn limits_are_ordered() {
        let limit = |limit: Value| json!({"spec": {"limits": [limit]}});
        let base = limit(
            json!({"type": "Container", "min": {"cpu": "1"}, "defaultRequest": {"cpu": "2"}, "default": {"cpu": "3"}, "max": {"cpu": "4"}}),
        );
        let container = |lists: Value| {
            limit(crate::validation::cases::with(
                &json!({"type": "Container"}),
                &lists,
            ))
        };
        creates(
            limit_range,
            &base,
            &[
                (
                    limit(json!({"type": "Odd"})),
                    "spec.limits[0].type: Invalid value: \"Odd\": must be a standard limit type or fully qualified",
                ),
                (
                    json!({"spec": {"limits": [{"type": "Pod"}, {"type": "Pod"}]}}),
                    "spec.limits[1].type: Duplicate value: \"Pod\"",
                ),
                (
                    limit(json!({"type": "Pod", "default": {"cpu": "1"}})),
                    "spec.limits[0].default: Forbidden: may not be specified when `type` is 'Pod'",
                ),
                (
                    limit(json!({"type": "PersistentVolumeClaim"})),
                    "spec.limits[0].limits: Required value: either minimum or maximum storage value is required",
                ),
                (
                    limit(json!({"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}})),
                    "",
                ),
                (
                    container(json!({"max": {"storage": "1"}})),
                    "spec.limits[0].max[storage]: Invalid value: \"storage\": must be a standard resource for containers",
                ),
                (
                    container(json!({"min": {"cpu": "2"}, "max": {"cpu": "1"}})),
                    "spec.limits[0].min[cpu]: Invalid value: \"2\": min value 2 is greater than max value 1",
                ),
                (
                    container(json!({"min": {"cpu": "2"}, "defaultRequest": {"cpu": "1"}})),
                    "spec.limits[0].defaultRequest[cpu]: Invalid value: \"1\": min value 2 is greater than default request value 1",
                ),
                (
                    container(json!({"defaultRequest": {"cpu": "2"}, "default": {"cpu": "1"}})),
                    "spec.limits[0].defaultRequest[cpu]: Invalid value: \"2\": default request value 2 is greater than default limit value 1",
                ),
                (
                    container(json!({"default": {"cpu": "2"}, "max": {"cpu": "1"}})),
                    "spec.limits[0].default[cpu]: Invalid value: \"1\": default value 2 is greater than max value 1",
                ),
                (
                    container(json!({"maxLimitRequestRatio": {"cpu": "500m"}})),
                    "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"500m\": ratio 500m is less than 1",
                ),
                (
                    container(
                        json!({"maxLimitRequestRatio": {"cpu": "3"}, "min": {"cpu": "1"}, "max": {"cpu": "2"}}),
                    ),
                    "spec.limits[0].maxLimitRequestRatio[cpu]: Invalid value: \"3\": ratio 3 is greater than max/min = 2.000000",
                ),
                (
                    container(
                        json!({"default": {"a.b/gpu": "2"}, "defaultRequest": {"a.b/gpu": "1"}}),
                    ),
                    "spec.limits[0].defaultRequest[a.b/gpu]: Invalid value: \"1\": default value 2 must equal",
                ),
            ],
        );
        updates(
            limit_range_update,
            "",
            &base,
            &[(
                limit(json!({"type": "Odd"})),
                "spec.limits[0].type: Invalid value",
            )],
        );
    }
}
