//! What messages of kubelets, schedulers and runtimes mean, and what to do then: tables of fragments.
//!
//! `{node}`, `{pod}` and `{namespace}` are filled in.

/// A fragment of a message, and the next step.
pub(super) type Row = (&'static str, &'static str);

/// Why a node is not Ready.
pub(super) const NOT_READY: [Row; 6] = [
    (
        "cni",
        "its pod network is not set up: `kyanite machine exec {node} ls /etc/cni/net.d`, and see that the node has a spec.podCIDR",
    ),
    (
        "network plugin",
        "its pod network is not set up: `kyanite machine exec {node} ls /etc/cni/net.d`, and see that the node has a spec.podCIDR",
    ),
    (
        "PLEG",
        "containerd does not answer: `kyanite machine exec {node} systemctl status containerd`",
    ),
    (
        "container runtime",
        "containerd does not answer: `kyanite machine exec {node} systemctl status containerd`",
    ),
    (
        "stopped posting node status",
        "its kubelet or its machine is gone: `kyanite machine exec {node} systemctl status kubelet`, or `kyanite up`",
    ),
    (
        "",
        "`kyanite machine exec {node} journalctl -u kubelet -n 50` says more",
    ),
];

/// Why no node takes a pod.
pub(super) const UNSCHEDULED: [Row; 9] = [
    (
        "untolerated taint",
        "`kubectl describe nodes | grep -A3 Taints` lists them: take the taint away, or let the pod tolerate it",
    ),
    (
        "had taint",
        "`kubectl describe nodes | grep -A3 Taints` lists them: take the taint away, or let the pod tolerate it",
    ),
    (
        "Insufficient",
        "it asks for more than nodes have left: lower spec.containers[].resources.requests, or add a node with `kyanite up --nodes N`",
    ),
    (
        "node affinity",
        "no node has the labels it asks for: compare `kubectl get nodes --show-labels` with its nodeSelector and affinity",
    ),
    (
        "node selector",
        "no node has the labels it asks for: compare `kubectl get nodes --show-labels` with its nodeSelector and affinity",
    ),
    (
        "PersistentVolumeClaim",
        "a volume it wants is not there: `kubectl get pvc -n {namespace}`",
    ),
    (
        "free ports",
        "another pod has the node's port it wants: fewer replicas than nodes, or no hostPort",
    ),
    (
        "unschedulable",
        "nodes are cordoned: `kubectl uncordon NODE`",
    ),
    (
        "no nodes available",
        "there is no node: `kyanite up --nodes 2`",
    ),
];

/// Why a container waits, by its reason.
pub(super) const WAITING: [Row; 9] = [
    (
        "ErrImageNeverPull",
        "the node does not have the image: `kyanite image build` and `kyanite image load FILE` bring it to every node",
    ),
    (
        "ImagePullBackOff",
        "nodes reach no registry outside this host: `kyanite image build` and `kyanite image load FILE` bring an image to every node; see its name for mistakes",
    ),
    (
        "ErrImagePull",
        "nodes reach no registry outside this host: `kyanite image build` and `kyanite image load FILE` bring an image to every node; see its name for mistakes",
    ),
    (
        "InvalidImageName",
        "mend the name of the image: `kubectl edit` what made the pod",
    ),
    (
        "CrashLoopBackOff",
        "its program ends: `kubectl logs -n {namespace} {pod} --previous` has its last words",
    ),
    (
        "CreateContainerConfigError",
        "a ConfigMap, Secret or key it names is not there: make it, and the kubelet tries again",
    ),
    (
        "CreateContainerError",
        "the runtime refuses it: `kubectl describe pod -n {namespace} {pod}`, and journalctl -u containerd on its node",
    ),
    (
        "RunContainerError",
        "its program cannot be started: see its command, and whether the image has it",
    ),
    (
        "StartError",
        "its program cannot be started: see its command, and whether the image has it",
    ),
];

/// What events say of a pod that has not started.
pub(super) const EVENTS: [Row; 6] = [
    (
        "FailedCreatePodSandBox",
        "the pod network or the sandbox's image fails on {node}: `kyanite machine exec {node} journalctl -u containerd -n 50`",
    ),
    (
        "NetworkNotReady",
        "the pod network of {node} is not set up: `kyanite doctor {node}`",
    ),
    (
        "FailedMount",
        "a volume cannot be mounted: see that the ConfigMap, Secret or claim it names is in namespace {namespace}",
    ),
    (
        "FailedAttachVolume",
        "a volume cannot be attached: `kubectl get volumeattachments`",
    ),
    (
        "Evicted",
        "its node was short of something: `kyanite doctor {node}`",
    ),
    (
        "Unhealthy",
        "its probe fails: see the probe's path and port, and `kubectl logs -n {namespace} {pod}`",
    ),
];

/// The next step of the first row whose fragment is in a message.
pub(super) fn next(table: &[Row], message: &str) -> Option<&'static str> {
    let fits = |fragment: &str| message.to_lowercase().contains(&fragment.to_lowercase());
    table
        .iter()
        .find(|(fragment, _)| fits(fragment))
        .map(|(_, next)| *next)
}
