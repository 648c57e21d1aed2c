//! What a sandbox is made of.

use k8s_openapi::api::core::v1::Pod;

use super::security;
use crate::cri::{
    DnsConfig, LinuxContainerResources, LinuxPodSandboxConfig, PodSandboxConfig,
    PodSandboxMetadata, PortMapping, Protocol, StringMap,
};
use crate::{resources, seen, spec};

/// What the caller has worked out.
pub struct Given {
    /// The pod's host name; none with the host's network.
    pub hostname: String,
    /// Its resolver.
    pub dns: DnsConfig,
    /// Where its containers write their output.
    pub log_directory: String,
    /// Its cgroup as the runtime wants to hear it.
    pub cgroup_parent: String,
    /// How many sandboxes there were before.
    pub attempt: u32,
}

/// The configuration of a sandbox.
pub fn config(pod: &Pod, given: Given) -> PodSandboxConfig {
    let host = spec::host_network(pod);
    PodSandboxConfig {
        metadata: Some(PodSandboxMetadata {
            name: spec::name(pod).to_owned(),
            namespace: spec::namespace(pod).to_owned(),
            uid: spec::uid(pod).to_owned(),
            attempt: given.attempt,
        }),
        hostname: if host { String::new() } else { given.hostname },
        log_directory: given.log_directory,
        dns_config: Some(given.dns),
        port_mappings: if host { Vec::new() } else { port_mappings(pod) },
        labels: labels(pod),
        annotations: pod.metadata.annotations.clone().unwrap_or_default(),
        linux: Some(LinuxPodSandboxConfig {
            cgroup_parent: given.cgroup_parent,
            security_context: Some(security::sandbox(pod)),
            sysctls: sysctls(pod),
            overhead: None,
            resources: Some(whole(pod)),
        }),
    }
}

fn labels(pod: &Pod) -> StringMap {
    let mut labels = pod.metadata.labels.clone().unwrap_or_default();
    for (key, value) in [
        (seen::POD_NAME, spec::name(pod)),
        (seen::POD_NAMESPACE, spec::namespace(pod)),
        (seen::POD_UID, spec::uid(pod)),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    labels
}

fn port_mappings(pod: &Pod) -> Vec<PortMapping> {
    let ports = spec::containers(pod).flat_map(|(_, c)| c.ports.iter().flatten());
    let mapped = ports.filter(|port| port.host_port.is_some_and(|p| p > 0));
    mapped
        .map(|port| PortMapping {
            protocol: match port.protocol.as_deref() {
                Some("UDP") => Protocol::Udp as i32,
                Some("SCTP") => Protocol::Sctp as i32,
                _ => Protocol::Tcp as i32,
            },
            container_port: port.container_port,
            host_port: port.host_port.unwrap_or(0),
            host_ip: port.host_ip.clone().unwrap_or_default(),
        })
        .collect()
}

/// Slashes in names are accepted and mean dots.
fn sysctls(pod: &Pod) -> StringMap {
    let context = spec::spec(pod).security_context.as_ref();
    let listed = context
        .and_then(|c| c.sysctls.as_deref())
        .unwrap_or_default();
    listed
        .iter()
        .map(|s| (s.name.replace('/', "."), s.value.clone()))
        .collect()
}

fn whole(pod: &Pod) -> LinuxContainerResources {
    LinuxContainerResources {
        cpu_shares: resources::shares(resources::pod_request(pod, "cpu")),
        cpu_period: resources::PERIOD,
        cpu_quota: resources::pod_limit(pod, "cpu").map_or(0, resources::quota),
        memory_limit_in_bytes: resources::pod_limit(pod, "memory").unwrap_or(0),
        ..LinuxContainerResources::default()
    }
}
