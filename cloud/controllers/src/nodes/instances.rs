//! Finds machines of nodes through Resource Manager. Lists are shared and remembered, so that a thousand nodes that
//! start together cost two requests for each scale set; a machine that is missed is looked for again in fresh lists.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use azure::config::Place;
use azure::id::{MachineId, ResourceId};
use azure::models::{Card, Machine, PublicIp, Resource, ScaleSet};
use azure::{Arm, CloudConfig, Error};
use futures::future::join_all;
use serde::de::DeserializeOwned;
use tokio::time::Instant;

use super::NodeView;
use super::machine::{self, Metadata, State};

const MACHINES: &str = "Microsoft.Compute/virtualMachines";
const SETS: &str = "Microsoft.Compute/virtualMachineScaleSets";
const VIEW: &str = "$expand=instanceView";
/// From how many machines of one set or group on a list is cheaper than asking for each.
const MANY: usize = 4;
/// How old a list may be from which addresses and places are taken.
const REMEMBERED: Duration = Duration::from_secs(60);
/// The letters and digits behind a scale set's prefix in the names of its machines.
const SUFFIX: usize = 6;

/// A list, and when it was read.
type Read<T> = (Instant, Arc<Vec<T>>);

/// Lists by their address.
struct Lists<T>(Mutex<HashMap<String, Read<T>>>);

impl<T: DeserializeOwned> Lists<T> {
    fn new() -> Lists<T> {
        Lists(Mutex::default())
    }

    async fn get(
        &self,
        arm: &Arm,
        path: &str,
        query: &str,
        oldest: Duration,
    ) -> Result<Arc<Vec<T>>, Error> {
        let lists = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lists().get(path).cloned();
        if let Some((at, list)) = known.filter(|(at, _)| at.elapsed() < oldest) {
            tracing::trace!(path, age = ?at.elapsed(), "remembered");
            return Ok(list);
        }
        let asked = Instant::now();
        let list = Arc::new(arm.list(path, query).await?);
        lists().insert(path.to_owned(), (asked, Arc::clone(&list)));
        Ok(list)
    }
}

/// Machines, as Resource Manager knows them.
pub(crate) struct Instances {
    pub(crate) arm: Arm,
    config: Arc<CloudConfig>,
    sets: Lists<Resource<ScaleSet>>,
    machines: Lists<Resource<Machine>>,
    cards: Lists<Resource<Card>>,
}

impl Instances {
    pub(crate) fn new(arm: Arm, config: Arc<CloudConfig>) -> Instances {
        Instances {
            arm,
            config,
            sets: Lists::new(),
            machines: Lists::new(),
            cards: Lists::new(),
        }
    }

    /// What a node gets from its machine; none where there is no machine.
    pub(crate) async fn metadata(&self, node: &NodeView) -> Result<Option<Metadata>, Error> {
        for oldest in [REMEMBERED, Duration::ZERO] {
            if let Some((id, machine)) = self.machine(node, oldest).await? {
                let cards = self.cards(&id, &machine, oldest).await?;
                let publics = self.publics(&cards).await?;
                let read = machine::metadata(&id, &machine, &cards, &publics);
                match read {
                    Ok(metadata) => return Ok(Some(metadata)),
                    // A machine that is being made has no card yet, or nothing is known of it.
                    Err(cause) if oldest.is_zero() => return Err(Error::Config(cause)),
                    Err(_) => {}
                }
            }
        }
        Ok(None)
    }

    /// The machine of a node, by its provider id or by its name.
    pub(crate) async fn machine(
        &self,
        node: &NodeView,
        oldest: Duration,
    ) -> Result<Option<(MachineId, Resource<Machine>)>, Error> {
        let place = self.place(node);
        match MachineId::of_provider(&node.provider_id) {
            Some(id) => {
                let list = self.list_of(&id, oldest).await?;
                let found = list
                    .iter()
                    .find(|m| MachineId::of_resource(&m.id).as_ref() == Some(&id));
                Ok(found.map(|machine| (id, machine.clone())))
            }
            None if node.provider_id.is_empty() => self.named(&place, &node.name, oldest).await,
            None => Ok(None),
        }
    }

    fn place<'c>(&'c self, node: &'c NodeView) -> Place<'c> {
        Place {
            group: node.group().unwrap_or(&self.config.resource_group),
            ..self.config.cluster()
        }
    }

    /// Every machine of the same set, or of the same group.
    async fn list_of(
        &self,
        id: &MachineId,
        oldest: Duration,
    ) -> Result<Arc<Vec<Resource<Machine>>>, Error> {
        let path = match id {
            MachineId::Instance { .. } => format!("{}/virtualMachines", id.set_id()),
            MachineId::Vm {
                subscription,
                group,
                ..
            } => Place {
                subscription,
                group,
            }
            .collection(MACHINES),
        };
        let query = match self.config.list_vmss_virtual_machines_without_instance_view {
            true => "",
            false => VIEW,
        };
        self.machines.get(&self.arm, &path, query, oldest).await
    }

    /// The machine that calls itself by this name: in the uniform set whose prefix it has, or on its own.
    async fn named(
        &self,
        place: &Place<'_>,
        name: &str,
        oldest: Duration,
    ) -> Result<Option<(MachineId, Resource<Machine>)>, Error> {
        let path = place.collection(SETS);
        let sets = self.sets.get(&self.arm, &path, "", oldest).await?;
        let mut lists = Vec::new();
        for set in sets.iter().filter(|set| has_prefix(set, name)) {
            lists.push(format!("{}/virtualMachines", set.id));
        }
        if !self.config.disable_availability_set_nodes {
            lists.push(place.collection(MACHINES));
        }
        for path in lists {
            let machines = self.machines.get(&self.arm, &path, VIEW, oldest).await?;
            let own = |machine: &&Resource<Machine>| is_called(machine, name);
            if let Some(found) = machines.iter().find(own)
                && let Some(id) = MachineId::of_resource(&found.id)
            {
                return Ok(Some((id, found.clone())));
            }
        }
        Ok(None)
    }

    /// The cards of a machine.
    pub(crate) async fn cards(
        &self,
        id: &MachineId,
        machine: &Resource<Machine>,
        oldest: Duration,
    ) -> Result<Vec<Resource<Card>>, Error> {
        if let MachineId::Instance { .. } = id {
            let path = format!("{}/networkInterfaces", id.set_id());
            let all = self.cards.get(&self.arm, &path, "", oldest).await?;
            let own = format!("{}/", id.resource()).to_lowercase();
            let own = |card: &&Resource<Card>| card.id.to_lowercase().starts_with(&own);
            return Ok(all.iter().filter(own).cloned().collect());
        }
        let mut cards = Vec::new();
        for reference in &machine.properties.network.cards {
            if let Some(mut card) = self.arm.get::<Resource<Card>>(&reference.id, "").await? {
                card.properties.primary = reference.properties.primary.or(card.properties.primary);
                cards.push(card);
            }
        }
        Ok(cards)
    }

    /// The public addresses that cards refer to.
    async fn publics(&self, cards: &[Resource<Card>]) -> Result<Vec<(String, String)>, Error> {
        let parts = cards.iter().flat_map(|card| &card.properties.addresses);
        let ids = parts.map(|part| part.text("/publicIPAddress/id"));
        let mut found = Vec::new();
        for id in ids.filter(|id| !id.is_empty()) {
            if let Some(public) = self.arm.get::<Resource<PublicIp>>(id, "").await? {
                found.push((id.to_owned(), public.properties.address));
            }
        }
        found.retain(|(_, address)| !address.is_empty());
        Ok(found)
    }

    /// What the cloud says of these nodes' machines, right now. Nodes of other clouds and those that Azure does not
    /// manage are there, whatever happens.
    pub(crate) async fn states(&self, nodes: &[Arc<NodeView>]) -> Vec<Result<State, Error>> {
        let mut found: Vec<Option<Result<State, Error>>> = vec![None; nodes.len()];
        let mut groups: BTreeMap<String, Vec<(usize, MachineId)>> = BTreeMap::new();
        for (at, node) in nodes.iter().enumerate() {
            match MachineId::of_provider(&node.provider_id) {
                _ if !node.is_managed() => found[at] = Some(Ok(State::There)),
                Some(id) => {
                    let parent =
                        ResourceId::parse(&id.resource()).map(|id| id.parent(1).to_string());
                    let key = parent.unwrap_or_default();
                    groups.entry(key).or_default().push((at, id));
                }
                None if node.provider_id.is_empty() => {
                    found[at] = Some(self.state_by_name(node).await);
                }
                None => found[at] = Some(Ok(State::There)),
            }
        }
        let asked = groups.into_values().map(|group| self.states_of(group));
        for (at, state) in join_all(asked).await.into_iter().flatten() {
            found[at] = Some(state);
        }
        let all = found.into_iter();
        all.map(|state| state.unwrap_or(Ok(State::There))).collect()
    }

    async fn state_by_name(&self, node: &NodeView) -> Result<State, Error> {
        let found = self.machine(node, Duration::ZERO).await?;
        Ok(found.map_or(State::Gone, |(_, machine)| {
            machine::state(&machine.properties)
        }))
    }

    async fn states_of(
        &self,
        group: Vec<(usize, MachineId)>,
    ) -> Vec<(usize, Result<State, Error>)> {
        let state = |found: Option<&Resource<Machine>>| {
            found.map_or(State::Gone, |machine| machine::state(&machine.properties))
        };
        if group.len() < MANY {
            let ask = group.into_iter().map(|(at, id)| async move {
                let found = self.arm.get(&id.resource(), VIEW).await;
                (at, found.map(|found| state(found.as_ref())))
            });
            return join_all(ask).await;
        }
        // At least one is here, as there are several.
        let list = self.list_of(&group[0].1, Duration::ZERO).await;
        let of = |id: &MachineId| {
            let list = list.as_ref().map_err(Clone::clone)?;
            let own = |m: &&Resource<Machine>| MachineId::of_resource(&m.id).as_ref() == Some(id);
            Ok(state(list.iter().find(own)))
        };
        group.iter().map(|(at, id)| (*at, of(id))).collect()
    }
}

fn has_prefix(set: &Resource<ScaleSet>, node: &str) -> bool {
    let prefix = match set.properties.profile.system.prefix.as_str() {
        "" => &set.name,
        prefix => prefix,
    };
    let is_uniform = !set
        .properties
        .orchestration
        .eq_ignore_ascii_case("Flexible");
    let own = node
        .len()
        .checked_sub(SUFFIX)
        .and_then(|end| node.get(..end));
    is_uniform && own.is_some_and(|own| own.eq_ignore_ascii_case(prefix))
}

fn is_called(machine: &Resource<Machine>, node: &str) -> bool {
    let system = &machine.properties.system.name;
    match system.is_empty() {
        true => machine.name.eq_ignore_ascii_case(node),
        false => system.eq_ignore_ascii_case(node),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn a_node_belongs_to_the_set_whose_prefix_it_has() {
        let set = |name: &str, prefix: &str, mode: &str| -> Resource<ScaleSet> {
            serde_json::from_value(
                json!({"name": name, "properties": {"orchestrationMode": mode,
                "virtualMachineProfile": {"osProfile": {"computerNamePrefix": prefix}}}}),
            )
            .unwrap()
        };
        let node = "aks-np-123-vmss00000a";
        assert!(has_prefix(&set("x", "AKS-np-123-vmss", "Uniform"), node));
        assert!(has_prefix(&set("aks-np-123-vmss", "", "Uniform"), node));
        assert!(!has_prefix(&set("x", "aks-np-12-vmss", "Uniform"), node));
        assert!(!has_prefix(&set("x", "aks-np-123-vmss", "Flexible"), node));
        assert!(!has_prefix(&set("x", "", "Uniform"), "a"));
    }
}
