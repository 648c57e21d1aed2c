//! Every field of upstream's file, in all its eras, and what kind of value it takes.

/// What a field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Text,
    Flag,
    Number,
    /// Text by text.
    Map,
    /// A list of texts.
    List,
    /// An object whose inside is not ours.
    Any,
}

use Kind::{Any, Flag, List, Map, Number, Text};

/// Path and kind. A, B, C and D are the eras of upstream's design; K are additions of ours.
#[rustfmt::skip]
pub(super) const FIELDS: &[(&str, Kind)] = &[
    // A
    ("azure.subscriptionId", Text), ("azure.tenantId", Text), ("azure.cloud", Text),
    ("azure.servicePrincipal.tenantId", Text), ("azure.servicePrincipal.clientId", Text), ("azure.servicePrincipal.clientSecret", Text),
    ("azure.arc.machineName", Text), ("azure.arc.tags", Map), ("azure.arc.resourceGroup", Text), ("azure.arc.location", Text),
    ("azure.arc.autoRoleAssignment", Flag),
    ("azure.targetCluster.resourceId", Text), ("azure.targetCluster.location", Text),
    ("agent.logLevel", Text), ("agent.logDir", Text),
    ("containerd.version", Text), ("containerd.pauseImage", Text), ("containerd.metricsAddress", Text),
    ("kubernetes.version", Text), ("kubernetes.urlTemplate", Text),
    ("runc.version", Text), ("runc.url", Text),
    ("node.maxPods", Number), ("node.labels", Map),
    ("node.kubelet.kubeReserved", Map), ("node.kubelet.evictionHard", Map),
    ("node.kubelet.imageGCHighThreshold", Number), ("node.kubelet.imageGCLowThreshold", Number),
    ("paths.kubernetes.configDir", Text), ("paths.kubernetes.certsDir", Text), ("paths.kubernetes.manifestsDir", Text),
    ("paths.kubernetes.volumePluginDir", Text), ("paths.kubernetes.kubeletDir", Text),
    ("paths.cni.binDir", Text), ("paths.cni.confDir", Text), ("paths.cni.libDir", Text),
    // B and C
    ("azure.arc.enabled", Flag), ("azure.managedIdentity.clientId", Text), ("azure.bootstrapToken.token", Text),
    ("node.kubelet.serverURL", Text), ("node.kubelet.caCertData", Text), ("node.kubelet.verbosity", Number),
    ("node.kubelet.dnsServiceIP", Text), ("node.kubelet.nodeIP", Text), ("node.taints", List),
    ("npd.version", Text), ("cni.version", Text), ("agent.enableDriftDetectionAndRemediation", Flag),
    // D
    ("azure.resourceManagerEndpoint", Text), ("azure.targetAgentPoolName", Text),
    ("agent.nodeName", Text), ("agent.machineClient", Any), ("agent.machineReconcileInterval", Any),
    ("agent.requireMachineRegistration", Flag), ("agent.machineOperationMode", Text),
    ("components.kubernetes", Text), ("components.containerd", Text), ("components.runc", Text), ("components.sandboxImage", Text),
    ("networking.dnsServiceIP", Text), ("networking.cniVersion", Text), ("node.kubelet.clusterFQDN", Text),
    ("bootstrap", Any), ("hostRouting", Any),
    // K
    ("azure.certificateAuthorities", Text),
    ("azure.servicePrincipal.clientSecretFile", Text), ("azure.servicePrincipal.certificateFile", Text),
    ("azure.servicePrincipal.federatedTokenFile", Text), ("azure.bootstrapToken.tokenFile", Text),
    ("kubernetes.kubelet", Text), ("agent.metricsAddress", Text), ("mirrors", Map), ("node.kubelet.serverTLSBootstrap", Flag),
];

/// Fields that are understood and change nothing: said, so that nobody waits for an effect.
pub(super) const WITHOUT_EFFECT: &[(&str, &str)] = &[
    (
        "agent.logLevel",
        "everything is logged; choose with journalctl's filters",
    ),
    (
        "agent.logDir",
        "the log is the journal of aks-flex-node-agent.service",
    ),
    ("npd.version", "node-problem-detector is not installed"),
    (
        "agent.machineClient",
        "goal states are not read from Machine resources",
    ),
    (
        "agent.machineReconcileInterval",
        "goal states are not read from Machine resources",
    ),
    (
        "agent.requireMachineRegistration",
        "goal states are not read from Machine resources",
    ),
    (
        "agent.machineOperationMode",
        "goal states are not read from Machine resources",
    ),
    (
        "bootstrap",
        "components are installed on this machine itself, not in a machine inside it",
    ),
    ("hostRouting", "routes of this machine are left alone"),
    (
        "paths",
        "everything is where upstream has it unless told otherwise",
    ),
];

/// A newer name of a field, and the one it counts as. The older name wins where both are there, as upstream has it.
pub(super) const ALIASES: &[(&str, &str)] = &[
    ("components.kubernetes", "kubernetes.version"),
    ("components.containerd", "containerd.version"),
    ("components.runc", "runc.version"),
    ("components.sandboxImage", "containerd.pauseImage"),
    ("networking.cniVersion", "cni.version"),
    ("networking.dnsServiceIP", "node.kubelet.dnsServiceIP"),
    ("node.kubelet.clusterFQDN", "node.kubelet.serverURL"),
];

/// The kind of a field, or that it is an object with fields inside.
pub(super) enum Place {
    Field(Kind),
    Inside,
    Unknown,
}

/// What is at a path.
pub(super) fn place(path: &str) -> Place {
    if let Some((_, kind)) = FIELDS.iter().find(|(known, _)| *known == path) {
        return Place::Field(*kind);
    }
    let inside = format!("{path}.");
    match FIELDS.iter().any(|(known, _)| known.starts_with(&inside)) {
        true => Place::Inside,
        false => Place::Unknown,
    }
}

/// The known name beside `path` that was probably meant: the nearest one among its siblings, else a field of that last
/// name elsewhere.
pub fn known(path: &str) -> Option<String> {
    let (parent, name) = path.rsplit_once('.').unwrap_or(("", path));
    let prefix = match parent {
        "" => String::new(),
        parent => format!("{parent}."),
    };
    let siblings = FIELDS.iter().filter_map(|(known, _)| {
        let rest = known.strip_prefix(&prefix)?;
        rest.split('.').next()
    });
    let near = siblings
        .map(|sibling| (distance(sibling, name), sibling))
        .min()
        .filter(|(far, _)| *far <= 1 + name.len() / 4);
    if let Some((_, sibling)) = near {
        return Some(format!("{prefix}{sibling}"));
    }
    let elsewhere = FIELDS.iter().find(|(known, _)| {
        let last = known.rsplit('.').next().unwrap_or_default();
        last.eq_ignore_ascii_case(name)
    });
    elsewhere.map(|(known, _)| (*known).to_owned())
}

/// How many letters must be added, taken away or changed, without regard to case.
fn distance(one: &str, other: &str) -> usize {
    let (one, other) = (one.to_lowercase(), other.to_lowercase());
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut above_left = row[0];
        row[0] = i + 1;
        for (j, &b) in other.iter().enumerate() {
            let changed = above_left + usize::from(a != b);
            above_left = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(above_left + 1);
        }
    }
    row[other.len()]
}
