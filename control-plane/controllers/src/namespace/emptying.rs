//! One round of deleting what is in a namespace.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use serde_json::Value;

use super::discovery::{self, Resource};
use client_runtime::{Actor, Answer};

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
/// How long finalizers may take: upstream's `finalizerEstimateSeconds`.
const FINALIZERS_TAKE: u64 = 15;
/// Resources emptied at the same time.
const AT_ONCE: usize = 4;

/// What a round came to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) discovery_failure: Option<String>,
    pub(super) content_failures: Vec<String>,
    /// How many objects are left, by resource as people are told it.
    pub(super) remaining: BTreeMap<String, usize>,
    /// How many objects wait, by finalizer.
    pub(super) finalizers: BTreeMap<String, usize>,
    /// Whether pods are left: then nothing else was touched, and what is left is not told.
    pub(super) stopped_at_pods: bool,
    /// Seconds until what is left should be gone; none means that nothing is left.
    pub(super) estimate: u64,
}

impl Outcome {
    /// Everything that went wrong.
    pub(super) fn failures(&self) -> impl Iterator<Item = &str> {
        let discovery = self.discovery_failure.iter();
        discovery.chain(&self.content_failures).map(String::as_str)
    }

    fn count(&mut self, resource: &Resource, left: Answer<Left>) {
        let left = match left {
            Ok(left) => left,
            Err(error) => return self.content_failures.push(error.to_string()),
        };
        self.estimate = self.estimate.max(left.estimate);
        if left.objects.is_empty() {
            return;
        }
        let name = format!("{}.{}", resource.plural, resource.group);
        self.remaining.insert(name, left.objects.len());
        let mut held = false;
        for finalizer in left.objects.iter().flatten() {
            *self.finalizers.entry(finalizer.clone()).or_default() += 1;
            held = true;
        }
        match (left.estimate, held) {
            (0, true) => self.estimate = self.estimate.max(FINALIZERS_TAKE),
            (0, false) => self
                .content_failures
                .push(unexpected(&left.namespace, resource)),
            _ => {}
        }
    }
}

fn unexpected(namespace: &str, resource: &Resource) -> String {
    let Resource {
        group,
        version,
        plural,
        ..
    } = resource;
    format!(
        "unexpected items still remain in namespace: {namespace} for gvr: {group}/{version}, Resource={plural}"
    )
}

/// What is left of one resource.
struct Left {
    namespace: String,
    /// The finalizers of each object.
    objects: Vec<Vec<String>>,
    /// Seconds of grace.
    estimate: u64,
}

/// Deletes what there is, pods before everything else; `age` is the time since the namespace was deleted.
pub(super) async fn empty(actor: &Actor, namespace: &str, age: Duration) -> Outcome {
    let found = discovery::discover(actor).await;
    let mut outcome = Outcome {
        discovery_failure: found.failure,
        ..Outcome::default()
    };
    let (pods, others): (Vec<_>, Vec<_>) = found.resources.into_iter().partition(Resource::is_pods);
    for pods in &pods {
        outcome.count(pods, empty_pods(actor, pods, namespace, age).await);
    }
    outcome.stopped_at_pods = !outcome.remaining.is_empty();
    if outcome.stopped_at_pods {
        return outcome;
    }
    let emptied = others.into_iter().map(async |resource| {
        let left = empty_resource(actor, &resource, namespace).await;
        (resource, left)
    });
    let mut emptied = std::pin::pin!(futures::stream::iter(emptied).buffer_unordered(AT_ONCE));
    while let Some((resource, left)) = emptied.next().await {
        outcome.count(&resource, left);
    }
    outcome
}

async fn empty_pods(
    actor: &Actor,
    pods: &Resource,
    namespace: &str,
    age: Duration,
) -> Answer<Left> {
    let grace = longest_grace(&actor.list::<Pod>(namespace).await?);
    let left = empty_resource(actor, pods, namespace).await?;
    Ok(Left {
        estimate: match left.objects.is_empty() || age >= Duration::from_secs(grace) {
            true => 0,
            false => grace,
        },
        ..left
    })
}

fn longest_grace(pods: &[Pod]) -> u64 {
    let has_ended = |pod: &Pod| {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        matches!(phase, Some("Succeeded" | "Failed"))
    };
    let running = pods.iter().filter(|pod| !has_ended(pod));
    let grace = running.filter_map(|pod| pod.spec.as_ref()?.termination_grace_period_seconds);
    grace
        .filter_map(|seconds| u64::try_from(seconds).ok())
        .max()
        .unwrap_or(0)
}

// What cannot be listed cannot be counted; upstream then takes it for gone, too.
async fn empty_resource(actor: &Actor, resource: &Resource, namespace: &str) -> Answer<Left> {
    let path = resource.path(namespace);
    let mut objects = list(actor, resource, &path).await?;
    if !objects.is_empty() || !resource.can_list {
        delete(actor, resource, &path, &objects).await?;
        objects = list(actor, resource, &path).await?;
    }
    Ok(Left {
        namespace: namespace.to_owned(),
        objects: objects.iter().map(finalizers).collect(),
        estimate: 0,
    })
}

async fn list(actor: &Actor, resource: &Resource, path: &str) -> Answer<Vec<Value>> {
    if !resource.can_list {
        return Ok(Vec::new());
    }
    let mut list = actor.read_as(path, METADATA).await?.unwrap_or_default();
    Ok(match list["items"].take() {
        Value::Array(items) => items,
        _ => Vec::new(),
    })
}

async fn delete(actor: &Actor, resource: &Resource, path: &str, objects: &[Value]) -> Answer<()> {
    if resource.can_delete_all && actor.delete_at(path).await? {
        return Ok(());
    }
    for object in objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        actor.delete_at(&format!("{path}/{name}")).await?;
    }
    Ok(())
}

fn finalizers(object: &Value) -> Vec<String> {
    let all = object["metadata"]["finalizers"]
        .as_array()
        .into_iter()
        .flatten();
    all.filter_map(|one| one.as_str().map(str::to_owned))
        .collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::json;

    use super::*;
    use client_runtime::SyncError;

    fn maps() -> Resource {
        Resource {
            group: String::new(),
            version: "v1".into(),
            plural: "configmaps".into(),
            can_list: true,
            can_delete_all: true,
        }
    }

    fn left(objects: &[&[&str]], estimate: u64) -> Left {
        let owned = |all: &&[&str]| all.iter().map(|f| (*f).to_owned()).collect();
        Left {
            namespace: "team".into(),
            objects: objects.iter().map(owned).collect(),
            estimate,
        }
    }

    #[test]
    fn what_is_left_is_counted_and_given_time() {
        let mut outcome = Outcome::default();
        outcome.count(&maps(), Ok(left(&[], 0)));
        assert_eq!((outcome.estimate, outcome.remaining.len()), (0, 0));
        outcome.count(&maps(), Ok(left(&[&["a"], &["a", "b"]], 0)));
        assert_eq!(outcome.estimate, FINALIZERS_TAKE);
        assert_eq!(outcome.remaining["configmaps."], 2);
        assert_eq!((outcome.finalizers["a"], outcome.finalizers["b"]), (2, 1));
        outcome.count(&maps(), Ok(left(&[&[]], 30)));
        assert_eq!(outcome.estimate, 30, "grace is given");
        assert_eq!(outcome.failures().count(), 0);
    }

    #[test]
    fn what_is_left_without_a_reason_is_a_failure() {
        let mut outcome = Outcome::default();
        outcome.count(&maps(), Ok(left(&[&[]], 0)));
        outcome.count(&maps(), Err(SyncError::Other("refused".into())));
        let failures: Vec<&str> = outcome.failures().collect();
        assert_eq!(
            failures,
            [
                "unexpected items still remain in namespace: team for gvr: /v1, Resource=configmaps",
                "refused",
            ]
        );
    }

    #[test]
    fn the_grace_of_pods_that_have_ended_does_not_count() {
        let pod = |grace: Value, phase: &str| -> Pod {
            serde_json::from_value(json!({
                "metadata": {}, "status": { "phase": phase },
                "spec": { "containers": [], "terminationGracePeriodSeconds": grace },
            }))
            .unwrap()
        };
        assert_eq!(longest_grace(&[]), 0);
        let pods = [
            pod(json!(30), "Running"),
            pod(json!(60), "Succeeded"),
            pod(json!(null), "Pending"),
        ];
        assert_eq!(longest_grace(&pods), 30);
    }
}
