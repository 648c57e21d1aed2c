//! What a hollow node says of itself: its object, its conditions, its lease.

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, OwnerReference, Time};
use serde_json::{Value, json};
use std::net::Ipv4Addr;

use crate::Config;

/// Set to `true` on a node, it makes the node fall silent: no lease, no status, no pods.
const SILENT: &str = "hollow.kyanite.dev/silent";
const SUBSCRIPTION: &str = "00000000-0000-0000-0000-000000000000";
/// The first address of nodes, beside the subnet of those that are real.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([10, 225, 0, 4]);
/// What the kubelet says of itself, and why.
const CONDITIONS: [(&str, &str, &str, &str); 4] = [
    (
        "MemoryPressure",
        "False",
        "KubeletHasSufficientMemory",
        "kubelet has sufficient memory available",
    ),
    (
        "DiskPressure",
        "False",
        "KubeletHasNoDiskPressure",
        "kubelet has no disk pressure",
    ),
    (
        "PIDPressure",
        "False",
        "KubeletHasSufficientPID",
        "kubelet has sufficient PID available",
    ),
    (
        "Ready",
        "True",
        "KubeletReady",
        "kubelet is posting ready status",
    ),
];

/// The name of a node by its number.
pub(crate) fn name(number: usize) -> String {
    format!("hollow-{number}")
}

/// The number of a node by its name; none for others than ours.
pub(crate) fn number(name: &str, count: usize) -> Option<usize> {
    let number: usize = name.strip_prefix("hollow-")?.parse().ok()?;
    (number < count && name == self::name(number)).then_some(number)
}

/// Where a node would be reached.
pub(crate) fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::from(FIRST_ADDRESS.wrapping_add(u32::try_from(number).unwrap_or(u32::MAX)))
}

/// What is kept of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Known {
    pub(crate) uid: String,
    pub(crate) is_silent: bool,
    pub(crate) is_ready: bool,
    /// Addresses for its pods.
    pub(crate) ranges: Vec<String>,
}

impl Known {
    pub(crate) fn of(node: Node) -> Known {
        let annotations = node.metadata.annotations.unwrap_or_default();
        let conditions = node.status.and_then(|status| status.conditions);
        let mut conditions = conditions.into_iter().flatten();
        Known {
            uid: node.metadata.uid.unwrap_or_default(),
            is_silent: annotations.get(SILENT).is_some_and(|value| value == "true"),
            is_ready: conditions.any(|c| c.type_ == "Ready" && c.status == "True"),
            ranges: node
                .spec
                .and_then(|spec| spec.pod_cidrs)
                .unwrap_or_default(),
        }
    }
}

/// A node as it registers.
pub(crate) fn object(number: usize, config: &Config, now: Timestamp) -> Value {
    let name = name(number);
    json!({ "apiVersion": "v1", "kind": "Node",
        "metadata": { "name": name, "labels": labels(&name, number, config) },
        "spec": { "providerID": provider_id(number, &config.region) },
        "status": status(&name, number, now) })
}

fn labels(name: &str, number: usize, config: &Config) -> Value {
    let (arch, region) = ("amd64", &config.region);
    // Zone 0 is AKS' word for a region without zones.
    let zone = match config.zones.as_slice() {
        [] => "0".to_owned(),
        zones => format!("{region}-{}", zones[number % zones.len()]),
    };
    json!({
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux", "beta.kubernetes.io/os": "linux",
        "kubernetes.io/arch": arch, "beta.kubernetes.io/arch": arch,
        "node.kubernetes.io/instance-type": "Standard_D4s_v5",
        "beta.kubernetes.io/instance-type": "Standard_D4s_v5",
        "topology.kubernetes.io/region": region, "topology.kubernetes.io/zone": zone,
        "failure-domain.beta.kubernetes.io/region": region,
        "failure-domain.beta.kubernetes.io/zone": zone,
        "kubernetes.azure.com/agentpool": "hollow", "agentpool": "hollow",
        "kubernetes.azure.com/mode": "user", "kubernetes.azure.com/role": "agent",
        // No cloud has a machine for it: upstream's word to cloud controllers to leave a node alone.
        "kubernetes.azure.com/managed": "false",
        "hollow.kyanite.dev/node": "true",
    })
}

fn provider_id(number: usize, region: &str) -> String {
    format!(
        "azure:///subscriptions/{SUBSCRIPTION}/resourceGroups/mc_kyanite_kyanite_{region}/providers/\
         Microsoft.Compute/virtualMachineScaleSets/aks-hollow-vmss/virtualMachines/{number}"
    )
}

fn status(name: &str, number: usize, now: Timestamp) -> Value {
    let id = format!("{:032x}", number + 1);
    json!({
        "addresses": [
            { "type": "InternalIP", "address": address(number) },
            { "type": "Hostname", "address": name },
        ],
        "capacity": { "cpu": "4", "memory": "16Gi", "ephemeral-storage": "128Gi", "pods": "110" },
        "allocatable": { "cpu": "3860m", "memory": "13Gi", "ephemeral-storage": "117Gi", "pods": "110" },
        "conditions": conditions(now),
        "daemonEndpoints": { "kubeletEndpoint": { "Port": 10250 } },
        "nodeInfo": { "architecture": "amd64", "operatingSystem": "linux", "kernelVersion": "hollow",
            "osImage": "hollow", "containerRuntimeVersion": "hollow://1", "kubeletVersion": "v1.36.0",
            "kubeProxyVersion": "", "machineID": id, "systemUUID": id, "bootID": id },
    })
}

/// What a node that is well says of itself.
pub(crate) fn conditions(now: Timestamp) -> Vec<Value> {
    let now = Time(now);
    let condition = |(kind, status, reason, message): &(&str, &str, &str, &str)| {
        json!({ "type": kind, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": now, "lastTransitionTime": now })
    };
    CONDITIONS.iter().map(condition).collect()
}

/// As [`conditions`], for a node that has said the same before.
pub(crate) fn heartbeat(now: Timestamp) -> Vec<Value> {
    let now = Time(now);
    let beat =
        |(kind, ..): &(&str, &str, &str, &str)| json!({ "type": kind, "lastHeartbeatTime": now });
    CONDITIONS.iter().map(beat).collect()
}

/// A node's lease.
pub(crate) fn lease(name: &str, uid: &str, now: Timestamp) -> Lease {
    let mut lease = Lease::default();
    lease.metadata.name = Some(name.to_owned());
    lease.metadata.namespace = Some("kube-node-lease".into());
    lease.metadata.owner_references = Some(vec![OwnerReference {
        api_version: "v1".into(),
        kind: "Node".into(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        ..OwnerReference::default()
    }]);
    lease.spec = Some(LeaseSpec {
        holder_identity: Some(name.to_owned()),
        lease_duration_seconds: Some(40),
        renew_time: Some(MicroTime(now)),
        ..LeaseSpec::default()
    });
    lease
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_numbers_and_back() {
        for count in [0, 1, 12] {
            let ours = (0..20).filter(|n| number(&name(*n), count) == Some(*n));
            assert_eq!(ours.count(), count);
        }
        for other in ["aks-nodepool1", "hollow-", "hollow-007", "hollow-x"] {
            assert_eq!(number(other, 100), None, "{other}");
        }
    }

    #[test]
    fn nodes_are_spread_over_zones_and_addresses() {
        let config = Config {
            connection: client_runtime::Connection::Kubeconfig("unused".into()),
            count: 300,
            region: "local".into(),
            zones: ["1", "2", "3"].map(str::to_owned).into(),
            has_pod_ranges: true,
        };
        let node = |number| object(number, &config, Timestamp::UNIX_EPOCH);
        let zone = |number: usize| {
            node(number)["metadata"]["labels"]["topology.kubernetes.io/zone"].clone()
        };
        assert_eq!(
            [zone(0), zone(1), zone(2), zone(3)],
            ["local-1", "local-2", "local-3", "local-1"]
        );
        assert_eq!(node(252)["status"]["addresses"][0]["address"], "10.225.1.0");
        let id = node(7)["spec"]["providerID"].clone();
        let id = id.as_str().unwrap_or_default();
        assert!(id.starts_with("azure:///subscriptions/") && id.ends_with("/virtualMachines/7"));
    }
}
