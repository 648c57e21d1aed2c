//! The kubelet's unit, its configuration file, and the few flags that have no field in it.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::config::{Node, rules};
use crate::machine::{MARK, Machine};
use crate::paths;

/// Without it the cloud controller deletes a node that is NotReady and no virtual machine of Azure's.
const MANAGED: (&str, &str) = ("kubernetes.azure.com/managed", "false");

/// How the kubelet gets its credentials.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Credential {
    /// It asks for a certificate with a bootstrap token, and renews it.
    Certificate,
    /// It runs a program for a token.
    Exec,
}

/// The labels it registers with, sorted.
pub fn labels(node: &Node) -> String {
    let mut labels: BTreeMap<&str, &str> = (node.labels.iter())
        .map(|(k, v)| (k.as_str(), v.as_str()))
        .collect();
    labels.insert(MANAGED.0, MANAGED.1);
    let pairs: Vec<String> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
    pairs.join(",")
}

/// `/etc/default/kubelet`.
pub fn defaults(node: &Node, name: &str) -> String {
    let mut flags = format!("--hostname-override={name} --v={}", node.verbosity);
    if !node.node_ip.is_empty() {
        flags += &format!(" --node-ip={}", node.node_ip);
    }
    format!(
        "KUBELET_NODE_LABELS=\"{}\"\nKUBELET_CONFIG_FILE_FLAGS=\"--config={}\"\nKUBELET_FLAGS=\"{flags}\"\n",
        labels(node),
        paths::KUBELET_CONFIG,
    )
}

/// Drop-ins of the unit, by name.
pub fn drop_ins(credential: Credential) -> [(&'static str, String); 2] {
    let bootstrap = match credential {
        Credential::Certificate => {
            format!(" --bootstrap-kubeconfig={}", paths::BOOTSTRAP_KUBECONFIG)
        }
        Credential::Exec => String::new(),
    };
    let environment =
        |name: &str, value: String| format!("{MARK}\n[Service]\nEnvironment=\"{name}={value}\"\n");
    [
        (
            "10-containerd.conf",
            environment(
                "KUBELET_CONTAINERD_FLAGS",
                format!(
                    "--container-runtime-endpoint=unix://{}",
                    paths::CONTAINERD_SOCKET
                ),
            ),
        ),
        (
            "10-tlsbootstrap.conf",
            environment(
                "KUBELET_TLS_BOOTSTRAP_FLAGS",
                format!("--kubeconfig={}{bootstrap}", paths::KUBECONFIG),
            ),
        ),
    ]
}

/// The unit.
pub fn unit() -> String {
    format!(
        "{MARK}\n\
         [Unit]\nDescription=Kubelet\nConditionPathExists={kubelet}\n\
         Wants=network-online.target containerd.service\nAfter=network-online.target containerd.service\n\n\
         [Service]\nRestart=always\nRestartSec=2\nSuccessExitStatus=143\nEnvironmentFile={defaults}\n\
         ExecStartPre=/bin/sh -c 'until [ -S {socket} ]; do sleep 0.1; done'\n\
         ExecStart={kubelet} --node-labels=${{KUBELET_NODE_LABELS}} $KUBELET_TLS_BOOTSTRAP_FLAGS \
         $KUBELET_CONFIG_FILE_FLAGS $KUBELET_CONTAINERD_FLAGS $KUBELET_FLAGS\n\n\
         [Install]\nWantedBy=multi-user.target\n",
        kubelet = paths::KUBELET,
        defaults = paths::KUBELET_DEFAULTS,
        socket = paths::CONTAINERD_SOCKET,
    )
}

/// `KubeletConfiguration`: flags come and go with kubelets, fields stay.
pub fn configuration(node: &Node, machine: &Machine, credential: Credential) -> String {
    let mut config = json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": paths::CLUSTER_CA},
        },
        "authorization": {"mode": "Webhook"},
        "cgroupDriver": if machine.unified_cgroups { "systemd" } else { "cgroupfs" },
        "clusterDNS": node.dns.split(',').map(str::trim).collect::<Vec<_>>(),
        "clusterDomain": "cluster.local",
        "eventRecordQPS": 0,
        "imageGCHighThresholdPercent": node.image_gc_high,
        "imageGCLowThresholdPercent": node.image_gc_low,
        "maxPods": node.max_pods,
        "nodeStatusUpdateFrequency": "10s",
        "podPidsLimit": -1,
        // Those of a container are its host's, and not ours to insist on.
        "protectKernelDefaults": !machine.is_container,
        "failSwapOn": !machine.is_container,
        "readOnlyPort": 0,
        "rotateCertificates": credential == Credential::Certificate,
        "runtimeRequestTimeout": "15m",
        // It signs for nodes only, by their certificates.
        "serverTLSBootstrap": node.signed_serving && credential == Credential::Certificate,
        "streamingConnectionIdleTimeout": "4h",
        "staticPodPath": "/etc/kubernetes/manifests",
        "volumePluginDir": "/etc/kubernetes/volumeplugins",
    });
    if node.signed_serving && credential == Credential::Exec {
        config["tlsCertFile"] = json!(paths::SERVING_CERTIFICATE);
        config["tlsPrivateKeyFile"] = json!(paths::SERVING_KEY);
    }
    // From 1.35 on upstream's refuses version 1 unless told otherwise; preflight has warned.
    if !machine.unified_cgroups {
        config["failCgroupV1"] = json!(false);
    }
    if machine.has_resolved {
        config["resolvConf"] = json!("/run/systemd/resolve/resolv.conf");
    }
    for (field, values) in [
        ("kubeReserved", &node.kube_reserved),
        ("evictionHard", &node.eviction_hard),
    ] {
        if !values.is_empty() {
            config[field] = json!(values);
        }
    }
    let taints: Vec<Value> = (node.taints.iter())
        .filter_map(|taint| rules::taint(taint))
        .map(|(key, value, effect)| taint_value(key, value, effect))
        .collect();
    if !taints.is_empty() {
        config["registerWithTaints"] = json!(taints);
    }
    format!("{config:#}\n")
}

fn taint_value(key: &str, value: &str, effect: &str) -> Value {
    let mut taint = Map::new();
    taint.insert("key".into(), key.into());
    if !value.is_empty() {
        taint.insert("value".into(), value.into());
    }
    taint.insert("effect".into(), effect.into());
    taint.into()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::config::read;

    fn node(text: &str) -> Node {
        let text = text.replace(
            "TOKEN",
            r#""azure": {"bootstrapToken": {"token": "abcdef.0123456789abcdef"}}"#,
        );
        let text = text.replace(
            "SERVER",
            r#""serverURL": "https://x", "caCertData": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg==""#,
        );
        read(&text, &|_| Err(String::new())).unwrap().config.node
    }

    #[test]
    fn labels_are_sorted_and_one_is_always_there() {
        let node =
            node(r#"{TOKEN, "node": {"labels": {"z": "1", "a": "2"}, "kubelet": {SERVER}}}"#);
        assert_eq!(labels(&node), "a=2,kubernetes.azure.com/managed=false,z=1");
    }

    #[test]
    fn what_the_configuration_says_reaches_the_kubelet() {
        let node = node(
            r#"{TOKEN, "node": {"maxPods": 30, "taints": ["a=b:NoSchedule", "c:NoExecute"],
                "kubelet": {SERVER, "evictionHard": {"memory.available": "100Mi"}, "kubeReserved": {"cpu": "100m"},
                    "imageGCHighThreshold": 90, "verbosity": 4, "nodeIP": "10.0.0.4"}}}"#,
        );
        let machine = Machine {
            unified_cgroups: true,
            ..Machine::default()
        };
        let text = configuration(&node, &machine, Credential::Certificate);
        let config: Value = serde_json::from_str(&text).unwrap();
        let expected = [
            ("/maxPods", json!(30)),
            (
                "/registerWithTaints",
                json!([{"key": "a", "value": "b", "effect": "NoSchedule"}, {"key": "c", "effect": "NoExecute"}]),
            ),
            ("/evictionHard", json!({"memory.available": "100Mi"})),
            ("/kubeReserved", json!({"cpu": "100m"})),
            ("/imageGCHighThresholdPercent", json!(90)),
            ("/cgroupDriver", json!("systemd")),
            ("/rotateCertificates", json!(true)),
            ("/protectKernelDefaults", json!(true)),
        ];
        for (pointer, value) in expected {
            assert_eq!(config.pointer(pointer), Some(&value), "{pointer}");
        }
        let defaults = defaults(&node, "edge");
        assert!(
            defaults.contains("--hostname-override=edge --v=4 --node-ip=10.0.0.4"),
            "{defaults}"
        );
    }

    #[test]
    fn a_token_of_its_own_is_no_reason_to_renew_certificates() {
        let shared = Machine {
            is_container: true,
            ..Machine::default()
        };
        let node = node(r#"{TOKEN, "node": {"kubelet": {SERVER}}}"#);
        let config: Value =
            serde_json::from_str(&configuration(&node, &shared, Credential::Exec)).unwrap();
        assert_eq!(config["rotateCertificates"], false);
        assert_eq!(
            (&config["failSwapOn"], &config["protectKernelDefaults"]),
            (&json!(false), &json!(false))
        );
        assert!(!drop_ins(Credential::Exec)[1].1.contains("bootstrap"));
        assert!(
            drop_ins(Credential::Certificate)[1]
                .1
                .contains("--bootstrap-kubeconfig=")
        );
    }
}
