//! What expressions of policies and match conditions may mention, and with what it is filled.

use std::sync::{Arc, LazyLock};

use access::{ResourceTarget, Target, User};
use cel::shape::{Kind, Shape};
use cel::{Bindings, Budget, Decision, Env, Program, Question, Type, Value as Cel};
use serde_json::Value;

use super::Attributes;
use super::shape::{items, text};
use crate::door::authorization::Authorizer;

/// The environment of match conditions of webhooks.
pub(super) static CONDITIONS: LazyLock<Env> = LazyLock::new(base);
/// The environment of policies without parameters.
pub(super) static POLICY: LazyLock<Env> = LazyLock::new(|| base().variable("params", Type::Dyn));

fn base() -> Env {
    Env::new()
        .variable("object", Type::Dyn)
        .variable("oldObject", Type::Dyn)
        .variable("request", Type::of(&request()))
        .variable("namespaceObject", Type::of(&namespace()))
        .variable(
            "authorizer",
            Type::opaque("kubernetes.authorization.Authorizer"),
        )
        .variable(
            "authorizer.requestResource",
            Type::opaque("kubernetes.authorization.ResourceCheck"),
        )
}

fn texts(name: &str, fields: &[&str]) -> Arc<Shape> {
    let fields: Vec<_> = fields
        .iter()
        .map(|f| (*f, Shape::plain(Kind::String)))
        .collect();
    Shape::object(name, &fields)
}

fn request() -> Arc<Shape> {
    let string = || Shape::plain(Kind::String);
    let kind = || texts("kubernetes.GroupVersionKind", &["group", "version", "kind"]);
    let resource = || {
        texts(
            "kubernetes.GroupVersionResource",
            &["group", "version", "resource"],
        )
    };
    let user = Shape::object(
        "kubernetes.UserInfo",
        &[
            ("username", string()),
            ("uid", string()),
            ("groups", Shape::list(string())),
            ("extra", Shape::map(Shape::list(string()))),
        ],
    );
    Shape::object(
        "kubernetes.AdmissionRequest",
        &[
            ("kind", kind()),
            ("resource", resource()),
            ("subResource", string()),
            ("requestKind", kind()),
            ("requestResource", resource()),
            ("requestSubResource", string()),
            ("name", string()),
            ("namespace", string()),
            ("operation", string()),
            ("userInfo", user),
            ("dryRun", Shape::plain(Kind::Bool)),
            ("options", Shape::plain(Kind::Dyn)),
        ],
    )
}

fn namespace() -> Arc<Shape> {
    let string = || Shape::plain(Kind::String);
    let time = || Shape::plain(Kind::Timestamp);
    let metadata = Shape::object(
        "kubernetes.NamespaceMetadata",
        &[
            ("name", string()),
            ("generateName", string()),
            ("namespace", string()),
            ("labels", Shape::map(string())),
            ("annotations", Shape::map(string())),
            ("UID", string()),
            ("creationTimestamp", time()),
            ("deletionGracePeriodSeconds", Shape::plain(Kind::Int)),
            ("deletionTimestamp", time()),
            ("generation", Shape::plain(Kind::Int)),
            ("resourceVersion", string()),
            ("finalizers", Shape::list(string())),
        ],
    );
    let spec = Shape::object(
        "kubernetes.NamespaceSpec",
        &[("finalizers", Shape::list(string()))],
    );
    let condition = Shape::object(
        "kubernetes.NamespaceCondition",
        &[
            ("status", string()),
            ("type", string()),
            ("lastTransitionTime", time()),
            ("message", string()),
            ("reason", string()),
        ],
    );
    let status = Shape::object(
        "kubernetes.NamespaceStatus",
        &[("conditions", Shape::list(condition)), ("phase", string())],
    );
    Shape::object(
        "kubernetes.Namespace",
        &[("metadata", metadata), ("spec", spec), ("status", status)],
    )
}

static REQUEST: LazyLock<Arc<Shape>> = LazyLock::new(request);
static NAMESPACE: LazyLock<Arc<Shape>> = LazyLock::new(namespace);

/// The values of one write.
#[derive(Debug)]
pub(super) struct Input<'a> {
    pub(super) object: &'a Value,
    pub(super) old: &'a Value,
    pub(super) request: &'a Value,
    pub(super) namespace: &'a Value,
    pub(super) asker: &'a Asker<'a>,
}

impl<'a> Input<'a> {
    /// The variables that every expression has.
    pub(super) fn bindings(&self, env: &Env) -> Bindings<'a> {
        Bindings::new(env)
            .set(env, "object", Cel::json(self.object))
            .set(env, "oldObject", Cel::json(self.old))
            .set(env, "request", Cel::shaped(self.request, &REQUEST))
            .set(
                env,
                "namespaceObject",
                Cel::shaped(self.namespace, &NAMESPACE),
            )
            .set(env, "authorizer", Cel::authorizer(self.asker))
            .set(
                env,
                "authorizer.requestResource",
                Cel::resource_check(self.asker, self.asker.resource.clone()),
            )
    }
}

/// The server's authorizer, asked in the name of whoever made the request.
#[derive(Debug)]
pub(super) struct Asker<'a> {
    authorizer: &'a Authorizer,
    user: &'a User,
    resource: Question,
}

impl<'a> Asker<'a> {
    pub(super) fn new(authorizer: &'a Authorizer, attributes: &Attributes<'a>) -> Asker<'a> {
        let resource = attributes.resource();
        Asker {
            authorizer,
            user: attributes.user(),
            resource: Question {
                group: resource.gv.group.to_owned(),
                resource: resource.plural.to_owned(),
                subresource: attributes.subresource.to_owned(),
                namespace: attributes.namespace().to_owned(),
                name: attributes.name.to_owned(),
                ..Question::default()
            },
        }
    }
}

impl cel::Authorizer for Asker<'_> {
    fn decide(&self, question: &Question) -> Decision {
        let account = question
            .service_account
            .as_ref()
            .map(|(namespace, name)| User {
                name: format!("system:serviceaccount:{namespace}:{name}"),
                groups: [
                    "system:serviceaccounts".to_owned(),
                    format!("system:serviceaccounts:{namespace}"),
                    "system:authenticated".to_owned(),
                ]
                .into_iter()
                .collect(),
                ..User::default()
            });
        let target = match question.path.is_empty() {
            false => Target::Path(&question.path),
            true => Target::Resource(ResourceTarget {
                namespace: &question.namespace,
                group: &question.group,
                version: "*",
                resource: &question.resource,
                subresource: &question.subresource,
                name: &question.name,
                field_selector: &question.field_selector,
                label_selector: &question.label_selector,
            }),
        };
        let decided = self.authorizer.decide(&access::Attributes {
            user: account.as_ref().unwrap_or(self.user),
            verb: &question.verb,
            target,
        });
        let allowed = decided.is_allowed();
        let (access::Decision::Allow(reason)
        | access::Decision::Deny(reason)
        | access::Decision::NoOpinion(reason)) = decided;
        Decision {
            allowed,
            reason,
            error: None,
        }
    }
}

/// A condition under which a webhook or a policy is for a write at all.
#[derive(Debug)]
pub(super) struct Condition {
    name: String,
    program: Result<Program, String>,
}

/// What conditions say about a write.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Met,
    NotMet,
    /// None says no, and these could not be evaluated.
    Failed(String),
}

/// The conditions of a configuration.
pub(super) fn conditions(list: &Value, env: &Env) -> Vec<Condition> {
    let read = |condition: &Value| Condition {
        name: text(&condition["name"]).to_owned(),
        program: Program::compile(text(&condition["expression"]), env)
            .map_err(|issues| format!("compilation failed: {issues}")),
    };
    items(list).iter().map(read).collect()
}

/// Asks every condition: one no is enough, whatever else fails.
pub(super) fn verdict<'a>(conditions: &'a [Condition], values: &Bindings<'a>) -> Verdict {
    let mut budget = Budget::new(cel::MATCH_CONDITIONS);
    let mut failures = Vec::new();
    for condition in conditions {
        let outcome = match &condition.program {
            Ok(program) => program.evaluate(values, &mut budget).map_err(|e| e.message),
            Err(error) => Err(error.clone()),
        };
        match outcome {
            Ok(Cel::Bool(true)) => {}
            Ok(Cel::Bool(false)) => return Verdict::NotMet,
            Ok(_) => failures.push(format!(
                "match condition '{}' failed: cel expression did not evaluate to a bool",
                condition.name
            )),
            Err(error) => failures.push(format!(
                "expression '{}' resulted in error: {error}",
                condition.name
            )),
        }
    }
    match failures.is_empty() {
        true => Verdict::Met,
        false => Verdict::Failed(failures.join(", ")),
    }
}
