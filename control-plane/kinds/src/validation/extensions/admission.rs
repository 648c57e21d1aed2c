//! Admission policies and their bindings: everything but the meaning of their expressions.

use serde_json::Value;

use super::webhooks::{
    FAILURE_POLICIES, MATCH_POLICIES, REINVOCATION, match_conditions, rule_with_operations,
};
use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, has, items, text, texts};
use crate::validation::rules::{complain, label_selector, one_of, required, unique};

const SPEC: Path<'static> = Path::root("spec");
const MUTATING_OPERATIONS: &[&str] = &["*", "CONNECT", "CREATE", "UPDATE"];
const AUDIT_ANNOTATIONS_MAX: usize = 20;
const AUDIT_EXPRESSION_MAX: usize = 5 * 1024;

/// A new ValidatingAdmissionPolicy.
pub fn validating_policy(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    policy(spec, errors);
    let (validations, annotations) = (items(spec, "validations"), items(spec, "auditAnnotations"));
    if validations.is_empty() && annotations.is_empty() {
        let complaint = "validations or auditAnnotations must contain at least one item";
        errors.required(&SPEC.child("validations"), complaint);
        errors.required(&SPEC.child("auditAnnotations"), complaint);
    }
    for (i, item) in validations.iter().enumerate() {
        validation(item, &SPEC.child("validations").index(i), errors);
    }
    audit_annotations(text(at(object, "metadata"), "name"), spec, errors);
}

/// A changed ValidatingAdmissionPolicy.
pub fn validating_policy_update(new: &Value, _old: &Value, subresource: &str, errors: &mut Errors) {
    if subresource != "status" {
        validating_policy(new, errors);
    }
}

/// A new MutatingAdmissionPolicy.
pub fn mutating_policy(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    policy(spec, errors);
    let constraints = SPEC.child("matchConstraints");
    let rules = constraints.child("resourceRules");
    for rule in items(at(spec, "matchConstraints"), "resourceRules") {
        for operation in texts(rule, "operations").filter(|o| !MUTATING_OPERATIONS.contains(o)) {
            let path = rules.child("operations");
            errors.not_supported(&path, &operation.into(), MUTATING_OPERATIONS);
        }
    }
    if items(spec, "mutations").is_empty() {
        errors.required(
            &SPEC.child("mutations"),
            "mutations must contain at least one item",
        );
    }
    for (i, item) in items(spec, "mutations").iter().enumerate() {
        mutation(item, &SPEC.child("mutations").index(i), errors);
    }
    if required(errors, &SPEC, spec, "reinvocationPolicy") {
        one_of(errors, &SPEC, spec, "reinvocationPolicy", REINVOCATION);
    }
}

/// A changed MutatingAdmissionPolicy.
pub fn mutating_policy_update(new: &Value, _old: &Value, _: &str, errors: &mut Errors) {
    mutating_policy(new, errors);
}

fn policy(spec: &Value, errors: &mut Errors) {
    if has(spec, "failurePolicy") {
        one_of(errors, &SPEC, spec, "failurePolicy", FAILURE_POLICIES);
    } else {
        errors.required(&SPEC.child("failurePolicy"), "");
    }
    if has(spec, "paramKind") {
        param_kind(at(spec, "paramKind"), &SPEC.child("paramKind"), errors);
    }
    let path = SPEC.child("matchConstraints");
    if has(spec, "matchConstraints") {
        let constraints = at(spec, "matchConstraints");
        match_resources(constraints, &path, errors);
        if items(constraints, "resourceRules").is_empty() {
            errors.required(&path.child("resourceRules"), "");
        }
    } else {
        errors.required(&path, "");
    }
    match_conditions(spec, &SPEC, errors);
    for (i, item) in items(spec, "variables").iter().enumerate() {
        variable(item, &SPEC.child("variables").index(i), errors);
    }
}

fn param_kind(kind: &Value, path: &Path<'_>, errors: &mut Errors) {
    let version = text(kind, "apiVersion");
    let at_version = path.child("apiVersion");
    match version.split('/').collect::<Vec<_>>()[..] {
        _ if version.is_empty() => errors.required(&at_version, ""),
        [only] => joined(errors, &at_version, only, names::dns1035_label(only)),
        [group, version] => {
            joined(errors, &at_version, group, names::dns1123_subdomain(group));
            joined(errors, &at_version, version, names::dns1035_label(version));
        }
        _ => {
            let complaint = format!("unexpected GroupVersion string: {version}");
            errors.invalid(&at_version, &version.into(), &complaint);
        }
    }
    if required(errors, path, kind, "kind") {
        let name = text(kind, "kind");
        let complaints = names::dns1035_label(&name.to_lowercase());
        if !complaints.is_empty() {
            let complaint = format!(
                "may have mixed case, but should otherwise match: {}",
                complaints.join(",")
            );
            errors.invalid(&path.child("kind"), &name.into(), &complaint);
        }
    }
}

fn joined(errors: &mut Errors, path: &Path<'_>, value: &str, complaints: Vec<String>) {
    if !complaints.is_empty() {
        errors.invalid(path, &value.into(), &complaints.join(","));
    }
}

fn match_resources(resources: &Value, path: &Path<'_>, errors: &mut Errors) {
    if has(resources, "matchPolicy") {
        one_of(errors, path, resources, "matchPolicy", MATCH_POLICIES);
    } else {
        errors.required(&path.child("matchPolicy"), "");
    }
    for selector in ["namespaceSelector", "objectSelector"] {
        if has(resources, selector) {
            label_selector(errors, &path.child(selector), at(resources, selector));
        } else {
            errors.required(&path.child(selector), "");
        }
    }
    for list in ["resourceRules", "excludeResourceRules"] {
        for (i, rule) in items(resources, list).iter().enumerate() {
            let (path, names_list) = (path.child(list), items(rule, "resourceNames"));
            let path = path.index(i);
            let names_path = path.child("resourceNames");
            for (j, name) in texts(rule, "resourceNames").enumerate() {
                complain(
                    errors,
                    &names_path.index(j),
                    name,
                    names::path_segment(name),
                );
            }
            unique(errors, &names_path, names_list, None, ToString::to_string);
            rule_with_operations(rule, &path, errors);
        }
    }
}

fn variable(variable: &Value, path: &Path<'_>, errors: &mut Errors) {
    let name = text(variable, "name");
    if name.trim().is_empty() {
        errors.required(&path.child("name"), "name is not specified");
    } else if !names::c_identifier(name).is_empty() {
        errors.invalid(
            &path.child("name"),
            &name.into(),
            "must be a valid CEL identifier",
        );
    }
    if text(variable, "expression").trim().is_empty() {
        errors.required(&path.child("expression"), "expression is not specified");
    }
}

fn validation(validation: &Value, path: &Path<'_>, errors: &mut Errors) {
    if text(validation, "expression").trim().is_empty() {
        errors.required(&path.child("expression"), "expression is not specified");
    }
    for name in ["messageExpression", "message"] {
        let value = text(validation, name);
        if !value.is_empty() && value.trim().is_empty() {
            errors.invalid(
                &path.child(name),
                &value.into(),
                "must be non-empty if specified",
            );
        }
    }
    let message = text(validation, "message");
    if message.trim().contains(['\n', '\r']) {
        errors.invalid(
            &path.child("message"),
            &message.into(),
            "must not contain line breaks",
        );
    }
    if has(validation, "reason") {
        let reasons = ["Forbidden", "Invalid", "RequestEntityTooLarge"];
        one_of(errors, path, validation, "reason", &reasons);
    }
}

fn audit_annotations(policy: &str, spec: &Value, errors: &mut Errors) {
    let path = SPEC.child("auditAnnotations");
    let annotations = items(spec, "auditAnnotations");
    if annotations.len() > AUDIT_ANNOTATIONS_MAX {
        let complaint = format!("must not have more than {AUDIT_ANNOTATIONS_MAX} auditAnnotations");
        errors.invalid(&path, at(spec, "auditAnnotations"), &complaint);
    }
    for (i, annotation) in annotations.iter().enumerate() {
        let path = path.index(i);
        let key = format!("{policy}/{}", text(annotation, "key"));
        complain(
            errors,
            &path.child("key"),
            &key,
            names::qualified_name(&key),
        );
        let expression = text(annotation, "valueExpression").trim();
        if expression.is_empty() {
            errors.required(
                &path.child("valueExpression"),
                "valueExpression is not specified",
            );
        } else if expression.len() > AUDIT_EXPRESSION_MAX {
            let complaint = format!("must not exceed {AUDIT_EXPRESSION_MAX} bytes in length");
            errors.required(&path.child("valueExpression"), &complaint);
        }
    }
    unique(errors, &path, annotations, Some("key"), |a| {
        text(a, "key").to_owned()
    });
}

fn mutation(mutation: &Value, path: &Path<'_>, errors: &mut Errors) {
    let ty = text(mutation, "patchType");
    let (wanted, other) = match ty {
        "" => return errors.required(&path.child("patchType"), ""),
        "JSONPatch" => ("jsonPatch", "applyConfiguration"),
        "ApplyConfiguration" => ("applyConfiguration", "jsonPatch"),
        _ => {
            let types = ["ApplyConfiguration", "JSONPatch"];
            return errors.not_supported(&path.child("patchType"), &ty.into(), &types);
        }
    };
    if !has(mutation, wanted) {
        let complaint = format!("must be specified when patchType is {ty}");
        errors.required(&path.child(wanted), &complaint);
    } else if text(at(mutation, wanted), "expression").trim().is_empty() {
        errors.required(&path.child(wanted).child("expression"), "");
    }
    if has(mutation, other) {
        let complaint = format!("must not be specified when patchType is {ty}");
        errors.invalid(
            &path.child(other),
            &format!("{{{other}}}").into(),
            &complaint,
        );
    }
}

/// A new ValidatingAdmissionPolicyBinding.
pub fn validating_binding(object: &Value, errors: &mut Errors) {
    let spec = at(object, "spec");
    binding(spec, errors);
    let path = SPEC.child("validationActions");
    let actions: Vec<_> = texts(spec, "validationActions").collect();
    for (i, action) in actions.iter().enumerate() {
        let known = ["Audit", "Deny", "Warn"];
        if !known.contains(action) {
            errors.not_supported(&path.index(i), &(*action).into(), &known);
        }
    }
    unique(
        errors,
        &path,
        items(spec, "validationActions"),
        None,
        ToString::to_string,
    );
    if actions.contains(&"Deny") && actions.contains(&"Warn") {
        let complaint = "must not contain both Deny and Warn (repeating the same validation failure information in the API response and headers serves no purpose)";
        errors.invalid(&path, at(spec, "validationActions"), complaint);
    }
    if actions.is_empty() {
        errors.required(&path, "at least one validation action is required");
    }
}

/// A changed ValidatingAdmissionPolicyBinding.
pub fn validating_binding_update(new: &Value, _old: &Value, _: &str, errors: &mut Errors) {
    validating_binding(new, errors);
}

/// A new MutatingAdmissionPolicyBinding.
pub fn mutating_binding(object: &Value, errors: &mut Errors) {
    binding(at(object, "spec"), errors);
}

/// A changed MutatingAdmissionPolicyBinding.
pub fn mutating_binding_update(new: &Value, _old: &Value, _: &str, errors: &mut Errors) {
    mutating_binding(new, errors);
}

fn binding(spec: &Value, errors: &mut Errors) {
    if required(errors, &SPEC, spec, "policyName") {
        let name = text(spec, "policyName");
        complain(
            errors,
            &SPEC.child("policyName"),
            name,
            names::dns1123_subdomain(name),
        );
    }
    if has(spec, "paramRef") {
        param_ref(at(spec, "paramRef"), &SPEC.child("paramRef"), errors);
    }
    if has(spec, "matchResources") {
        match_resources(
            at(spec, "matchResources"),
            &SPEC.child("matchResources"),
            errors,
        );
    }
}

fn param_ref(reference: &Value, path: &Path<'_>, errors: &mut Errors) {
    let (name, has_selector) = (text(reference, "name"), has(reference, "selector"));
    if !name.is_empty() {
        complain(errors, &path.child("name"), name, names::path_segment(name));
    }
    label_selector(errors, &path.child("selector"), at(reference, "selector"));
    if !name.is_empty() && has_selector {
        for part in ["name", "selector"] {
            errors.forbidden(
                &path.child(part),
                "name and selector are mutually exclusive",
            );
        }
    }
    if name.is_empty() && !has_selector {
        errors.required(path, "one of name or selector must be specified");
    }
    let action = at(reference, "parameterNotFoundAction");
    if action.is_null() || action == "" {
        errors.required(&path.child("parameterNotFoundAction"), "");
    } else {
        one_of(
            errors,
            path,
            reference,
            "parameterNotFoundAction",
            &["Deny", "Allow"],
        );
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::{creates, updates, with};

    fn rule() -> Value {
        json!({"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]})
    }

    fn policy_base() -> Value {
        json!({"metadata": {"name": "p"}, "spec": {"failurePolicy": "Fail", "matchConstraints": {"matchPolicy": "Equivalent",
            "namespaceSelector": {}, "objectSelector": {}, "resourceRules": [rule()]}}})
    }

    #[test]
    fn validating_policies_have_constraints_and_validations() {
        let base = with(
            &policy_base(),
            &json!({"spec": {"validations": [{"expression": "true"}]}}),
        );
        creates(
            validating_policy,
            &base,
            &[
                (
                    json!({"spec": {"failurePolicy": null}}),
                    "spec.failurePolicy: Required value",
                ),
                (
                    json!({"spec": {"validations": null}}),
                    "spec.validations: Required value: validations or auditAnnotations must contain at least one item",
                ),
                (
                    json!({"spec": {"validations": [{"expression": " "}]}}),
                    "spec.validations[0].expression: Required value: expression is not specified",
                ),
                (
                    json!({"spec": {"validations": [{"expression": "true", "message": "a\nb"}]}}),
                    "spec.validations[0].message: Invalid value",
                ),
                (
                    json!({"spec": {"validations": [{"expression": "true", "reason": "Odd"}]}}),
                    "spec.validations[0].reason: Unsupported value: \"Odd\": supported values: \"Forbidden\", \"Invalid\", \"RequestEntityTooLarge\"",
                ),
                (
                    json!({"spec": {"matchConstraints": null}}),
                    "spec.matchConstraints: Required value",
                ),
                (
                    json!({"spec": {"matchConstraints": {"resourceRules": null}}}),
                    "spec.matchConstraints.resourceRules: Required value",
                ),
                (
                    json!({"spec": {"paramKind": {"apiVersion": "v1", "kind": "ConfigMap"}}}),
                    "",
                ),
                (
                    json!({"spec": {"paramKind": {"kind": "A"}}}),
                    "spec.paramKind.apiVersion: Required value",
                ),
                (
                    json!({"spec": {"paramKind": {"apiVersion": "a/b/c", "kind": "A"}}}),
                    "spec.paramKind.apiVersion: Invalid value: \"a/b/c\": unexpected GroupVersion string: a/b/c",
                ),
                (
                    json!({"spec": {"variables": [{"name": "1a", "expression": "1"}]}}),
                    "spec.variables[0].name: Invalid value: \"1a\": must be a valid CEL identifier",
                ),
                (
                    json!({"spec": {"auditAnnotations": [{"key": "a b", "valueExpression": "'x'"}]}}),
                    "spec.auditAnnotations[0].key: Invalid value: \"p/a b\"",
                ),
                (
                    json!({"spec": {"auditAnnotations": [{"key": "a"}]}}),
                    "spec.auditAnnotations[0].valueExpression: Required value: valueExpression is not specified",
                ),
            ],
        );
        updates(
            validating_policy_update,
            "",
            &base,
            &[(
                json!({"spec": {"failurePolicy": null}}),
                "spec.failurePolicy: Required value",
            )],
        );
    }

    #[test]
    fn mutating_policies_say_how_they_mutate() {
        let mutations = |m: Value| json!({"spec": {"mutations": [m]}});
        let base = with(
            &policy_base(),
            &json!({"spec": {"reinvocationPolicy": "Never",
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": "[]"}}]}}),
        );
        creates(
            mutating_policy,
            &base,
            &[
                (
                    json!({"spec": {"mutations": null}}),
                    "spec.mutations: Required value: mutations must contain at least one item",
                ),
                (
                    mutations(json!({})),
                    "spec.mutations[0].patchType: Required value",
                ),
                (
                    mutations(json!({"patchType": "Odd"})),
                    "spec.mutations[0].patchType: Unsupported value: \"Odd\": supported values: \"ApplyConfiguration\", \"JSONPatch\"",
                ),
                (
                    mutations(json!({"patchType": "JSONPatch"})),
                    "spec.mutations[0].jsonPatch: Required value: must be specified when patchType is JSONPatch",
                ),
                (
                    mutations(json!({"patchType": "JSONPatch", "jsonPatch": {}})),
                    "spec.mutations[0].jsonPatch.expression: Required value",
                ),
                (
                    mutations(
                        json!({"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}, "jsonPatch": {}}),
                    ),
                    "spec.mutations[0].jsonPatch: Invalid value: \"{jsonPatch}\": must not be specified when patchType is ApplyConfiguration",
                ),
                (
                    json!({"spec": {"reinvocationPolicy": null}}),
                    "spec.reinvocationPolicy: Required value",
                ),
                (
                    json!({"spec": {"matchConstraints": {"resourceRules": [with(&rule(), &json!({"operations": ["DELETE"]}))]}}}),
                    "spec.matchConstraints.resourceRules.operations: Unsupported value: \"DELETE\"",
                ),
            ],
        );
        updates(
            mutating_policy_update,
            "",
            &base,
            &[(
                json!({"spec": {"mutations": null}}),
                "spec.mutations: Required value",
            )],
        );
    }

    #[test]
    fn bindings_join_a_policy_to_actions() {
        let base = json!({"spec": {"policyName": "p", "validationActions": ["Deny"]}});
        let param = |p: Value| json!({"spec": {"paramRef": p}});
        creates(
            validating_binding,
            &base,
            &[
                (
                    json!({"spec": {"policyName": null}}),
                    "spec.policyName: Required value",
                ),
                (
                    json!({"spec": {"validationActions": null}}),
                    "spec.validationActions: Required value: at least one validation action is required",
                ),
                (
                    json!({"spec": {"validationActions": ["Deny", "Warn"]}}),
                    "spec.validationActions: Invalid value: [\"Deny\",\"Warn\"]: must not contain both Deny and Warn",
                ),
                (
                    json!({"spec": {"validationActions": ["Shout"]}}),
                    "spec.validationActions[0]: Unsupported value: \"Shout\": supported values: \"Audit\", \"Deny\", \"Warn\"",
                ),
                (
                    param(json!({"name": "a", "parameterNotFoundAction": "Deny"})),
                    "",
                ),
                (
                    param(json!({"parameterNotFoundAction": "Deny"})),
                    "spec.paramRef: Required value: one of name or selector must be specified",
                ),
                (
                    param(json!({"name": "a", "selector": {}, "parameterNotFoundAction": "Deny"})),
                    "spec.paramRef.name: Forbidden: name and selector are mutually exclusive",
                ),
                (
                    param(json!({"name": "a"})),
                    "spec.paramRef.parameterNotFoundAction: Required value",
                ),
                (
                    json!({"spec": {"matchResources": {}}}),
                    "spec.matchResources.matchPolicy: Required value",
                ),
            ],
        );
        updates(
            validating_binding_update,
            "",
            &base,
            &[(
                json!({"spec": {"policyName": null}}),
                "spec.policyName: Required value",
            )],
        );
        creates(
            mutating_binding,
            &json!({"spec": {"policyName": "p"}}),
            &[(
                json!({"spec": {"policyName": "P"}}),
                "spec.policyName: Invalid value: \"P\"",
            )],
        );
        updates(
            mutating_binding_update,
            "",
            &json!({"spec": {"policyName": "p"}}),
            &[(
                json!({"spec": {"policyName": "P"}}),
                "spec.policyName: Invalid value: \"P\"",
            )],
        );
    }
}
