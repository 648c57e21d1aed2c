//! The role: keeps the kernel's rules as the cluster's network policies say, for the pods of one node.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use client_runtime::{Cache, Connection, ObjectKey, Runtime};
use k8s_openapi::api::apps::v1::DaemonSet;
use k8s_openapi::api::core::v1::{Namespace, Pod as PodObject};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kube::api::ListParams;
use tokio::sync::Notify;

use crate::Family;
use crate::nft::{Nft, NftError};
use crate::policy::compile::Rules;
use crate::policy::model::{Key, Pod, Policy, World};
use crate::policy::{TABLE, transition};
use crate::services::removal;
use crate::strangers;

/// How the agent runs.
#[derive(Debug, Clone)]
pub struct Config {
    /// How the API server is reached.
    pub connection: Connection,
    /// The name of the node it runs on.
    pub node: String,
    /// Namespace and name of the DaemonSet it is a pod of, if it is one.
    pub daemon_set: Option<(String, String)>,
}

/// Why it cannot.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The API server.
    #[error(transparent)]
    Client(#[from] client_runtime::Error),
    /// A list of the API server's.
    #[error("cannot list {what}: {cause}")]
    List {
        /// Of what.
        what: &'static str,
        /// Why not.
        cause: String,
    },
    /// The kernel.
    #[error(transparent)]
    Nft(#[from] NftError),
}

/// Who we are to the API server.
const AGENT: &str = "kyanite-policy";
/// Changes that come this close together are written together.
const TOGETHER: Duration = Duration::from_millis(10);
/// How long a refusal of the kernel's is waited out.
const AGAIN: Duration = Duration::from_secs(1);
/// How long the API server may take to say whether the DaemonSet is still there.
const PATIENCE: Duration = Duration::from_secs(3);

/// Takes every rule of the agent's away.
pub async fn cleanup() -> Result<(), Error> {
    for family in Family::BOTH {
        Nft::default().apply(&removal(family, TABLE)).await?;
    }
    Ok(())
}

/// Everything that decides, as it is now.
pub async fn world(connection: &Connection) -> Result<World, Error> {
    let (client, _) = client_runtime::clients(connection, AGENT).await?;
    let all = ListParams::default();
    let failed = |what| {
        move |error: kube::Error| Error::List {
            what,
            cause: error.to_string(),
        }
    };
    let mut world = World::default();
    let namespaces = Api::<Namespace>::all(client.clone())
        .list(&all)
        .await
        .map_err(failed("namespaces"))?;
    for namespace in namespaces {
        let labels = namespace.metadata.labels.clone().unwrap_or_default();
        world
            .namespaces
            .insert(key_of(&namespace.metadata).1, labels);
    }
    let pods = Api::<PodObject>::all(client.clone())
        .list(&all)
        .await
        .map_err(failed("pods"))?;
    world.pods = pods
        .iter()
        .map(|pod| (key_of(&pod.metadata), Pod::of(pod)))
        .collect();
    let policies = Api::<NetworkPolicy>::all(client)
        .list(&all)
        .await
        .map_err(failed("network policies"))?;
    world.policies = policies
        .iter()
        .map(|policy| (key_of(&policy.metadata), Policy::of(policy)))
        .collect();
    Ok(world)
}

/// Runs until `shutdown` completes. The rules stay for whoever comes next, and go when the DaemonSet goes: a pod that is
/// replaced leaves no moment in which what is forbidden passes.
pub async fn run(config: Config, shutdown: impl Future<Output = ()> + Send) -> Result<(), Error> {
    see_bridged_packets();
    let (connection, daemon_set) = (config.connection.clone(), config.daemon_set.clone());
    let start = move |client: kube::Client, bare| {
        let mut runtime = Runtime::new(Arc::new(config), client, bare, false);
        assemble(&mut runtime);
        runtime
    };
    client_runtime::lead(&connection, AGENT, None, start, shutdown).await?;
    let Some((namespace, name)) = daemon_set else {
        return Ok(());
    };
    let asked = tokio::time::timeout(PATIENCE, goes(&connection, &namespace, &name)).await;
    match asked.unwrap_or_else(|_| Err("the API server does not answer".to_owned())) {
        Ok(true) => cleanup().await,
        Ok(false) => Ok(()),
        Err(error) => {
            tracing::warn!(
                error,
                "nobody knows whether policies are still kept; the rules stay"
            );
            Ok(())
        }
    }
}

async fn goes(connection: &Connection, namespace: &str, name: &str) -> Result<bool, String> {
    let connected = client_runtime::clients(connection, AGENT).await;
    let (client, _) = connected.map_err(|e| e.to_string())?;
    let sets: Api<DaemonSet> = Api::namespaced(client, namespace);
    let found = sets.get_metadata_opt(name).await;
    let found = found.map_err(|e| e.to_string())?;
    Ok(found.is_none_or(|set| set.metadata.deletion_timestamp.is_some()))
}

// Pods on one bridge reach each other without being routed; this shows their packets to the rules all the same.
fn see_bridged_packets() {
    for file in ["bridge-nf-call-iptables", "bridge-nf-call-ip6tables"] {
        let path = format!("/proc/sys/net/bridge/{file}");
        if let Err(error) = std::fs::write(&path, "1") {
            tracing::warn!(path, %error, "policies do not hold between pods on one bridge");
        }
    }
}

#[derive(Default)]
struct Shared {
    world: Mutex<World>,
    changed: Notify,
    damaged: std::sync::atomic::AtomicBool,
    nft: Nft,
}

impl Shared {
    fn world(&self) -> MutexGuard<'_, World> {
        self.world
            .lock()
            .expect("nothing panics while it holds the world")
    }

    fn note(&self, change: impl FnOnce(&mut World)) {
        change(&mut self.world());
        self.changed.notify_one();
    }
}

fn key_of(meta: &ObjectMeta) -> Key {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    (text(&meta.namespace), text(&meta.name))
}

fn assemble(runtime: &mut Runtime<Config>) {
    let shared = Arc::new(Shared::default());
    let client = runtime.client();
    let told = Arc::clone(&shared);
    let pods = runtime.watch(Api::all(client.clone()), "", move |pod: PodObject| {
        let (key, kept) = (key_of(&pod.metadata), Pod::of(&pod));
        if told.world().pods.get(&key) != Some(&kept) {
            told.note(|world| drop(world.pods.insert(key, kept)));
        }
    });
    gone(&pods, &shared, |world, key| drop(world.pods.remove(key)));
    let told = Arc::clone(&shared);
    let namespaces =
        runtime.watch_metadata::<Namespace, ()>(None, Api::all(client.clone()), move |meta| {
            let labels = meta.labels.clone().unwrap_or_default();
            told.note(|world| drop(world.namespaces.insert(key_of(&meta).1, labels)));
        });
    gone(&namespaces, &shared, |world, key| {
        drop(world.namespaces.remove(&key.1))
    });
    let told = Arc::clone(&shared);
    let policies = runtime.watch(Api::all(client), "", move |policy: NetworkPolicy| {
        let (key, kept) = (key_of(&policy.metadata), Policy::of(&policy));
        told.note(|world| drop(world.policies.insert(key, kept)));
    });
    gone(&policies, &shared, |world, key| {
        drop(world.policies.remove(key))
    });
    let completions = [
        pods.completion(),
        namespaces.completion(),
        policies.completion(),
    ];
    let (config, writer) = (Arc::clone(&runtime.config), Arc::clone(&shared));
    runtime.spawn(async move {
        for completion in completions {
            completion.reached().await;
        }
        write(&config.node, &writer).await
    });
    runtime.spawn(async move {
        let damaged = || {
            shared
                .damaged
                .store(true, std::sync::atomic::Ordering::Relaxed);
            shared.changed.notify_one();
        };
        let error = strangers::watch(TABLE, shared.nft.processes(), damaged).await;
        tracing::warn!(%error, "changes of our rules by others go unnoticed");
        std::future::pending().await
    });
}

fn gone(cache: &Cache<()>, shared: &Arc<Shared>, forget: fn(&mut World, &Key)) {
    let shared = Arc::clone(shared);
    cache.on_change(move |change| {
        if change.after.is_none() {
            let ObjectKey { namespace, name } = change.key.clone();
            shared.note(|world| forget(world, &(namespace, name)));
        }
    });
}

async fn write(node: &str, shared: &Shared) {
    let mut written: [Option<Rules>; 2] = [None, None];
    loop {
        if shared
            .damaged
            .swap(false, std::sync::atomic::Ordering::Relaxed)
        {
            written = [None, None];
        }
        for (family, before) in Family::BOTH.into_iter().zip(&mut written) {
            let after = shared.world().compile(node, family);
            match shared
                .nft
                .apply(&transition(family, before.as_ref(), &after))
                .await
            {
                Ok(()) => *before = Some(after),
                Err(error) => {
                    tracing::error!(%error, "policies could not be written; all are written anew");
                    *before = None;
                    shared.changed.notify_one();
                    tokio::time::sleep(AGAIN).await;
                }
            }
        }
        shared.changed.notified().await;
        tokio::time::sleep(TOGETHER).await;
    }
}
