//! The checks that only the restricted level has.

use super::Violation;
use super::baseline;
use super::pod::{Offenders, Pod, Values, containers, context, items, one_or_many, quoted, text};

/// Volume sources that bring nothing of the node.
const ALLOWED_VOLUMES: [&str; 9] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "image",
    "persistentVolumeClaim",
    "projected",
    "secret",
];

/// The other sources, in the order in which upstream looks for them.
const OTHER_VOLUMES: [&str; 21] = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
];

pub(super) fn privilege_escalation(pod: &Pod<'_>) -> Option<Violation> {
    let names = pod.named(|container| context(container)["allowPrivilegeEscalation"] != false);
    (!names.is_empty()).then(|| Violation {
        reason: "allowPrivilegeEscalation != false",
        detail: format!(
            "{} must set securityContext.allowPrivilegeEscalation=false",
            containers(&names)
        ),
    })
}

/// All capabilities dropped, and only the one for low ports added back.
pub(super) fn capabilities(pod: &Pod<'_>) -> Option<Violation> {
    let lists = |container, list: &str| items(&context(container)["capabilities"][list]).map(text);
    let keeping = pod.named(|container| !lists(container, "drop").any(|c| c == "ALL"));
    let mut added = Values::new();
    let adding = pod.named(|container| {
        let bad: Vec<&str> = lists(container, "add")
            .filter(|capability| *capability != "NET_BIND_SERVICE")
            .collect();
        added.extend(&bad);
        !bad.is_empty()
    });
    let mut details = Vec::new();
    if !keeping.is_empty() {
        details.push(format!(
            "{} must set securityContext.capabilities.drop=[\"ALL\"]",
            containers(&keeping)
        ));
    }
    if !adding.is_empty() {
        details.push(format!(
            "{} must not include {} in securityContext.capabilities.add",
            containers(&adding),
            quoted(added)
        ));
    }
    (!details.is_empty()).then(|| Violation {
        reason: "unrestricted capabilities",
        detail: details.join("; "),
    })
}

pub(super) fn volumes(pod: &Pod<'_>) -> Option<Violation> {
    let (mut names, mut types) = (Vec::new(), Values::new());
    for volume in items(&pod.spec["volumes"]) {
        let is = |source: &&&str| !volume[**source].is_null();
        if ALLOWED_VOLUMES.iter().any(|source| is(&source)) {
            continue;
        }
        names.push(text(&volume["name"]));
        types.insert(OTHER_VOLUMES.iter().find(is).unwrap_or(&"unknown"));
    }
    (!names.is_empty()).then(|| Violation {
        reason: "restricted volume types",
        detail: format!(
            "{} {} {} {} {}",
            one_or_many(names.len(), "volume", "volumes"),
            quoted(&names),
            one_or_many(names.len(), "uses", "use"),
            one_or_many(
                types.len(),
                "restricted volume type",
                "restricted volume types"
            ),
            quoted(types)
        ),
    })
}

pub(super) fn run_as_non_root(pod: &Pod<'_>) -> Option<Violation> {
    const REASON: &str = "runAsNonRoot != true";
    let offenders = Offenders::of(pod, |context| {
        (context["runAsNonRoot"] == false).then_some("")
    });
    if let Some(who) = offenders.who() {
        return Some(Violation {
            reason: REASON,
            detail: format!("{who} must not set securityContext.runAsNonRoot=false"),
        });
    }
    let covered = pod.context()["runAsNonRoot"] == true;
    let silent = pod.named(|container| !covered && context(container)["runAsNonRoot"].is_null());
    (!silent.is_empty()).then(|| Violation {
        reason: REASON,
        detail: format!(
            "pod or {} must set securityContext.runAsNonRoot=true",
            containers(&silent)
        ),
    })
}

pub(super) fn run_as_user(pod: &Pod<'_>) -> Option<Violation> {
    let offenders = Offenders::of(pod, |context| (context["runAsUser"] == 0).then_some(""));
    offenders.who().map(|who| Violation {
        reason: "runAsUser=0",
        detail: format!("{who} must not set runAsUser=0"),
    })
}

/// A profile for every container, its own or the pod's.
pub(super) fn seccomp_profile(pod: &Pod<'_>) -> Option<Violation> {
    if let Some(violation) = baseline::seccomp_profile(pod) {
        return Some(violation);
    }
    let covered = pod.context()["seccompProfile"].is_object();
    let silent =
        pod.named(|container| !covered && !context(container)["seccompProfile"].is_object());
    (!silent.is_empty()).then(|| Violation {
        reason: "seccompProfile",
        detail: format!(
            "pod or {} must set securityContext.seccompProfile.type to \"RuntimeDefault\" or \"Localhost\"",
            containers(&silent)
        ),
    })
}
