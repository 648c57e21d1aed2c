//! The role that keeps add-ons as their manifests say: at each start, when somebody changes or removes one of their
//! objects, and when somebody enables or disables one.

use std::sync::Arc;

use client_runtime::{Cache, Completion, Connection, End, Queue, Runtime, SyncError};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Service, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, Resource};

use super::choice::{self, Choice};
use super::{ADDONS, Addon, LABEL, Settings};
use crate::client::Client;
use crate::manifest::collection;

/// The kinds that run something.
const RUNS: [&str; 2] = ["DaemonSet", "Deployment"];

/// What is known of an object: whose it is, and which state of it.
#[derive(Clone, PartialEq, Eq)]
struct Seen {
    addon: Option<&'static str>,
    version: Option<String>,
}

impl Seen {
    fn of(meta: &ObjectMeta) -> Seen {
        let label = meta.labels.as_ref().and_then(|labels| labels.get(LABEL));
        let addon = label.and_then(|label| ADDONS.iter().find(|addon| addon.name == label));
        // What has a generation keeps it while only its status changes.
        let generation = meta.generation.map(|generation| generation.to_string());
        Seen {
            addon: addon.map(|addon| addon.name),
            version: generation.or_else(|| meta.resource_version.clone()),
        }
    }
}

/// Keeps every add-on until it is told to stop.
pub(crate) async fn run(
    (connection, settings): (Connection, Settings),
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), client_runtime::Error> {
    let start = |client: kube::Client, bare| {
        let mut runtime = Runtime::new(Arc::new(()), client, bare, false);
        assemble(&mut runtime, settings);
        runtime
    };
    client_runtime::lead(&connection, "kyanite-addons", None, start, shutdown).await
}

/// Everything that a turn of the role reads.
struct Keeper {
    client: Client,
    settings: Settings,
    said: Cache<Choice>,
    there: Vec<(&'static str, Cache<Seen>)>,
}

fn assemble(runtime: &mut Runtime<()>, settings: Settings) {
    let queue: Arc<Queue<&'static str>> = Arc::new(Queue::new());
    let client = runtime.client();
    let mut watched = Watched {
        runtime,
        queue: Arc::clone(&queue),
        caches: Vec::new(),
        completions: Vec::new(),
    };
    watched.add::<ServiceAccount>();
    watched.add::<ClusterRole>();
    watched.add::<ClusterRoleBinding>();
    watched.add::<ConfigMap>();
    watched.add::<Service>();
    watched.add::<DaemonSet>();
    watched.add::<Deployment>();
    let (caches, mut completions) = (watched.caches, watched.completions);
    let said = choices(runtime, &queue);
    completions.push(said.completion());
    let keeper = Arc::new(Keeper {
        client: Client::of(client),
        settings,
        said,
        there: caches,
    });
    queue.add_all(ADDONS.iter().map(|addon| addon.name));
    runtime.start_work("add-ons", queue, 1, completions, move |name| {
        let keeper = Arc::clone(&keeper);
        async move { keeper.keep(name).await }
    });
}

fn choices(runtime: &mut Runtime<()>, queue: &Arc<Queue<&'static str>>) -> Cache<Choice> {
    let api: Api<ConfigMap> = Api::namespaced(runtime.client(), choice::NAMESPACE);
    let only = format!("metadata.name={}", choice::NAME);
    let said = runtime.watch(api, &only, |object: ConfigMap| {
        Choice::of(object.data.unwrap_or_default())
    });
    let queue = Arc::clone(queue);
    said.on_change(move |_| queue.add_all(ADDONS.iter().map(|addon| addon.name)));
    said
}

struct Watched<'a> {
    runtime: &'a mut Runtime<()>,
    queue: Arc<Queue<&'static str>>,
    caches: Vec<(&'static str, Cache<Seen>)>,
    completions: Vec<Completion>,
}

impl Watched<'_> {
    fn add<K>(&mut self)
    where
        K: Resource<DynamicType = ()> + k8s_openapi::Resource,
    {
        let api: Api<K> = Api::all(self.runtime.client());
        let cache = self
            .runtime
            .watch_metadata(None, api, |meta| Seen::of(&meta));
        let queue = Arc::clone(&self.queue);
        cache.on_change(move |change| {
            if change.before == change.after {
                return;
            }
            let both = [change.before, change.after].into_iter().flatten();
            queue.add_all(both.filter_map(|seen| seen.addon));
        });
        self.completions.push(cache.completion());
        self.caches
            .push((<K as k8s_openapi::Resource>::KIND, cache));
    }
}

impl Keeper {
    async fn keep(&self, name: &'static str) -> Result<End, SyncError> {
        let addon = ADDONS.iter().find(|addon| addon.name == name);
        let Some(addon) = addon.filter(|addon| self.has(addon)) else {
            self.prune(name, &[]).await?;
            return Ok(End::Done);
        };
        let objects = addon.objects(&self.settings).map_err(other)?;
        for (path, object) in &objects {
            self.client.apply(path, object).await.map_err(other)?;
        }
        let paths: Vec<&str> = objects.iter().map(|(path, _)| path.as_str()).collect();
        self.prune(name, &paths).await?;
        Ok(End::Done)
    }

    fn has(&self, addon: &Addon) -> bool {
        let key = client_runtime::ObjectKey::new(choice::NAMESPACE, choice::NAME);
        let said = self.said.get(&key);
        let said = said.as_deref().cloned().unwrap_or_default();
        said.has(addon, self.settings.tunnels.is_some())
    }

    // What carries the add-on's label but is none of these. What runs goes first, with its pods: until they have ended
    // they may do what they could, so that they can clean up after themselves.
    async fn prune(&self, name: &str, wanted: &[&str]) -> Result<(), SyncError> {
        let mut stray = self.stray(name, wanted);
        if stray.iter().any(|(kind, _)| RUNS.contains(kind)) {
            stray.retain(|(kind, _)| RUNS.contains(kind));
        }
        for (_, path) in stray {
            tracing::info!(addon = name, path, "an add-on's object goes");
            let path = format!("{path}?propagationPolicy=Foreground");
            match self.client.delete(&path).await {
                Err(failure) if failure.code != crate::exit::Code::NotFound => {
                    return Err(other(failure));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn stray(&self, name: &str, wanted: &[&str]) -> Vec<(&'static str, String)> {
        let mut stray = Vec::new();
        for (kind, cache) in &self.there {
            let of_it = cache.all().into_iter();
            let paths = of_it
                .filter(|(_, seen)| seen.addon == Some(name))
                .filter_map(|(key, _)| {
                    Some(format!(
                        "{}/{}",
                        collection(kind, &key.namespace)?,
                        key.name
                    ))
                });
            let paths = paths.filter(|path| !wanted.contains(&path.as_str()));
            stray.extend(paths.map(|path| (*kind, path)));
        }
        stray
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn other(failure: crate::exit::Failure) -> SyncError {
    SyncError::Other(failure.to_string())
}
