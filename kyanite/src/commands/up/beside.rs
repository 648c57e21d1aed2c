//! The cloud beside a cluster: a role of `up`, with the cluster itself in it.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ::cloud::{Adopted, Fabric};
use ipnet::IpNet;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::sync::watch;

use super::super::region::Ground;
use super::super::{cloud, serve};
use super::cloud_controllers;
use super::roles::Role;
use crate::cli::Up;
use crate::cli::ranges::Ranges;
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};
use crate::pools::{self, Pools};

/// Where az finds the cloud if nobody says where.
const PORT: u16 = 8443;
/// How long the first start of a cloud may take before `up` goes on without it.
const PATIENCE: Duration = Duration::from_secs(20);

/// A cloud that is open, and what stands behind it.
type Open = (Fabric, Arc<Ground>);

/// The cloud of a data directory, with the cluster of the same.
#[derive(Clone)]
pub(super) struct Beside {
    dir: DataDir,
    address: SocketAddr,
    /// The port is taken before anything runs, so that whoever asked for one hears that it is taken.
    listener: Arc<Mutex<Option<TcpListener>>>,
    /// Where the cluster's API server is.
    server: String,
    /// How many nodes are on paper, where there are no pools.
    hollow: usize,
    services: Ranges,
    /// The addresses of pods, where they are not the usual ones.
    pods: Option<IpNet>,
    token_lifetime: Option<Duration>,
    open: watch::Sender<Option<String>>,
    /// The cloud while it is open.
    cloud: Arc<Mutex<Option<Open>>>,
}

impl Beside {
    /// Takes the cloud's port, if there is to be one.
    pub(super) async fn of(up: &Up, dir: &DataDir, server: &str) -> Result<Option<Beside>> {
        if !up.beside.cloud {
            return Ok(None);
        }
        let at = |port| SocketAddr::new(up.bind_address, port);
        let listener = match up.beside.cloud_port {
            Some(port) => serve::listen(at(port)).await?,
            // Whoever takes any port for the API server does so for the cloud.
            None if up.port == Some(0) => serve::listen(at(0)).await?,
            None => match serve::listen(at(PORT)).await {
                Err(failure) if failure.code == Code::Conflict => serve::listen(at(0)).await?,
                taken => taken?,
            },
        };
        // It names a port that may be another one now.
        cloud_controllers::untell(dir);
        Ok(Some(Beside {
            dir: dir.clone(),
            address: listener.local_addr().unwrap_or(at(PORT)),
            listener: Arc::new(Mutex::new(Some(listener))),
            server: server.to_owned(),
            hollow: up.hollow.hollow,
            services: up.serving.service_cluster_ip_range.clone(),
            pods: up
                .node_controllers
                .cluster_cidr
                .iter()
                .find(|range| range.addr().is_ipv4())
                .copied(),
            token_lifetime: up.beside.token_lifetime(),
            open: watch::Sender::new(None),
            cloud: Arc::default(),
        }))
    }

    /// The role that serves it.
    pub(super) fn role(&self) -> Role {
        Role::new("cloud", self.clone(), |cloud, until| async move {
            let served = cloud.serve(until).await;
            served.map_err(|failure| client_runtime::Error::Broken(failure.to_string()))
        })
    }

    /// Where it is, once it is open.
    pub(super) async fn opened(&self) -> Option<String> {
        let mut open = self.open.subscribe();
        let waited = tokio::time::timeout(PATIENCE, open.wait_for(Option::is_some)).await;
        waited.ok()?.ok()?.clone()
    }

    async fn serve(self, until: impl Future<Output = ()> + Send) -> Result<()> {
        let kept = self
            .listener
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let listener = match kept {
            Some(listener) => listener,
            None => serve::listen(self.address).await?,
        };
        let region = Arc::new(Ground::new(&self.dir)?);
        let (cloud, origin) =
            cloud::open(&self.dir, listener, self.manner(), region.clone()).await?;
        let pools = Pools::read(&self.dir)?.filter(|_| self.hollow == 0);
        match self.make_known(&cloud.fabric(), pools).await {
            Ok((id, _)) => {
                tracing::info!(id, "this cluster is known to the cloud");
                super::super::region::tell(&self.dir, &self.dir, &cloud.fabric(), &id);
            }
            Err(failure) => tracing::error!(%failure, "this cluster is not known to the cloud"),
        }
        *self.cloud() = Some((cloud.fabric(), Arc::clone(&region)));
        region.opened(cloud.metadata(), cloud.fabric());
        self.open.send_replace(Some(origin));
        cloud.run(until).await;
        self.cloud().take();
        region.closed();
        Ok(())
    }

    fn cloud(&self) -> MutexGuard<'_, Option<Open>> {
        self.cloud.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the cloud which pools there are now; gives them with the machines that it has for them.
    pub(super) async fn settle(&self, pools: Pools) -> Result<Pools> {
        let open = self.cloud().clone();
        let Some((fabric, region)) = open else {
            return Ok(pools);
        };
        let (id, known) = self.make_known(&fabric, Some(pools.clone())).await?;
        region.speak_for(&self.dir, &fabric.machines(&id));
        Ok(known.unwrap_or(pools))
    }

    /// Makes the cluster known with these pools. Which machines they have is the cloud's affair from then on.
    async fn make_known(
        &self,
        fabric: &Fabric,
        pools: Option<Pools>,
    ) -> Result<(String, Option<Pools>)> {
        let adopted = fabric.adopt(&self.adopted(pools.as_ref())?).await;
        let id = adopted.map_err(|e| Failure::new(Code::Failure, e.to_string()))?;
        let Some(mut pools) = pools else {
            return Ok((id, None));
        };
        super::super::region::take_machines(&mut pools, &fabric.machines(&id));
        pools.write(&self.dir)?;
        Ok((id, Some(pools)))
    }

    fn manner(&self) -> cloud::Manner {
        cloud::Manner {
            pace: 1.0,
            throttle: false,
            token_lifetime: self.token_lifetime,
        }
    }

    /// This cluster, as a client of the cloud would write it.
    fn adopted(&self, pools: Option<&Pools>) -> Result<Adopted> {
        let (location, shown, sets) = match pools {
            Some(pools) => (pools.location.as_str(), profiles(pools), sets(pools)),
            None => {
                let sets = json!({ pools::FIRST: self.dir.number() });
                (super::LOCATION, json!([on_paper(self.hollow)]), sets)
            }
        };
        // The cloud knows one family of Services.
        let range = self
            .services
            .all()
            .iter()
            .find(|range| range.addr().is_ipv4());
        let dns = self.services.nth(10).find(IpAddr::is_ipv4);
        let mut body = json!({
            "location": location, "identity": {"type": "SystemAssigned"}, "tags": {},
            "properties": {"dnsPrefix": self.dir.name(), "kubernetesVersion": ::apiserver::RELEASE, "agentPoolProfiles": shown,
                "networkProfile": {"serviceCidr": range, "dnsServiceIP": dns}},
        });
        if let Some(pods) = self.pods {
            body["properties"]["networkProfile"]["podCidr"] = json!(pods);
        }
        if pools.is_none() {
            body["tags"][super::super::region::HOLLOW] = json!("its nodes are on paper only");
        }
        let access = super::super::region::access(&self.dir, &self.server)?;
        Ok(Adopted {
            group: self.dir.name().to_owned(),
            name: self.dir.name().to_owned(),
            body,
            hidden: json!({"access": access, "sets": sets}),
        })
    }
}

fn profiles(pools: &Pools) -> Value {
    let one = |pool: &pools::Pool| {
        json!({"name": pool.name, "count": pool.machines.len(), "vmSize": pool.vm_size, "mode": capitalized(&pool.mode),
            "availabilityZones": pool.zones, "maxPods": pool.max_pods, "orchestratorVersion": ::apiserver::RELEASE,
            "nodeLabels": pool.labels, "nodeTaints": pool.taints, "type": "VirtualMachineScaleSets"})
    };
    pools.pools.iter().map(one).collect()
}

fn sets(pools: &Pools) -> Value {
    let all = pools.pools.iter();
    all.map(|pool| (pool.name.clone(), json!(pool.id)))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

// A pool of system nodes is never empty; one that is stopped may be.
fn on_paper(count: usize) -> Value {
    let power = if count == 0 { "Stopped" } else { "Running" };
    json!({"name": pools::FIRST, "count": count, "vmSize": "Standard_D2s_v5", "mode": "System", "maxPods": super::MAX_PODS,
        "orchestratorVersion": ::apiserver::RELEASE, "powerState": {"code": power}, "type": "VirtualMachineScaleSets"})
}

fn capitalized(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|c| c.to_ascii_uppercase());
    first.into_iter().chain(letters).collect()
}
