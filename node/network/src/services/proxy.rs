//! The state of the proxy: Services and endpoints as they are known, and the tables that follow from them.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::compile::compile;
use super::layout::{Front, Key, Reach, Value};
use super::ledger::{Change, Ledger, Owners};
use super::model::{Endpoint, Family, Port, Protocol, Service, ServiceName, Slice, SlicePort};
use super::topology::{Candidate, Choice, Place, Target, choose};

/// Everything the proxy knows. Changes are noted with [`Proxy::service`] and [`Proxy::slice`], and worked out
/// together by [`Proxy::changes`].
#[derive(Debug, Default)]
pub struct Proxy {
    place: Place,
    ids: HashMap<ServiceName, u32>,
    known: BTreeMap<u32, Known>,
    slices: HashMap<ServiceName, ServiceName>,
    next: u32,
    dirty: BTreeSet<ServiceName>,
    ledgers: [Ledger; 2],
}

/// What is known under the name of a Service.
#[derive(Debug)]
struct Known {
    name: ServiceName,
    service: Option<Service>,
    slices: BTreeMap<Box<str>, Slice>,
    /// What it has in the tables.
    held: [Vec<(Key, Value)>; 2],
    /// The order in which its endpoints have their slots, which changes as little as can be.
    orders: Vec<Order>,
    local_endpoints: usize,
}

#[derive(Debug)]
struct Order {
    port: u16,
    family: Family,
    cluster: Vec<Target>,
    local: Vec<Target>,
}

struct Names<'a>(&'a BTreeMap<u32, Known>);

impl Owners for Names<'_> {
    fn name(&self, owner: u32) -> Option<&ServiceName> {
        self.0.get(&owner).map(|known| &known.name)
    }
}

/// A UDP front whose endpoints changed: connections to it that no longer lead to one of them are stale.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Udp {
    /// The front.
    pub front: Front,
    /// The endpoints it has now.
    pub targets: Vec<Target>,
}

impl Proxy {
    /// An empty one, on a node.
    pub fn new(place: Place) -> Proxy {
        Proxy {
            place,
            ..Proxy::default()
        }
    }

    /// Notes what is now known of a Service.
    pub fn service(&mut self, name: &ServiceName, service: Option<Service>) {
        if service.is_none() && !self.ids.contains_key(name) {
            return;
        }
        let known = self.known(name);
        if known.service != service {
            known.service = service;
            self.dirty.insert(name.clone());
        }
    }

    /// Notes what is now known of an EndpointSlice, by its own namespace and name.
    pub fn slice(&mut self, name: &ServiceName, slice: Option<Slice>) {
        let owner = slice.as_ref().map(|slice| slice.service.clone());
        let before = self.slices.get(name).cloned();
        if let Some(before) = before.filter(|before| owner.as_ref() != Some(before)) {
            self.known(&before).slices.remove(&name.name);
            self.slices.remove(name);
            self.dirty.insert(before);
        }
        let Some(slice) = slice else { return };
        let service = slice.service.clone();
        let known = self.known(&service);
        if known.slices.get(&name.name) != Some(&slice) {
            known.slices.insert(name.name.clone(), slice);
            self.dirty.insert(service.clone());
        }
        self.slices.insert(name.clone(), service);
    }

    /// The node is in another zone: everything is chosen anew.
    pub fn moved(&mut self, place: Place) {
        if self.place != place {
            self.place = place;
            self.dirty = self
                .known
                .values()
                .map(|known| known.name.clone())
                .collect();
        }
    }

    /// Whether [`Proxy::changes`] has something to work out.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// Works out what has been noted: the changes of each family's table.
    pub fn changes(&mut self) -> [Vec<Change>; 2] {
        let mut changes = [Vec::new(), Vec::new()];
        for name in std::mem::take(&mut self.dirty) {
            let Some(&id) = self.ids.get(&name) else {
                continue;
            };
            self.recompile(id, &mut changes);
            self.forget_if_empty(id, &name);
        }
        changes.map(merged)
    }

    /// Everything that is to stand in a family's table.
    pub fn content(&self, family: Family) -> Vec<(Key, Value)> {
        self.ledgers[family as usize]
            .content(&Names(&self.known))
            .collect()
    }

    /// UDP fronts that changes of a family's table touch, with the endpoints they have now.
    pub fn udp(&self, family: Family, changes: &[Change]) -> Vec<Udp> {
        let mut fronts: Vec<Front> = changes.iter().filter_map(udp_front).collect();
        fronts.sort_unstable();
        fronts.dedup();
        let targets = |front| {
            let reaches = [Reach::Cluster, Reach::Outside].into_iter();
            reaches
                .flat_map(|reach| self.targets(family, reach, front))
                .collect()
        };
        fronts
            .into_iter()
            .map(|front| Udp {
                front,
                targets: targets(front),
            })
            .collect()
    }

    fn targets(&self, family: Family, reach: Reach, front: Front) -> Vec<Target> {
        let slots = Key::Slot(reach, front, 0)..=Key::Slot(reach, front, u16::MAX);
        let ledger = &self.ledgers[family as usize];
        let values = ledger.range(slots, &Names(&self.known));
        let target = |value| match value {
            Value::To(target) => Some(target),
            _ => None,
        };
        values.into_iter().filter_map(target).collect()
    }

    /// Services that a load balancer asks this node about: their port, and how many endpoints are here.
    pub fn health_checks(&self) -> Vec<(ServiceName, u16, usize)> {
        let known = self.known.values();
        known
            .filter_map(|known| {
                let port = known.service.as_ref()?.health_check()?;
                Some((known.name.clone(), port, known.local_endpoints))
            })
            .collect()
    }

    /// How many Services are known.
    pub fn len(&self) -> usize {
        self.known
            .values()
            .filter(|known| known.service.is_some())
            .count()
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    fn known(&mut self, name: &ServiceName) -> &mut Known {
        let next = &mut self.next;
        let id = *self.ids.entry(name.clone()).or_insert_with(|| {
            *next += 1;
            *next
        });
        self.known.entry(id).or_insert_with(|| Known {
            name: name.clone(),
            service: None,
            slices: BTreeMap::new(),
            held: [Vec::new(), Vec::new()],
            orders: Vec::new(),
            local_endpoints: 0,
        })
    }

    fn recompile(&mut self, id: u32, changes: &mut [Vec<Change>; 2]) {
        let place = self.place.clone();
        let Some(known) = self.known.get_mut(&id) else {
            return;
        };
        let wanted = known.compile(&place);
        for (family, wanted) in Family::BOTH.into_iter().zip(wanted) {
            let Some(known) = self.known.get_mut(&id) else {
                return;
            };
            let held = std::mem::replace(&mut known.held[family as usize], wanted);
            let wanted = std::mem::take(&mut known.held[family as usize]);
            let names = Names(&self.known);
            let ledger = &mut self.ledgers[family as usize];
            ledger.replace(id, &held, &wanted, &names, &mut changes[family as usize]);
            if let Some(known) = self.known.get_mut(&id) {
                known.held[family as usize] = wanted;
            }
        }
    }

    fn forget_if_empty(&mut self, id: u32, name: &ServiceName) {
        let known = self.known.get(&id);
        if known.is_some_and(|known| known.service.is_none() && known.slices.is_empty()) {
            self.known.remove(&id);
            self.ids.remove(name);
        }
    }
}

impl Known {
    fn compile(&mut self, place: &Place) -> [Vec<(Key, Value)>; 2] {
        let mut wanted = [Vec::new(), Vec::new()];
        let mut orders = Vec::new();
        let mut here = BTreeSet::new();
        let ports = self.service.iter().flat_map(|service| &service.ports);
        for (i, port) in (0..).zip(ports) {
            for family in Family::BOTH {
                let (mut choice, order) = self.choice(i, port, family, place);
                here.extend(choice.here.iter().copied());
                orders.extend(order);
                let Some(service) = &self.service else {
                    continue;
                };
                if !service.internal_local && !is_external(service, port) {
                    choice.local.clear();
                }
                wanted[family as usize].extend(compile(service, port, &choice, family).all);
            }
        }
        self.orders = orders;
        self.local_endpoints = here.len();
        for list in &mut wanted {
            list.sort_unstable();
            list.dedup_by_key(|(key, _)| *key);
            list.shrink_to_fit();
        }
        wanted
    }

    fn choice(
        &self,
        port: u16,
        of: &Port,
        family: Family,
        place: &Place,
    ) -> (Choice, Option<Order>) {
        let candidates = self.candidates(of, family);
        let mut choice = choose(&candidates, place);
        let before = self
            .orders
            .iter()
            .find(|o| o.port == port && o.family == family);
        if let Some(before) = before {
            choice.cluster = reordered(&before.cluster, choice.cluster);
            choice.local = reordered(&before.local, choice.local);
        }
        let order = (choice.cluster.len() > 1 || choice.local.len() > 1).then(|| Order {
            port,
            family,
            cluster: choice.cluster.clone(),
            local: choice.local.clone(),
        });
        (choice, order)
    }

    fn candidates(&self, port: &Port, family: Family) -> Vec<Candidate<'_>> {
        let mut candidates = Vec::new();
        for slice in self.slices.values() {
            let fits = |p: &&SlicePort| p.name == port.name && p.protocol == port.protocol;
            for number in slice.ports.iter().filter(fits) {
                let of_family = |e: &&Endpoint| Family::of(e.address) == family;
                let endpoints = slice.endpoints.iter().filter(of_family);
                candidates.extend(endpoints.map(|endpoint| (endpoint, number.port)));
            }
        }
        candidates
    }
}

fn is_external(service: &Service, port: &Port) -> bool {
    port.node_port.is_some() || !service.external_ips.is_empty() || !service.balancer_ips.is_empty()
}

/// Those of `wanted` in the order of `before`, as far as they were there: who is gone leaves a place to the
/// last, who is new comes last.
fn reordered(before: &[Target], wanted: Vec<Target>) -> Vec<Target> {
    let known: BTreeSet<Target> = before.iter().copied().collect();
    let mut list: Vec<Target> = before.to_vec();
    let mut at = 0;
    while at < list.len() {
        if wanted.binary_search(&list[at]).is_ok() {
            at += 1;
        } else {
            list.swap_remove(at);
        }
    }
    list.extend(wanted.into_iter().filter(|target| !known.contains(target)));
    list
}

// Several Services may have touched one key; what counts is its first and its last value.
fn merged(changes: Vec<Change>) -> Vec<Change> {
    let mut by_key: BTreeMap<Key, Change> = BTreeMap::new();
    for change in changes {
        by_key
            .entry(change.key)
            .and_modify(|known| known.after = change.after)
            .or_insert(change);
    }
    let changed = by_key.into_values();
    changed
        .filter(|change| change.before != change.after)
        .collect()
}

// The UDP front that a change is about.
fn udp_front(change: &Change) -> Option<Front> {
    let (Key::Slot(_, front, _) | Key::Dispatch(_, front) | Key::Refused(front)) = change.key
    else {
        return None;
    };
    (front.protocol() == Protocol::Udp).then_some(front)
}
