//! What a client should hear about an object it wrote although the write succeeds: upstream's
//! `WarningsOnCreate` and `WarningsOnUpdate`, sent as `Warning` headers.

mod pod;

use serde_json::Value;

use crate::resources::Resource;
use crate::validation::names;
use crate::validation::reading::{at, deep, has, int, items, text};

/// The warnings about `new`, which replaces `old` (`None`: a creation).
pub fn of(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<String> {
    match (resource.gv.group, resource.kind) {
        // Updates of pods are the work of programs, which nobody warns.
        ("", "Pod") if old.is_none() => {
            let name = host_name(text(at(new, "metadata"), "name"), "the Pod's hostname");
            name.into_iter().chain(pod::of(new, "")).collect()
        }
        ("", "Service") => service(new),
        ("", "PersistentVolumeClaim") => claim(new),
        ("", "PersistentVolume") => volume(new),
        ("", "Secret") => secret(new),
        ("", "ServiceAccount") => service_account(new, old),
        ("", "Node") => node(new),
        ("", "PodTemplate") => pod::of(at(new, "template"), "template."),
        ("discovery.k8s.io", "EndpointSlice") if old.is_none() => slice(new),
        ("networking.k8s.io", "Ingress") if old.is_none() => ingress(new),
        ("apiregistration.k8s.io", "APIService") => api_service(new, old),
        ("admissionregistration.k8s.io", _) if old.is_none() => reserved_name(new),
        _ => workload(resource, new, old),
    }
}

/// Names that files of an API server's own configuration have, once that is served.
fn reserved_name(object: &Value) -> Vec<String> {
    const SUFFIX: &str = ".static.k8s.io";
    let is_reserved = text(at(object, "metadata"), "name").ends_with(SUFFIX);
    let warning = is_reserved.then(|| format!(
        "metadata.name: names ending with {SUFFIX:?} are reserved for static manifest-based configurations and cannot be managed via the API"
    ));
    warning.into_iter().collect()
}

/// What is accepted and has no effect is said: this server passes no requests on to servers of others.
fn api_service(new: &Value, old: Option<&Value>) -> Vec<String> {
    let spec = at(new, "spec");
    let told = old.is_some_and(|old| at(old, "spec") == spec);
    if !has(spec, "service") || told {
        return Vec::new();
    }
    vec![format!(
        "spec.service: this server does not aggregate other API servers: nothing answers below /apis/{}/{}",
        text(spec, "group"),
        text(spec, "version")
    )]
}

/// Workloads, where their pod template is, and whether their name becomes part of a host name.
const WORKLOADS: &[(&str, &str, &str, bool)] = &[
    ("", "ReplicationController", "spec.template.", true),
    ("apps", "Deployment", "spec.template.", true),
    ("apps", "ReplicaSet", "spec.template.", true),
    ("apps", "DaemonSet", "spec.template.", false),
    ("apps", "StatefulSet", "spec.template.", false),
    ("batch", "Job", "spec.template.", true),
    ("batch", "CronJob", "spec.jobTemplate.spec.template.", true),
];

fn workload(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<String> {
    let row = WORKLOADS
        .iter()
        .find(|row| (row.0, row.1) == (resource.gv.group, resource.kind));
    let Some(&(_, kind, place, names_hosts)) = row else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    if names_hosts && old.is_none() {
        let name = text(at(new, "metadata"), "name");
        warnings.extend(host_name(name, "Pod names and hostnames"));
    }
    let generation = |object: &Value| int(at(object, "metadata"), "generation");
    if old.is_none_or(|old| generation(old) != generation(new)) {
        let steps: Vec<&str> = place.trim_end_matches('.').split('.').collect();
        warnings.extend(pod::of(deep(new, &steps), place));
        if kind == "StatefulSet" {
            warnings.extend(stateful_set(new));
        }
    }
    warnings
}

fn host_name(name: &str, used: &str) -> Option<String> {
    let complaints = names::dns1123_label(name);
    (!complaints.is_empty()).then(|| {
        format!(
            "metadata.name: this is used in {used}, which can result in surprising behavior; \
             a DNS label is recommended: [{}]",
            complaints.join(" ")
        )
    })
}

fn stateful_set(set: &Value) -> Vec<String> {
    let mut warnings = Vec::new();
    for (index, claim) in items(at(set, "spec"), "volumeClaimTemplates")
        .iter()
        .enumerate()
    {
        let place = format!("spec.volumeClaimTemplates[{index}].");
        warnings.extend(claim_sizes(at(claim, "spec"), &place));
    }
    if int(at(set, "spec"), "revisionHistoryLimit") < 0 {
        warnings.push(
            "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
                .to_owned(),
        );
    }
    warnings
}

fn service(service: &Value) -> Vec<String> {
    let spec = at(service, "spec");
    let kind = text(spec, "type");
    let is_headless = kind == "ClusterIP" && text(spec, "clusterIP") == "None";
    let has_external_ips = !items(spec, "externalIPs").is_empty();
    let hints = "service.kubernetes.io/topology-aware-hints";
    let rules = [
        (
            has(annotations(service), hints),
            "annotation service.kubernetes.io/topology-aware-hints is deprecated, please use service.kubernetes.io/topology-mode instead",
        ),
        (
            is_headless && !text(spec, "loadBalancerIP").is_empty(),
            "spec.loadBalancerIP is ignored for headless services",
        ),
        (
            is_headless && has_external_ips,
            "spec.externalIPs is ignored for headless services",
        ),
        (
            is_headless && text(spec, "sessionAffinity") != "None",
            "spec.SessionAffinity is ignored for headless services",
        ),
        (
            has_external_ips && !is_headless && kind != "ExternalName",
            "spec.externalIPs is deprecated and may no longer be implemented in some clusters",
        ),
        (
            has_external_ips && kind == "ExternalName",
            "spec.externalIPs is ignored when spec.type is \"ExternalName\"",
        ),
        (
            kind != "ExternalName" && !text(spec, "externalName").is_empty(),
            "spec.externalName is ignored when spec.type is not \"ExternalName\"",
        ),
        (
            text(spec, "trafficDistribution") == "PreferClose",
            "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
        ),
    ];
    chosen(&rules)
}

fn chosen(rules: &[(bool, &str)]) -> Vec<String> {
    let chosen = rules.iter().filter(|(applies, _)| *applies);
    chosen.map(|(_, warning)| (*warning).to_owned()).collect()
}

fn annotations(object: &Value) -> &Value {
    deep(object, &["metadata", "annotations"])
}

const BETA_STORAGE_CLASS: &str = "volume.beta.kubernetes.io/storage-class";
const STORAGE_CLASS_WARNING: &str = "metadata.annotations[volume.beta.kubernetes.io/storage-class]: \
     deprecated since v1.8; use \"storageClassName\" attribute instead";

fn claim(claim: &Value) -> Vec<String> {
    let has_beta_class = has(annotations(claim), BETA_STORAGE_CLASS);
    let mut warnings = chosen(&[(has_beta_class, STORAGE_CLASS_WARNING)]);
    warnings.extend(claim_sizes(at(claim, "spec"), "spec."));
    warnings
}

/// Sizes of a claim that are no whole number of bytes.
fn claim_sizes(spec: &Value, place: &str) -> Vec<String> {
    let lists = ["requests", "limits"].into_iter();
    lists
        .filter_map(|list| {
            let size = text(deep(spec, &["resources", list]), "storage");
            pod::fractional_bytes(size, &format!("{place}resources.{list}[storage]"))
        })
        .collect()
}

fn volume(volume: &Value) -> Vec<String> {
    let spec = at(volume, "spec");
    chosen(&[
        (
            has(annotations(volume), BETA_STORAGE_CLASS),
            STORAGE_CLASS_WARNING,
        ),
        (
            has(
                annotations(volume),
                "volume.beta.kubernetes.io/mount-options",
            ),
            "metadata.annotations[volume.beta.kubernetes.io/mount-options]: deprecated since v1.31; \
             use \"mountOptions\" attribute instead",
        ),
        (
            text(spec, "persistentVolumeReclaimPolicy") == "Recycle",
            "spec.persistentVolumeReclaimPolicy: The Recycle reclaim policy is deprecated. \
             Instead, the recommended approach is to use dynamic provisioning.",
        ),
        (
            has(spec, "cephfs"),
            "spec.cephfs: deprecated in v1.28, non-functional in v1.31+",
        ),
    ])
}

// Whether key and certificate belong together is not looked at, only whether they are PEM at all.
fn secret(secret: &Value) -> Vec<String> {
    if text(secret, "type") != "kubernetes.io/tls" {
        return Vec::new();
    }
    // `-----BEGIN ` in base64 starts like this when the block opens the file.
    let is_pem = |field: &str| text(at(secret, "data"), field).starts_with("LS0tLS1CRUdJTi");
    let missing = ["tls.crt", "tls.key"]
        .into_iter()
        .find(|field| !is_pem(field));
    match missing {
        Some("tls.crt") => vec!["tls: failed to find any PEM data in certificate input".to_owned()],
        Some(_) => vec!["tls: failed to find any PEM data in key input".to_owned()],
        None => Vec::new(),
    }
}

fn service_account(account: &Value, old: Option<&Value>) -> Vec<String> {
    const ENFORCE: &str = "kubernetes.io/enforce-mountable-secrets";
    let is_new = old.is_none_or(|old| !has(annotations(old), ENFORCE));
    chosen(&[(
        is_new && has(annotations(account), ENFORCE),
        "metadata.annotations[kubernetes.io/enforce-mountable-secrets]: deprecated in v1.32+; \
         prefer separate namespaces to isolate access to mounted secrets",
    )])
}

fn node(node: &Value) -> Vec<String> {
    let spec = at(node, "spec");
    chosen(&[
        (
            has(spec, "configSource"),
            "spec.configSource: the feature is removed",
        ),
        (
            !text(spec, "externalID").is_empty(),
            "spec.externalID: this field is deprecated, and is unused by Kubernetes",
        ),
    ])
}

fn slice(slice: &Value) -> Vec<String> {
    let is_fqdn = text(slice, "addressType") == "FQDN";
    chosen(&[(is_fqdn, "spec.addressType: FQDN endpoints are deprecated")])
}

fn ingress(ingress: &Value) -> Vec<String> {
    chosen(&[(
        has(annotations(ingress), "kubernetes.io/ingress.class"),
        "annotation \"kubernetes.io/ingress.class\" is deprecated, please use 'spec.ingressClassName' instead",
    )])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::resources::find;
    use serde_json::json;

    fn warnings(path: (&str, &str), new: Value, old: Option<Value>) -> Vec<String> {
        let resource = find(path.0, "v1", path.1).expect("exists");
        of(resource, &new, old.as_ref())
    }

    #[test]
    fn a_pod_whose_name_is_no_host_name_is_warned_of() {
        let pods = ("", "pods");
        assert!(warnings(pods, json!({"metadata": {"name": "a"}, "spec": {}}), None).is_empty());
        let long = json!({"metadata": {"name": "a".repeat(64)}, "spec": {}});
        assert_eq!(
            warnings(pods, long.clone(), None),
            [
                "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; \
              a DNS label is recommended: [must be no more than 63 characters]"
            ]
        );
        assert!(warnings(pods, long.clone(), Some(long)).is_empty());
    }

    #[test]
    fn an_api_service_of_another_server_is_said_to_have_no_effect() {
        let services = ("apiregistration.k8s.io", "apiservices");
        let local = json!({"spec": {"group": "a.b", "version": "v1"}});
        assert!(warnings(services, local, None).is_empty());
        let remote = json!({"spec": {"group": "a.b", "version": "v1", "service": {"name": "x"}}});
        let found = warnings(services, remote.clone(), None);
        assert!(found[0].contains("/apis/a.b/v1"), "{found:?}");
        assert!(warnings(services, remote.clone(), Some(remote)).is_empty());
    }

    #[test]
    fn names_of_the_servers_own_files_are_reserved() {
        let policies = (
            "admissionregistration.k8s.io",
            "validatingadmissionpolicies",
        );
        let named = |name: &str| json!({"metadata": {"name": name}});
        assert!(warnings(policies, named("a.k8s.io"), None).is_empty());
        let found = warnings(policies, named("a.static.k8s.io"), None);
        assert!(
            found[0]
                .starts_with("metadata.name: names ending with \".static.k8s.io\" are reserved"),
            "{found:?}"
        );
        assert!(warnings(policies, named("a.static.k8s.io"), Some(json!({}))).is_empty());
    }

    #[test]
    fn templates_are_named_by_where_they_are_and_only_when_they_change() {
        let set = |generation: i64| {
            json!({"metadata": {"name": "a.b", "generation": generation}, "spec": {"template": {"spec": {
                "terminationGracePeriodSeconds": -1}}}})
        };
        let jobs = ("batch", "jobs");
        let found = warnings(jobs, set(1), None);
        assert_eq!(found.len(), 2);
        assert!(
            found[0].starts_with("metadata.name: this is used in Pod names"),
            "{found:?}"
        );
        let grace = "spec.template.spec.terminationGracePeriodSeconds: must be >= 0; \
                     negative values are invalid and will be treated as 1";
        assert_eq!(found[1], grace);
        assert_eq!(warnings(jobs, set(2), Some(set(1))), [grace]);
        assert!(warnings(jobs, set(2), Some(set(2))).is_empty());
    }

    #[test]
    fn services_hear_what_is_ignored() {
        let service = json!({"spec": {"type": "ClusterIP", "clusterIP": "None", "sessionAffinity": "ClientIP",
            "externalIPs": ["1.2.3.4"], "trafficDistribution": "PreferClose"}});
        assert_eq!(
            warnings(("", "services"), service, None),
            [
                "spec.externalIPs is ignored for headless services",
                "spec.SessionAffinity is ignored for headless services",
                "spec.trafficDistribution: \"PreferClose\" is deprecated; use \"PreferSameZone\"",
            ]
        );
    }

    #[test]
    fn tls_secrets_without_pem_are_named() {
        let secret = |crt: &str| json!({"type": "kubernetes.io/tls", "data": {"tls.crt": crt, "tls.key": "Yg=="}});
        let found = |crt| warnings(("", "secrets"), secret(crt), None);
        assert_eq!(
            found("YQ=="),
            ["tls: failed to find any PEM data in certificate input"]
        );
        assert_eq!(
            found("LS0tLS1CRUdJTiBD"),
            ["tls: failed to find any PEM data in key input"]
        );
    }

    #[test]
    fn an_old_annotation_is_not_news() {
        let account = json!({"metadata": {"annotations": {"kubernetes.io/enforce-mountable-secrets": "true"}}});
        let accounts = ("", "serviceaccounts");
        assert_eq!(warnings(accounts, account.clone(), None).len(), 1);
        assert!(warnings(accounts, account.clone(), Some(account)).is_empty());
    }

    #[test]
    fn claims_of_half_a_byte_are_named() {
        let claim = json!({"spec": {"resources": {"requests": {"storage": "500m"}}}});
        assert_eq!(
            warnings(("", "persistentvolumeclaims"), claim, None),
            [
                "spec.resources.requests[storage]: fractional byte value \"500m\" is invalid, must be an integer"
            ]
        );
    }
}
