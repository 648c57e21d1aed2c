//! What stands behind the cloud's resources on this machine: managed clusters are processes of this program with nodes
//! of their own, virtual machines are machines.
//!
//! ```text
//! <data directory>/clusters/<name>-<digits>/   a managed cluster: a data directory like any other
//! <data directory>/vms/<network>/              a virtual network and the machines on it
//! <data directory>/disks/<name>-<digits>.img   a disk or a snapshot
//! ```

mod agent;
mod clusters;
mod disks;
mod imds;
mod packets;
mod sets;
mod turns;
mod vms;

use std::sync::Arc;

use ::cloud::{ClusterAccess, Done, Fabric, Metadata, Node, Order, Region, Task, Trouble};
use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnet::Ipv4Net;
use serde_json::Value;

use sha2::{Digest as _, Sha256};

use self::disks::Disks;
use self::imds::Imds;
use self::packets::Packets;
use self::vms::{Place, Vms};
use crate::commands::up::{cloud_controllers, entra};
use crate::datadir::DataDir;
use crate::exit::{Failure, Result};
use crate::pki::{Authority, Pki};
use crate::pools::{Machine, Pools};

/// The tag of a cluster whose nodes are on paper.
pub(super) const HOLLOW: &str = "kyanite-hollow";

const CLUSTER: &str = "Microsoft.ContainerService/managedClusters";
const MACHINE: &str = "Microsoft.Compute/virtualMachines";
const SET: &str = "Microsoft.Compute/virtualMachineScaleSets";
const INSTANCE: &str = "Microsoft.Compute/virtualMachineScaleSets/virtualMachines";
const DISK: &str = "Microsoft.Compute/disks";
const SNAPSHOT: &str = "Microsoft.Compute/snapshots";
const EXTENSION: &str = "Microsoft.Compute/virtualMachines/extensions";
const COMMAND: &str = "Microsoft.Compute/virtualMachines/runCommands";

/// The region of a data directory.
#[derive(Debug)]
pub(super) struct Ground {
    dir: DataDir,
    vms: Arc<Vms>,
    disks: Arc<Disks>,
    imds: Arc<Imds>,
    packets: Packets,
}

impl Ground {
    pub(super) fn new(dir: &DataDir) -> Result<Ground> {
        let imds = Arc::new(Imds::default());
        let disks = Arc::new(Disks::new(&dir.path().join("disks")));
        let vms = dir.path().join("vms");
        Ok(Ground {
            vms: Arc::new(Vms::new(&vms, Arc::clone(&imds), Arc::clone(&disks))),
            disks,
            packets: Packets::new(dir)?,
            dir: dir.clone(),
            imds,
        })
    }

    /// The cloud is open: machines may ask who they are.
    pub(super) fn opened(&self, metadata: Metadata, fabric: Fabric) {
        self.imds.open(metadata);
        self.packets.open(fabric, Arc::clone(&self.vms));
    }

    /// Machines of a cluster may ask who they are.
    pub(super) fn speak_for(&self, cluster: &DataDir, nodes: &[Node]) {
        if let Some(network) = clusters::network(cluster) {
            self.imds.serve(&network, nodes);
        }
    }

    /// The cloud has ended.
    pub(super) fn closed(&self) {
        self.imds.close();
        self.packets.close();
    }

    /// Something done to machines of a scale set: they are nodes of a cluster.
    async fn instances(&self, order: &Order) -> Result<Done, Trouble> {
        let (word, input) = match &order.task {
            Task::Act { word, input } => (word.as_str(), input.clone()),
            // What is written to one of them itself is which disks it has.
            Task::Bring if order.kind == INSTANCE => ("attachdetachdatadisks", Value::Null),
            Task::Remove => {
                let names = order.nodes.iter().map(|node| node.name.clone());
                return clusters::forget(&self.dir, names.collect()).await;
            }
            Task::Bring => return Ok(Done::default()),
        };
        // Those that are still there are the ones that were not meant.
        if word == "delete" {
            let kept: Vec<&str> = order.nodes.iter().map(|node| node.name.as_str()).collect();
            let names = clusters::machines_of_set(&self.dir, order.name());
            let gone = names
                .into_iter()
                .filter(|name| !kept.contains(&name.as_str()));
            return clusters::forget(&self.dir, gone.collect()).await;
        }
        let disks = self.disks.ready(&order.disks).await?;
        let mut done = Done::default();
        for node in sets::chosen(order) {
            if let Some(driver) = clusters::driver_of(&self.dir, &node.name) {
                let mut place = Place::of(driver, &node.name);
                if order.kind == INSTANCE {
                    place = place.with_disks(disks.clone());
                }
                done = vms::act(place, word, &input).await?;
            }
        }
        Ok(done)
    }
}

#[async_trait]
impl Region for Ground {
    fn has(&self, kind: &str) -> bool {
        [
            CLUSTER, MACHINE, SET, INSTANCE, DISK, SNAPSHOT, EXTENSION, COMMAND,
        ]
        .contains(&kind)
    }

    async fn console(&self, machine: &Node) -> Option<String> {
        match clusters::driver_of(&self.dir, &machine.name) {
            Some(driver) => vms::console(&driver, &machine.name).await,
            None => self.vms.console(machine).await,
        }
    }

    async fn power(&self) -> (String, bool) {
        self.vms.power().await
    }

    fn objection(&self, kind: &str, body: &serde_json::Value) -> Option<Trouble> {
        (kind == CLUSTER).then(|| clusters::objection(body))?
    }

    fn public_addresses(&self) -> Option<Ipv4Net> {
        Some(self.packets.public_addresses())
    }

    async fn clear(&self, known: &[Order]) {
        let of = |kind: &str| {
            known
                .iter()
                .filter(|order| order.kind == kind)
                .collect::<Vec<_>>()
        };
        clusters::clear(&self.dir, &of(CLUSTER)).await;
        let mut machines = of(MACHINE);
        machines.extend(of(SET).into_iter().filter(|set| !sets::is_of_cluster(set)));
        self.vms.clear(&machines).await;
        let disks = known
            .iter()
            .filter(|order| [DISK, SNAPSHOT].contains(&order.kind));
        self.disks.clear(disks.map(|order| order.id.as_str())).await;
    }

    async fn carry_out(&self, order: Order) -> Result<Done, Trouble> {
        match order.kind {
            CLUSTER => {
                clusters::carry_out(&self.dir, &self.imds, self.packets.fabric(), &order).await
            }
            MACHINE => {
                let done = self.vms.carry_out(&order).await;
                self.packets.look();
                done
            }
            DISK | SNAPSHOT => self.disks.carry_out(&order).await,
            EXTENSION | COMMAND => {
                let machine = order.nodes.first().and_then(|node| self.vms.started(node));
                agent::carry_out(machine, &order).await
            }
            _ if sets::is_of_cluster(&order) => self.instances(&order).await,
            _ => {
                let done = self.vms.carry_out_set(&order).await;
                self.packets.look();
                done
            }
        }
    }
}

/// Tells the controllers of a cluster what they need to know of the cloud of `home`.
pub(super) fn tell(home: &DataDir, cluster: &DataDir, fabric: &Fabric, id: &str) {
    let Some(config) = fabric.cloud_config(id) else {
        return tracing::warn!(
            id,
            "Services of this cluster get no load balancers: it has no identity"
        );
    };
    let pki = Pki::at(home.pki(), std::time::SystemTime::now());
    let authority = pki.authority(Authority::Cluster).cert;
    if let Err(failure) = cloud_controllers::tell(cluster, &config, &authority) {
        tracing::error!(%failure, "Services of this cluster get no load balancers");
    }
    if let Err(failure) = entra::tell(cluster, &config, &authority) {
        tracing::error!(%failure, "this cluster does not believe tokens of the cloud");
    }
}

/// Gives pools the machines that the cloud has for them.
pub(super) fn take_machines(pools: &mut Pools, nodes: &[Node]) {
    for pool in &mut pools.pools {
        let own = nodes.iter().filter(|node| node.pool == pool.name);
        let machines: Vec<Machine> = own
            .filter_map(|node| {
                let number = last(&node.id).parse().ok()?;
                let before = pool.machines.iter().find(|m| m.number == number);
                Some(Machine {
                    number,
                    address: node.address?,
                    made: before.and_then(|machine| machine.made.clone()),
                })
            })
            .collect();
        pool.machines = machines;
        pool.machines.sort_by_key(|machine| machine.number);
    }
}

/// Eight digits that stand for a text in the name of a file.
fn digest(text: &str) -> String {
    let digest = Sha256::digest(text.as_bytes());
    digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// The last part of a resource id.
fn last(id: &str) -> &str {
    id.rsplit('/').next().unwrap_or_default()
}

/// How clients reach a data directory's cluster, as its admin.
pub(super) fn access(dir: &DataDir, server: &str) -> Result<ClusterAccess> {
    let pki = Pki::at(dir.pki(), std::time::SystemTime::now());
    let read = |path: std::path::PathBuf| {
        let bytes = std::fs::read(&path).map_err(|e| Failure::file("read", &path, &e))?;
        Ok::<_, Failure>(STANDARD.encode(bytes))
    };
    let admin = pki.leaf("admin");
    Ok(ClusterAccess {
        server: server.to_owned(),
        authority: read(pki.authority(Authority::Cluster).cert)?,
        certificate: read(admin.cert)?,
        key: read(admin.key)?,
    })
}

/// A failure of ours in ARM's words.
fn trouble(code: &str) -> impl Fn(Failure) -> Trouble {
    move |failure| {
        let hint = failure
            .hint
            .map(|hint| format!(" ({hint})"))
            .unwrap_or_default();
        Trouble::new(code, format!("{}{hint}", failure.message))
    }
}
