//! ValidatingAdmissionPolicy and MutatingAdmissionPolicy: which are in force, and what they make of a write.
//!
//! Policies and bindings are compiled when the cache hears of them, which is before their writer is answered: a
//! policy is in force when its creation has been acknowledged. Policies without a binding cost nothing.

mod compile;
mod evaluate;
mod mutate;
mod params;
mod types;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use kinds::resources::Resource;
use serde_json::Value;

use self::compile::{Binding, Policy};
use super::expressions::{Asker, Input, Verdict, verdict};
use super::matching::{Matched, Matcher};
use super::{Attributes, Plugin, asked, lookup};
use crate::api::Api;
use crate::reading::cache::{Follower, following};
use crate::registry::Live;
use crate::status::Result;

pub(super) use compile::check as check_expressions;
pub(super) use mutate::mutate;
pub(crate) use types::warnings as type_warnings;

/// The row of validating policies.
pub(super) const VALIDATING: Plugin = Plugin {
    name: "ValidatingAdmissionPolicy",
    handles: is_subject,
    mutate: None,
    validate: Some(|api, attributes, object| Box::pin(evaluate::validate(api, attributes, object))),
};

/// The row of mutating policies; the chain itself runs them, for they may have to run again.
pub(super) const MUTATING: Plugin = Plugin {
    name: "MutatingAdmissionPolicy",
    handles: is_subject,
    mutate: None,
    validate: None,
};

const GROUP: &str = "admissionregistration.k8s.io";
const NULL: &Value = &Value::Null;

/// Policies decide neither about policies nor about questions of access.
pub(super) fn is_subject(attributes: &Attributes<'_>) -> bool {
    let resource = attributes.resource();
    match resource.gv.group {
        GROUP => !resource.plural.contains("admissionpolic"),
        "authorization.k8s.io" => false,
        "authentication.k8s.io" => false,
        _ => true,
    }
}

/// The policies that are in force.
#[derive(Debug, Default)]
pub(crate) struct Policies {
    validating: Side,
    mutating: Side,
}

/// Policies of one sort with their bindings.
#[derive(Debug, Default)]
struct Side(ArcSwap<State>);

#[derive(Debug, Default, Clone)]
struct State {
    policies: BTreeMap<String, Arc<Policy>>,
    bindings: BTreeMap<String, Arc<Binding>>,
}

impl State {
    /// Every binding with its policy, by name.
    fn pairs(&self) -> impl Iterator<Item = (&Arc<Policy>, &Arc<Binding>)> {
        let of = |policy: &str| {
            let policy = policy.to_owned();
            self.bindings.values().filter(move |b| b.policy == policy)
        };
        self.policies
            .iter()
            .flat_map(move |(name, policy)| of(name).map(move |binding| (policy, binding)))
    }

    fn is_idle(&self) -> bool {
        self.policies.is_empty() || self.bindings.is_empty()
    }
}

impl Policies {
    /// Who keeps up with policies and bindings.
    pub(crate) fn follower(self: &Arc<Self>, resource: &Resource) -> Option<Arc<dyn Follower>> {
        if resource.gv.group != GROUP {
            return None;
        }
        let (own, kind) = (Arc::clone(self), resource.kind);
        let is_policy = kind.ends_with("Policy");
        (is_policy || kind.ends_with("PolicyBinding"))
            .then(|| following(move |_, name, object| own.apply(kind, name, object)))
    }

    fn apply(&self, kind: &str, name: &str, object: Option<&Value>) {
        let side = match kind.starts_with("Validating") {
            true => &self.validating,
            false => &self.mutating,
        };
        let mut state = State::clone(&side.0.load());
        match (kind.ends_with("Binding"), object) {
            (true, Some(object)) => {
                state
                    .bindings
                    .insert(name.into(), Arc::new(Binding::read(name, object)));
            }
            (true, None) => drop(state.bindings.remove(name)),
            (false, Some(object)) => {
                state
                    .policies
                    .insert(name.into(), Arc::new(Policy::read(name, object)));
            }
            (false, None) => drop(state.policies.remove(name)),
        }
        // The cache tells of one change at a time.
        side.0.store(Arc::new(state));
    }
}

/// A write, with what was looked up for it so far.
struct Subject<'a> {
    api: &'a Api,
    live: Arc<Live>,
    attributes: &'a Attributes<'a>,
    namespace: Option<Value>,
}

impl<'a> Subject<'a> {
    fn new(api: &'a Api, attributes: &'a Attributes<'a>) -> Subject<'a> {
        Subject {
            api,
            live: api.registry.live(),
            attributes,
            namespace: None,
        }
    }

    /// The namespace of the object; null for what has none.
    async fn namespace(&mut self, object: Option<&Value>) -> Result<&Value> {
        if self.namespace.is_none() {
            let found = super::webhooks::namespace_of(self.api, self.attributes, object).await?;
            self.namespace = Some(found);
        }
        Ok(self.namespace.as_ref().unwrap_or(NULL))
    }

    async fn matches(
        &mut self,
        matcher: &Matcher,
        object: Option<&Value>,
    ) -> Result<Option<Matched>> {
        let Some(matched) = matcher.by_rules(self.attributes, self.live.resources()) else {
            return Ok(None);
        };
        let selected = self.selected(matcher, object).await?;
        Ok(selected.then_some(matched))
    }

    async fn selected(&mut self, matcher: &Matcher, object: Option<&Value>) -> Result<bool> {
        if !matcher.by_object(self.attributes, object) {
            return Ok(false);
        }
        if !matcher.asks_namespace() {
            return Ok(true);
        }
        let namespace = self.namespace(object).await?;
        // What is in no namespace is always meant.
        Ok(namespace.is_null() || matcher.by_namespace(&namespace["metadata"]["labels"]))
    }

    /// Whether a policy with this binding is for the write.
    async fn invoked(
        &mut self,
        (policy, binding): (&Policy, &Binding),
        object: Option<&Value>,
    ) -> Result<Option<Matched>> {
        let Some(matched) = self.matches(&policy.matcher, object).await? else {
            return Ok(None);
        };
        let narrowed = match &binding.matcher {
            None => true,
            Some(matcher) if matcher.has_rules() => self.matches(matcher, object).await?.is_some(),
            Some(matcher) => self.selected(matcher, object).await?,
        };
        Ok(narrowed.then_some(matched))
    }
}

/// Everything expressions see, owned: objects in the version that matched.
struct Scene {
    matched: Matched,
    object: Option<Value>,
    old: Option<Value>,
    request: Value,
}

impl Scene {
    async fn new(
        api: &Api,
        attributes: &Attributes<'_>,
        matched: Matched,
        object: Option<&Value>,
    ) -> Result<Scene> {
        let own = attributes.resource();
        Ok(Scene {
            object: asked::in_version(api, object, own, &matched).await?,
            old: asked::in_version(api, attributes.old, own, &matched).await?,
            request: asked::request(attributes, &matched),
            matched,
        })
    }

    fn input<'a>(
        &'a self,
        attributes: &Attributes<'a>,
        object: Option<&'a Value>,
        namespace: &'a Value,
        asker: &'a Asker<'a>,
    ) -> Input<'a> {
        Input {
            object: self.object.as_ref().or(object).unwrap_or(NULL),
            old: self.old.as_ref().or(attributes.old).unwrap_or(NULL),
            request: &self.request,
            namespace,
            asker,
        }
    }
}

/// What match conditions of a policy say; they see parameters, but no namespace.
fn conditions(policy: &Policy, input: &Input<'_>, params: &Value) -> Verdict {
    if policy.conditions.is_empty() {
        return Verdict::Met;
    }
    let values = input
        .bindings(&policy.env)
        .set(&policy.env, "namespaceObject", cel::Value::Null)
        .set(&policy.env, "params", cel::Value::json(params));
    verdict(&policy.conditions, &values)
}

/// Other objects, as they are now.
async fn objects(api: &Api, resource: &Resource, namespace: &str) -> Result<Vec<Value>> {
    lookup::list(api, resource, namespace).await
}
