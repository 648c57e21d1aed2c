//! MutatingAdmissionWebhook and ValidatingAdmissionWebhook.
//!
//! ```text
//! configurations (by the cache, before their writer is answered) ─► Hook ─► matches? ─► review ─► client
//! ```
//!
//! Mutating hooks are asked one after the other, by the names of their configurations; validating ones all at once.

mod configuration;
mod review;

use std::collections::BTreeMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use kinds::resources::Resource;
use serde_json::{Value, json};

use self::configuration::Hook;
use self::review::Answer;
use super::expressions::{Asker, Input, Verdict, verdict};
use super::matching::Matched;
use super::rounds::Rounds;
use super::{Attributes, Operation, Plugin, asked, lookup};
use crate::api::Api;
use crate::outward::webhook::Ask;
use crate::reading::cache::{Follower, following};
use crate::status::{ApiError, Result};

/// The row of validating webhooks.
pub(super) const VALIDATING: Plugin = Plugin {
    name: "ValidatingAdmissionWebhook",
    handles: is_subject,
    mutate: None,
    validate: Some(|api, attributes, object| Box::pin(validate(api, attributes, object))),
};

/// The row of mutating webhooks; the chain itself runs them, for they may have to run again.
pub(super) const MUTATING: Plugin = Plugin {
    name: "MutatingAdmissionWebhook",
    handles: is_subject,
    mutate: None,
    validate: None,
};

const GROUP: &str = "admissionregistration.k8s.io";
const NULL: &Value = &Value::Null;

/// Nobody guards the configurations of guards: they could never be mended.
pub(super) fn is_subject(attributes: &Attributes<'_>) -> bool {
    attributes.resource().gv.group != GROUP
}

/// The webhooks that are in force.
#[derive(Debug, Default)]
pub(crate) struct Webhooks {
    validating: ArcSwap<Configurations>,
    mutating: ArcSwap<Configurations>,
}

type Configurations = BTreeMap<String, Vec<Arc<Hook>>>;

impl Webhooks {
    /// Who keeps up with configurations.
    pub(crate) fn follower(self: &Arc<Self>, resource: &Resource) -> Option<Arc<dyn Follower>> {
        let (own, kind) = (Arc::clone(self), resource.kind);
        let is_ours = resource.gv.group == GROUP && kind.ends_with("WebhookConfiguration");
        is_ours.then(|| following(move |_, name, object| own.apply(kind, name, object)))
    }

    fn apply(&self, kind: &str, name: &str, object: Option<&Value>) {
        let side = match kind.starts_with("Validating") {
            true => &self.validating,
            false => &self.mutating,
        };
        let mut all = Configurations::clone(&side.load());
        let known = all.remove(name).unwrap_or_default();
        if let Some(object) = object {
            all.insert(name.to_owned(), Hook::read_all(name, object, &known));
        }
        side.store(Arc::new(all));
    }
}

/// The namespace that an object is in; null for what is in none. A namespace is in itself, as it is to be.
pub(super) async fn namespace_of(
    api: &Api,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<Value> {
    let is_namespace = attributes.is("", "namespaces");
    let own = match attributes.operation {
        Operation::Create | Operation::Update if is_namespace => object,
        _ if is_namespace => attributes.old,
        _ => None,
    };
    if let Some(own) = own {
        return Ok(own.clone());
    }
    let namespace = attributes.namespace();
    if namespace.is_empty() {
        return Ok(Value::Null);
    }
    let resource = lookup::resource("", "v1", "namespaces");
    let found = lookup::get(api, resource, "", namespace).await?;
    found.ok_or_else(|| ApiError::not_found(resource, namespace))
}

/// Whether a hook is for a write, and as what.
async fn called(
    api: &Api,
    attributes: &Attributes<'_>,
    hook: &Hook,
    object: Option<&Value>,
) -> Result<Option<Matched>> {
    let Some(matched) = hook
        .matcher
        .by_rules(attributes, api.registry.live().resources())
    else {
        return Ok(None);
    };
    if !hook.matcher.by_object(attributes, object) {
        return Ok(None);
    }
    if hook.matcher.asks_namespace() {
        let namespace = namespace_of(api, attributes, object).await?;
        if !namespace.is_null() && !hook.matcher.by_namespace(&namespace["metadata"]["labels"]) {
            return Ok(None);
        }
    }
    if hook.conditions.is_empty() {
        return Ok(Some(matched));
    }
    match conditions(api, attributes, hook, &matched, object).await? {
        Verdict::Met => Ok(Some(matched)),
        Verdict::NotMet => Ok(None),
        Verdict::Failed(why) if hook.fails_closed => Err(attributes.forbid(object, &why)),
        Verdict::Failed(_) => Ok(None),
    }
}

async fn conditions(
    api: &Api,
    attributes: &Attributes<'_>,
    hook: &Hook,
    matched: &Matched,
    object: Option<&Value>,
) -> Result<Verdict> {
    let request = asked::request(attributes, matched);
    let own = attributes.resource();
    let new = asked::in_version(api, object, own, matched).await?;
    let old = asked::in_version(api, attributes.old, own, matched).await?;
    let asker = Asker::new(&api.authorizer, attributes);
    let input = Input {
        object: new.as_ref().or(object).unwrap_or(NULL),
        old: old.as_ref().or(attributes.old).unwrap_or(NULL),
        request: &request,
        namespace: NULL,
        asker: &asker,
    };
    let values = input.bindings(&super::expressions::CONDITIONS);
    Ok(verdict(&hook.conditions, &values))
}

/// Asks a hook: its answer, nothing if it may be passed over, or why the write cannot go on.
async fn ask(
    api: &Api,
    attributes: &Attributes<'_>,
    hook: &Hook,
    matched: &Matched,
    object: Option<&Value>,
) -> Result<Option<Answer>> {
    if attributes.dry_run && !hook.harmless {
        let name = &hook.name;
        return Err(ApiError::bad_request(format!(
            "admission webhook {name:?} does not support dry run"
        )));
    }
    let uid = uuid::Uuid::new_v4().to_string();
    let own = attributes.resource();
    let new = asked::in_version(api, object, own, matched).await?;
    let old = asked::in_version(api, attributes.old, own, matched).await?;
    let objects = (new.as_ref().or(object), old.as_ref().or(attributes.old));
    let body = review::request(attributes, matched, objects, &uid, hook.version);
    let call = Ask {
        body,
        timeout: hook.timeout,
        agent: "kube-apiserver-admission",
    };
    let answered = match hook.client.post(api, call).await {
        Ok(bytes) => review::answer(&bytes, &uid, hook.version, hook.mutates)
            .map_err(|why| format!("received invalid webhook response: {why}")),
        Err(why) => Err(format!("failed to call webhook: {why}")),
    };
    let answer = match answered {
        Ok(answer) => answer,
        Err(why) if hook.fails_closed => {
            let text = format!("failed calling webhook {:?}: {why}", hook.name);
            return Err(ApiError::internal(text));
        }
        Err(why) => {
            tracing::warn!(
                webhook = hook.name,
                why,
                "failed calling webhook, failing open"
            );
            return Ok(None);
        }
    };
    for (key, value) in &answer.annotations {
        attributes.annotate(&format!("{}/{key}", hook.name), value);
    }
    for warning in &answer.warnings {
        attributes.warn(warning.clone());
    }
    match &answer.denied {
        Some(denied) => Err(review::refusal(&hook.name, denied)),
        None => Ok(Some(answer)),
    }
}

/// The first phase: hooks one after the other, each with what the one before made of the object.
pub(super) async fn mutate(
    api: &Api,
    attributes: &Attributes<'_>,
    object: &mut Value,
    rounds: &mut Rounds,
) -> Result<()> {
    let configurations = api.webhooks.mutating.load_full();
    for (index, hook) in configurations.values().flatten().enumerate() {
        let key = format!("webhook {} {index}", hook.configuration);
        if !rounds.may_run(&key, hook.reinvoked) {
            continue;
        }
        let current = (!object.is_null()).then_some(&*object);
        let Some(matched) = called(api, attributes, hook, current).await? else {
            continue;
        };
        let Some(answer) = ask(api, attributes, hook, &matched, current).await? else {
            let failed =
                json!({"configuration": hook.configuration, "webhook": hook.name}).to_string();
            let round = rounds.round();
            attributes.annotate(
                &format!(
                    "failed-open.mutation.webhook.admission.k8s.io/round_{round}_index_{index}"
                ),
                &failed,
            );
            rounds.ran(key, false);
            continue;
        };
        let patch = answer.patch.clone();
        let changed = match answer.patch {
            Some(patch) => patched(api, attributes, hook, &matched, (object, &patch)).await?,
            None => None,
        };
        let differs = changed.as_ref().is_some_and(|changed| changed != object);
        if let Some(changed) = changed {
            *object = changed;
        }
        let place = format!("round_{}_index_{index}", rounds.round());
        annotate(attributes, hook, &place, differs, patch.as_ref());
        rounds.ran(key, differs);
    }
    Ok(())
}

// What upstream records of a mutating hook: that it was asked, and what it changed where objects are recorded.
fn annotate(
    attributes: &Attributes<'_>,
    hook: &Hook,
    place: &str,
    mutated: bool,
    patch: Option<&Value>,
) {
    let Some(trail) = &attributes.call.trail else {
        return;
    };
    let (configuration, webhook) = (&hook.configuration, &hook.name);
    let asked =
        json!({"configuration": configuration, "webhook": webhook, "mutated": mutated}).to_string();
    trail.annotate(format!("mutation.webhook.admission.k8s.io/{place}"), asked);
    if mutated && trail.wants_objects() {
        let made = json!({"configuration": configuration, "webhook": webhook, "patch": patch,
            "patchType": "JSONPatch"});
        trail.annotate(
            format!("patch.webhook.admission.k8s.io/{place}"),
            made.to_string(),
        );
    }
}

async fn patched(
    api: &Api,
    attributes: &Attributes<'_>,
    hook: &Hook,
    matched: &Matched,
    (object, patch): (&Value, &Value),
) -> Result<Option<Value>> {
    if patch.as_array().is_some_and(Vec::is_empty) {
        return Ok(None);
    }
    if object.is_null() {
        let name = &hook.name;
        return Err(ApiError::internal(format!(
            "admission webhook {name:?} attempted to modify the object, which is not supported for this operation"
        )));
    }
    let own = attributes.resource();
    let seen = asked::in_version(api, Some(object), own, matched).await?;
    let seen = seen.as_ref().unwrap_or(object);
    let (gv, kind) = asked::body_kind(&matched.resource, attributes.subresource);
    let ty = asked::body_type(&matched.resource, attributes.subresource);
    let fail = |why: String| ApiError::internal(why);
    let result = objects::jsonpatch::json_patch(seen, patch).map_err(|e| fail(e.to_string()))?;
    let mut result = ty.normalize(result).map_err(|e| fail(e.to_string()))?.value;
    result["kind"] = kind.into();
    result["apiVersion"] = gv.to_string().into();
    ty.default(&mut result);
    asked::back(api, result, own, matched).await.map(Some)
}

/// The second phase: everybody at once; the first no to arrive is the answer.
async fn validate(api: &Api, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<()> {
    let configurations = api.webhooks.validating.load_full();
    if configurations.is_empty() {
        return Ok(());
    }
    let mut called_hooks = Vec::new();
    for hook in configurations.values().flatten() {
        if let Some(matched) = called(api, attributes, hook, object).await? {
            called_hooks.push((hook, matched));
        }
    }
    let asking = called_hooks.iter();
    let mut asking: FuturesUnordered<_> = asking
        .map(|(hook, matched)| ask(api, attributes, hook, matched, object))
        .collect();
    while let Some(outcome) = asking.next().await {
        outcome?;
    }
    Ok(())
}
