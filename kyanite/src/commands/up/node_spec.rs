//! What a node of `kyanite up` is asked to be: its configuration for the node controller, and its machine. Pure.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ipnet::Ipv4Net;
use kube_kit::duration::go;
use machines::{Attachment, Bind, File, Spec};
use node_controller::custom_data::{Form, custom_data};
use node_controller::render::containerd::SHIPPED_TEMPLATE;
use node_controller::render::kubelet::{SERVING_CERTIFICATE, SERVING_KEY};
use serde_json::{Value, json};

use crate::exit::{Code, Failure, Result};
use crate::pki::Pki;
use crate::pools::{Machine, Pool, Pools};

/// A name that the API server's certificate has, for machines that know no name server.
pub(super) const API_SERVER: &str = "kubernetes.default.svc";
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

/// The image that a node runs.
const IMAGE_LABEL: &str = "kubernetes.azure.com/node-image-version";

/// How often a kubelet renews its lease if nobody says anything.
const USUAL_BETWEEN_SIGNS: Duration = Duration::from_secs(10);

/// What the nodes of a cluster have in common.
pub(super) struct Cluster {
    pub(super) kubernetes_version: String,
    /// Knows the cluster's authority, and signs what kubelets serve with.
    pub(super) pki: Pki,
    pub(super) gateway: Ipv4Addr,
    pub(super) network: &'static str,
    pub(super) cluster_dns: IpAddr,
    /// Where pods' addresses come from.
    pub(super) cluster_cidr: Ipv4Net,
    /// How long a node may be silent before it counts as lost.
    pub(super) grace_period: Duration,
    /// Where it says which cloud this cluster is in, once it is in one.
    pub(super) azure_json: Option<PathBuf>,
}

/// What machines join with that boot together.
pub(super) struct Welcome {
    pub(super) token: String,
    /// Whom they trust: the cluster's authority, which may be another one by then.
    pub(super) authority: Vec<u8>,
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
    /// kubectl and helm, where this host has them: for commands that AKS runs in a cluster.
    pub(super) tools: Vec<PathBuf>,
}

impl Cluster {
    /// Whether somebody tells new nodes who their machines are.
    fn is_in_a_cloud(&self) -> bool {
        self.azure_json.as_deref().is_some_and(Path::exists)
    }

    pub(super) fn labels(pools: &Pools, pool: &Pool, machine: &Machine) -> Value {
        let mut labels = json!({
            "agentpool": pool.name,
            "kubernetes.azure.com/agentpool": pool.name,
            "kubernetes.azure.com/mode": pool.mode,
            "kubernetes.azure.com/cluster": pools.group,
            "kubernetes.azure.com/nodepool-type": "VirtualMachineScaleSets",
            "kubernetes.azure.com/os-sku": "Ubuntu",
            "kubernetes.azure.com/role": "agent",
            "node.kubernetes.io/instance-type": pool.vm_size,
            "topology.kubernetes.io/region": pools.location,
        });
        if let Some(made) = &machine.made {
            labels[IMAGE_LABEL] = json!(made.image);
        }
        for (label, value) in &pool.labels {
            labels[label] = json!(value);
        }
        let zone = match pool.zone(machine.number) {
            Some(zone) => format!("{}-{zone}", pools.location),
            // What Azure says of a machine in no zone.
            None => "0".to_owned(),
        };
        labels["topology.kubernetes.io/zone"] = zone.into();
        labels
    }

    fn configuration(
        &self,
        pools: &Pools,
        (pool, machine): (&Pool, &Machine),
        welcome: &Welcome,
    ) -> Value {
        let mut configuration = json!({
            "version": "v1",
            "is_vhd": false,
            "kubernetes_version": self.kubernetes_version,
            "kubernetes_ca_cert": STANDARD.encode(&welcome.authority),
            // The cloud that nodes of AKS know; nothing of it is asked here yet.
            "auth_config": {"subscription_id": "00000000-0000-0000-0000-000000000000"},
            "cluster_config": {
                "resource_group": pools.group,
                "location": pools.location,
                "cluster_network_config": {"vnet_name": self.network, "route_table": self.network},
            },
            "api_server_config": {"api_server_name": API_SERVER},
            "bootstrapping_config": {
                "bootstrapping_auth_method": "BOOTSTRAPPING_AUTH_METHOD_BOOTSTRAP_TOKEN",
                "tls_bootstrapping_token": welcome.token,
            },
            "kube_binary_config": {"pod_infra_container_image_url": PAUSE_IMAGE},
            "network_config": {"network_plugin": "NETWORK_PLUGIN_AZURE"},
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
                    "--max-pods": pool.max_pods.to_string(),
                    "--rotate-certificates": "true",
                    "--tls-cert-file": SERVING_CERTIFICATE,
                    "--tls-private-key-file": SERVING_KEY,
                },
                "kubelet_node_labels": Self::labels(pools, pool, machine),
            },
        });
        let flags = &mut configuration["kubelet_config"]["kubelet_flags"];
        // Several signs of life must fit into the time after which a node counts as lost.
        let between_signs = self.grace_period / 5;
        if between_signs < USUAL_BETWEEN_SIGNS {
            flags["--node-status-update-frequency"] = go::print(between_signs).into();
        }
        if self.is_in_a_cloud() {
            flags["--cloud-provider"] = "external".into();
        }
        if !pool.taints.is_empty() {
            flags["--register-with-taints"] = pool.taints.join(",").into();
        }
        configuration
    }

    /// The machine of a node.
    pub(super) fn machine(
        &self,
        pools: &Pools,
        (pool, machine): (&Pool, &Machine),
        welcome: &Welcome,
        programs: &Programs,
    ) -> Result<Spec> {
        let (name, address) = (pool.node_name(machine.number), machine.address);
        let configuration = self.configuration(pools, (pool, machine), welcome);
        let configuration = configuration.to_string();
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
            files: self.files(&name, address)?,
            binds: programs.binds(&self.kubernetes_version),
            units: ["aks-node-controller.service", "kyanite-images.service"]
                .map(str::to_owned)
                .to_vec(),
            name,
            ..Spec::default()
        })
    }

    fn files(&self, name: &str, address: Ipv4Addr) -> Result<Vec<File>> {
        let (certificate, key) = self.pki.kubelet(name, address.into())?;
        let hosts = format!(
            "127.0.0.1 localhost\n{address} {name}\n{} {API_SERVER}\n",
            self.gateway
        );
        let unit = |path: &str, text: &str| File::new(format!("/etc/systemd/system/{path}"), text);
        // Only pods see pods' own addresses: what else they reach knows no way back to them.
        let network = cni::template::Network {
            inside: vec![self.cluster_cidr.into()],
            ..cni::template::Network::default()
        };
        Ok(vec![
            File::new("/etc/hosts", hosts),
            File::new(SERVING_CERTIFICATE, certificate),
            File {
                mode: 0o600,
                ..File::new(SERVING_KEY, key)
            },
            File::new(SHIPPED_TEMPLATE, network.template()),
            unit("aks-node-controller.service", NODE_CONTROLLER_UNIT),
            unit("containerd.service.d/10-pause.conf", IMPORT_PAUSE),
            unit("kyanite-images.service", IMAGES_UNIT),
        ])
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
        let name = |tool: &Path| {
            tool.file_name()
                .map(|name| name.to_string_lossy().into_owned())
        };
        let tools = self
            .tools
            .iter()
            .filter_map(|tool| Some((tool, name(tool)?)));
        binds.extend(tools.map(|(tool, name)| bind(tool, format!("/usr/local/bin/{name}"))));
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
    use crate::pools::tests::pool;

    fn cluster() -> Cluster {
        Cluster {
            kubernetes_version: "1.36.0".into(),
            pki: Pki::at("/nowhere".into(), std::time::SystemTime::UNIX_EPOCH),
            gateway: Ipv4Addr::new(10, 224, 0, 1),
            network: "cluster",
            cluster_dns: IpAddr::from([10, 0, 0, 10]),
            cluster_cidr: "10.244.0.0/16".parse().unwrap(),
            grace_period: Duration::from_secs(50),
            azure_json: None,
        }
    }

    fn welcome() -> Welcome {
        Welcome {
            token: "abcdef.0123456789abcdef".into(),
            authority: b"-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n".into(),
        }
    }

    fn pools() -> Pools {
        Pools::simple("local", "MC_a_a_local".into(), pool(), 2)
    }

    fn member(pools: &Pools, number: usize) -> (&Pool, &Machine) {
        (&pools.pools[0], &pools.pools[0].machines[number])
    }

    #[test]
    fn nodes_say_their_zone_and_what_their_pool_adds() {
        let mut pools = pools();
        pools.grow(3);
        pools.pools[0].labels.insert("team".into(), "blue".into());
        let labels = |number| {
            let (pool, machine) = member(&pools, number);
            Cluster::labels(&pools, pool, machine)
        };
        let zones: Vec<_> = (0..3)
            .map(|n| labels(n)["topology.kubernetes.io/zone"].clone())
            .collect();
        assert_eq!(zones, ["local-1", "local-2", "local-1"]);
        assert_eq!(labels(0)["team"], "blue");
        let mut nowhere = pools.clone();
        nowhere.pools[0].zones.clear();
        let (pool, machine) = member(&nowhere, 0);
        let labels = Cluster::labels(&nowhere, pool, machine);
        assert_eq!(labels["topology.kubernetes.io/zone"], "0");
    }

    #[test]
    fn nodes_show_that_they_live_often_enough_not_to_be_given_up() {
        let pools = pools();
        let flag = |grace| {
            let grace_period = Duration::from_secs(grace);
            let cluster = Cluster {
                grace_period,
                ..cluster()
            };
            let all = cluster.configuration(&pools, member(&pools, 0), &welcome());
            all["kubelet_config"]["kubelet_flags"]["--node-status-update-frequency"].clone()
        };
        assert_eq!(flag(50), Value::Null);
        assert_eq!(flag(10), "2s");
    }

    #[test]
    fn the_node_controller_finds_nothing_wrong_with_the_configuration() {
        let mut pools = pools();
        pools.pools[0].taints.push("a=b:NoSchedule".into());
        let text = cluster()
            .configuration(&pools, member(&pools, 1), &welcome())
            .to_string();
        let read = node_controller::config::read(text.as_bytes()).unwrap();
        assert!(read.notices.is_empty(), "{:?}", read.notices);
        let broken = node_controller::validate::broken_rules(&read.configuration);
        assert!(broken.is_empty(), "{broken:?}");
    }
}
