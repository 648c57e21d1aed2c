//! Puts nodes behind load balancers: addresses into pools, or machines' cards.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use azure::id::MachineId;
use azure::models::{Card, Machine, Resource, ScaleSet};
use azure::{Arm, Error};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;

use super::Ground;
use super::balancer::Balancer;
use super::names::{Family, pool};
use super::pools::{self, is_by_address, is_eligible, is_preconfigured};
use crate::nodes::NodeView;
use crate::nodes::instances::Instances;
use crate::nodes::machine::is_active;

/// How many machines are written at once.
const AT_ONCE: usize = 16;
/// How old what is known of a machine may be; nodes that come together are read together.
const FRESH: Duration = Duration::from_secs(5);

/// Pools, by family.
type Pools = Vec<(Family, String)>;

/// What was done about nodes.
pub(crate) struct Members {
    instances: Arc<Instances>,
    /// Pools of each node's machine, as we wrote or saw them; by the node's uid and its machine.
    joined: HashMap<(String, String), Pools>,
    /// Pools of each set's model.
    sets: HashMap<String, Pools>,
}

impl Members {
    pub(crate) fn new(instances: Arc<Instances>) -> Members {
        Members {
            instances,
            joined: HashMap::new(),
            sets: HashMap::new(),
        }
    }

    /// What is known may be old.
    pub(crate) fn forget(&mut self) {
        self.joined.clear();
        self.sets.clear();
    }

    /// Puts nodes behind these load balancers; gives whether a load balancer was written.
    pub(crate) async fn sync(
        &mut self,
        ground: &Ground<'_>,
        balancers: &[(bool, Balancer)],
        nodes: &[Arc<NodeView>],
    ) -> Result<bool, Error> {
        let ours = balancers
            .iter()
            .filter(|(internal, _)| !is_preconfigured(ground.cloud, *internal));
        if is_by_address(ground.cloud) {
            let eligible = nodes.iter().filter(|node| is_eligible(node, ground.cloud));
            let eligible: Vec<&NodeView> = eligible.map(AsRef::as_ref).collect();
            let mut wrote = false;
            for (internal, balancer) in ours {
                let id = ground.balancer_id(*internal);
                wrote |= by_address(&self.instances.arm, ground, &id, balancer, &eligible).await?;
            }
            return Ok(wrote);
        }
        let mut wanted = Pools::new();
        for (internal, balancer) in ours {
            for family in [Family::V4, Family::V6] {
                let name = pool(ground.cluster, family);
                if balancer
                    .properties
                    .pools
                    .iter()
                    .any(|own| own.name.eq_ignore_ascii_case(&name))
                {
                    let id = ground.balancer_id(*internal);
                    wanted.push((family, format!("{id}/backendAddressPools/{name}")));
                }
            }
        }
        self.by_card(ground, &wanted, nodes).await.map(|()| false)
    }

    async fn by_card(
        &mut self,
        ground: &Ground<'_>,
        wanted: &Pools,
        nodes: &[Arc<NodeView>],
    ) -> Result<(), Error> {
        let of = |node: &NodeView| match is_eligible(node, ground.cloud) {
            true => wanted.clone(),
            false => Pools::new(),
        };
        let key = |node: &NodeView| (node.uid.clone(), node.provider_id.clone());
        let news: Vec<(Arc<NodeView>, Pools)> = nodes
            .iter()
            .filter(|node| node.is_managed() && node.group().is_none())
            .map(|node| (Arc::clone(node), of(node)))
            .filter(|(node, pools)| self.joined.get(&key(node)) != Some(pools))
            .collect();
        if news.is_empty() {
            return Ok(());
        }
        let external = ground.balancer_id(false).to_lowercase();
        let internal = ground.balancer_id(true).to_lowercase();
        let is_ours = move |id: &str| {
            let id = id.to_lowercase();
            [&external, &internal]
                .iter()
                .any(|own| id.starts_with(&format!("{own}/")))
        };
        let mut machines = Vec::new();
        for (node, pools) in news {
            match self.instances.machine(&node, FRESH).await? {
                Some((id, machine)) => machines.push((key(&node), pools, id, machine)),
                // It will be looked at again when its node is known, or gone.
                None => {
                    tracing::debug!(node = node.name, "no machine to put behind load balancers")
                }
            }
        }
        let mut sets: BTreeMap<String, Pools> = BTreeMap::new();
        for (_, pools, id, _) in &machines {
            if let MachineId::Instance { .. } = id {
                let own = sets.entry(id.set_id()).or_default();
                if pools.len() > own.len() {
                    *own = pools.clone();
                }
            }
        }
        for (set, pools) in sets {
            if self.sets.get(&set) != Some(&pools) {
                join_set(&self.instances.arm, &set, &pools, &is_ours).await?;
                self.sets.insert(set, pools);
            }
        }
        let (instances, is_ours) = (&self.instances, &is_ours);
        let joined: Vec<_> = stream::iter(machines)
            .map(|(key, pools, id, machine)| async move {
                let is_done = join_machine(instances, &id, machine, &pools, is_ours).await?;
                Ok::<_, Error>(is_done.then_some((key, pools)))
            })
            .buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        self.joined.extend(joined.into_iter().flatten());
        Ok(())
    }
}

async fn by_address(
    arm: &Arm,
    ground: &Ground<'_>,
    id: &str,
    balancer: &Balancer,
    nodes: &[&NodeView],
) -> Result<bool, Error> {
    let mut wrote = false;
    for family in [Family::V4, Family::V6] {
        let name = pool(ground.cluster, family);
        let own = balancer
            .properties
            .pools
            .iter()
            .find(|own| own.name.eq_ignore_ascii_case(&name));
        let network = ground.cloud.network_id();
        let wanted = own.and_then(|own| pools::with_addresses(own, nodes, family, &network));
        if let Some(wanted) = wanted {
            let id = format!("{id}/backendAddressPools/{}", wanted.name);
            arm.put::<_, serde_json::Value>(&id, &wanted, "").await?;
            wrote = true;
        }
    }
    Ok(wrote)
}

/// New machines of a set are made with these pools.
async fn join_set(
    arm: &Arm,
    id: &str,
    pools: &Pools,
    is_ours: &impl Fn(&str) -> bool,
) -> Result<(), Error> {
    let Some(set) = arm.get::<Resource<ScaleSet>>(id, "").await? else {
        return Ok(());
    };
    let mut cards = set.properties.profile.network.cards;
    if !pools::join(&mut cards, pools, is_ours) {
        return Ok(());
    }
    // Only what changes is sent: the rest of a set is somebody else's.
    let body = json!({"location": set.location, "properties": {"virtualMachineProfile": {
        "networkProfile": {"networkInterfaceConfigurations": cards}}}});
    arm.put::<_, serde_json::Value>(id, &body, &set.etag)
        .await?;
    Ok(())
}

/// Gives whether the machine could be written: one that is off is left for later.
async fn join_machine(
    instances: &Instances,
    id: &MachineId,
    machine: Resource<Machine>,
    pools: &Pools,
    is_ours: &impl Fn(&str) -> bool,
) -> Result<bool, Error> {
    if !is_active(&machine.properties) {
        return Ok(false);
    }
    let arm = &instances.arm;
    if let MachineId::Instance { .. } = id {
        let mut cards = machine.properties.network_model.cards.clone();
        if pools::join(&mut cards, pools, is_ours) {
            let body = json!({"location": machine.location, "properties": {
                "hardwareProfile": machine.properties.hardware,
                "networkProfileConfiguration": {"networkInterfaceConfigurations": cards}}});
            arm.put::<_, serde_json::Value>(&id.resource(), &body, &machine.etag)
                .await?;
        }
        return Ok(true);
    }
    let cards = instances.cards(id, &machine, Duration::ZERO).await?;
    let first = cards
        .iter()
        .find(|card| card.properties.primary == Some(true));
    if let Some(card) = first.or(cards.first()) {
        join_card(arm, card, pools, is_ours).await?;
    }
    Ok(true)
}

async fn join_card(
    arm: &Arm,
    card: &Resource<Card>,
    pools: &Pools,
    is_ours: &impl Fn(&str) -> bool,
) -> Result<(), Error> {
    let as_part = azure::models::Part::new(
        card.name.clone(),
        json!({"ipConfigurations": card.properties.addresses}),
    );
    let mut parts = [as_part];
    if !pools::join(&mut parts, pools, is_ours) {
        return Ok(());
    }
    let mut card = card.clone();
    let addresses = parts[0].properties["ipConfigurations"].take();
    card.properties.addresses =
        serde_json::from_value(addresses).map_err(|e| Error::Config(e.to_string()))?;
    arm.put::<_, serde_json::Value>(&card.id.clone(), &card, "")
        .await?;
    Ok(())
}
