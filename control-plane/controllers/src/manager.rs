//! What controllers are started with: the configuration, who they act as, and the shared watches.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use k8s_openapi::api::core::v1::{
    Namespace, PersistentVolume, PersistentVolumeClaim, Pod, Secret, ServiceAccount,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::actor::Actor;
use crate::cache::{self, Cache, Completion, Events, ObjectKey};
use crate::queue::{Key, Queue};
use crate::watched::{AccountState, ClaimState, NamespaceState, PodState, VolumeState};
use crate::worker::{Synced, work};
use crate::{Config, Error};

/// How often everything is looked at again. Upstream takes half a day to a day; looking costs nothing
/// here, and it is how a new root CA file reaches the namespaces.
const LOOK_AGAIN: Duration = Duration::from_secs(600);

/// A use for a watch: it arises once and stays. What nobody needs is not watched, because every change of it
/// would be sent, read and thrown away.
#[derive(Debug, Clone, Default)]
pub(crate) struct Need(Arc<watch::Sender<bool>>);

impl Need {
    /// From now on.
    pub(crate) fn arises(&self) {
        self.0
            .send_if_modified(|needed| !std::mem::replace(needed, true));
    }

    async fn arisen(self) {
        // The sender is `self`, so it cannot be gone.
        let _ = self.0.subscribe().wait_for(|needed| *needed).await;
    }
}

/// The manager while its controllers are being started.
pub(crate) struct Manager {
    pub(crate) config: Arc<Config>,
    pub(crate) root: Actor,
    client: kube::Client,
    bare: kube::Client,
    tasks: Vec<BoxFuture<'static, ()>>,
    looks: Vec<Box<dyn Fn() + Send>>,
    requests: Option<Cache<CertificateSigningRequest>>,
    namespaces: Option<Cache<NamespaceState>>,
    accounts: Option<Cache<AccountState>>,
    bootstrap_tokens: Option<Cache<Secret>>,
    pods: Option<Cache<PodState>>,
    /// Whether anything depends on pods: claims or quotas.
    pub(crate) need_of_pods: Need,
    claims: Option<Cache<ClaimState>>,
    volumes: Option<Cache<VolumeState>>,
}

impl Manager {
    pub(crate) fn new(config: Arc<Config>, client: kube::Client, bare: kube::Client) -> Manager {
        Manager {
            config,
            root: Actor::of_client(client.clone()),
            client,
            bare,
            tasks: Vec::new(),
            looks: Vec::new(),
            requests: None,
            namespaces: None,
            accounts: None,
            bootstrap_tokens: None,
            pods: None,
            need_of_pods: Need::default(),
            claims: None,
            volumes: None,
        }
    }

    /// Who acts for a controller; `account` is upstream's name for its service account.
    pub(crate) fn act_as(&self, account: &'static str) -> Actor {
        match self.config.own_identities {
            true => Actor::of_account(self.bare.clone(), self.root.clone(), account),
            false => self.root.clone(),
        }
    }

    /// A client that watches as the manager itself.
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    /// Works off a queue once the caches it reads know everything.
    pub(crate) fn start_work<K: Key, F>(
        &mut self,
        controller: &'static str,
        queue: Arc<Queue<K>>,
        at_once: usize,
        after: impl IntoIterator<Item = Completion>,
        sync: impl Fn(K) -> F + Send + 'static,
    ) where
        F: Future<Output = Synced> + Send + 'static,
    {
        let after: Vec<Completion> = after.into_iter().collect();
        self.tasks.push(Box::pin(async move {
            for completion in after {
                completion.reached().await;
            }
            work(controller, queue, at_once, sync).await;
        }));
    }

    /// A watch of one controller's own.
    pub(crate) fn watch<K, V>(
        &mut self,
        api: Api<K>,
        fields: &str,
        keep: impl Fn(K) -> V + Send + 'static,
    ) -> Cache<V>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
        V: Send + Sync + 'static,
    {
        self.watch_when(None, api, fields, keep)
    }

    /// As [`Manager::watch`], from the moment on that it is needed.
    pub(crate) fn watch_when<K, V>(
        &mut self,
        need: Option<Need>,
        api: Api<K>,
        fields: &str,
        keep: impl Fn(K) -> V + Send + 'static,
    ) -> Cache<V>
    where
        K: Resource<DynamicType = ()> + DeserializeOwned,
        V: Send + Sync + 'static,
    {
        let mut config = watcher::Config::default();
        if !fields.is_empty() {
            config = config.fields(fields);
        }
        let events = cache::watch_objects(api, config);
        self.follow::<K, V>(need, events, move |object| {
            let value = serde_json::to_value(object).map_err(|e| e.to_string())?;
            let typed = serde_json::from_value(value).map_err(|e| e.to_string())?;
            Ok(keep(typed))
        })
    }

    /// As [`Manager::watch`], for those who need nothing but metadata.
    pub(crate) fn watch_metadata<K, V>(
        &mut self,
        need: Option<Need>,
        api: Api<K>,
        keep: impl Fn(ObjectMeta) -> V + Send + 'static,
    ) -> Cache<V>
    where
        K: Resource<DynamicType = ()>,
        V: Send + Sync + 'static,
    {
        let events = cache::watch_metadata(api, watcher::Config::default());
        self.follow::<K, V>(need, events, move |object| Ok(keep(object.metadata)))
    }

    fn follow<K, V>(
        &mut self,
        need: Option<Need>,
        events: Events,
        keep: impl Fn(DynamicObject) -> Result<V, String> + Send + 'static,
    ) -> Cache<V>
    where
        K: Resource<DynamicType = ()>,
        V: Send + Sync + 'static,
    {
        let cache = Cache::new();
        let kind = K::kind(&()).into_owned();
        let followed = cache::follow(cache.clone(), kind, events, keep);
        self.tasks.push(Box::pin(async move {
            if let Some(need) = need {
                need.arisen().await;
            }
            followed.await;
        }));
        let again = cache.clone();
        self.looks.push(Box::new(move || again.look_again()));
        cache
    }

    /// Does something once a cache knows everything that existed at its start.
    pub(crate) fn when_complete<V: Send + Sync + 'static>(
        &mut self,
        cache: &Cache<V>,
        then: impl FnOnce() + Send + 'static,
    ) {
        let completion = cache.completion();
        self.tasks.push(Box::pin(async move {
            completion.reached().await;
            then();
            std::future::pending().await
        }));
    }

    /// Every certificate signing request.
    pub(crate) fn requests(&mut self) -> Cache<CertificateSigningRequest> {
        if let Some(cache) = &self.requests {
            return cache.clone();
        }
        let cache = self.watch(
            Api::all(self.client()),
            "",
            |mut request: CertificateSigningRequest| {
                request.metadata.managed_fields = None;
                request
            },
        );
        self.requests.insert(cache).clone()
    }

    /// Every namespace.
    pub(crate) fn namespaces(&mut self) -> Cache<NamespaceState> {
        if let Some(cache) = &self.namespaces {
            return cache.clone();
        }
        let cache = self.watch(Api::all(self.client()), "", |namespace: Namespace| {
            NamespaceState {
                active: namespace.status.and_then(|s| s.phase).as_deref() == Some("Active"),
                deleting: namespace.metadata.deletion_timestamp.is_some(),
            }
        });
        self.namespaces.insert(cache).clone()
    }

    /// Every pod, once somebody needs them.
    pub(crate) fn pods(&mut self) -> Cache<PodState> {
        if let Some(cache) = &self.pods {
            return cache.clone();
        }
        let (need, all) = (self.need_of_pods.clone(), Api::all(self.client()));
        let cache = self.watch_when(Some(need), all, "", |pod: Pod| PodState::of(&pod));
        self.pods.insert(cache).clone()
    }

    /// Every persistent volume claim.
    pub(crate) fn claims(&mut self) -> Cache<ClaimState> {
        if let Some(cache) = &self.claims {
            return cache.clone();
        }
        let keep = |claim: PersistentVolumeClaim| ClaimState::of(&claim);
        let cache = self.watch(Api::all(self.client()), "", keep);
        self.claims.insert(cache).clone()
    }

    /// Every persistent volume.
    pub(crate) fn volumes(&mut self) -> Cache<VolumeState> {
        if let Some(cache) = &self.volumes {
            return cache.clone();
        }
        let keep = |volume: PersistentVolume| VolumeState::of(&volume);
        let cache = self.watch(Api::all(self.client()), "", keep);
        self.volumes.insert(cache).clone()
    }

    /// Every service account, by metadata alone.
    pub(crate) fn accounts(&mut self) -> Cache<AccountState> {
        if let Some(cache) = &self.accounts {
            return cache.clone();
        }
        let all: Api<ServiceAccount> = Api::all(self.client());
        let cache = self.watch_metadata(None, all, |meta| AccountState {
            uid: meta.uid.unwrap_or_default(),
        });
        self.accounts.insert(cache).clone()
    }

    /// The bootstrap tokens: secrets of their type in kube-system.
    pub(crate) fn bootstrap_tokens(&mut self) -> Cache<Secret> {
        if let Some(cache) = &self.bootstrap_tokens {
            return cache.clone();
        }
        let fields = "type=bootstrap.kubernetes.io/token";
        let cache = self.watch(
            Api::namespaced(self.client(), "kube-system"),
            fields,
            |mut secret: Secret| {
                secret.metadata.managed_fields = None;
                secret
            },
        );
        self.bootstrap_tokens.insert(cache).clone()
    }

    /// Runs everything that was started, for ever; ends only when a part of it breaks.
    pub(crate) async fn run(self) -> Error {
        let mut tasks = JoinSet::new();
        for task in self.tasks {
            tasks.spawn(task);
        }
        let looks = self.looks;
        tasks.spawn(async move {
            loop {
                tokio::time::sleep(LOOK_AGAIN).await;
                looks.iter().for_each(|look| look());
            }
        });
        match tasks.join_next().await {
            Some(Err(error)) => Error::Broken(error.to_string()),
            Some(Ok(())) | None => Error::Broken("a part of it ended".into()),
        }
    }
}

/// Adds an object's key to a queue whenever it changes.
pub(crate) fn enqueue_changes<V: Send + Sync + 'static>(
    cache: &Cache<V>,
    queue: &Arc<Queue<ObjectKey>>,
) {
    let queue = Arc::clone(queue);
    cache.on_change(move |change| queue.add(change.key.clone()));
}
