//! Puts endpoints into slices so that as few slices as possible change (upstream's `reconcileByPortMapping`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::endpoint::Family;

/// Endpoints that are reached by the same ports.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Group {
    pub(super) ports: Vec<EndpointPort>,
    pub(super) endpoints: Vec<Endpoint>,
}

/// What all slices of one service have in common.
pub(super) struct Common {
    pub(super) namespace: String,
    /// What their names begin with.
    pub(super) prefix: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) annotations: BTreeMap<String, String>,
    pub(super) owner: OwnerReference,
    /// The most endpoints a slice may have.
    pub(super) most: usize,
    /// Whether there is a slice even if nothing can be reached.
    pub(super) has_placeholder: bool,
}

/// What is to be written.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Packing {
    pub(super) create: Vec<EndpointSlice>,
    pub(super) update: Vec<EndpointSlice>,
    pub(super) delete: Vec<EndpointSlice>,
}

impl Packing {
    fn add(&mut self, other: Packing) {
        self.create.extend(other.create);
        self.update.extend(other.update);
        self.delete.extend(other.delete);
    }
}

/// Packs the endpoints of one family; `existing` are the slices there are of it.
pub(super) fn pack(
    common: &Common,
    family: Family,
    existing: &[EndpointSlice],
    groups: Vec<Group>,
) -> Packing {
    let mut packing = Packing::default();
    let mut by_ports: BTreeMap<String, Vec<&EndpointSlice>> = BTreeMap::new();
    for slice in existing {
        by_ports
            .entry(key(slice.ports.as_deref()))
            .or_default()
            .push(slice);
    }
    for group in groups
        .into_iter()
        .filter(|group| !group.endpoints.is_empty())
    {
        let slices = by_ports
            .remove(&key(Some(&group.ports)))
            .unwrap_or_default();
        packing.add(pack_group(common, family, &slices, group));
    }
    // Slices with ports that nobody has any more.
    packing
        .delete
        .extend(by_ports.into_values().flatten().cloned());
    if common.has_placeholder {
        keep_placeholder(common, family, existing.len(), &mut packing);
    }
    reuse(&mut packing);
    packing
}

fn key(ports: Option<&[EndpointPort]>) -> String {
    let mut ports: Vec<String> = ports.unwrap_or_default().iter().map(text).collect();
    ports.sort();
    ports.join(",")
}

// A port that says nothing about something means the usual, written or not.
fn text(port: &EndpointPort) -> String {
    let name = port.name.as_deref().unwrap_or_default();
    let protocol = port.protocol.as_deref().unwrap_or("TCP");
    format!("{name} {protocol} {:?} {:?}", port.port, port.app_protocol)
}

fn pack_group(common: &Common, family: Family, slices: &[&EndpointSlice], group: Group) -> Packing {
    let mut wanted: BTreeMap<Identity, Endpoint> = BTreeMap::new();
    for endpoint in group.endpoints {
        wanted.insert(identity(&endpoint), endpoint);
    }
    let mut packing = Packing::default();
    let mut unchanged: Vec<EndpointSlice> = Vec::new();
    for slice in slices {
        match refreshed(common, slice, &mut wanted) {
            Refreshed::Same => unchanged.push((*slice).clone()),
            Refreshed::Empty => packing.delete.push((*slice).clone()),
            Refreshed::Changed(slice) => packing.update.push(*slice),
        }
    }
    let mut rest: Vec<Endpoint> = wanted.into_values().collect();
    // Into slices that change anyway, the fullest first.
    packing
        .update
        .sort_by_key(|slice| std::cmp::Reverse(len(slice)));
    for slice in &mut packing.update {
        fill(slice, &mut rest, common.most);
    }
    while !rest.is_empty() {
        let fits = |slice: &EndpointSlice| len(slice) + rest.len() <= common.most;
        let fullest = unchanged
            .iter()
            .enumerate()
            .filter(|(_, slice)| fits(slice));
        let fullest = fullest
            .max_by_key(|(_, slice)| len(slice))
            .map(|(place, _)| place);
        match fullest.filter(|_| rest.len() < common.most) {
            Some(place) => {
                let mut slice = unchanged.remove(place);
                fill(&mut slice, &mut rest, common.most);
                packing.update.push(slice);
            }
            None => {
                let mut slice = new_slice(common, family, group.ports.clone());
                fill(&mut slice, &mut rest, common.most);
                packing.create.push(slice);
            }
        }
    }
    packing
}

enum Refreshed {
    Same,
    Empty,
    Changed(Box<EndpointSlice>),
}

// Keeps of a slice what is still wanted, as it is wanted now.
fn refreshed(
    common: &Common,
    slice: &EndpointSlice,
    wanted: &mut BTreeMap<Identity, Endpoint>,
) -> Refreshed {
    let before = slice.endpoints.iter().flatten();
    let kept: Vec<Endpoint> = before
        .filter_map(|one| wanted.remove(&identity(one)))
        .collect();
    if kept.is_empty() {
        return Refreshed::Empty;
    }
    let mut next = slice.clone();
    next.endpoints = Some(kept);
    label(common, &mut next.metadata);
    match next == *slice {
        true => Refreshed::Same,
        false => Refreshed::Changed(Box::new(next)),
    }
}

fn label(common: &Common, meta: &mut ObjectMeta) {
    meta.labels = Some(common.labels.clone());
    for (key, value) in &common.annotations {
        let annotations = meta.annotations.get_or_insert_default();
        annotations.insert(key.clone(), value.clone());
    }
}

fn len(slice: &EndpointSlice) -> usize {
    slice.endpoints.as_ref().map_or(0, Vec::len)
}

fn fill(slice: &mut EndpointSlice, rest: &mut Vec<Endpoint>, most: usize) {
    let room = most.saturating_sub(len(slice)).min(rest.len());
    slice
        .endpoints
        .get_or_insert_default()
        .extend(rest.drain(..room));
}

/// What makes an endpoint the same one: where it is and what it is.
type Identity = (Vec<String>, Option<String>, Option<String>, Option<String>);

fn identity(endpoint: &Endpoint) -> Identity {
    let target = endpoint.target_ref.as_ref();
    let part = |of: fn(&ObjectReference) -> &Option<String>| target.and_then(|t| of(t).clone());
    (
        endpoint.addresses.clone(),
        endpoint.hostname.clone(),
        part(|target| &target.namespace),
        part(|target| &target.name),
    )
}

fn new_slice(common: &Common, family: Family, ports: Vec<EndpointPort>) -> EndpointSlice {
    let mut slice = EndpointSlice {
        address_type: family.name().into(),
        ports: Some(ports),
        endpoints: Some(Vec::new()),
        metadata: ObjectMeta {
            generate_name: Some(common.prefix.clone()),
            namespace: Some(common.namespace.clone()),
            owner_references: Some(vec![common.owner.clone()]),
            ..ObjectMeta::default()
        },
    };
    label(common, &mut slice.metadata);
    slice
}

// A service that reaches nothing has one slice with nothing in it.
fn keep_placeholder(common: &Common, family: Family, existing: usize, packing: &mut Packing) {
    if packing.delete.len() < existing || !packing.create.is_empty() {
        return;
    }
    let placeholder = new_slice(common, family, Vec::new());
    let is_one = |slice: &EndpointSlice| {
        len(slice) == 0
            && slice.ports.as_ref().is_none_or(Vec::is_empty)
            && slice.metadata.labels == placeholder.metadata.labels
    };
    match packing.delete.as_slice() {
        [only] if is_one(only) => packing.delete.clear(),
        _ => packing.create.push(placeholder),
    }
}

// A slice that would go takes the contents of one that would come: one write instead of two.
fn reuse(packing: &mut Packing) {
    while let (Some(new), Some(old)) = (packing.create.last(), packing.delete.last()) {
        let next = EndpointSlice {
            metadata: ObjectMeta {
                labels: new.metadata.labels.clone(),
                annotations: new.metadata.annotations.clone(),
                owner_references: new.metadata.owner_references.clone(),
                ..old.metadata.clone()
            },
            ..new.clone()
        };
        packing.create.pop();
        packing.delete.pop();
        packing.update.push(next);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn common(most: usize) -> Common {
        Common {
            namespace: "default".into(),
            prefix: "web-".into(),
            labels: BTreeMap::from([("kubernetes.io/service-name".into(), "web".into())]),
            annotations: BTreeMap::new(),
            owner: OwnerReference::default(),
            most,
            has_placeholder: true,
        }
    }

    fn group(port: i32, numbers: impl IntoIterator<Item = usize>) -> Group {
        let endpoint = |number: usize| Endpoint {
            addresses: vec![format!("10.0.{}.{}", number / 256, number % 256)],
            ..Endpoint::default()
        };
        let ports = vec![EndpointPort {
            port: Some(port),
            ..EndpointPort::default()
        }];
        Group {
            ports,
            endpoints: numbers.into_iter().map(endpoint).collect(),
        }
    }

    // Carries a packing out.
    fn after(
        mut slices: Vec<EndpointSlice>,
        packing: Packing,
        names: &mut u32,
    ) -> Vec<EndpointSlice> {
        slices.retain(|slice| !packing.delete.contains(slice));
        for updated in packing.update {
            let same = |slice: &EndpointSlice| slice.metadata.name == updated.metadata.name;
            let place = slices
                .iter()
                .position(same)
                .expect("only what exists is updated");
            slices[place] = updated;
        }
        for mut created in packing.create {
            *names += 1;
            created.metadata.name = Some(format!("web-{names}"));
            slices.push(created);
        }
        slices
    }

    fn sizes(slices: &[EndpointSlice]) -> Vec<usize> {
        slices.iter().map(len).collect()
    }

    #[test]
    fn a_change_of_one_pod_touches_one_slice() {
        let (common, mut names) = (common(100), 0);
        let pack = |slices: &[EndpointSlice], numbers: std::ops::Range<usize>| {
            pack(&common, Family::V4, slices, vec![group(80, numbers)])
        };
        let slices = after(Vec::new(), pack(&[], 0..250), &mut names);
        assert_eq!(sizes(&slices), [100, 100, 50]);
        assert_eq!(pack(&slices, 0..250), Packing::default());
        let one_more = pack(&slices, 0..251);
        assert_eq!((one_more.create.len(), one_more.update.len()), (0, 1));
        let one_less = pack(&slices, 1..250);
        assert_eq!((one_less.update.len(), one_less.delete.len()), (1, 0));
        let replaced = pack(&slices, 1..251);
        assert_eq!(replaced.update.len(), 1, "the hole is filled");
        let slices = after(slices, replaced, &mut names);
        assert_eq!(sizes(&slices).iter().sum::<usize>(), 250);
    }

    #[test]
    fn whatever_is_wanted_is_there_once_and_no_slice_is_too_full() {
        let (common, mut names, mut slices) = (common(7), 0, Vec::new());
        let mut seed = 7usize;
        for _ in 0..200 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (from, count) = (seed % 40, seed / 64 % 30);
            let groups = vec![
                group(80, from..from + count),
                group(81, from..from + count / 2),
            ];
            let packing = pack(&common, Family::V4, &slices, groups.clone());
            slices = after(slices, packing, &mut names);
            assert!(sizes(&slices).iter().all(|size| *size <= 7));
            for group in groups {
                let of = slices
                    .iter()
                    .filter(|s| s.ports.as_ref() == Some(&group.ports));
                let mut have: Vec<_> = of.flat_map(|s| s.endpoints.clone().unwrap()).collect();
                have.sort_by_key(identity);
                let mut want = group.endpoints;
                want.sort_by_key(identity);
                assert_eq!(have, want);
            }
            assert!(!slices.is_empty(), "at least a placeholder");
        }
    }

    #[test]
    fn a_service_that_reaches_nothing_has_a_placeholder() {
        let (common, mut names) = (common(100), 0);
        let slices = after(
            Vec::new(),
            pack(&common, Family::V4, &[], Vec::new()),
            &mut names,
        );
        assert_eq!(sizes(&slices), [0]);
        assert_eq!(
            pack(&common, Family::V4, &slices, Vec::new()),
            Packing::default()
        );
        let first = pack(&common, Family::V4, &slices, vec![group(80, 0..3)]);
        assert_eq!(
            (first.create.len(), first.update.len(), first.delete.len()),
            (0, 1, 0)
        );
        let slices = after(slices, first, &mut names);
        let emptied = pack(&common, Family::V4, &slices, Vec::new());
        assert_eq!(sizes(&after(slices, emptied, &mut names)), [0]);
    }
}
