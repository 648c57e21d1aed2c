//! Keeps the endpoint slices of each service that chooses its pods.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::api::discovery::v1::{Endpoint, EndpointPort, EndpointSlice};

use client_runtime::{
    Actor, Cache, Change, End, ObjectKey, Queue, Recorder, Severity, SyncError, Synced,
};
use client_runtime::{enqueue_changes, is_namespace_ending, is_outdated};

use super::endpoint::{self, Family};
use super::packing::{Common, Group, Packing, pack};
use super::topology;
use crate::Manager;
use crate::workloads::expectations::Expectations;
use crate::workloads::node_view::NodeView;
use crate::workloads::ownership::{self, owner_reference};
use crate::workloads::pod_view::PodView;
use crate::workloads::pods::reason;

const ACCOUNT: &str = "endpointslice-controller";
/// Upstream's `--concurrent-service-endpoint-syncs`.
const AT_ONCE: usize = 5;
/// Upstream's `--max-endpoints-per-slice`.
const MOST: usize = 100;
/// Who keeps a slice.
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const US: &str = "endpointslice-controller.k8s.io";
/// Which service a slice belongs to.
pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(super) const HEADLESS: &str = "service.kubernetes.io/headless";

struct Shell {
    services: Cache<Service>,
    slices: Cache<EndpointSlice>,
    pods: Cache<PodView>,
    nodes: Cache<NodeView>,
    actor: Actor,
    recorder: Recorder,
    expectations: Expectations,
    queue: Arc<Queue<ObjectKey>>,
}

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let actor = manager.act_as(ACCOUNT);
    let shell = Arc::new(Shell {
        services: manager.whole::<Service>(),
        slices: manager.whole::<EndpointSlice>(),
        pods: manager.shared::<PodView>(),
        nodes: manager.shared::<NodeView>(),
        recorder: manager.recorder("endpoint-slice-controller", actor.clone()),
        actor,
        expectations: Expectations::default(),
        queue: Arc::new(Queue::new()),
    });
    enqueue_changes(&shell.services, &shell.queue);
    let noticing = Arc::clone(&shell);
    shell.pods.on_change(move |change| {
        let services = affected_services(&noticing.services, change);
        noticing.queue.add_all(services);
    });
    let noticing = Arc::clone(&shell);
    shell
        .slices
        .on_change(move |change| noticing.notice_slice(change));
    let noticing = Arc::clone(&shell);
    shell
        .nodes
        .on_change(move |change| noticing.notice_node(change));
    let ready = [
        shell.services.completion(),
        shell.slices.completion(),
        shell.pods.completion(),
        shell.nodes.completion(),
    ];
    let queue = Arc::clone(&shell.queue);
    manager.start_work(name, queue, AT_ONCE, ready, move |key| {
        let shell = Arc::clone(&shell);
        async move { shell.sync(&key).await }
    });
}

/// The services whose endpoints a pod's change may change.
pub(super) fn affected_services(
    services: &Cache<Service>,
    change: &Change<'_, PodView>,
) -> Vec<ObjectKey> {
    let is_same = match (change.before, change.after) {
        (Some(before), Some(after)) => !std::ptr::eq(before, after) && looks_same(before, after),
        _ => false,
    };
    if is_same {
        return Vec::new();
    }
    let affected = services.within(&change.key.namespace, |service| {
        let Some(selector) = endpoint::selector(service) else {
            return false;
        };
        let pods = [change.before, change.after];
        pods.into_iter()
            .flatten()
            .any(|pod| ownership::matches(&selector, &pod.labels))
    });
    affected.into_iter().map(|(key, _)| key).collect()
}

// Upstream's `podEndpointsChanged`.
fn looks_same(before: &PodView, after: &PodView) -> bool {
    before.labels == after.labels
        && before.addresses == after.addresses
        && before.is_ready() == after.is_ready()
        && before.is_deleted == after.is_deleted
        && before.is_finished() == after.is_finished()
        && before.node == after.node
        && before.uid == after.uid
}

/// The service a slice belongs to, if this one keeps it.
pub(super) fn service_of(slice: &EndpointSlice, manager: &str) -> Option<ObjectKey> {
    let labels = slice.metadata.labels.as_ref()?;
    let namespace = slice.metadata.namespace.clone().unwrap_or_default();
    let name = labels.get(SERVICE_NAME)?;
    (labels.get(MANAGED_BY)? == manager).then(|| ObjectKey::new(namespace, name))
}

impl Shell {
    fn notice_slice(&self, change: &Change<'_, EndpointSlice>) {
        let of = |slice: Option<&EndpointSlice>| slice.and_then(|slice| service_of(slice, US));
        let (before, after) = (of(change.before), of(change.after));
        if let (None, Some(service)) = (&before, &after) {
            self.expectations.created(service, 1);
        }
        self.queue.add_all(before.into_iter().chain(after));
    }

    // Zones of nodes are on endpoints; services that share out by processors look at every node.
    fn notice_node(&self, change: &Change<'_, NodeView>) {
        let zone = |node: Option<&NodeView>| node.and_then(|node| node.zone().map(str::to_owned));
        let is_here = (change.before.is_some(), change.after.is_some());
        if is_here == (true, true) && zone(change.before) == zone(change.after) {
            return;
        }
        for (key, service) in self.services.all() {
            let Some(selector) = endpoint::selector(&service) else {
                continue;
            };
            let is_on_it = |pod: &PodView| {
                pod.node.as_deref() == Some(&change.key.name)
                    && ownership::matches(&selector, &pod.labels)
            };
            if self.pods.any_in(&key.namespace, is_on_it) {
                self.queue.add(key);
            }
        }
    }

    async fn sync(&self, key: &ObjectKey) -> Synced {
        let Some(service) = self.services.get(key) else {
            self.expectations.forget(key);
            return Ok(End::Done);
        };
        let Some(selector) = endpoint::selector(&service) else {
            return Ok(End::Done);
        };
        if service.metadata.deletion_timestamp.is_some() {
            return Ok(End::Done);
        }
        if !self.expectations.are_met(key) {
            return Err(SyncError::NotYet(
                "slices just made are not seen yet".into(),
            ));
        }
        let pods = self.pods.within(&key.namespace, |pod| {
            endpoint::is_reachable(pod, true) && ownership::matches(&selector, &pod.labels)
        });
        let pods: Vec<Arc<PodView>> = pods.into_iter().map(|(_, pod)| pod).collect();
        let existing = self.slices.within(&key.namespace, |slice| {
            service_of(slice, US).is_some_and(|of| of.name == key.name)
        });
        let existing: Vec<EndpointSlice> =
            existing.into_iter().map(|(_, s)| (*s).clone()).collect();
        let packing = self.decide(&service, &pods, existing);
        self.carry_out(key, &service, packing).await
    }

    fn decide(
        &self,
        service: &Service,
        pods: &[Arc<PodView>],
        existing: Vec<EndpointSlice>,
    ) -> Packing {
        let node = |name: &str| self.nodes.get(&ObjectKey::new("", name));
        let all_nodes: Vec<Arc<NodeView>> = match service.metadata.annotations.is_some() {
            true => self.nodes.all().into_iter().map(|(_, node)| node).collect(),
            false => Vec::new(),
        };
        desired(service, pods, existing, &node, &all_nodes)
    }

    async fn carry_out(&self, key: &ObjectKey, service: &Service, packing: Packing) -> Synced {
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
            Some(error) => {
                let text = format!(
                    "Error updating Endpoint Slices for Service {}/{}: {}",
                    key.namespace,
                    key.name,
                    reason(&error)
                );
                self.recorder.about(
                    service,
                    Severity::Warning,
                    "FailedToUpdateEndpointSlices",
                    text,
                );
                Err(error)
            }
        }
    }
}

// What is to be written so that the slices of a service say where its pods are.
fn desired(
    service: &Service,
    pods: &[Arc<PodView>],
    existing: Vec<EndpointSlice>,
    node: &dyn Fn(&str) -> Option<Arc<NodeView>>,
    all_nodes: &[Arc<NodeView>],
) -> Packing {
    let none = ServiceSpec::default();
    let spec = service.spec.as_ref().unwrap_or(&none);
    let common = common(service, spec);
    let families = Family::all_of(spec);
    let (known, alien): (Vec<_>, Vec<_>) = existing.into_iter().partition(|slice| {
        families
            .iter()
            .any(|family| family.name() == slice.address_type)
    });
    let mut all = Packing {
        delete: alien,
        ..Packing::default()
    };
    for family in families {
        let mut groups = groups(service, spec, pods, family, node);
        let mut endpoints: Vec<&mut Endpoint> = groups
            .iter_mut()
            .flat_map(|group| &mut group.endpoints)
            .collect();
        topology::give_hints(service, all_nodes, &mut endpoints);
        let existing = known
            .iter()
            .filter(|slice| slice.address_type == family.name());
        let existing: Vec<EndpointSlice> = existing.cloned().collect();
        let packing = pack(&common, family, &existing, groups);
        all.create.extend(packing.create);
        all.update.extend(packing.update);
        all.delete.extend(packing.delete);
    }
    all
}

fn groups(
    service: &Service,
    spec: &ServiceSpec,
    pods: &[Arc<PodView>],
    family: Family,
    node: &dyn Fn(&str) -> Option<Arc<NodeView>>,
) -> Vec<Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for pod in pods {
        let Some(address) = endpoint::address(pod, family) else {
            continue;
        };
        let node = pod.node.as_deref().and_then(node);
        // A pod whose node is gone is as good as gone.
        if node.is_none() && !endpoint::publishes_not_ready(service) {
            continue;
        }
        let ports: Vec<EndpointPort> = endpoint::ports(spec, pod);
        let group = groups.entry(format!("{ports:?}"));
        let group = group.or_insert_with(|| Group {
            ports,
            endpoints: Vec::new(),
        });
        group
            .endpoints
            .push(endpoint::endpoint(service, pod, node.as_deref(), address));
    }
    groups.into_values().collect()
}

fn common(service: &Service, spec: &ServiceSpec) -> Common {
    let meta = &service.metadata;
    let name = meta.name.clone().unwrap_or_default();
    let mut labels = meta.labels.clone().unwrap_or_default();
    labels.remove(HEADLESS);
    if endpoint::is_headless(spec) {
        labels.insert(HEADLESS.into(), String::new());
    }
    labels.insert(SERVICE_NAME.into(), name.clone());
    labels.insert(MANAGED_BY.into(), US.into());
    Common {
        namespace: meta.namespace.clone().unwrap_or_default(),
        prefix: format!("{name}-"),
        labels,
        annotations: BTreeMap::new(),
        owner: owner_reference(service),
        most: MOST,
        has_placeholder: true,
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use serde_json::json;

    use super::*;

    fn service(more: serde_json::Value) -> Service {
        let mut service = json!({ "metadata": { "name": "web", "namespace": "default" },
            "spec": { "selector": { "app": "web" }, "ipFamilies": ["IPv4"],
                "ports": [{ "port": 80, "targetPort": "http" }] } });
        for (key, value) in more.as_object().unwrap() {
            service["spec"][key] = value.clone();
        }
        serde_json::from_value(service).unwrap()
    }

    fn pod(name: &str, change: impl Fn(&mut PodView)) -> Arc<PodView> {
        let mut pod = PodView {
            name: name.into(),
            addresses: vec!["10.0.0.1".parse().unwrap(), "fd00::1".parse().unwrap()],
            ready_since: Some(Timestamp::UNIX_EPOCH),
            node: Some("n1".into()),
            ports: vec![("http".into(), "TCP".into(), 8080)],
            ..PodView::default()
        };
        change(&mut pod);
        Arc::new(pod)
    }

    fn slices(service: &Service, pods: &[Arc<PodView>]) -> Vec<EndpointSlice> {
        let node = |name: &str| (name == "n1").then(|| Arc::new(NodeView::default()));
        desired(service, pods, Vec::new(), &node, &[]).create
    }

    #[test]
    fn conditions_say_ready_serving_and_terminating() {
        for (ready, deleted, publishes, expected) in [
            (true, false, false, (true, true, false)),
            (false, false, false, (false, false, false)),
            (true, true, false, (false, true, true)),
            (false, true, true, (true, false, true)),
        ] {
            let pod = pod("a", |pod| {
                pod.ready_since = ready.then_some(Timestamp::UNIX_EPOCH);
                pod.is_deleted = deleted;
            });
            let service = service(json!({ "publishNotReadyAddresses": publishes }));
            let slice = &slices(&service, &[pod])[0];
            let conditions = slice.endpoints.as_ref().unwrap()[0]
                .conditions
                .clone()
                .unwrap();
            let seen = (conditions.ready, conditions.serving, conditions.terminating);
            assert_eq!(seen, (Some(expected.0), Some(expected.1), Some(expected.2)));
        }
    }

    #[test]
    fn pods_that_listen_elsewhere_get_slices_of_their_own() {
        let pods = [pod("a", |_| {}), pod("b", |pod| pod.ports[0].2 = 9090)];
        let slices = slices(&service(json!({})), &pods);
        let ports: Vec<_> = slices
            .iter()
            .map(|s| s.ports.as_ref().unwrap()[0].port)
            .collect();
        assert_eq!(ports, [Some(8080), Some(9090)]);
    }

    #[test]
    fn each_family_has_slices_and_a_lost_node_has_none() {
        let both = service(json!({ "ipFamilies": ["IPv4", "IPv6"] }));
        let kinds: Vec<_> = slices(&both, &[pod("a", |_| {})])
            .into_iter()
            .map(|s| s.address_type)
            .collect();
        assert_eq!(kinds, ["IPv4", "IPv6"]);
        let lost = slices(
            &service(json!({})),
            &[pod("a", |pod| pod.node = Some("gone".into()))],
        );
        assert_eq!(
            lost[0].endpoints.as_ref().map(Vec::len),
            Some(0),
            "a placeholder"
        );
    }
}
