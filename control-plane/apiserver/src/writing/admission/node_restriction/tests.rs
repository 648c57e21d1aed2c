use serde_json::json;

use super::super::{certificate_request::samples, trial};
use super::*;
use crate::call::Call;

const PODS: (&str, &str, &str) = ("", "v1", "pods");
const NODES: (&str, &str, &str) = ("", "v1", "nodes");
const LEASES: (&str, &str, &str) = ("coordination.k8s.io", "v1", "leases");

fn by_node(resource: (&str, &str, &str), namespace: &str, name: &str) -> Call {
    let user = trial::user("system:node:n1", &["system:nodes", "system:authenticated"]);
    trial::call_by(user, resource, namespace, name)
}

/// What the decision says about a write of `new` over `old`.
fn decide(
    call: &Call,
    operation: Operation,
    subresource: &str,
    (old, new): (Value, Value),
    decision: fn(&Request<'_>) -> Result<(), Refusal>,
) -> Option<Refusal> {
    let old = (!old.is_null()).then_some(old);
    let attributes = trial::attributes(call, operation, subresource, old.as_ref());
    let request = Request {
        node: "n1",
        attributes: &attributes,
        object: &new,
    };
    decision(&request).err()
}

#[test]
fn only_users_named_and_grouped_as_nodes_are_nodes() {
    for (name, groups, node) in [
        ("system:node:n1", &["system:nodes"][..], Some("n1")),
        ("system:node:", &["system:nodes"][..], Some("")),
        ("system:node:n1", &["system:authenticated"][..], None),
        ("system:nodes:n1", &["system:nodes"][..], None),
        ("alice", &["system:nodes"][..], None),
    ] {
        assert_eq!(node_of(&trial::user(name, groups)), node, "{name}");
    }
}

fn mirror(change: impl Fn(&mut Value)) -> Value {
    let owner =
        json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u1", "controller": true});
    let mut pod = json!({
        "metadata": {"name": "p-n1", "annotations": {"kubernetes.io/config.mirror": "x"},
            "ownerReferences": [owner]},
        "spec": {"nodeName": "n1", "containers": [{"name": "c"}]},
    });
    change(&mut pod);
    pod
}

#[test]
fn a_node_creates_mirror_pods_of_its_own_only() {
    let call = by_node(PODS, "kube-system", "");
    let check = |pod: Value| {
        let pair = (Value::Null, pod);
        decide(&call, Operation::Create, "", pair, pods::check_mirror)
    };
    assert_eq!(check(mirror(|_| ())), None);
    type Change = fn(&mut Value);
    let cases: [(Change, &str); 7] = [
        (
            |pod| pod["metadata"]["annotations"] = json!({}),
            "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"n1\" can only create mirror pods",
        ),
        (
            |pod| pod["spec"]["nodeName"] = "n2".into(),
            "node \"n1\" can only create pods with spec.nodeName set to itself",
        ),
        (
            |pod| pod["metadata"]["ownerReferences"] = json!([]),
            "node \"n1\" can only create pods with an owner reference set to itself",
        ),
        (
            |pod| pod["metadata"]["ownerReferences"] = json!([{}, {}]),
            "node \"n1\" can only create pods with a single owner reference set to itself",
        ),
        (
            |pod| pod["metadata"]["ownerReferences"][0]["name"] = "n2".into(),
            "node \"n1\" can only create pods with an owner reference set to itself",
        ),
        (
            |pod| pod["metadata"]["ownerReferences"][0]["controller"] = false.into(),
            "node \"n1\" can only create pods with a controller owner reference set to itself",
        ),
        (
            |pod| pod["metadata"]["ownerReferences"][0]["blockOwnerDeletion"] = true.into(),
            "node \"n1\" must not set blockOwnerDeletion on an owner reference",
        ),
    ];
    for (change, refusal) in cases {
        assert_eq!(check(mirror(change)).as_deref(), Some(refusal));
    }
}

#[test]
fn a_mirror_pod_names_the_real_node_and_nothing_else() {
    let call = by_node(PODS, "kube-system", "");
    let attributes = trial::attributes(&call, Operation::Create, "", None);
    let pod = mirror(|pod| pod["spec"]["serviceAccountName"] = "default".into());
    let request = Request {
        node: "n1",
        attributes: &attributes,
        object: &pod,
    };
    let node = |uid: &str| json!({"metadata": {"name": "n1", "uid": uid}});
    assert!(pods::check_owner_uid(&request, &node("u1")).is_ok());
    assert_eq!(
        pods::check_owner_uid(&request, &node("u2")).expect_err("another node"),
        "node n1 UID mismatch: expected u1 got u2"
    );
    assert_eq!(
        pods::check_references(&request).expect_err("an account"),
        "node \"n1\" can not create pods that reference serviceaccounts"
    );
}

#[test]
fn a_node_touches_only_the_pods_it_runs() {
    let pod = |node: &str| json!({"metadata": {"name": "p", "labels": {"a": "1"}}, "spec": {"nodeName": node}});
    let relabeled = json!({"metadata": {"labels": {"a": "2"}}, "spec": {"nodeName": "n1"}});
    let claimed = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"nodeName": "n1"},
        "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "x"}]}});
    let call = by_node(PODS, "default", "p");
    use Operation::{Create, Delete, Update};
    for (operation, subresource, old, new, refusal) in [
        (Delete, "", pod("n1"), Value::Null, None),
        (
            Delete,
            "",
            pod("n2"),
            Value::Null,
            Some("node \"n1\" can only delete pods with spec.nodeName set to itself"),
        ),
        (
            Update,
            "",
            pod("n1"),
            pod("n1"),
            Some(
                "unexpected operation \"UPDATE\", node \"n1\" can only create and delete mirror pods",
            ),
        ),
        (Update, "status", pod("n1"), pod("n1"), None),
        (
            Update,
            "status",
            pod("n2"),
            pod("n1"),
            Some(
                "node \"n1\" can only update pod status for pods with spec.nodeName set to itself",
            ),
        ),
        (
            Update,
            "status",
            pod("n1"),
            relabeled,
            Some("node \"n1\" cannot update labels through pod status"),
        ),
        (
            Update,
            "status",
            pod("n1"),
            claimed,
            Some("node \"n1\" cannot update resource claim statues"),
        ),
        (
            Update,
            "resize",
            pod("n1"),
            pod("n1"),
            Some("unexpected pod subresource \"resize\", only 'status' and 'eviction' are allowed"),
        ),
        (
            Update,
            "ephemeralcontainers",
            pod("n1"),
            pod("n1"),
            Some(
                "unexpected pod subresource \"ephemeralcontainers\", only 'status' and 'eviction' are allowed",
            ),
        ),
        (
            Create,
            "binding",
            Value::Null,
            json!({}),
            Some(
                "unexpected pod subresource \"binding\", only 'status' and 'eviction' are allowed",
            ),
        ),
    ] {
        let said = decide(
            &call,
            operation,
            subresource,
            (old, new),
            pods::without_lookup,
        );
        assert_eq!(said.as_deref(), refusal, "{operation:?} {subresource}");
    }
}

#[test]
fn a_node_changes_neither_other_nodes_nor_what_steers_work_to_itself() {
    let node = |labels: Value, spec: Value| json!({"metadata": {"name": "n1", "labels": labels}, "spec": spec});
    let plain = || node(json!({"kubernetes.io/os": "linux"}), json!({}));
    let role = json!({"node-role.kubernetes.io/control-plane": "", "node-restriction.kubernetes.io/a": "1"});
    let tainted = || {
        node(
            json!({}),
            json!({"taints": [{"key": "k", "effect": "NoSchedule"}]}),
        )
    };
    let owned = json!({"metadata": {"ownerReferences": [{"name": "o"}]}});
    use Operation::{Create, Delete, Update};
    for (name, operation, old, new, refusal) in [
        ("n1", Create, Value::Null, plain(), None),
        ("n1", Update, plain(), plain(), None),
        ("n1", Update, tainted(), tainted(), None),
        ("n1", Delete, plain(), Value::Null, None),
        (
            "n2",
            Update,
            plain(),
            plain(),
            Some("node \"n1\" is not allowed to modify node \"n2\""),
        ),
        (
            "n1",
            Create,
            Value::Null,
            node(role.clone(), json!({})),
            Some(
                "node \"n1\" is not allowed to set the following labels: \
                 node-restriction.kubernetes.io/a, node-role.kubernetes.io/control-plane",
            ),
        ),
        (
            "n1",
            Create,
            Value::Null,
            node(json!({}), json!({"configSource": {"configMap": {}}})),
            Some("node \"n1\" is not allowed to create pods with a non-nil configSource"),
        ),
        (
            "n1",
            Update,
            plain(),
            node(json!({}), json!({"configSource": {"configMap": {}}})),
            Some("node \"n1\" is not allowed to update configSource to a new non-nil configSource"),
        ),
        (
            "n1",
            Update,
            tainted(),
            plain(),
            Some("node \"n1\" is not allowed to modify taints"),
        ),
        (
            "n1",
            Update,
            plain(),
            owned,
            Some("node \"n1\" is not allowed to modify ownerReferences"),
        ),
        (
            "n1",
            Update,
            node(json!({"kubernetes.io/role": "a"}), json!({})),
            plain(),
            Some("is not allowed to modify labels: kubernetes.io/role"),
        ),
    ] {
        let call = by_node(NODES, "", name);
        let said = decide(&call, operation, "", (old, new.clone()), nodes::admit);
        assert_eq!(said.as_deref(), refusal, "{operation:?} {new}");
    }
}

#[test]
fn a_node_holds_its_own_lease_and_csi_node_only() {
    let named = |name: &str| json!({"metadata": {"name": name}});
    use Operation::{Create, Delete, Update};
    let other = "can only access node lease with the same name as the requesting node";
    for (namespace, name, operation, object, refusal) in [
        ("kube-node-lease", "n1", Create, "n1", None),
        ("kube-node-lease", "n1", Update, "n1", None),
        ("kube-node-lease", "n2", Create, "n2", Some(other)),
        ("kube-node-lease", "n2", Update, "n1", Some(other)),
        ("kube-node-lease", "n2", Delete, "n2", Some(other)),
        (
            "default",
            "n1",
            Create,
            "n1",
            Some("can only access leases in the \"kube-node-lease\" system namespace"),
        ),
    ] {
        let call = by_node(LEASES, namespace, name);
        let said = decide(&call, operation, "", (Value::Null, named(object)), lease);
        assert_eq!(said.as_deref(), refusal, "{operation:?} {namespace}/{name}");
    }
    let call = by_node(("storage.k8s.io", "v1", "csinodes"), "", "n2");
    assert_eq!(
        decide(&call, Update, "", (Value::Null, named("n2")), csi_node).as_deref(),
        Some("can only access CSINode with the same name as the requesting node")
    );
}

#[test]
fn a_node_publishes_and_withdraws_its_own_devices() {
    let slice = |node: &str| json!({"spec": {"nodeName": node}});
    let call = by_node(("resource.k8s.io", "v1", "resourceslices"), "", "s");
    let refused = |verb: &str| {
        Some(format!(
            "can only {verb} ResourceSlice with the same NodeName as the requesting node"
        ))
    };
    use Operation::{Create, Delete, Update};
    for (operation, old, new, refusal) in [
        (Create, Value::Null, slice("n1"), None),
        (Create, Value::Null, slice("n2"), refused("create")),
        (Create, Value::Null, json!({"spec": {}}), refused("create")),
        (Delete, slice("n1"), Value::Null, None),
        (Delete, slice("n2"), Value::Null, refused("delete")),
        (Update, slice("n2"), slice("n2"), None),
    ] {
        let said = decide(&call, operation, "", (old, new), resource_slice);
        assert_eq!(said, refusal, "{operation:?}");
    }
}

#[test]
fn a_node_changes_only_the_size_in_a_claim() {
    let claims = ("", "v1", "persistentvolumeclaims");
    let claim = |labels: Value, status: Value| json!({"metadata": {"name": "c", "labels": labels, "resourceVersion": "1"}, "status": status});
    let call = by_node(claims, "default", "c");
    let bare = json!({"metadata": {"name": "c", "labels": {}}});
    let grown = claim(
        json!({}),
        json!({"capacity": {"storage": "2Gi"}, "allocatedResources": {}}),
    );
    let update = |subresource: &str, new: Value| {
        decide(
            &call,
            Operation::Update,
            subresource,
            (bare.clone(), new),
            claim_decision,
        )
    };
    fn claim_decision(request: &Request<'_>) -> Result<(), Refusal> {
        super::claim(request)
    }
    assert_eq!(update("status", grown.clone()), None);
    assert_eq!(
        update("", grown).as_deref(),
        Some("may only update PVC status")
    );
    let relabeled = update("status", claim(json!({"a": "1"}), json!({"phase": "Lost"})));
    assert_eq!(
        relabeled.as_deref(),
        Some(
            "node \"n1\" is not allowed to update fields other than status.quantity and status.conditions: \
             metadata.labels, status.phase"
        )
    );
}

#[test]
fn a_node_asks_for_certificates_in_its_own_name() {
    let request =
        |signer: &str, request: &str| json!({"spec": {"signerName": signer, "request": request}});
    let call = by_node(
        ("certificates.k8s.io", "v1", "certificatesigningrequests"),
        "",
        "c",
    );
    let create = |object: Value| {
        decide(
            &call,
            Operation::Create,
            "",
            (Value::Null, object),
            certificates::admit,
        )
    };
    let (serving, client) = (
        "kubernetes.io/kubelet-serving",
        "kubernetes.io/kube-apiserver-client-kubelet",
    );
    assert_eq!(create(request(serving, samples::NODE)), None);
    assert_eq!(create(request(client, samples::NODE)), None);
    assert_eq!(create(request("example.com/other", samples::MASTERS)), None);
    assert_eq!(
        create(request(client, samples::MASTERS)).as_deref(),
        Some("can only create a node CSR with CN=system:node:n1")
    );
    assert_eq!(
        create(request(serving, "")).as_deref(),
        Some("unable to parse csr: PEM block type must be CERTIFICATE REQUEST")
    );
}

#[test]
fn a_node_gets_tokens_for_the_pods_it_runs() {
    let token = |reference: Value| json!({"spec": {"boundObjectRef": reference}});
    let bound =
        |uid: &str| token(json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid}));
    let unbound = "node requested token not bound to a pod";
    for (request, said) in [
        (bound("u1"), Ok("p")),
        (
            bound(""),
            Err("node requested token with a pod binding without a uid"),
        ),
        (token(Value::Null), Err(unbound)),
        (
            token(json!({"apiVersion": "v1", "kind": "Secret", "name": "p", "uid": "u"})),
            Err(unbound),
        ),
        (
            token(json!({"apiVersion": "v1", "kind": "Node", "name": "n1", "uid": "u"})),
            Err(unbound),
        ),
    ] {
        assert_eq!(tokens::bound_pod(&request), said, "{request}");
    }
    let pod = |uid: &str, node: &str| json!({"metadata": {"uid": uid}, "spec": {"nodeName": node}});
    let call = by_node(("", "v1", "serviceaccounts"), "default", "robot");
    let attributes = trial::attributes(&call, Operation::Create, "token", None);
    let object = bound("u1");
    let request = Request {
        node: "n1",
        attributes: &attributes,
        object: &object,
    };
    assert!(tokens::check_pod(&request, &pod("u1", "n1")).is_ok());
    assert_eq!(
        tokens::check_pod(&request, &pod("u1", "n2")).expect_err("elsewhere"),
        "node requested token bound to a pod scheduled on a different node"
    );
    assert_eq!(
        tokens::check_pod(&request, &pod("u2", "n1")).expect_err("another pod"),
        "the UID in the bound object reference (u1) does not match the UID in record. \
         The object might have been deleted and then recreated"
    );
}

#[test]
fn audiences_come_from_volumes() {
    use tokens::Source;
    for (audiences, said) in [
        (json!([]), Ok("")),
        (json!(["vault"]), Ok("vault")),
        (
            json!(["vault", "other"]),
            Err("node may only request 0 or 1 audiences".to_owned()),
        ),
    ] {
        let token = json!({"spec": {"audiences": audiences}});
        assert_eq!(tokens::audience(&token), said);
    }
    let pod = json!({"metadata": {"name": "p"}});
    let projected = json!({"projected": {"sources": [
        {"serviceAccountToken": {"path": "a", "audience": "vault"}},
        {"serviceAccountToken": {"path": "b"}}, {"configMap": {}},
    ]}});
    for (volume, source) in [
        (projected, Source::Audiences(vec!["vault", ""])),
        (
            json!({"csi": {"driver": "d.example.com"}}),
            Source::Driver("d.example.com"),
        ),
        (
            json!({"azureDisk": {}}),
            Source::Driver("disk.csi.azure.com"),
        ),
        (
            json!({"persistentVolumeClaim": {"claimName": "data"}}),
            Source::Claim("data".into()),
        ),
        (
            json!({"name": "scratch", "ephemeral": {"volumeClaimTemplate": {}}}),
            Source::Claim("p-scratch".into()),
        ),
        (json!({"emptyDir": {}}), Source::Nothing),
    ] {
        assert_eq!(tokens::source(&pod, &volume), source, "{volume}");
    }
}
