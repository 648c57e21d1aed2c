//! What a node's object says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerImage, DaemonEndpoint, Node, NodeAddress, NodeCondition, NodeDaemonEndpoints,
    NodeRuntimeHandler, NodeRuntimeHandlerFeatures, NodeSpec, NodeStatus, NodeSystemInfo, Taint,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use serde_json::Value;
use tokio::sync::Notify;

use crate::context::Context;
use crate::cri;

/// The version that this kubelet is: that of the API it is built for.
pub const VERSION: &str = "v1.36.0";

/// How the runtime is.
#[derive(Default)]
pub struct Health {
    inner: Mutex<Inner>,
    changed: Notify,
}

#[derive(Default)]
struct Inner {
    checked: bool,
    answered: Option<Timestamp>,
    problems: Vec<String>,
    handlers: Vec<cri::RuntimeHandler>,
}

impl Health {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// The runtime answered.
    pub fn answered(&self) {
        self.lock().answered = Some(Timestamp::now());
    }

    /// What its silence means: nothing for half a minute.
    pub fn silence(&self) -> Option<String> {
        let answered = self.lock().answered;
        let long = answered.is_none_or(|at| Timestamp::now().duration_since(at).as_secs() > 30);
        long.then(|| "container runtime is down".to_owned())
    }

    /// What is wrong now.
    pub fn set_problems(&self, problems: Vec<String>) {
        let mut inner = self.lock();
        inner.checked = true;
        if inner.problems != problems {
            inner.problems = problems;
            self.changed.notify_one();
        }
    }

    /// What is wrong.
    pub fn problems(&self) -> Vec<String> {
        let inner = self.lock();
        match inner.checked {
            false => vec!["container runtime status check may not have completed yet".to_owned()],
            true => inner.problems.clone(),
        }
    }

    /// What the runtime can do.
    pub fn set_handlers(
        &self,
        handlers: Vec<cri::RuntimeHandler>,
        _: Option<cri::RuntimeFeatures>,
    ) {
        self.lock().handlers = handlers;
    }

    /// What the runtime can do.
    pub fn handlers(&self) -> Vec<cri::RuntimeHandler> {
        self.lock().handlers.clone()
    }

    /// Waits for a change, or so long.
    pub async fn changed_or(&self, wait: Duration) {
        let _ = tokio::time::timeout(wait, self.changed.notified()).await;
    }
}

/// What the status is made of.
pub struct Reading {
    /// Now.
    pub now: Timestamp,
    /// The runtime, as `containerd://1.6.20`.
    pub runtime: String,
    /// The images on this node.
    pub images: Vec<cri::Image>,
    /// What keeps the node from being ready.
    pub problems: Vec<String>,
    /// The conditions of shortage that hold.
    pub pressures: Vec<&'static str>,
    /// What the runtime can do.
    pub handlers: Vec<cri::RuntimeHandler>,
    /// The node's addresses.
    pub addresses: Vec<String>,
    /// The attached volumes that are in use.
    pub in_use: BTreeSet<String>,
}

/// The node as it registers.
pub fn initial(ctx: &Context, reading: &Reading) -> Node {
    let settings = &ctx.settings;
    let mut labels = BTreeMap::new();
    for (key, value) in [
        ("kubernetes.io/hostname", ctx.node()),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", architecture()),
        ("beta.kubernetes.io/os", "linux"),
        ("beta.kubernetes.io/arch", architecture()),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    labels.extend(settings.node_labels.clone());
    let mut annotations = BTreeMap::from([(
        "volumes.kubernetes.io/controller-managed-attach-detach".to_owned(),
        "true".to_owned(),
    )]);
    let mut taints: Vec<Taint> = settings
        .config
        .register_with_taints
        .iter()
        .map(|t| Taint {
            key: t.key.clone(),
            value: Some(t.value.clone()).filter(|v| !v.is_empty()),
            effect: t.effect.clone(),
            time_added: None,
        })
        .collect();
    if settings.external_cloud {
        taints.push(Taint {
            key: "node.cloudprovider.kubernetes.io/uninitialized".to_owned(),
            value: Some("true".to_owned()),
            effect: "NoSchedule".to_owned(),
            time_added: None,
        });
        let ips = settings.node_ips.join(",");
        if !ips.is_empty() {
            annotations.insert("alpha.kubernetes.io/provided-node-ip".to_owned(), ips);
        }
    }
    Node {
        metadata: ObjectMeta {
            name: Some(ctx.node().to_owned()),
            labels: Some(labels),
            annotations: Some(annotations),
            ..ObjectMeta::default()
        },
        spec: Some(NodeSpec {
            provider_id: Some(settings.config.provider_id.clone()).filter(|id| !id.is_empty()),
            taints: Some(taints).filter(|taints| !taints.is_empty()),
            ..NodeSpec::default()
        }),
        status: Some(status(ctx, reading, None)),
    }
}

/// The node's status; times of conditions that did not change are the old ones.
pub fn status(ctx: &Context, reading: &Reading, old: Option<&NodeStatus>) -> NodeStatus {
    let config = &ctx.settings.config;
    let machine = &ctx.machine;
    let provider_sets = ctx.settings.external_cloud && old.is_some_and(|o| o.addresses.is_some());
    let addresses = match provider_sets {
        true => old.and_then(|o| o.addresses.clone()),
        false => Some(addresses(&reading.addresses, ctx.node())),
    };
    NodeStatus {
        addresses,
        capacity: Some(quantities(machine.capacity(config))),
        allocatable: Some(quantities(machine.allocatable(config))),
        conditions: Some(conditions(reading, old)),
        daemon_endpoints: Some(NodeDaemonEndpoints {
            kubelet_endpoint: Some(DaemonEndpoint {
                port: config.port.into(),
            }),
        }),
        images: Some(images(&reading.images, config.node_status_max_images)),
        node_info: Some(NodeSystemInfo {
            architecture: architecture().to_owned(),
            boot_id: machine.boot_id.clone(),
            container_runtime_version: reading.runtime.clone(),
            kernel_version: machine.kernel.clone(),
            kube_proxy_version: String::new(),
            kubelet_version: VERSION.to_owned(),
            machine_id: machine.machine_id.clone(),
            operating_system: "linux".to_owned(),
            os_image: machine.os_image.clone(),
            system_uuid: machine.system_uuid.clone(),
            ..NodeSystemInfo::default()
        }),
        runtime_handlers: handlers(&reading.handlers),
        volumes_in_use: Some(reading.in_use.iter().cloned().collect())
            .filter(|list: &Vec<String>| !list.is_empty()),
        ..NodeStatus::default()
    }
}

fn handlers(handlers: &[cri::RuntimeHandler]) -> Option<Vec<NodeRuntimeHandler>> {
    let list = handlers.iter().map(|h| {
        let features = h.features.clone().unwrap_or_default();
        NodeRuntimeHandler {
            name: Some(h.name.clone()),
            features: Some(NodeRuntimeHandlerFeatures {
                recursive_read_only_mounts: Some(features.recursive_read_only_mounts),
                user_namespaces: Some(features.user_namespaces),
            }),
        }
    });
    Some(list.collect()).filter(|list: &Vec<_>| !list.is_empty())
}

/// Go's name of this processor.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn addresses(ips: &[String], name: &str) -> Vec<NodeAddress> {
    let address = |kind: &str, address: &str| NodeAddress {
        type_: kind.to_owned(),
        address: address.to_owned(),
    };
    let internal = ips.iter().map(|ip| address("InternalIP", ip));
    internal.chain([address("Hostname", name)]).collect()
}

/// Amounts as the API writes them.
pub fn quantities(amounts: BTreeMap<String, i64>) -> BTreeMap<String, Quantity> {
    let text = |name: &str, amount: i64| match name {
        "cpu" if amount % 1000 == 0 => (amount / 1000).to_string(),
        "cpu" => format!("{amount}m"),
        "memory" if amount % 1024 == 0 => format!("{}Ki", amount / 1024),
        _ => amount.to_string(),
    };
    amounts
        .into_iter()
        .map(|(name, amount)| {
            let value = text(&name, amount);
            (name, Quantity(value))
        })
        .collect()
}

fn images(images: &[cri::Image], most: i32) -> Vec<ContainerImage> {
    let mut sorted: Vec<&cri::Image> = images.iter().collect();
    sorted.sort_by_key(|image| std::cmp::Reverse(image.size));
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let name = |image: &&cri::Image| ContainerImage {
        names: Some(
            image
                .repo_digests
                .iter()
                .chain(&image.repo_tags)
                .take(5)
                .cloned()
                .collect(),
        ),
        size_bytes: Some(image.size as i64),
    };
    sorted.iter().take(most).map(name).collect()
}

fn conditions(reading: &Reading, old: Option<&NodeStatus>) -> Vec<NodeCondition> {
    let ready = match reading.problems.as_slice() {
        [] => (
            true,
            "KubeletReady",
            "kubelet is posting ready status".to_owned(),
        ),
        [one] => (false, "KubeletNotReady", one.clone()),
        many => (false, "KubeletNotReady", format!("[{}]", many.join(", "))),
    };
    let pressure = |kind: &'static str, short: (&'static str, &str), well: (&'static str, &str)| {
        let holds = reading.pressures.contains(&kind);
        let (reason, message) = if holds { short } else { well };
        (kind, (holds, reason, message.to_owned()))
    };
    let findings = [
        pressure(
            "MemoryPressure",
            (
                "KubeletHasInsufficientMemory",
                "kubelet has insufficient memory available",
            ),
            (
                "KubeletHasSufficientMemory",
                "kubelet has sufficient memory available",
            ),
        ),
        pressure(
            "DiskPressure",
            ("KubeletHasDiskPressure", "kubelet has disk pressure"),
            ("KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ),
        pressure(
            "PIDPressure",
            (
                "KubeletHasInsufficientPID",
                "kubelet has insufficient PID available",
            ),
            (
                "KubeletHasSufficientPID",
                "kubelet has sufficient PID available",
            ),
        ),
        ("Ready", ready),
    ];
    let old = old
        .and_then(|o| o.conditions.as_deref())
        .unwrap_or_default();
    let now = Time(crate::status::seconds(reading.now));
    let condition = |(kind, (holds, reason, message)): (&str, (bool, &str, String))| {
        let status = if holds { "True" } else { "False" };
        let before = old.iter().find(|c| c.type_ == kind && c.status == status);
        NodeCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(reason.to_owned()),
            message: Some(message),
            last_heartbeat_time: Some(now.clone()),
            last_transition_time: before
                .and_then(|c| c.last_transition_time.clone())
                .or_else(|| Some(now.clone())),
        }
    };
    findings.into_iter().map(condition).collect()
}

/// A status without what changes each time.
pub(super) fn without_heartbeats(status: &NodeStatus) -> Value {
    let mut status = status.clone();
    for condition in status.conditions.iter_mut().flatten() {
        condition.last_heartbeat_time = None;
    }
    serde_json::to_value(status).unwrap_or_default()
}
