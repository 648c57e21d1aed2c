//! Admission: what may enter, and in which shape.
//!
//! ```text
//! decode ─► defaults ─► mutate (every plugin, in order) ─► strategy, validation ─► validate (in order) ─► store
//! ```
//!
//! A plugin is one module and one row of [`PLUGINS`]. A row says first whether the plugin cares at all,
//! so a write that concerns nobody costs a walk over the table and nothing else.

mod asked;
mod attributes;
mod certificate_request;
mod claim_resize;
mod connecting;
mod default_class;
mod default_tolerations;
mod device_selectors;
mod expressions;
mod limit_ranger;
mod lookup;
mod matching;
mod namespace_lifecycle;
mod node_restriction;
mod pod_references;
mod pod_security;
mod policies;
mod priority;
mod requester;
mod resource_quota;
mod rounds;
mod runtime_class;
mod service_account;
mod settings;
mod shape;
mod signers;
mod storage_protection;
mod taint_nodes;
mod topology_labels;
#[cfg(test)]
mod trial;
mod webhooks;

pub(crate) use attributes::{Attributes, Operation, Warnings};
pub(crate) use policies::{Policies, type_warnings};
pub(crate) use requester::stamp_requester;
pub(crate) use settings::AdmissionSettings;
pub(crate) use webhooks::Webhooks;

use std::time::Instant;

use futures::future::BoxFuture;
use kinds::field::Errors;
use kinds::resources::Resource;
use serde_json::Value;

use crate::api::Api;
use crate::call::Call;
use crate::status::Result;

/// May change the object. A delete has no object: plugins see `Value::Null`.
type Mutate = for<'a> fn(&'a Api, &'a Attributes<'a>, &'a mut Value) -> BoxFuture<'a, Result<()>>;
/// May only refuse. A delete has no object.
type Validate =
    for<'a> fn(&'a Api, &'a Attributes<'a>, Option<&'a Value>) -> BoxFuture<'a, Result<()>>;

/// One plugin.
pub(crate) struct Plugin {
    /// Upstream's name.
    name: &'static str,
    /// Whether the plugin wants to see a write; cheap, and asked for every one.
    handles: fn(&Attributes<'_>) -> bool,
    /// Its part before validation.
    mutate: Option<Mutate>,
    /// Its part after validation.
    validate: Option<Validate>,
}

impl std::fmt::Debug for Plugin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)
    }
}

/// The plugins in upstream's order (`pkg/kubeapiserver/options/plugins.go`).
const PLUGINS: &[Plugin] = &[
    namespace_lifecycle::PLUGIN,
    limit_ranger::PLUGIN,
    service_account::PLUGIN,
    node_restriction::PLUGIN,
    taint_nodes::PLUGIN,
    pod_security::PLUGIN,
    priority::PLUGIN,
    default_tolerations::PLUGIN,
    default_class::STORAGE,
    storage_protection::PLUGIN,
    claim_resize::PLUGIN,
    runtime_class::PLUGIN,
    signers::APPROVAL,
    signers::SIGNING,
    signers::SUBJECT,
    default_class::INGRESS,
    topology_labels::PLUGIN,
    policies::MUTATING,
    webhooks::MUTATING,
    policies::VALIDATING,
    webhooks::VALIDATING,
    resource_quota::PLUGIN,
];

/// The plugins that are switched on, in order.
#[derive(Debug)]
pub(crate) struct Chain(Vec<&'static Plugin>);

impl Chain {
    /// The chain that settings ask for.
    pub(crate) fn new(settings: &AdmissionSettings) -> Chain {
        let on = PLUGINS.iter().filter(|p| settings.is_on(p.name));
        Chain(on.collect())
    }

    fn has(&self, plugin: &Plugin) -> bool {
        self.0.iter().any(|on| on.name == plugin.name)
    }
}

/// The phase before validation: plugins may change the object. Policies and webhooks come last; if one of them changed
/// the object, everybody sees it once more (upstream's reinvocation).
pub(crate) async fn mutate(
    api: &Api,
    attributes: &Attributes<'_>,
    object: &mut Value,
) -> Result<()> {
    let began = Instant::now();
    let outcome = mutate_in_rounds(api, attributes, object).await;
    let step = ("admit", attributes.operation.as_str());
    api.meters.step(step, began, &outcome);
    outcome
}

async fn mutate_in_rounds(
    api: &Api,
    attributes: &Attributes<'_>,
    object: &mut Value,
) -> Result<()> {
    let mut rounds = rounds::Rounds::default();
    loop {
        mutate_built_in(api, attributes, object).await?;
        let policies = &policies::MUTATING;
        if (policies.handles)(attributes) && api.admission.has(policies) {
            policies::mutate(api, attributes, object, &mut rounds).await?;
        }
        let hooks = &webhooks::MUTATING;
        if (hooks.handles)(attributes) && api.admission.has(hooks) {
            webhooks::mutate(api, attributes, object, &mut rounds).await?;
        }
        if !rounds.again() {
            return Ok(());
        }
    }
}

async fn mutate_built_in(api: &Api, attributes: &Attributes<'_>, object: &mut Value) -> Result<()> {
    for plugin in &api.admission.0 {
        if let Some(mutate) = plugin.mutate
            && (plugin.handles)(attributes)
        {
            let began = Instant::now();
            let outcome = mutate(api, attributes, object).await;
            let step = ("admit", attributes.operation.as_str());
            api.meters.plugin(plugin.name, step, began, &outcome);
            outcome?;
        }
    }
    Ok(())
}

/// The phase after validation and before the store: plugins may only refuse.
pub(crate) async fn validate(
    api: &Api,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<()> {
    let (began, step) = (Instant::now(), ("validate", attributes.operation.as_str()));
    let mut outcome = Ok(());
    for plugin in &api.admission.0 {
        if let Some(validate) = plugin.validate
            && (plugin.handles)(attributes)
        {
            let began = Instant::now();
            outcome = validate(api, attributes, object).await;
            api.meters.plugin(plugin.name, step, began, &outcome);
            if outcome.is_err() {
                break;
            }
        }
    }
    api.meters.step(step, began, &outcome);
    outcome
}

/// Both phases of a write that has no object of its own to change: a delete.
pub(crate) async fn delete(api: &Api, call: &Call, old: &Value, dry_run: bool) -> Result<()> {
    let attributes = Attributes {
        call,
        operation: Operation::Delete,
        subresource: "",
        name: attributes::text(old, "name"),
        old: Some(old),
        dry_run,
    };
    mutate(api, &attributes, &mut Value::Null).await?;
    validate(api, &attributes, None).await
}

/// Both phases of a request that opens a stream to a node.
pub(crate) async fn connect(api: &Api, call: &Call, subresource: &str) -> Result<()> {
    let attributes = Attributes {
        call,
        operation: Operation::Connect,
        subresource,
        name: call.path.name(),
        old: None,
        dry_run: false,
    };
    let (_, kind) = asked::body_kind(&call.resource, subresource);
    let mut options = connecting::options(kind, &call.query, call.path.rest.as_deref());
    mutate(api, &attributes, &mut options).await?;
    validate(api, &attributes, Some(&options)).await
}

/// What is wrong with the expressions of a policy or a webhook configuration.
pub(crate) fn check_expressions(
    resource: &Resource,
    object: &Value,
    old: Option<&Value>,
    errors: &mut Errors,
) {
    policies::check_expressions(resource, object, old, errors);
    device_selectors::check(resource, object, old, errors);
}
