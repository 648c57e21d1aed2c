//! One round of deleting what is in a namespace.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use serde_json::Value;

use super::discovery::{self, Resource};
use client_runtime::{Actor, Answer};

const METADATA: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const WHOLE: &str = "application/json";
/// Objects that are in memory at once, of each resource; upstream's clients read so many at a time.
const PAGE: usize = 500;
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
        if left.objects == 0 {
            return;
        }
        let name = format!("{}.{}", resource.plural, resource.group);
        self.remaining.insert(name, left.objects);
        let held = !left.finalizers.is_empty();
        for (finalizer, objects) in left.finalizers {
            *self.finalizers.entry(finalizer).or_default() += objects;
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
#[derive(Default)]
struct Left {
    namespace: String,
    objects: usize,
    /// How many objects wait, by finalizer.
    finalizers: BTreeMap<String, usize>,
    /// Seconds of grace.
    estimate: u64,
}

impl Left {
    fn add(&mut self, object: &Value) {
        self.objects += 1;
        for finalizer in finalizers(object) {
            *self.finalizers.entry(finalizer).or_default() += 1;
        }
    }
}

/// A collection, page by page: a namespace may hold more than should be in memory at once.
struct Pages {
    path: String,
    accept: &'static str,
    /// Where the next page begins; nothing when there is none.
    next: Option<String>,
}

impl Pages {
    fn of(path: &str, accept: &'static str) -> Pages {
        Pages {
            path: path.to_owned(),
            accept,
            next: Some(String::new()),
        }
    }

    async fn read(&mut self, actor: &Actor) -> Answer<Option<Vec<Value>>> {
        let Some(path) = self.next_path() else {
            return Ok(None);
        };
        let mut list = actor.read_as(&path, self.accept).await?.unwrap_or_default();
        self.go_on_after(&list);
        Ok(Some(match list["items"].take() {
            Value::Array(items) => items,
            _ => Vec::new(),
        }))
    }

    /// Where the page after the last one is.
    fn next_path(&mut self) -> Option<String> {
        let token = self.next.take()?;
        let path = &self.path;
        Some(match token.as_str() {
            "" => format!("{path}?limit={PAGE}"),
            token => format!("{path}?limit={PAGE}&continue={token}"),
        })
    }

    fn go_on_after(&mut self, list: &Value) {
        let token = list["metadata"]["continue"].as_str();
        self.next = token.filter(|token| !token.is_empty()).map(str::to_owned);
    }
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
    let (mut grace, mut pages) = (0, Pages::of(&pods.path(namespace), WHOLE));
    while let Some(page) = pages.read(actor).await? {
        grace = grace.max(longest_grace(&page));
    }
    let left = empty_resource(actor, pods, namespace).await?;
    Ok(Left {
        estimate: match left.objects == 0 || age >= Duration::from_secs(grace) {
            true => 0,
            false => grace,
        },
        ..left
    })
}

fn longest_grace(pods: &[Value]) -> u64 {
    let has_ended = |pod: &Value| {
        matches!(
            pod["status"]["phase"].as_str(),
            Some("Succeeded" | "Failed")
        )
    };
    let running = pods.iter().filter(|pod| !has_ended(pod));
    let grace = running.filter_map(|pod| pod["spec"]["terminationGracePeriodSeconds"].as_u64());
    grace.max().unwrap_or(0)
}

// What cannot be listed cannot be counted; upstream then takes it for gone, too.
async fn empty_resource(actor: &Actor, resource: &Resource, namespace: &str) -> Answer<Left> {
    let path = resource.path(namespace);
    let is_empty = resource.can_list && {
        let first = Pages::of(&path, METADATA).read(actor).await?;
        first.is_none_or(|page| page.is_empty())
    };
    let mut left = Left {
        namespace: namespace.to_owned(),
        ..Left::default()
    };
    if is_empty {
        return Ok(left);
    }
    if !(resource.can_delete_all && delete_all(actor, &path).await?) && resource.can_list {
        delete_each(actor, &path).await?;
    }
    let mut pages = Pages::of(&path, METADATA);
    while resource.can_list
        && let Some(page) = pages.read(actor).await?
    {
        page.iter().for_each(|object| left.add(object));
    }
    Ok(left)
}

// Gives whether the collection takes such deletes at all.
async fn delete_all(actor: &Actor, path: &str) -> Answer<bool> {
    let mut pages = Pages::of(path, METADATA);
    while let Some(path) = pages.next_path() {
        match actor.delete_at(&path).await? {
            Some(deleted) => pages.go_on_after(&deleted),
            None => return Ok(false),
        }
    }
    Ok(true)
}

async fn delete_each(actor: &Actor, path: &str) -> Answer<()> {
    let mut pages = Pages::of(path, METADATA);
    while let Some(page) = pages.read(actor).await? {
        for object in &page {
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            actor.delete_at(&format!("{path}/{name}")).await?;
        }
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
        let mut left = Left {
            namespace: "team".into(),
            estimate,
            ..Left::default()
        };
        for finalizers in objects {
            left.add(&json!({"metadata": {"finalizers": finalizers}}));
        }
        left
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
    fn pages_follow_each_other_until_the_server_names_no_further_one() {
        let mut pages = Pages::of("/api/v1/namespaces/a/pods", METADATA);
        let first = pages.next_path().unwrap();
        assert_eq!(first, "/api/v1/namespaces/a/pods?limit=500");
        pages.go_on_after(&json!({"metadata": {"continue": "abc"}}));
        assert_eq!(pages.next_path().unwrap(), format!("{first}&continue=abc"));
        pages.go_on_after(&json!({"metadata": {}}));
        assert_eq!(pages.next_path(), None);
    }

    #[test]
    fn the_grace_of_pods_that_have_ended_does_not_count() {
        let pod = |grace: Value, phase: &str| json!({"status": {"phase": phase}, "spec": {"terminationGracePeriodSeconds": grace}});
        assert_eq!(longest_grace(&[]), 0);
        let pods = [
            pod(json!(30), "Running"),
            pod(json!(60), "Succeeded"),
            pod(json!(null), "Pending"),
        ];
        assert_eq!(longest_grace(&pods), 30);
    }
}
