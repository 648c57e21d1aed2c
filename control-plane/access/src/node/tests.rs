#![allow(clippy::unwrap_used, reason = "tests")]

use serde_json::{Value, json};

use super::{Kind, NodeAuthorizer, name_of};
use crate::{Attributes, Decision, ResourceTarget, Target, User};

fn node(name: &str) -> User {
    User {
        name: format!("system:node:{name}"),
        groups: vec!["system:nodes".into(), "system:authenticated".into()],
        ..User::default()
    }
}

fn pod(node: &str, secret: &str) -> Value {
    json!({"spec": {
        "nodeName": node,
        "serviceAccountName": "sa",
        "volumes": [
            {"secret": {"secretName": secret}},
            {"configMap": {"name": "map"}},
            {"persistentVolumeClaim": {"claimName": "claim"}},
        ],
        "resourceClaims": [{"name": "r", "resourceClaimName": "rc"}],
    }})
}

/// Node `a` runs one pod with everything, `b` runs another; both have an attachment and a slice.
fn cluster() -> NodeAuthorizer {
    let authorizer = NodeAuthorizer::default();
    authorizer.apply(Kind::Pod, "ns", "pod-a", Some(&pod("a", "secret-a")));
    let mut other = pod("b", "secret-b");
    other["spec"]["serviceAccountName"] = "sa-b".into();
    other["spec"]["volumes"].as_array_mut().unwrap().truncate(1);
    other["spec"]["resourceClaims"] = json!([]);
    authorizer.apply(Kind::Pod, "ns", "pod-b", Some(&other));
    let volume = json!({"spec": {
        "claimRef": {"namespace": "ns", "name": "claim"},
        "csi": {"nodeStageSecretRef": {"namespace": "storage", "name": "stage"}},
    }});
    authorizer.apply(Kind::PersistentVolume, "", "pv", Some(&volume));
    for name in ["a", "b"] {
        let on = json!({"spec": {"nodeName": name}});
        authorizer.apply(Kind::VolumeAttachment, "", &format!("va-{name}"), Some(&on));
        authorizer.apply(Kind::ResourceSlice, "", &format!("slice-{name}"), Some(&on));
        authorizer.apply(
            Kind::PodCertificateRequest,
            "ns",
            &format!("pcr-{name}"),
            Some(&on),
        );
    }
    authorizer
}

/// `verb [group:]resource[/subresource] [namespace/]name [selector]`, `-` for no name.
fn ask(authorizer: &NodeAuthorizer, user: &User, question: &str) -> Decision {
    let words: Vec<&str> = question.split(' ').collect();
    let (group, resource) = words[1].split_once(':').unwrap_or(("", words[1]));
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let (namespace, name) = words[2].split_once('/').unwrap_or(("", words[2]));
    authorizer.authorize(&Attributes {
        user,
        verb: words[0],
        target: Target::Resource(ResourceTarget {
            namespace,
            group,
            resource,
            subresource,
            name: if name == "-" { "" } else { name },
            field_selector: words.get(3).unwrap_or(&""),
            ..ResourceTarget::default()
        }),
    })
}

/// What node `a` may ask; `None` is yes, otherwise the reason.
const CASES: &[(&str, Option<&str>)] = &[
    ("get secrets ns/secret-a", None),
    ("list secrets ns/secret-a", None),
    ("watch secrets ns/secret-a", None),
    ("get secrets ns/secret-b", UNRELATED),
    ("get secrets other/secret-a", UNRELATED),
    ("list secrets ns/-", Some("No Object name found")),
    (
        "list secrets -",
        Some("can only read namespaced object of this type"),
    ),
    ("get secrets/x ns/secret-a", Some("cannot read subresource")),
    (
        "update secrets ns/secret-a",
        Some("can only read resources of this type"),
    ),
    ("get secrets storage/stage", None),
    ("get configmaps ns/map", None),
    ("get configmaps ns/other", UNRELATED),
    (
        "delete configmaps ns/map",
        Some("can only read resources of this type"),
    ),
    ("get persistentvolumeclaims ns/claim", None),
    (
        "list persistentvolumeclaims ns/claim",
        Some("can only get individual resources of this type"),
    ),
    ("update persistentvolumeclaims/status ns/claim", None),
    ("patch persistentvolumeclaims/status ns/claim", None),
    (
        "get persistentvolumeclaims/status ns/claim",
        Some("can only get/update/patch this type"),
    ),
    ("update persistentvolumeclaims/status ns/other", UNRELATED),
    (
        "get persistentvolumeclaims/other ns/claim",
        Some("cannot get subresource"),
    ),
    ("get persistentvolumes pv", None),
    ("get persistentvolumes ns/pv", UNRELATED),
    ("get persistentvolumes other", UNRELATED),
    ("get resource.k8s.io:resourceclaims ns/rc", None),
    ("get resource.k8s.io:resourceclaims ns/other", UNRELATED),
    ("get storage.k8s.io:volumeattachments va-a", None),
    ("get storage.k8s.io:volumeattachments va-b", UNRELATED),
    (
        "list storage.k8s.io:volumeattachments -",
        Some("can only get individual resources of this type"),
    ),
    ("create serviceaccounts/token ns/sa", None),
    ("create serviceaccounts/token ns/sa-b", UNRELATED),
    (
        "create serviceaccounts/token ns/-",
        Some("can only create tokens for individual service accounts"),
    ),
    (
        "create serviceaccounts ns/sa",
        Some("can only create token subresource of serviceaccount"),
    ),
    ("get serviceaccounts ns/sa", None),
    ("get serviceaccounts ns/sa-b", UNRELATED),
    (
        "list serviceaccounts ns/sa",
        Some("can only create tokens for individual service accounts"),
    ),
    ("get coordination.k8s.io:leases kube-node-lease/a", None),
    ("create coordination.k8s.io:leases kube-node-lease/-", None),
    (
        "update coordination.k8s.io:leases kube-node-lease/b",
        Some("can only access node lease with the same name as the requesting node"),
    ),
    (
        "get coordination.k8s.io:leases kube-system/a",
        Some("can only access leases in the \"kube-node-lease\" system namespace"),
    ),
    (
        "list coordination.k8s.io:leases kube-node-lease/-",
        Some("can only get, create, update, patch, or delete a node lease"),
    ),
    ("patch storage.k8s.io:csinodes a", None),
    ("create storage.k8s.io:csinodes -", None),
    (
        "patch storage.k8s.io:csinodes b",
        Some("can only access CSINode with the same name as the requesting node"),
    ),
    (
        "patch storage.k8s.io:csinodes/x a",
        Some("cannot authorize CSINode subresources"),
    ),
    (
        "list storage.k8s.io:csinodes a",
        Some("can only get, create, update, patch, or delete a CSINode"),
    ),
    ("create resource.k8s.io:resourceslices -", None),
    ("delete resource.k8s.io:resourceslices slice-a", None),
    ("delete resource.k8s.io:resourceslices slice-b", UNRELATED),
    (
        "list resource.k8s.io:resourceslices - spec.nodeName=a",
        None,
    ),
    (
        "deletecollection resource.k8s.io:resourceslices - spec.nodeName=b",
        Some("can only list/watch/deletecollection resourceslices with nodeName field selector"),
    ),
    (
        "get resource.k8s.io:resourceslices/x slice-a",
        Some("cannot authorize ResourceSlice subresources"),
    ),
    (
        "bind resource.k8s.io:resourceslices slice-a",
        Some(
            "only the following verbs are allowed for a ResourceSlice: get, watch, list, create, update, patch, delete, deletecollection",
        ),
    ),
    ("get nodes a", None),
    ("list nodes a", None),
    (
        "get nodes b",
        Some("node 'a' cannot read 'b', only its own Node object"),
    ),
    (
        "watch nodes -",
        Some("node 'a' cannot read all nodes, only its own Node object"),
    ),
    ("create nodes -", None),
    ("update nodes b", None),
    ("patch nodes/status a", None),
    ("delete nodes a", Some("")),
    ("get nodes/proxy a", Some("")),
    ("get nodes/status a", Some("")),
    ("get pods ns/pod-a", None),
    ("get pods ns/pod-b", UNRELATED),
    ("list pods - spec.nodeName=a", None),
    ("watch pods - status.phase!=Failed,spec.nodeName==a", None),
    (
        "list pods - spec.nodeName!=a",
        Some("can only list/watch pods with spec.nodeName field selector"),
    ),
    (
        "list pods - spec.nodeName=b",
        Some("can only list/watch pods with spec.nodeName field selector"),
    ),
    (
        "list pods - spec.nodeName",
        Some("can only list/watch pods with spec.nodeName field selector"),
    ),
    (
        "list pods -",
        Some("can only list/watch pods with spec.nodeName field selector"),
    ),
    ("list pods ns/pod-a", None),
    ("list pods ns/pod-b", UNRELATED),
    ("create pods ns/-", None),
    ("delete pods ns/pod-b", None),
    ("update pods ns/pod-a", Some("")),
    ("patch pods/status ns/pod-b", None),
    ("create pods/eviction ns/pod-b", None),
    ("create pods/exec ns/pod-a", Some("")),
    (
        "create certificates.k8s.io:podcertificaterequests ns/-",
        Some(""),
    ),
    (
        "get certificates.k8s.io:podcertificaterequests ns/pcr-a",
        Some(""),
    ),
    ("list services -", None),
    ("create services ns/-", Some("")),
    (
        "create certificates.k8s.io:certificatesigningrequests -",
        None,
    ),
    ("create authentication.k8s.io:tokenreviews -", None),
    ("get node.k8s.io:runtimeclasses x", None),
    ("create events.k8s.io:events ns/-", None),
    ("get apps:deployments ns/d", Some("")),
    ("get apps:secrets ns/secret-a", Some("")),
];

const UNRELATED: Option<&str> = Some("no relationship found between node 'a' and this object");

fn expected(reason: Option<&str>) -> Decision {
    match reason {
        None => Decision::Allow(String::new()),
        Some(reason) => Decision::NoOpinion(reason.into()),
    }
}

#[test]
fn a_node_reaches_its_own_and_is_told_why_not_the_rest() {
    let authorizer = cluster();
    for (question, reason) in CASES {
        assert_eq!(
            ask(&authorizer, &node("a"), question),
            expected(*reason),
            "{question}"
        );
    }
}

#[test]
fn pod_certificates_are_tied_to_their_node_where_the_feature_is_on() {
    let authorizer = cluster().with_pod_certificates();
    for (request, reason) in [
        ("create podcertificaterequests ns/-", None),
        ("get podcertificaterequests ns/pcr-a", None),
        ("get podcertificaterequests ns/pcr-b", UNRELATED),
        ("list podcertificaterequests - spec.nodeName=a", None),
        (
            "list podcertificaterequests -",
            Some("can only list/watch podcertificaterequests with nodeName field selector"),
        ),
        (
            "delete podcertificaterequests ns/pcr-a",
            Some("nodes may not delete podcertificaterequests"),
        ),
        (
            "patch podcertificaterequests/status ns/pcr-a",
            Some("nodes may not access the status subresource of PodCertificateRequests"),
        ),
    ] {
        let question = request.replace(" pod", " certificates.k8s.io:pod");
        assert_eq!(
            ask(&authorizer, &node("a"), &question),
            expected(reason),
            "{question}"
        );
    }
}

#[test]
fn who_is_a_node_and_who_is_not() {
    let member = node("a");
    let nameless = node("");
    let outsider = User {
        groups: vec!["other".into()],
        ..node("a")
    };
    let misnamed = User {
        name: "system:nodes:a".into(),
        ..node("a")
    };
    assert_eq!(name_of(&member), Some("a"));
    assert_eq!(name_of(&nameless), Some(""));
    assert_eq!((name_of(&outsider), name_of(&misnamed)), (None, None));
    let authorizer = cluster();
    let question = "get nodes a";
    assert_eq!(ask(&authorizer, &outsider, question), expected(Some("")));
    assert_eq!(
        ask(&authorizer, &nameless, question),
        expected(Some("unknown node for user \"system:node:\""))
    );
    let path = |path| Attributes {
        user: &member,
        verb: "get",
        target: Target::Path(path),
    };
    assert_eq!(authorizer.authorize(&path("/healthz")), expected(Some("")));
}

#[test]
fn ties_follow_changes_and_leave_nothing_behind() {
    let authorizer = NodeAuthorizer::default();
    let can = |name: &str, question: &str| ask(&authorizer, &node(name), question).is_allowed();
    let shared = "get secrets ns/s";
    authorizer.apply(Kind::Pod, "ns", "one", Some(&pod("", "s")));
    assert!(!can("a", shared), "not bound yet");
    authorizer.apply(Kind::Pod, "ns", "one", Some(&pod("a", "s")));
    authorizer.apply(Kind::Pod, "ns", "two", Some(&pod("a", "s")));
    authorizer.apply(Kind::Pod, "ns", "two", Some(&pod("a", "s")));
    assert!(can("a", shared) && !can("b", shared));
    authorizer.apply(Kind::Pod, "ns", "one", None);
    assert!(can("a", shared), "another pod still needs it");
    authorizer.apply(Kind::Pod, "ns", "two", Some(&pod("b", "other")));
    assert!(
        !can("a", shared) && !can("b", shared),
        "a new pod of the same name"
    );

    let volume = |claim: &str| json!({"spec": {"claimRef": {"namespace": "ns", "name": claim}, "azureFile": {"secretName": "f"}}});
    authorizer.apply(Kind::PersistentVolume, "", "pv", Some(&volume("claim")));
    assert!(can("b", "get secrets ns/f") && can("b", "get persistentvolumes pv"));
    authorizer.apply(Kind::PersistentVolume, "", "pv", Some(&volume("another")));
    assert!(!can("b", "get secrets ns/f") && !can("b", "get persistentvolumes pv"));
    authorizer.apply(Kind::PersistentVolume, "", "pv", None);
    authorizer.apply(Kind::Pod, "ns", "two", None);
    assert!(authorizer.graph.read().unwrap().is_empty());
}
