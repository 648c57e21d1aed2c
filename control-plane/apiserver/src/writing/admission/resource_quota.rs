//! ResourceQuota: a write is charged to the quotas of its namespace, or refused.
//!
//! What is charged is written to the quota's status before the object is stored, on condition that
//! nobody changed the quota meanwhile. What becomes free again is the quota controller's to notice.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use std::sync::Arc;

use access::User;
use bytes::Bytes;
use futures::FutureExt as _;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue, USER_AGENT};
use http::{Method, StatusCode};
use kinds::pod_resources::Amounts;
use policy::quota::{self, GroupResource, Measure, Quota, Write};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

use super::attributes::text;
use super::{Attributes, Operation, Plugin, Warnings, lookup};
use crate::api::Api;
use crate::call::Call;
use crate::door::request::{Query, ResourcePath};
use crate::status::{ApiError, Result};

/// The row of this plugin.
pub(super) const PLUGIN: Plugin = Plugin {
    name: "ResourceQuota",
    handles,
    mutate: None,
    validate: Some(|api, attributes, object| admit(api, attributes, object).boxed()),
};

/// How often a charge is tried again when somebody else changes the quota meanwhile.
const RETRIES: usize = 3;
/// How long a write waits for its charge.
const PATIENCE: Duration = Duration::from_secs(10);

/// Namespaces take turns: charges that come at once would only run into each other's conflicts.
/// Correctness does not depend on it, so namespaces may share one, and servers of one process, too.
static TURNS: [Mutex<()>; 64] = [const { Mutex::const_new(()) }; 64];

/// Resources of which updates, too, can use more.
const GROWING: [(&str, &str); 4] = [
    ("", "pods"),
    ("", "services"),
    ("", "persistentvolumeclaims"),
    ("resource.k8s.io", "resourceclaims"),
];

fn handles(attributes: &Attributes<'_>) -> bool {
    match attributes.operation {
        Operation::Create => attributes.resource().namespaced && attributes.subresource.is_empty(),
        Operation::Update => GROWING
            .iter()
            .any(|(group, plural)| attributes.is(group, plural)),
        Operation::Delete | Operation::Connect => false,
    }
}

async fn admit(api: &Api, attributes: &Attributes<'_>, object: Option<&Value>) -> Result<()> {
    let Some(object) = object else { return Ok(()) };
    let resource = attributes.resource();
    let Some(measure) = Measure::of(&GroupResource::new(resource.gv.group, resource.plural)) else {
        return Ok(());
    };
    let old = attributes.old.unwrap_or(&Value::Null);
    let creates = attributes.operation == Operation::Create;
    let concerned = measure.concerns(creates, attributes.subresource, object, old);
    if !concerned || names(api, attributes.namespace())?.is_empty() {
        return Ok(());
    }
    let charge = Charge {
        api,
        attributes,
        measure,
        write: Write {
            subresource: attributes.subresource,
            new: object,
            old: attributes.old,
            now: api.clock.now(),
        },
    };
    let charged = tokio::time::timeout(PATIENCE, charge.settle()).await;
    charged.unwrap_or_else(|_| Err(ApiError::internal("resource quota evaluation timed out")))
}

/// The quotas of a namespace, as far as the cache knows. A quota that it does not know yet has no
/// status yet, and counts nothing.
fn names(api: &Api, namespace: &str) -> Result<Vec<String>> {
    let collection = api.collection(lookup::resource("", "v1", "resourcequotas"))?;
    let listed = collection.objects(&format!("{namespace}/"), None);
    let name = |key: &str| key.rsplit('/').next().unwrap_or_default().to_owned();
    Ok(listed.objects.iter().map(|(key, _)| name(key)).collect())
}

async fn turn(namespace: &str) -> MutexGuard<'static, ()> {
    let mut hasher = DefaultHasher::new();
    namespace.hash(&mut hasher);
    let slot = hasher.finish() % TURNS.len() as u64;
    let slot = usize::try_from(slot).expect("less than the number of turns");
    TURNS[slot].lock().await
}

/// A write and what it is measured with.
struct Charge<'a> {
    api: &'a Api,
    attributes: &'a Attributes<'a>,
    measure: Measure,
    write: Write<'a>,
}

impl Charge<'_> {
    async fn settle(&self) -> Result<()> {
        let namespace = self.attributes.namespace();
        let _turn = turn(namespace).await;
        let mut names = names(self.api, namespace)?;
        let mut last = None;
        for _ in 0..=RETRIES {
            // Quotas that took the charge need not be asked again; those that are gone do not count.
            let (failed, error) = self.charge(&names).await?;
            if failed.is_empty() {
                return Ok(());
            }
            names = failed;
            last = error;
        }
        Err(last.unwrap_or_else(|| ApiError::internal("a quota changes too often")))
    }

    // Charges the quotas with these names, and says which of them changed meanwhile.
    async fn charge(&self, names: &[String]) -> Result<(Vec<String>, Option<ApiError>)> {
        let resource = lookup::resource("", "v1", "resourcequotas");
        let mut objects = Vec::new();
        for name in names {
            let found = lookup::get(self.api, resource, self.attributes.namespace(), name).await?;
            objects.extend(found);
        }
        let quotas: Vec<Quota> = objects.iter().map(Quota::of).collect();
        let changes = quota::charge(&quotas, &self.measure, &self.write)
            .map_err(|why| self.attributes.forbid(Some(self.write.new), &why))?;
        let (mut failed, mut last) = (Vec::new(), None);
        if self.attributes.dry_run {
            return Ok((failed, last));
        }
        for (index, used) in changes {
            match self.record(&objects[index], &used).await {
                Ok(()) => {}
                Err(error) if error.code == StatusCode::NOT_FOUND => {}
                Err(error) => {
                    failed.push(quotas[index].name.clone());
                    last = Some(error);
                }
            }
        }
        Ok((failed, last))
    }

    // Goes the way of every status update, with the version that was read as the condition.
    async fn record(&self, quota: &Value, used: &Amounts) -> Result<()> {
        let mut quota = quota.clone();
        quota["status"]["used"] = quota::amounts_to_value(used);
        let call = status_update(&quota)?;
        self.api.call(&call).await.map(drop)
    }
}

fn status_update(quota: &Value) -> Result<Call> {
    let body = serde_json::to_vec(quota).map_err(ApiError::internal)?;
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (USER_AGENT, HeaderValue::from_static("kube-apiserver")),
    ];
    Ok(Call {
        resource: Arc::clone(lookup::resource("", "v1", "resourcequotas")),
        path: ResourcePath {
            version: "v1".into(),
            namespace: Some(text(quota, "namespace").to_owned()),
            resource: "resourcequotas".into(),
            name: Some(text(quota, "name").to_owned()),
            subresource: Some("status".into()),
            ..ResourcePath::default()
        },
        method: Method::PUT,
        query: Query::default(),
        headers: HeaderMap::from_iter(headers),
        body: Bytes::from(body),
        user: Arc::new(User {
            name: "system:apiserver".into(),
            groups: vec!["system:masters".into()],
            ..User::default()
        }),
        warnings: Warnings::default(),
        trail: None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::trial;
    use super::*;

    #[test]
    fn creations_count_and_updates_of_what_can_grow() {
        let (pods, secrets) = (("", "v1", "pods"), ("", "v1", "secrets"));
        for (resource, operation, subresource, handled) in [
            (pods, Operation::Create, "", true),
            (pods, Operation::Create, "binding", false),
            (pods, Operation::Update, "resize", true),
            (secrets, Operation::Create, "", true),
            (secrets, Operation::Update, "", false),
            (secrets, Operation::Delete, "", false),
            (("", "v1", "nodes"), Operation::Create, "", false),
            (("", "v1", "namespaces"), Operation::Create, "", false),
        ] {
            let call = trial::call(resource, "team", "x");
            let attributes = trial::attributes(&call, operation, subresource, None);
            assert_eq!(
                handles(&attributes),
                handled,
                "{resource:?} {operation:?} {subresource}"
            );
        }
    }
}
