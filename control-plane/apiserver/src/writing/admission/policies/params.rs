//! The objects that parametrize a policy, as a binding names them.

use kinds::resources::Resource;
use kube_kit::selector::LabelSelector;
use serde_json::Value;

use super::compile::{Binding, Policy};
use super::objects;
use crate::api::Api;
use crate::writing::admission::shape::text;
use crate::writing::admission::{Attributes, lookup};

/// With what a policy is evaluated for a binding: each of these, or an error that concerns the configuration.
/// No parameters at all mean that the binding is passed over.
pub(super) async fn of(
    api: &Api,
    attributes: &Attributes<'_>,
    policy: &Policy,
    binding: &Binding,
) -> Result<Vec<Value>, String> {
    let (Some((version, kind)), Some(reference)) = (&policy.params, &binding.params) else {
        return Ok(vec![Value::Null]);
    };
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let live = api.registry.live();
    let mut served = live.resources().iter();
    let resource = served.find(|r| r.gv.version == version && r.is(group, kind));
    let resource = resource.ok_or_else(|| {
        format!("failed to find resource referenced by paramKind: '{group}/{version}, Kind={kind}'")
    })?;
    let namespace = namespace(attributes, resource, reference)?;
    let found = match text(&reference["name"]) {
        "" => selected(api, resource, namespace, &reference["selector"]).await,
        name => {
            let found = lookup::get(api, resource, namespace, name).await;
            found.map(|found| found.into_iter().collect())
        }
    };
    let found: Vec<Value> = found.map_err(|error| error.message)?;
    match found.is_empty() && text(&reference["parameterNotFoundAction"]) == "Deny" {
        true => {
            Err("no params found for policy binding with `Deny` parameterNotFoundAction".into())
        }
        false => Ok(found),
    }
}

fn namespace<'a>(
    attributes: &Attributes<'a>,
    resource: &Resource,
    reference: &'a Value,
) -> Result<&'a str, String> {
    let named = text(&reference["namespace"]);
    match (resource.namespaced, named, attributes.namespace()) {
        (false, "", _) => Ok(""),
        (false, ..) => {
            Err("paramRef.namespace must not be provided for a cluster-scoped `paramKind`".into())
        }
        (true, "", "") => Err(
            "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources"
                .into(),
        ),
        (true, "", own) => Ok(own),
        (true, named, _) => Ok(named),
    }
}

async fn selected(
    api: &Api,
    resource: &Resource,
    namespace: &str,
    selector: &Value,
) -> crate::status::Result<Vec<Value>> {
    let selector =
        LabelSelector::from_object(selector).unwrap_or_else(|_| LabelSelector::nothing());
    let mut all = objects(api, resource, namespace).await?;
    all.retain(|object| selector.matches_labels(&object["metadata"]["labels"]));
    Ok(all)
}
