//! What a node of `kyanite up` is asked to be: its configuration for the node controller, and its machine. Pure.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnet::Ipv4Net;
use machines::{Attachment, Bind, File, Spec};
use node_controller::custom_data::{Form, custom_data};
use serde_json::{Value, json};

use crate::exit::{Code, Failure, Result};

/// A name that the API server's certificate has, for machines that know no name server.
pub(super) const API_SERVER: &str = "kubernetes.default.svc";
/// The pool of `az aks create`'s first nodes.
const POOL: &str = "nodepool1";
/// Where a machine finds the images that nobody needs to pull.
const IMAGES: &str = "/opt/kyanite/images";
/// The image of every pod's sandbox.
pub(super) const PAUSE_IMAGE: &str = "mcr.microsoft.com/oss/v2/kubernetes/pause:3.10";

// As node images bring it: it waits for cloud-init, and for a configuration.
const NODE_CONTROLLER_UNIT: &str = "[Unit]
Description=AKS node controller
ConditionPathExists=/opt/azure/containers/aks-node-controller-config.json
After=cloud-init.target network-online.target
Wants=network-online.target
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/opt/azure/containers/aks-node-controller provision --provision-config=/opt/azure/containers/aks-node-controller-config.json
";

// Without it no sandbox starts, so containerd is not ready before it is there.
const IMPORT_PAUSE: &str = "[Service]
ExecStartPost=/usr/bin/ctr --namespace k8s.io images import /opt/kyanite/images/pause.tar
";

// What else a node image would have baked in; pods that need it meanwhile try again.
const IMAGES_UNIT: &str = "[Unit]
Description=Images of Kyanite's own programs
After=containerd.service aks-node-controller.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/sh -c 'for image in /opt/kyanite/images/*.tar; do /usr/bin/ctr --namespace k8s.io images import \"$image\"; done'
";

// A service of the node: what reaches Services must be there before pods are.
const PROXY_UNIT: &str = "[Unit]
Description=Kubernetes service proxy
After=network-online.target aks-node-controller.service
[Service]
ExecStart=/usr/local/bin/kyanite kube-proxy --kubeconfig=/etc/kubernetes/kube-proxy.conf --hostname-override=%H --cluster-cidr=CLUSTER_CIDR
Restart=always
RestartSec=1
";

/// What the nodes of a cluster have in common.
pub(super) struct Cluster {
    /// Tells its nodes from those of other clusters on this host: eight digits, as AKS has them.
    pub(super) id: String,
    pub(super) kubernetes_version: String,
    pub(super) ca: Vec<u8>,
    pub(super) gateway: Ipv4Addr,
    pub(super) network: &'static str,
    pub(super) cluster_dns: Ipv4Addr,
    /// Where pods' addresses come from.
    pub(super) cluster_cidr: Ipv4Net,
    /// How the service proxy reaches the API server.
    pub(super) proxy_kubeconfig: String,
    pub(super) location: String,
    pub(super) vm_size: String,
    pub(super) zones: Vec<String>,
}

/// Programs of this host that its nodes run.
pub(super) struct Programs {
    pub(super) kyanite: PathBuf,
    /// The plugin of the pod network.
    pub(super) cni: PathBuf,
    /// containerd and runc, where they are not installed on this host.
    pub(super) containerd: Option<PathBuf>,
    /// A directory of archives.
    pub(super) images: PathBuf,
}

impl Cluster {
    /// The name of the node with this number, as a scale set counts.
    pub(super) fn node_name(&self, number: usize) -> String {
        format!("aks-{POOL}-{}-vmss{number:06}", self.id)
    }

    /// The zone of the node with this number.
    pub(super) fn zone(&self, number: usize) -> Option<&str> {
        let zones = &self.zones;
        (!zones.is_empty()).then(|| zones[number % zones.len()].as_str())
    }

    fn labels(&self, number: usize) -> Value {
        let mut labels = json!({
            "agentpool": POOL,
            "kubernetes.azure.com/agentpool": POOL,
            "kubernetes.azure.com/mode": "system",
            "kubernetes.azure.com/cluster": format!("MC_kyanite_kyanite_{}", self.location),
            "node.kubernetes.io/instance-type": self.vm_size,
            "topology.kubernetes.io/region": self.location,
        });
        let zone = match self.zone(number) {
            Some(zone) => format!("{}-{zone}", self.location),
            // What Azure says of a machine in no zone.
            None => "0".to_owned(),
        };
        labels["topology.kubernetes.io/zone"] = zone.into();
        labels
    }

    fn configuration(&self, number: usize, token: &str) -> Value {
        json!({
            "version": "v1",
            "is_vhd": false,
            "kubernetes_version": self.kubernetes_version,
            "kubernetes_ca_cert": STANDARD.encode(&self.ca),
            // The cloud that nodes of AKS know; nothing of it is asked here yet.
            "auth_config": {"subscription_id": "00000000-0000-0000-0000-000000000000"},
            "cluster_config": {
                "resource_group": format!("MC_kyanite_kyanite_{}", self.location),
                "location": self.location,
                "cluster_network_config": {"vnet_name": self.network, "route_table": self.network},
            },
            "api_server_config": {"api_server_name": API_SERVER},
            "bootstrapping_config": {
                "bootstrapping_auth_method": "BOOTSTRAPPING_AUTH_METHOD_BOOTSTRAP_TOKEN",
                "tls_bootstrapping_token": token,
            },
            "kube_binary_config": {"pod_infra_container_image_url": PAUSE_IMAGE},
            "network_config": {"network_plugin": "NETWORK_PLUGIN_KUBENET"},
            "kubelet_config": {
                "kubelet_flags": {
                    "--anonymous-auth": "false",
                    "--authentication-token-webhook": "true",
                    "--authorization-mode": "Webhook",
                    "--cgroup-driver": "cgroupfs",
                    "--client-ca-file": "/etc/kubernetes/certs/ca.crt",
                    "--cluster-dns": self.cluster_dns.to_string(),
                    "--cluster-domain": "cluster.local",
                    // All nodes share this host's disk, and other people's files are no reason to evict pods.
                    "--eviction-hard": "memory.available<100Mi,nodefs.available<1%,nodefs.inodesFree<1%,imagefs.available<1%",
                    "--image-gc-high-threshold": "99",
                    "--image-gc-low-threshold": "98",
                    "--fail-swap-on": "false",
                    "--max-pods": "110",
                    "--rotate-certificates": "true",
                },
                "kubelet_node_labels": self.labels(number),
            },
        })
    }

    /// The machine of a node.
    pub(super) fn machine(
        &self,
        number: usize,
        address: Ipv4Addr,
        token: &str,
        programs: &Programs,
    ) -> Result<Spec> {
        let name = self.node_name(number);
        let configuration = self.configuration(number, token).to_string();
        let configuration =
            node_controller::config::read(configuration.as_bytes()).map_err(|e| {
                Failure::new(Code::Failure, format!("the configuration of {name}: {e}"))
            })?;
        let custom_data = custom_data(&configuration.configuration, Form::WriteFiles)
            .map_err(|e| Failure::new(Code::Failure, format!("{name}: {e}")))?;
        Ok(Spec {
            attachment: Some(Attachment {
                network: self.network.to_owned(),
                address,
                name_servers: Vec::new(),
            }),
            custom_data: custom_data.into_bytes(),
            files: self.files(&name, address),
            binds: programs.binds(&self.kubernetes_version),
            units: [
                "aks-node-controller.service",
                "kyanite-images.service",
                "kube-proxy.service",
            ]
            .map(str::to_owned)
            .to_vec(),
            name,
        })
    }

    fn files(&self, name: &str, address: Ipv4Addr) -> Vec<File> {
        let hosts = format!(
            "127.0.0.1 localhost\n{address} {name}\n{} {API_SERVER}\n",
            self.gateway
        );
        let unit = |path: &str, text: &str| File::new(format!("/etc/systemd/system/{path}"), text);
        let proxy = PROXY_UNIT.replace("CLUSTER_CIDR", &self.cluster_cidr.to_string());
        vec![
            File::new("/etc/hosts", hosts),
            File {
                mode: 0o600,
                ..File::new("/etc/kubernetes/kube-proxy.conf", &*self.proxy_kubeconfig)
            },
            unit("kube-proxy.service", &proxy),
            unit("aks-node-controller.service", NODE_CONTROLLER_UNIT),
            unit("containerd.service.d/10-pause.conf", IMPORT_PAUSE),
            unit("kyanite-images.service", IMAGES_UNIT),
        ]
    }
}

impl Programs {
    // Where node images have them. Our program is the node controller, the kubelet and what add-ons run.
    fn binds(&self, version: &str) -> Vec<Bind> {
        let bind = |source: &Path, target: String| Bind {
            source: source.to_owned(),
            target: target.into(),
        };
        let mut binds = vec![
            bind(
                &self.kyanite,
                "/opt/azure/containers/aks-node-controller".to_owned(),
            ),
            bind(&self.kyanite, format!("/opt/bin/kubelet-{version}")),
            bind(&self.kyanite, "/usr/local/bin/kyanite".to_owned()),
            bind(&self.images, IMAGES.to_owned()),
        ];
        let plugins = ["bridge", "host-local", "loopback", "portmap", "kyanite-cni"];
        binds.extend(plugins.map(|name| bind(&self.cni, format!("/opt/cni/bin/{name}"))));
        if let Some(directory) = &self.containerd {
            let programs = ["containerd", "containerd-shim-runc-v2", "ctr"];
            binds.extend(
                programs.map(|name| bind(&directory.join(name), format!("/usr/bin/{name}"))),
            );
            binds.push(bind(&directory.join("runc"), "/usr/sbin/runc".to_owned()));
        }
        binds
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn cluster() -> Cluster {
        Cluster {
            id: "12345678".into(),
            kubernetes_version: "1.36.0".into(),
            ca: b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".into(),
            gateway: Ipv4Addr::new(10, 224, 0, 1),
            network: "cluster",
            cluster_dns: Ipv4Addr::new(10, 0, 0, 10),
            cluster_cidr: "10.244.0.0/16".parse().unwrap(),
            proxy_kubeconfig: String::new(),
            location: "local".into(),
            vm_size: "Standard_D2s_v5".into(),
            zones: vec!["1".into(), "2".into()],
        }
    }

    #[test]
    fn nodes_are_spread_over_the_zones() {
        let cluster = cluster();
        let zones: Vec<_> = (0..3)
            .map(|n| cluster.labels(n)["topology.kubernetes.io/zone"].clone())
            .collect();
        assert_eq!(zones, ["local-1", "local-2", "local-1"]);
        let nowhere = Cluster {
            zones: Vec::new(),
            ..cluster
        };
        assert_eq!(nowhere.labels(0)["topology.kubernetes.io/zone"], "0");
    }

    #[test]
    fn the_node_controller_finds_nothing_wrong_with_the_configuration() {
        let text = cluster()
            .configuration(1, "abcdef.0123456789abcdef")
            .to_string();
        let read = node_controller::config::read(text.as_bytes()).unwrap();
        assert!(read.notices.is_empty(), "{:?}", read.notices);
        let broken = node_controller::validate::broken_rules(&read.configuration);
        assert!(broken.is_empty(), "{broken:?}");
    }
}
