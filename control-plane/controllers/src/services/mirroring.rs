//! Mirrors endpoints that people write by hand into slices, for those who read only slices.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{EndpointAddress, EndpointSubset, Endpoints, Service};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointConditions, EndpointPort, EndpointSlice};

use client_runtime::{Actor, Cache, End, ObjectKey, Queue, SyncError, Synced};
use client_runtime::{enqueue_changes, is_namespace_ending, is_outdated};

use super::endpoint::Family;
use super::endpoint_slices::{MANAGED_BY, SERVICE_NAME, service_of};
use super::packing::{Common, Group, Packing, pack};
use crate::Manager;
use crate::workloads::expectations::Expectations;
use crate::workloads::ownership::owner_reference;
use crate::workloads::pods::reason;

const ACCOUNT: &str = "endpointslicemirroring-controller";
const US: &str = "endpointslicemirroring-controller.k8s.io";
const AT_ONCE: usize = 5;
/// Upstream's `--mirroring-max-endpoints-per-subset`.
const MOST: usize = 1000;
const SKIP: &str = "endpointslice.kubernetes.io/skip-mirror";
const LEADER: &str = "control-plane.alpha.kubernetes.io/leader";
/// Labels and annotations that are not mirrored.
const OWN: [&str; 4] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "endpoints.kubernetes.io/last-change-trigger-time",
    SERVICE_NAME,
    MANAGED_BY,
];

struct Shell {
    services: Cache<Service>,
    endpoints: Cache<Endpoints>,
    slices: Cache<EndpointSlice>,
    actor: Actor,
    expectations: Expectations,
}

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let shell = Arc::new(Shell {
        services: manager.whole::<Service>(),
        endpoints: manager.whole::<Endpoints>(),
        slices: manager.whole::<EndpointSlice>(),
        actor: manager.act_as(ACCOUNT),
        expectations: Expectations::default(),
    });
    let queue = Arc::new(Queue::new());
    enqueue_changes(&shell.services, &queue);
    enqueue_changes(&shell.endpoints, &queue);
    let (noticing, noticed) = (Arc::clone(&shell), Arc::clone(&queue));
    shell.slices.on_change(move |change| {
        let of = |slice: Option<&EndpointSlice>| slice.and_then(|slice| service_of(slice, US));
        let (before, after) = (of(change.before), of(change.after));
        if let (None, Some(key)) = (&before, &after) {
            noticing.expectations.created(key, 1);
        }
        noticed.add_all(before.into_iter().chain(after));
    });
    let ready = [
        shell.services.completion(),
        shell.endpoints.completion(),
        shell.slices.completion(),
    ];
    manager.start_work(name, queue, AT_ONCE, ready, move |key| {
        let shell = Arc::clone(&shell);
        async move { shell.sync(&key).await }
    });
}

impl Shell {
    async fn sync(&self, key: &ObjectKey) -> Synced {
        if !self.expectations.are_met(key) {
            return Err(SyncError::NotYet(
                "slices just made are not seen yet".into(),
            ));
        }
        let existing = self.slices.within(&key.namespace, |slice| {
            service_of(slice, US).is_some_and(|of| of.name == key.name)
        });
        let existing: Vec<EndpointSlice> =
            existing.into_iter().map(|(_, s)| (*s).clone()).collect();
        let (service, endpoints) = (self.services.get(key), self.endpoints.get(key));
        let packing = match endpoints.filter(|e| is_mirrored(e, service.as_deref())) {
            Some(endpoints) => mirror(&endpoints, &existing),
            None => Packing {
                delete: existing,
                ..Packing::default()
            },
        };
        self.carry_out(key, packing).await
    }

    async fn carry_out(&self, key: &ObjectKey, packing: Packing) -> Synced {
        self.expectations.expect(key, packing.create.len(), []);
        let mut failure = None;
        for slice in &packing.create {
            if let Err(error) = self.actor.create(&key.namespace, slice).await {
                self.expectations.created(key, 1);
                failure = Some(error);
            }
        }
        for slice in &packing.update {
            failure = self.actor.replace(slice).await.err().or(failure);
        }
        for slice in &packing.delete {
            let name = slice.metadata.name.as_deref().unwrap_or_default();
            let deleted = self
                .actor
                .delete::<EndpointSlice>(&key.namespace, name, None);
            failure = deleted.await.err().or(failure);
        }
        match failure {
            None => Ok(End::Done),
            Some(error) if is_namespace_ending(&error) => Ok(End::Done),
            Some(error) if is_outdated(&error) => Err(SyncError::NotYet(reason(&error))),
            Some(error) => Err(error),
        }
    }
}

// Only what no other controller keeps: the endpoints of a service that chooses no pods.
fn is_mirrored(endpoints: &Endpoints, service: Option<&Service>) -> bool {
    let meta = &endpoints.metadata;
    let skips = meta.labels.as_ref().and_then(|labels| labels.get(SKIP));
    let is_leader = meta
        .annotations
        .as_ref()
        .is_some_and(|all| all.contains_key(LEADER));
    let spec = service.and_then(|service| service.spec.as_ref());
    let is_free = spec.is_some_and(|spec| spec.selector.as_ref().is_none_or(BTreeMap::is_empty));
    is_free && !is_leader && skips.map(String::as_str) != Some("true")
}

fn mirror(endpoints: &Endpoints, existing: &[EndpointSlice]) -> Packing {
    let common = common(endpoints);
    let mut all = Packing::default();
    for family in [Family::V4, Family::V6] {
        let groups = endpoints
            .subsets
            .iter()
            .flatten()
            .map(|subset| group(subset, family));
        let mut merged: BTreeMap<String, Group> = BTreeMap::new();
        for group in groups {
            let same = merged.entry(format!("{:?}", group.ports));
            same.and_modify(|known| known.endpoints.extend(group.endpoints.clone()))
                .or_insert(group);
        }
        let existing = existing
            .iter()
            .filter(|slice| slice.address_type == family.name());
        let existing: Vec<EndpointSlice> = existing.cloned().collect();
        let packing = pack(&common, family, &existing, merged.into_values().collect());
        all.create.extend(packing.create);
        all.update.extend(packing.update);
        all.delete.extend(packing.delete);
    }
    all
}

fn group(subset: &EndpointSubset, family: Family) -> Group {
    let ports = subset.ports.iter().flatten().map(|port| EndpointPort {
        name: Some(port.name.clone().unwrap_or_default()),
        port: Some(port.port),
        protocol: Some(port.protocol.clone().unwrap_or_else(|| "TCP".into())),
        app_protocol: port.app_protocol.clone(),
    });
    let ready = subset
        .addresses
        .iter()
        .flatten()
        .map(|address| (address, true));
    let others = subset
        .not_ready_addresses
        .iter()
        .flatten()
        .map(|address| (address, false));
    let of_family = |ip: &str| ip.parse::<IpAddr>().is_ok_and(|ip| family.has(ip));
    let endpoints = ready
        .chain(others)
        .take(MOST)
        .filter(|(address, _)| of_family(&address.ip));
    Group {
        ports: ports.collect(),
        endpoints: endpoints
            .map(|(address, ready)| endpoint(address, ready))
            .collect(),
    }
}

fn endpoint(address: &EndpointAddress, ready: bool) -> Endpoint {
    Endpoint {
        addresses: vec![address.ip.clone()],
        conditions: Some(EndpointConditions {
            ready: Some(ready),
            ..EndpointConditions::default()
        }),
        hostname: address.hostname.clone().filter(|name| !name.is_empty()),
        node_name: address.node_name.clone(),
        target_ref: address.target_ref.clone(),
        ..Endpoint::default()
    }
}

fn common(endpoints: &Endpoints) -> Common {
    let meta = &endpoints.metadata;
    let name = meta.name.clone().unwrap_or_default();
    let without = |all: &Option<BTreeMap<String, String>>| -> BTreeMap<String, String> {
        let all = all.clone().unwrap_or_default().into_iter();
        all.filter(|(key, _)| !OWN.contains(&key.as_str()))
            .collect()
    };
    let mut labels = without(&meta.labels);
    labels.insert(SERVICE_NAME.into(), name.clone());
    labels.insert(MANAGED_BY.into(), US.into());
    Common {
        namespace: meta.namespace.clone().unwrap_or_default(),
        prefix: format!("{name}-"),
        labels,
        annotations: without(&meta.annotations),
        owner: owner_reference(endpoints),
        most: MOST,
        has_placeholder: false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn hand_made_endpoints_of_a_free_service_are_mirrored() {
        let endpoints: Endpoints = serde_json::from_value(json!({
            "metadata": { "name": "db", "namespace": "default", "labels": { "team": "a" } },
            "subsets": [{ "addresses": [{ "ip": "192.0.2.1" }, { "ip": "2001:db8::1" }],
                "notReadyAddresses": [{ "ip": "192.0.2.2" }], "ports": [{ "port": 5432 }] }],
        }))
        .unwrap();
        let service = |selector| -> Service {
            serde_json::from_value(json!({ "spec": { "selector": selector } })).unwrap()
        };
        assert!(is_mirrored(&endpoints, Some(&service(json!(null)))));
        assert!(!is_mirrored(
            &endpoints,
            Some(&service(json!({ "app": "db" })))
        ));
        assert!(!is_mirrored(&endpoints, None));
        let slices = mirror(&endpoints, &[]).create;
        assert_eq!(slices.len(), 2, "one per family");
        let ready: Vec<_> = slices[0]
            .endpoints
            .iter()
            .flatten()
            .map(|e| e.conditions.as_ref().unwrap().ready)
            .collect();
        assert_eq!(ready, [Some(true), Some(false)]);
        assert_eq!(slices[0].metadata.labels.as_ref().unwrap()["team"], "a");
    }
}
