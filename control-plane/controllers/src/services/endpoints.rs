//! Keeps the endpoints of each service that chooses its pods: one object, as it was before slices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{
    EndpointAddress, EndpointPort, EndpointSubset, Endpoints, Service, ServiceSpec,
};

use client_runtime::{Actor, Cache, End, ObjectKey, Queue, Recorder, Severity, SyncError, Synced};
use client_runtime::{enqueue_changes, is_namespace_ending, is_outdated};

use super::endpoint::{self, Family};
use super::endpoint_slices::{HEADLESS, affected_services};
use crate::Manager;
use crate::workloads::ownership;
use crate::workloads::pod_view::PodView;
use crate::workloads::pods::reason;

const ACCOUNT: &str = "endpoint-controller";
const AT_ONCE: usize = 5;
/// The most addresses one object may have.
const MOST: usize = 1000;
const OVER_CAPACITY: &str = "endpoints.kubernetes.io/over-capacity";
const MANAGED_BY: &str = "endpoints.kubernetes.io/managed-by";
const TRIGGER_TIME: &str = "endpoints.kubernetes.io/last-change-trigger-time";

struct Shell {
    services: Cache<Service>,
    endpoints: Cache<Endpoints>,
    pods: Cache<PodView>,
    actor: Actor,
    recorder: Recorder,
}

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let actor = manager.act_as(ACCOUNT);
    let shell = Arc::new(Shell {
        services: manager.whole::<Service>(),
        endpoints: manager.whole::<Endpoints>(),
        pods: manager.shared::<PodView>(),
        recorder: manager.recorder(ACCOUNT, actor.clone()),
        actor,
    });
    let queue = Arc::new(Queue::new());
    enqueue_changes(&shell.services, &queue);
    enqueue_changes(&shell.endpoints, &queue);
    let (noticing, noticed) = (Arc::clone(&shell), Arc::clone(&queue));
    shell.pods.on_change(move |change| {
        noticed.add_all(affected_services(&noticing.services, change));
    });
    let ready = [
        shell.services.completion(),
        shell.endpoints.completion(),
        shell.pods.completion(),
    ];
    manager.start_work(name, queue, AT_ONCE, ready, move |key| {
        let shell = Arc::clone(&shell);
        async move { shell.sync(&key).await }
    });
}

impl Shell {
    async fn sync(&self, key: &ObjectKey) -> Synced {
        let before = self.endpoints.get(key);
        let Some(service) = self.services.get(key) else {
            return self.clear(key, before.as_deref()).await;
        };
        let Some(selector) = endpoint::selector(&service) else {
            return Ok(End::Done);
        };
        let pods = self.pods.within(&key.namespace, |pod| {
            ownership::matches(&selector, &pod.labels)
        });
        let pods: Vec<Arc<PodView>> = pods.into_iter().map(|(_, pod)| pod).collect();
        let wanted = desired(&service, &pods);
        let written = match before.as_deref() {
            None => self.actor.create(&key.namespace, &wanted).await,
            Some(before) if is_same(before, &wanted) => return Ok(End::Done),
            Some(before) => self.actor.replace(&changed(before, wanted)).await,
        };
        match written {
            Ok(_) => Ok(End::Done),
            Err(error) if is_namespace_ending(&error) => Ok(End::Done),
            Err(error) if is_outdated(&error) => Err(SyncError::NotYet(reason(&error))),
            Err(error) => {
                let action = if before.is_none() { "create" } else { "update" };
                let reason_name = if before.is_none() {
                    "FailedToCreateEndpoint"
                } else {
                    "FailedToUpdateEndpoint"
                };
                let text = format!(
                    "Failed to {action} endpoint {}/{}: {}",
                    key.namespace,
                    key.name,
                    reason(&error)
                );
                self.recorder
                    .about(&*service, Severity::Warning, reason_name, text);
                Err(error)
            }
        }
    }

    // Endpoints go with their service; those of a leader election never had one, and those somebody makes by
    // hand may come before their service.
    async fn clear(&self, key: &ObjectKey, left: Option<&Endpoints>) -> Synced {
        let is_ours = left.is_some_and(|left| {
            left.metadata
                .labels
                .as_ref()
                .is_some_and(|labels| labels.contains_key(MANAGED_BY))
        });
        if is_ours {
            self.actor
                .delete::<Endpoints>(&key.namespace, &key.name, None)
                .await?;
        }
        Ok(End::Done)
    }
}

fn desired(service: &Service, pods: &[Arc<PodView>]) -> Endpoints {
    let none = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&none);
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if endpoint::is_headless(spec) {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(MANAGED_BY.into(), "endpoint-controller".into());
    let mut wanted = Endpoints::default();
    wanted.metadata.name = service.metadata.name.clone();
    wanted.metadata.namespace = service.metadata.namespace.clone();
    wanted.metadata.labels = Some(labels);
    let mut subsets = subsets(service, spec, pods);
    if truncate(&mut subsets) {
        let annotations = wanted.metadata.annotations.get_or_insert_default();
        annotations.insert(OVER_CAPACITY.into(), "truncated".into());
    }
    wanted.subsets = (!subsets.is_empty()).then_some(subsets);
    wanted
}

// Addresses with the same ports are together, as upstream's `RepackSubsets` leaves them.
fn subsets(service: &Service, spec: &ServiceSpec, pods: &[Arc<PodView>]) -> Vec<EndpointSubset> {
    let family = Family::all_of(spec)[0];
    let publishes = endpoint::publishes_not_ready(service);
    let is_portless = endpoint::is_headless(spec) && spec.ports.as_ref().is_none_or(Vec::is_empty);
    let mut by_ports: BTreeMap<String, EndpointSubset> = BTreeMap::new();
    for pod in pods
        .iter()
        .filter(|pod| endpoint::is_reachable(pod, publishes))
    {
        let Some(ip) = endpoint::address(pod, family) else {
            continue;
        };
        let ports = ports(spec, pod);
        if ports.is_empty() && !is_portless {
            continue;
        }
        let address = EndpointAddress {
            ip: ip.to_string(),
            hostname: endpoint::hostname(service, pod),
            node_name: pod.node.clone(),
            target_ref: Some(endpoint::pod_reference(service, pod)),
        };
        let subset = by_ports
            .entry(format!("{ports:?}"))
            .or_insert_with(|| EndpointSubset {
                ports: (!ports.is_empty()).then_some(ports),
                ..EndpointSubset::default()
            });
        match publishes || pod.is_ready() {
            true => subset.addresses.get_or_insert_default().push(address),
            false => subset
                .not_ready_addresses
                .get_or_insert_default()
                .push(address),
        }
    }
    let mut subsets: Vec<EndpointSubset> = by_ports.into_values().collect();
    for subset in &mut subsets {
        for addresses in [&mut subset.addresses, &mut subset.not_ready_addresses] {
            addresses
                .iter_mut()
                .for_each(|all| all.sort_by(|a, b| a.ip.cmp(&b.ip)));
        }
    }
    subsets
}

fn ports(spec: &ServiceSpec, pod: &PodView) -> Vec<EndpointPort> {
    let found = endpoint::ports(spec, pod)
        .into_iter()
        .map(|port| EndpointPort {
            name: port.name.filter(|name| !name.is_empty()),
            port: port.port.unwrap_or(0),
            protocol: port.protocol,
            app_protocol: port.app_protocol,
        });
    let mut seen = BTreeSet::new();
    let mut ports: Vec<EndpointPort> = found.filter(|p| seen.insert(format!("{p:?}"))).collect();
    ports.sort_by_key(|port| (port.name.clone(), port.port));
    ports
}

// Ready addresses stay before others. Gives whether there were too many.
fn truncate(subsets: &mut Vec<EndpointSubset>) -> bool {
    let len = |all: &Option<Vec<EndpointAddress>>| all.as_ref().map_or(0, Vec::len);
    let total = |s: &EndpointSubset| len(&s.addresses) + len(&s.not_ready_addresses);
    if subsets.iter().map(total).sum::<usize>() <= MOST {
        return false;
    }
    let mut room = MOST;
    let mut cut = |all: &mut Option<Vec<EndpointAddress>>| {
        if let Some(addresses) = all {
            addresses.truncate(room);
            room -= addresses.len();
        }
        all.take_if(|addresses| addresses.is_empty());
    };
    subsets
        .iter_mut()
        .for_each(|subset| cut(&mut subset.addresses));
    subsets
        .iter_mut()
        .for_each(|subset| cut(&mut subset.not_ready_addresses));
    subsets.retain(|subset| total(subset) > 0);
    true
}

fn is_same(before: &Endpoints, wanted: &Endpoints) -> bool {
    let over = |of: &Endpoints| {
        of.metadata
            .annotations
            .as_ref()
            .is_some_and(|all| all.contains_key(OVER_CAPACITY))
    };
    before.subsets.clone().unwrap_or_default() == wanted.subsets.clone().unwrap_or_default()
        && before.metadata.labels == wanted.metadata.labels
        && over(before) == over(wanted)
}

fn changed(before: &Endpoints, wanted: Endpoints) -> Endpoints {
    let mut next = before.clone();
    let annotations = next.metadata.annotations.get_or_insert_default();
    annotations.remove(OVER_CAPACITY);
    annotations.remove(TRIGGER_TIME);
    annotations.extend(wanted.metadata.annotations.into_iter().flatten());
    next.metadata.labels = wanted.metadata.labels;
    next.subsets = wanted.subsets;
    next
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn service() -> Service {
        let service = json!({ "metadata": { "name": "web", "namespace": "default" },
            "spec": { "selector": { "app": "web" }, "ipFamilies": ["IPv4"],
                "ports": [{ "name": "a", "port": 80, "targetPort": 8080 }, { "name": "b", "port": 81, "targetPort": 8081 }] } });
        serde_json::from_value(service).unwrap()
    }

    fn pods(count: usize, ready: impl Fn(usize) -> bool) -> Vec<Arc<PodView>> {
        let pod = |number: usize| PodView {
            name: number.to_string(),
            addresses: vec![
                format!("10.0.{}.{}", number / 256, number % 256)
                    .parse()
                    .unwrap(),
            ],
            ready_since: ready(number).then_some(Timestamp::UNIX_EPOCH),
            ..PodView::default()
        };
        (0..count).map(|number| Arc::new(pod(number))).collect()
    }

    #[test]
    fn addresses_with_the_same_ports_are_one_subset() {
        let wanted = desired(&service(), &pods(3, |number| number != 1));
        let subsets = wanted.subsets.clone().unwrap();
        assert_eq!(subsets.len(), 1);
        assert_eq!(subsets[0].ports.as_ref().map(Vec::len), Some(2));
        assert_eq!(subsets[0].addresses.as_ref().map(Vec::len), Some(2));
        assert_eq!(
            subsets[0].not_ready_addresses.as_ref().map(Vec::len),
            Some(1)
        );
        assert!(is_same(&wanted, &wanted));
    }

    #[test]
    fn more_than_a_thousand_are_cut_ready_ones_last() {
        let wanted = desired(&service(), &pods(1200, |number| number % 2 == 0));
        assert_eq!(
            wanted.metadata.annotations.unwrap()[OVER_CAPACITY],
            "truncated"
        );
        let subset = &wanted.subsets.unwrap()[0];
        assert_eq!(subset.addresses.as_ref().map(Vec::len), Some(600));
        assert_eq!(subset.not_ready_addresses.as_ref().map(Vec::len), Some(400));
    }
}
