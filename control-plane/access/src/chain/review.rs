//! The question as a SubjectAccessReview, and what its answer means.

use kube_kit::selector::{FieldSelector, LabelSelector, Operator};
use serde_json::{Map, Value, json};

use crate::{Attributes, Decision, ResourceTarget, Target};

/// The spec of the review that asks a question.
pub fn question(asked: &Attributes<'_>) -> Value {
    let mut spec = Map::new();
    match asked.target {
        Target::Resource(target) => {
            let attributes = resource(asked.verb, &target);
            spec.insert("resourceAttributes".into(), attributes);
        }
        Target::Path(path) => {
            let attributes = filled(&[("path", path), ("verb", asked.verb)]);
            spec.insert("nonResourceAttributes".into(), attributes.into());
        }
    }
    let user = asked.user;
    if !user.name.is_empty() {
        spec.insert("user".into(), user.name.as_str().into());
    }
    if !user.groups.is_empty() {
        spec.insert("groups".into(), user.groups.as_slice().into());
    }
    if !user.extra.is_empty() {
        spec.insert("extra".into(), json!(user.extra));
    }
    if !user.uid.is_empty() {
        spec.insert("uid".into(), user.uid.as_str().into());
    }
    spec.into()
}

fn filled(fields: &[(&str, &str)]) -> Map<String, Value> {
    let given = fields.iter().filter(|(_, value)| !value.is_empty());
    let pairs = given.map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
    pairs.collect()
}

fn resource(verb: &str, target: &ResourceTarget<'_>) -> Value {
    let mut attributes = filled(&[
        ("namespace", target.namespace),
        ("verb", verb),
        ("group", target.group),
        ("version", target.version),
        ("resource", target.resource),
        ("subresource", target.subresource),
        ("name", target.name),
    ]);
    // Selectors narrow what is asked for: what cannot be read is left out, and the question is a wider one.
    let selectors = [
        ("fieldSelector", field_requirements(target.field_selector)),
        ("labelSelector", label_requirements(target.label_selector)),
    ];
    for (name, requirements) in selectors {
        if !requirements.is_empty() {
            attributes.insert(name.into(), json!({ "requirements": requirements }));
        }
    }
    attributes.into()
}

fn field_requirements(text: &str) -> Vec<Value> {
    let Ok(selector) = FieldSelector::parse(text) else {
        return Vec::new();
    };
    let requirement = |term: &kube_kit::selector::FieldTerm| {
        let operator = if term.negated { "NotIn" } else { "In" };
        json!({"key": term.field, "operator": operator, "values": [term.value]})
    };
    selector.terms().iter().map(requirement).collect()
}

fn label_requirements(text: &str) -> Vec<Value> {
    let Ok(selector) = LabelSelector::parse(text) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for requirement in selector.requirements() {
        let operator = match requirement.operator() {
            Operator::Equals | Operator::DoubleEquals | Operator::In => "In",
            Operator::NotEquals | Operator::NotIn => "NotIn",
            Operator::Exists => "Exists",
            Operator::DoesNotExist => "DoesNotExist",
            _ => continue,
        };
        let mut value = json!({"key": requirement.key(), "operator": operator});
        if !requirement.values().is_empty() {
            value["values"] = json!(requirement.values());
        }
        found.push(value);
    }
    found
}

/// The body of the review, in a version that the other side knows.
pub fn body(spec: &Value, version: &str) -> Value {
    let mut spec = spec.clone();
    if version == "v1beta1"
        && let Some(fields) = spec.as_object_mut()
        && let Some(groups) = fields.remove("groups")
    {
        fields.insert("group".into(), groups);
    }
    json!({
        "kind": "SubjectAccessReview",
        "apiVersion": format!("authorization.k8s.io/{version}"),
        "metadata": {},
        "spec": spec,
        "status": {"allowed": false},
    })
}

/// What a status decides. One that says both is a no.
pub fn decision(status: &Value) -> Decision {
    let reason = status["reason"].as_str().unwrap_or_default().to_owned();
    let says = |field: &str| status[field].as_bool().unwrap_or(false);
    match (says("allowed"), says("denied")) {
        (_, true) => Decision::Deny(reason),
        (true, false) => Decision::Allow(reason),
        (false, false) => Decision::NoOpinion(reason),
    }
}
