//! The objects of the load: ConfigMaps of 1 KiB, and nodes and pods of a usual size.

use serde_json::{Value, json};

use crate::client::{JSON, STRATEGIC_MERGE, Write};

const PODS_PER_NODE: u32 = 5;

/// The namespace itself.
pub(crate) fn namespace(name: &str) -> Write {
    let object = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}});
    create("/api/v1/namespaces".into(), &object)
}

/// The account that pods run as; a controller manager makes it, and upstream's is not run.
pub(crate) fn account(namespace: &str) -> Write {
    let object =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    create(
        format!("/api/v1/namespaces/{namespace}/serviceaccounts"),
        &object,
    )
}

/// Creates a ConfigMap with 1 KiB of data.
pub(crate) fn config_map(namespace: &str, number: u32) -> Write {
    create(config_maps(namespace), &config_map_object(number, 0))
}

/// Replaces it with other data; no resource version, so it cannot conflict.
pub(crate) fn config_map_update(namespace: &str, number: u32, generation: u32) -> Write {
    Write {
        method: "PUT",
        path: config_map_path(namespace, number),
        content_type: JSON,
        body: body(&config_map_object(number, generation)),
    }
}

/// The path of all ConfigMaps of a namespace.
pub(crate) fn config_maps(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/configmaps")
}

/// The path of one.
pub(crate) fn config_map_path(namespace: &str, number: u32) -> String {
    format!("{}/settings-{number:05}", config_maps(namespace))
}

fn config_map_object(number: u32, generation: u32) -> Value {
    let payload = format!("{number:08}{generation:08}").repeat(64);
    json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("settings-{number:05}"), "labels": {"app": "bench"}},
        "data": {"payload": payload}})
}

fn node_name(number: u32) -> String {
    format!("aks-nodepool1-{:08}-vmss{number:06}", 31_415_926)
}

/// Registers a node as a kubelet does.
pub(crate) fn node(number: u32) -> Write {
    let name = node_name(number);
    let object = json!({"apiVersion": "v1", "kind": "Node",
        "metadata": {"name": name, "labels": node_labels(number), "annotations": {
            "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            "csi.volume.kubernetes.io/nodeid":
                format!("{{\"disk.csi.azure.com\":\"{name}\",\"file.csi.azure.com\":\"{name}\"}}")}},
        "spec": {"podCIDR": format!("10.{}.{}.0/24", 64 + number / 256, number % 256),
            "podCIDRs": [format!("10.{}.{}.0/24", 64 + number / 256, number % 256)],
            "providerID": format!("azure:///subscriptions/00000000-0000-0000-0000-000000000000/resourceGroups/mc_bench/providers/Microsoft.Compute/virtualMachineScaleSets/aks-nodepool1-vmss/virtualMachines/{number}")}});
    create("/api/v1/nodes".into(), &object)
}

fn node_labels(number: u32) -> Value {
    json!({"kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
        "kubernetes.io/hostname": node_name(number), "agentpool": "nodepool1",
        "kubernetes.azure.com/cluster": "MC_bench_bench_westeurope", "kubernetes.azure.com/mode": "system",
        "kubernetes.azure.com/node-image-version": "AKSUbuntu-2204gen2containerd-202606.01.0",
        "kubernetes.azure.com/os-sku": "Ubuntu", "kubernetes.azure.com/role": "agent",
        "node.kubernetes.io/instance-type": "Standard_D4s_v5",
        "topology.kubernetes.io/region": "westeurope",
        "topology.kubernetes.io/zone": format!("westeurope-{}", number % 3 + 1)})
}

/// What a kubelet says of its node after it registered.
pub(crate) fn node_status(number: u32) -> Write {
    let resources = json!({"cpu": "4", "memory": "16374116Ki", "pods": "110",
        "ephemeral-storage": "129886128Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0"});
    let status = json!({"status": {"capacity": resources, "allocatable": resources,
        "addresses": [{"type": "InternalIP", "address": format!("10.224.{}.{}", number / 250, number % 250 + 4)},
            {"type": "Hostname", "address": node_name(number)}],
        "conditions": node_conditions(), "images": node_images(),
        "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
        "nodeInfo": {"architecture": "amd64", "operatingSystem": "linux",
            "bootID": "5d0b5ddc-4c9b-4b8d-bd6c-60e4d1f3d3b6", "machineID": "b1f7e8a0c5d94f0e8a7c2e5b9d3f1a60",
            "systemUUID": "8f4a2f9e-2f0c-4f0e-9c55-1f2f3a4b5c6d",
            "containerRuntimeVersion": "containerd://2.0.5", "kernelVersion": "5.15.0-1089-azure",
            "kubeProxyVersion": "v1.36.0", "kubeletVersion": "v1.36.0", "osImage": "Ubuntu 22.04.5 LTS"}}});
    patch_status(
        format!("/api/v1/nodes/{}/status", node_name(number)),
        &status,
    )
}

fn node_conditions() -> Value {
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
    CONDITIONS
        .map(|(kind, status, reason, message)| {
            json!({"type": kind, "status": status, "reason": reason, "message": message,
                "lastHeartbeatTime": "2026-06-01T08:00:00Z", "lastTransitionTime": "2026-06-01T07:59:00Z"})
        })
        .into()
}

fn node_images() -> Value {
    let image = |number: u32| {
        json!({"sizeBytes": 31_000_000 + number, "names": [
            format!("mcr.microsoft.com/oss/component-{number}@sha256:{}", "0123456789abcdef".repeat(4)),
            format!("mcr.microsoft.com/oss/component-{number}:v1.36.0")]})
    };
    (0..10).map(image).collect()
}

fn pod_name(number: u32) -> String {
    format!("web-7d4b9c6f5d-{number:05}")
}

/// Creates a pod as a ReplicaSet would, bound to its node already.
pub(crate) fn pod(namespace: &str, number: u32) -> Write {
    let object = json!({"apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": pod_name(number), "labels": {"app": "web", "pod-template-hash": "7d4b9c6f5d", "version": "v1"},
            "annotations": {"prometheus.io/scrape": "true", "prometheus.io/port": "8080",
                "checksum/config": "0123456789abcdef".repeat(4)},
            "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-7d4b9c6f5d",
                "uid": "6fbc6f44-0000-4000-8000-000000000000", "controller": true, "blockOwnerDeletion": true}]},
        "spec": {"nodeName": node_name(number / PODS_PER_NODE), "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30, "dnsPolicy": "ClusterFirst", "serviceAccountName": "default",
            "containers": [container("web", 8080)],
            "tolerations": [
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
            "volumes": [{"name": "config", "configMap": {"name": "web"}}, {"name": "scratch", "emptyDir": {}},
                {"name": "api-access", "projected": {"sources": [
                    {"serviceAccountToken": {"expirationSeconds": 3607, "path": "token"}},
                    {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
                    {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"fieldPath": "metadata.namespace"}}]}}]}}]}});
    create(pods(namespace), &object)
}

/// A pod without a node that asks for little.
pub(crate) fn small_pod(namespace: &str, number: u32) -> Write {
    let object = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("small-{number:05}")},
        "spec": small_pod_spec()});
    create(pods(namespace), &object)
}

fn small_pod_spec() -> Value {
    json!({"containers": [{"name": "pause", "image": "registry.example.com/pause:3.10", "ports": [{"containerPort": 80}],
        "resources": {"requests": {"cpu": "10m", "memory": "50Mi"}}}]})
}

/// A Deployment of such pods.
pub(crate) fn deployment(namespace: &str, name: &str, replicas: u32) -> Write {
    let labels = json!({"app": name});
    let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": small_pod_spec()}}});
    create(
        format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
        &object,
    )
}

/// A ConfigMap that another one owns.
pub(crate) fn owned(namespace: &str, number: u32, owner: &str, uid: &str) -> Write {
    let object = json!({"apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": format!("owned-{number:05}"), "labels": {"app": "owned"},
            "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid}]}});
    create(config_maps(namespace), &object)
}

/// Deletes what is at a path, and in the background what it owns.
pub(crate) fn delete(path: &str) -> Write {
    let options =
        json!({"apiVersion": "v1", "kind": "DeleteOptions", "propagationPolicy": "Background"});
    Write {
        method: "DELETE",
        path: path.to_owned(),
        content_type: JSON,
        body: body(&options),
    }
}

fn container(name: &str, port: u16) -> Value {
    let probe = |path: &str| {
        json!({"httpGet": {"path": path, "port": port}, "initialDelaySeconds": 5,
            "periodSeconds": 10, "failureThreshold": 3})
    };
    json!({"name": name, "image": format!("registry.example.com/team/{name}:1.4.2"),
        "args": ["--listen", format!(":{port}"), "--config", "/etc/app/config.yaml"],
        "ports": [{"name": name, "containerPort": port, "protocol": "TCP"}],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "POD_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}},
            {"name": "LOG_LEVEL", "value": "info"},
            {"name": "DATABASE", "valueFrom": {"secretKeyRef": {"name": "database", "key": "url"}}}],
        "resources": {"requests": {"cpu": "100m", "memory": "128Mi"}, "limits": {"cpu": "500m", "memory": "256Mi"}},
        "livenessProbe": probe("/healthz"), "readinessProbe": probe("/ready"),
        "securityContext": {"allowPrivilegeEscalation": false, "runAsNonRoot": true, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": [{"name": "config", "mountPath": "/etc/app"}, {"name": "scratch", "mountPath": "/tmp"},
            {"name": "api-access", "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount", "readOnly": true}]})
}

/// What a kubelet says of a pod that runs.
pub(crate) fn pod_status(namespace: &str, number: u32) -> Write {
    let ip = format!(
        "10.{}.{}.{}",
        64 + number / 65_000,
        number / 250 % 256,
        number % 250 + 2
    );
    let conditions = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
        .map(|kind| json!({"type": kind, "status": "True", "lastTransitionTime": "2026-06-01T08:00:00Z"}));
    let containers = ["web"].map(|name| {
        json!({"name": name, "ready": true, "started": true, "restartCount": 0,
            "image": format!("registry.example.com/team/{name}:1.4.2"),
            "imageID": format!("registry.example.com/team/{name}@sha256:{}", "0123456789abcdef".repeat(4)),
            "containerID": format!("containerd://{}", "fedcba9876543210".repeat(4)),
            "state": {"running": {"startedAt": "2026-06-01T08:00:00Z"}}, "lastState": {}})
    });
    let status = json!({"status": {"phase": "Running", "qosClass": "Burstable", "podIP": ip, "podIPs": [{"ip": ip}],
        "hostIP": "10.224.0.4", "hostIPs": [{"ip": "10.224.0.4"}], "startTime": "2026-06-01T07:59:50Z",
        "conditions": conditions, "containerStatuses": containers}});
    patch_status(
        format!("{}/{}/status", pods(namespace), pod_name(number)),
        &status,
    )
}

fn pods(namespace: &str) -> String {
    format!("/api/v1/namespaces/{namespace}/pods")
}

fn create(path: String, object: &Value) -> Write {
    Write {
        method: "POST",
        path,
        content_type: JSON,
        body: body(object),
    }
}

fn patch_status(path: String, status: &Value) -> Write {
    Write {
        method: "PATCH",
        path,
        content_type: STRATEGIC_MERGE,
        body: body(status),
    }
}

fn body(object: &Value) -> Vec<u8> {
    object.to_string().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_have_the_sizes_they_promise() {
        let data = config_map_object(9, 1)["data"]["payload"].to_string();
        assert_eq!(data.len(), 1024 + 2);
        for whole in [
            node(1).body.len() + node_status(1).body.len(),
            pod("default", 1).body.len() + pod_status("default", 1).body.len(),
        ] {
            assert!((3 << 10..6 << 10).contains(&whole), "{whole} bytes");
        }
    }
}
