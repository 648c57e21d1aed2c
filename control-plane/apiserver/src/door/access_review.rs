//! The access reviews: `kubectl auth can-i`, `--list`, `whoami`, and what webhooks and kubelets ask.

use std::collections::BTreeMap;

use access::rbac::Rule;
use access::{Attributes, Decision, ResourceTarget, Target, User};
use serde_json::{Map, Value, json};

use crate::door::authorization::{Answer, Authorizer};
use crate::settings::AuthorizationMode;

/// The status of a (Self/Local)SubjectAccessReview; `user` is who is asked about. Where a webhook is asked, nobody else
/// waits for it.
pub(crate) async fn access(authorizer: &Authorizer, user: &User, spec: &Value) -> Value {
    let answer = match spec.get("resourceAttributes") {
        Some(attributes) => on_resource(authorizer, user, attributes).await,
        None => {
            let path = &spec["nonResourceAttributes"];
            let target = Target::Path(text(path, "path"));
            let verb = text(path, "verb");
            let asked = Attributes { user, verb, target };
            authorizer.answer(&asked).await
        }
    };
    let Answer { decision, wrong } = answer;
    let mut status = Map::new();
    if let Some(wrong) = wrong {
        status.insert("evaluationError".into(), wrong.into());
    }
    status.insert("allowed".into(), decision.is_allowed().into());
    if matches!(decision, Decision::Deny(_)) {
        status.insert("denied".into(), true.into());
    }
    let (Decision::Allow(reason) | Decision::Deny(reason) | Decision::NoOpinion(reason)) = decision;
    if !reason.is_empty() {
        status.insert("reason".into(), reason.into());
    }
    status.into()
}

async fn on_resource(authorizer: &Authorizer, user: &User, asked: &Value) -> Answer {
    let fields = field_selector(&asked["fieldSelector"]);
    let target = ResourceTarget {
        namespace: text(asked, "namespace"),
        group: text(asked, "group"),
        version: match text(asked, "version") {
            "" => "*",
            version => version,
        },
        resource: text(asked, "resource"),
        subresource: text(asked, "subresource"),
        name: text(asked, "name"),
        field_selector: &fields,
        label_selector: text(&asked["labelSelector"], "rawSelector"),
    };
    let question = Attributes {
        user,
        verb: text(asked, "verb"),
        target: Target::Resource(target),
    };
    authorizer.answer(&question).await
}

// Requirements that cannot be a selector are dropped: that only widens what is asked.
fn field_selector(selector: &Value) -> String {
    let requirements = selector["requirements"].as_array().into_iter().flatten();
    let terms: Vec<String> = requirements.filter_map(term).collect();
    match terms.is_empty() {
        true => text(selector, "rawSelector").to_owned(),
        false => terms.join(","),
    }
}

fn term(requirement: &Value) -> Option<String> {
    let operator = match text(requirement, "operator") {
        "In" => "=",
        "NotIn" => "!=",
        _ => return None,
    };
    let values = requirement["values"].as_array()?;
    let [value] = values.as_slice() else {
        return None;
    };
    let escaped = value.as_str()?.replace('\\', "\\\\");
    let escaped = escaped.replace(',', "\\,").replace('=', "\\=");
    Some(format!("{}{operator}{escaped}", text(requirement, "key")))
}

/// Whom a SubjectAccessReview is about.
pub(crate) fn subject(spec: &Value) -> User {
    User {
        name: text(spec, "user").to_owned(),
        uid: text(spec, "uid").to_owned(),
        groups: strings(&spec["groups"]),
        extra: spec["extra"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, values)| (key.clone(), strings(values)))
            .collect::<BTreeMap<_, _>>(),
    }
}

/// The status of a SelfSubjectRulesReview.
pub(crate) fn rules(authorizer: &Authorizer, user: &User, spec: &Value) -> Value {
    let namespace = text(spec, "namespace");
    let (mut rules, missing) = match authorizer.has(AuthorizationMode::Rbac) {
        true => authorizer.rbac.resolve(user, namespace),
        false => Default::default(),
    };
    if authorizer.has(AuthorizationMode::AlwaysAllow) {
        let everything = json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
            {"verbs": ["*"], "nonResourceURLs": ["*"]}]);
        rules.extend(Rule::all_from_json(&everything));
    }
    let mut errors: Vec<String> = missing.iter().map(ToString::to_string).collect();
    let is_node = access::node::name_of(user).is_some() && authorizer.has(AuthorizationMode::Node);
    if is_node {
        errors.insert(
            0,
            "node authorizer does not support user rule resolution".into(),
        );
    }
    let on_resources = rules.iter().filter(|rule| !rule.resources.is_empty());
    let on_paths = rules
        .iter()
        .filter(|rule| !rule.non_resource_urls.is_empty());
    let mut status = json!({
        "resourceRules": on_resources.map(resource_rule).collect::<Vec<_>>(),
        "nonResourceRules": on_paths.map(path_rule).collect::<Vec<_>>(),
        "incomplete": is_node,
    });
    match errors.as_slice() {
        [] => {}
        [one] => status["evaluationError"] = one.as_str().into(),
        many => status["evaluationError"] = format!("[{}]", many.join(", ")).into(),
    }
    status
}

fn resource_rule(rule: &Rule) -> Value {
    let mut value =
        json!({"verbs": rule.verbs, "apiGroups": rule.api_groups, "resources": rule.resources});
    if !rule.resource_names.is_empty() {
        value["resourceNames"] = json!(rule.resource_names);
    }
    value
}

fn path_rule(rule: &Rule) -> Value {
    json!({"verbs": rule.verbs, "nonResourceURLs": rule.non_resource_urls})
}

/// A user as the API shows them.
pub(crate) fn user_info(user: &User) -> Value {
    let mut info = Map::new();
    info.insert("username".into(), user.name.as_str().into());
    if !user.uid.is_empty() {
        info.insert("uid".into(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        info.insert("groups".into(), user.groups.as_slice().into());
    }
    if !user.extra.is_empty() {
        info.insert("extra".into(), json!(user.extra));
    }
    info.into()
}

fn text<'v>(value: &'v Value, field: &str) -> &'v str {
    value[field].as_str().unwrap_or_default()
}

fn strings(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}
