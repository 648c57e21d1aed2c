//! What the certificate of node `a` opens in the wrong hands: the things of node `a`, and nothing of `b`.

use serde_json::{Value, json};

use crate::harness::{Answer, Forger, Person, Server, eventually};

const PODS: &str = "/api/v1/namespaces/default/pods";
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const CSI_NODES: &str = "/apis/storage.k8s.io/v1/csinodes";

fn of_default(resource: &str, name: &str) -> String {
    format!("/api/v1/namespaces/default/{resource}/{name}")
}

fn token_of(account: &str) -> String {
    of_default("serviceaccounts", &format!("{account}/token"))
}

/// A cluster with nodes `a` and `b`, on each of them a pod with an account, a secret and a configuration of
/// its own, each with the node's letter at its end.
struct Cluster {
    server: Server,
}

impl Cluster {
    fn start() -> Self {
        let cluster = Self {
            server: Server::start(),
        };
        let admin = cluster.server.admin();
        for node in ["a", "b"] {
            admin
                .post("/api/v1/nodes", &json!({"metadata": {"name": node}}))
                .ok();
            admin
                .post(LEASES, &json!({"metadata": {"name": node}}))
                .ok();
            let csi = json!({"metadata": {"name": node}, "spec": {"drivers": []}});
            admin.post(CSI_NODES, &csi).ok();
            cluster.create_things(node);
            admin.post(PODS, &pod(node, Some(node))).ok();
        }
        cluster
    }

    // A secret, a configuration and an account with this letter at the end.
    fn create_things(&self, letter: &str) {
        let admin = self.server.admin();
        let collection = |resource: &str| format!("/api/v1/namespaces/default/{resource}");
        let named = |kind: &str| json!({"metadata": {"name": format!("{kind}-{letter}")}});
        admin.post(&collection("secrets"), &named("secret")).ok();
        admin.post(&collection("configmaps"), &named("map")).ok();
        let account = named("account");
        admin.post(&collection("serviceaccounts"), &account).ok();
    }

    fn admin(&self) -> Person<'_> {
        self.server.admin()
    }

    /// Whoever holds a certificate of node `a`.
    fn thief(&self) -> Person<'_> {
        let certificate = Forger::of(&self.server, "ca").client("system:node:a", &["system:nodes"]);
        self.server.person(certificate)
    }

    fn uid(&self, path: &str) -> Value {
        self.admin().get(path).ok()["metadata"]["uid"].clone()
    }
}

fn pod(letter: &str, node: Option<&str>) -> Value {
    let mut pod = json!({
        "metadata": {"name": format!("pod-{letter}")},
        "spec": {
            "serviceAccountName": format!("account-{letter}"),
            "containers": [{"name": "c", "image": "i",
                "envFrom": [{"configMapRef": {"name": format!("map-{letter}")}}]}],
            "volumes": [{"name": "v", "secret": {"secretName": format!("secret-{letter}")}}],
        },
    });
    if let Some(node) = node {
        pod["spec"]["nodeName"] = json!(node);
    }
    pod
}

/// The authorizer's refusal of something that has a name.
fn cannot(verb: &str, resource: &str, name: &str, reason: &str) -> String {
    let base = resource.split('/').next().unwrap();
    format!(
        "{base} \"{name}\" is forbidden: User \"system:node:a\" cannot {verb} resource \"{resource}\" in API \
         group \"\" in the namespace \"default\": {reason}"
    )
}

const UNRELATED: &str = "no relationship found between node 'a' and this object";

#[test]
fn a_node_reads_what_its_own_pods_use_and_nothing_else() {
    let cluster = Cluster::start();
    let thief = cluster.thief();
    for (resource, kind) in [("secrets", "secret"), ("configmaps", "map")] {
        thief.get(&of_default(resource, &format!("{kind}-a"))).ok();
        let other = format!("{kind}-b");
        thief
            .get(&of_default(resource, &other))
            .forbidden(&cannot("get", resource, &other, UNRELATED));
        thief
            .get(&format!("/api/v1/namespaces/default/{resource}"))
            .forbidden(&format!(
                "{resource} is forbidden: User \"system:node:a\" cannot list resource \"{resource}\" in API \
                 group \"\" in the namespace \"default\": No Object name found"
            ));
        thief
            .get(&format!("/api/v1/{resource}"))
            .forbidden(&format!(
                "{resource} is forbidden: User \"system:node:a\" cannot list resource \"{resource}\" in API \
                 group \"\" at the cluster scope: can only read namespaced object of this type"
            ));
        let changed = thief.patch(&of_default(resource, &format!("{kind}-a")), &json!({}));
        changed.forbidden(&cannot(
            "patch",
            resource,
            &format!("{kind}-a"),
            "can only read resources of this type",
        ));
    }
    // The one thing everybody's pods use: the CA in every namespace.
    eventually("the CA is published", || {
        let answer = thief.get(&of_default("configmaps", "kube-root-ca.crt"));
        match answer.code {
            200 => Ok(()),
            code => Err(code.to_string()),
        }
    });
    thief.get(&of_default("pods", "pod-a")).ok();
    thief
        .get(&of_default("pods", "pod-b"))
        .forbidden(&cannot("get", "pods", "pod-b", UNRELATED));
    thief.get("/api/v1/pods").forbidden(
        "pods is forbidden: User \"system:node:a\" cannot list resource \"pods\" in API group \"\" at the cluster \
         scope: can only list/watch pods with spec.nodeName field selector",
    );
    thief
        .get("/api/v1/pods?fieldSelector=spec.nodeName%3Db")
        .forbidden(
            "pods is forbidden: User \"system:node:a\" cannot list resource \"pods\" in API group \"\" at the \
             cluster scope: can only list/watch pods with spec.nodeName field selector",
        );
    let own = thief
        .get("/api/v1/pods?fieldSelector=spec.nodeName%3Da")
        .ok();
    assert_eq!(own["items"].as_array().unwrap().len(), 1);
    assert_eq!(own["items"][0]["metadata"]["name"], "pod-a");
}

#[test]
fn a_secret_opens_when_a_pod_is_bound_and_closes_when_it_is_gone() {
    let cluster = Cluster::start();
    let (admin, thief) = (cluster.admin(), cluster.thief());
    cluster.create_things("c");
    let secret = of_default("secrets", "secret-c");
    let refused = cannot("get", "secrets", "secret-c", UNRELATED);
    thief.get(&secret).forbidden(&refused);
    for _ in 0..20 {
        admin.post(PODS, &pod("c", None)).ok();
        thief.get(&secret).forbidden(&refused);
        let binding = json!({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": "pod-c"},
            "target": {"kind": "Node", "name": "a"}});
        admin
            .post(&of_default("pods", "pod-c/binding"), &binding)
            .ok();
        thief.get(&secret).ok();
        admin.delete(&of_default("pods", "pod-c")).ok();
        thief.get(&secret).forbidden(&refused);
    }
}

#[test]
fn a_node_changes_only_itself_and_not_what_keeps_pods_away() {
    let cluster = Cluster::start();
    let (admin, thief) = (cluster.admin(), cluster.thief());
    let foreign = "nodes \"b\" is forbidden: node \"a\" is not allowed to modify node \"b\"";
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    thief
        .patch("/api/v1/nodes/b/status", &ready)
        .forbidden(foreign);
    let label = json!({"metadata": {"labels": {"a": "b"}}});
    thief.patch("/api/v1/nodes/b", &label).forbidden(foreign);
    thief.get("/api/v1/nodes/b").forbidden(
        "nodes \"b\" is forbidden: User \"system:node:a\" cannot get resource \"nodes\" in API group \"\" at the \
         cluster scope: node 'a' cannot read 'b', only its own Node object",
    );
    let named = |name: &str| json!({"metadata": {"name": name}});
    thief
        .post("/api/v1/nodes", &named("c"))
        .forbidden("nodes \"c\" is forbidden: node \"a\" is not allowed to modify node \"c\"");
    let taint = json!({"spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    admin.patch("/api/v1/nodes/a", &taint).ok();
    let lifted = json!({"spec": {"taints": null}});
    for path in ["/api/v1/nodes/a", "/api/v1/nodes/a/status"] {
        thief
            .patch(path, &lifted)
            .forbidden("nodes \"a\" is forbidden: node \"a\" is not allowed to modify taints");
    }
    let kept = admin.get("/api/v1/nodes/a").ok();
    assert_eq!(kept["spec"]["taints"][0]["key"], "k");
    let owner = json!({"metadata": {"ownerReferences": [
        {"apiVersion": "v1", "kind": "Node", "name": "b", "uid": cluster.uid("/api/v1/nodes/b")}]}});
    thief
        .patch("/api/v1/nodes/a", &owner)
        .forbidden("nodes \"a\" is forbidden: node \"a\" is not allowed to modify ownerReferences");
    for key in [
        "node-restriction.kubernetes.io/team",
        "node-role.kubernetes.io/control-plane",
        "x.k8s.io/y",
    ] {
        let label = json!({"metadata": {"labels": {key: "v"}}});
        let message = format!("nodes \"a\" is forbidden: is not allowed to modify labels: {key}");
        thief.patch("/api/v1/nodes/a", &label).forbidden(&message);
        let status = thief.patch("/api/v1/nodes/a/status", &label);
        status.forbidden(&message);
    }
    let allowed = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "z", "mine": "v",
        "node.kubernetes.io/x": "v"}}});
    thief.patch("/api/v1/nodes/a", &allowed).ok();
    thief.patch("/api/v1/nodes/a/status", &ready).ok();
    let gone = thief.delete("/api/v1/nodes/a");
    gone.forbidden(
        "nodes \"a\" is forbidden: User \"system:node:a\" cannot delete resource \"nodes\" in API group \"\" at \
         the cluster scope",
    );
}

#[test]
fn a_node_creates_mirror_pods_of_itself_only() {
    let cluster = Cluster::start();
    let (admin, thief) = (cluster.admin(), cluster.thief());
    let owner = |node: &str| {
        json!([{"apiVersion": "v1", "kind": "Node", "name": node, "controller": true,
            "uid": cluster.uid(&format!("/api/v1/nodes/{node}"))}])
    };
    let mirror = |node: &str, owners: Value| {
        json!({"metadata": {"name": "m", "annotations": {"kubernetes.io/config.mirror": "h"},
                "ownerReferences": owners},
            "spec": {"nodeName": node, "containers": [{"name": "c", "image": "i"}]}})
    };
    let refused = |answer: Answer, why: &str| {
        answer.forbidden(&format!("pods \"m\" is forbidden: {why}"));
    };
    let mut plain = mirror("a", owner("a"));
    plain["metadata"]["annotations"] = json!({});
    plain["spec"]["serviceAccountName"] = json!("account-a");
    refused(
        thief.post(PODS, &plain),
        "pod does not have \"kubernetes.io/config.mirror\" annotation, node \"a\" can only create mirror pods",
    );
    refused(
        thief.post(PODS, &mirror("b", owner("b"))),
        "node \"a\" can only create pods with spec.nodeName set to itself",
    );
    refused(
        thief.post(PODS, &mirror("a", json!([]))),
        "node \"a\" can only create pods with an owner reference set to itself",
    );
    refused(
        thief.post(PODS, &mirror("a", owner("b"))),
        "node \"a\" can only create pods with an owner reference set to itself",
    );
    let mut secret = mirror("a", owner("a"));
    secret["spec"]["volumes"] = json!([{"name": "v", "secret": {"secretName": "secret-b"}}]);
    let answer = thief.post(PODS, &secret);
    assert_eq!(answer.code, 403, "{answer:?}");
    thief.post(PODS, &mirror("a", owner("a"))).ok();
    // Its own pods it may end, report on and evict; those of others not.
    thief
        .delete(&of_default("pods", "pod-b"))
        .forbidden("pods \"pod-b\" is forbidden: node \"a\" can only delete pods with spec.nodeName set to itself");
    let running = json!({"status": {"phase": "Running"}});
    thief
        .patch(&of_default("pods", "pod-b/status"), &running)
        .forbidden(
            "pods \"pod-b\" is forbidden: node \"a\" can only update pod status for pods with spec.nodeName set to \
             itself",
        );
    let eviction = |pod: &str| json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": pod}});
    thief
        .post(&of_default("pods", "pod-b/eviction"), &eviction("pod-b"))
        .forbidden("pods \"pod-b\" is forbidden: node a can only evict pods with spec.nodeName set to itself");
    thief
        .patch(&of_default("pods", "pod-a/status"), &running)
        .ok();
    let label = json!({"metadata": {"labels": {"app": "trusted"}}, "status": {"phase": "Running"}});
    thief
        .patch(&of_default("pods", "pod-a/status"), &label)
        .forbidden(
            "pods \"pod-a\" is forbidden: node \"a\" cannot update labels through pod status",
        );
    thief
        .patch(&of_default("pods", "pod-a"), &label)
        .forbidden(
            "pods \"pod-a\" is forbidden: User \"system:node:a\" cannot patch resource \"pods\" in API group \"\" \
             in the namespace \"default\"",
        );
    thief.delete(&of_default("pods", "pod-a")).ok();
    assert_eq!(admin.get(&of_default("pods", "pod-b")).code, 200);
}

#[test]
fn a_node_mints_tokens_for_its_own_pods_only() {
    let cluster = Cluster::start();
    let thief = cluster.thief();
    let bound = |pod: &str, uid: Value| {
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
            "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": uid}}})
    };
    let (uid_a, uid_b) = (
        cluster.uid(&of_default("pods", "pod-a")),
        cluster.uid(&of_default("pods", "pod-b")),
    );
    thief
        .post(&token_of("account-b"), &bound("pod-b", uid_b.clone()))
        .forbidden(&cannot(
            "create",
            "serviceaccounts/token",
            "account-b",
            UNRELATED,
        ));
    let refused = |request: &Value, why: &str| {
        let message = format!("serviceaccounts \"account-a\" is forbidden: {why}");
        thief
            .post(&token_of("account-a"), request)
            .forbidden(&message);
    };
    let unbound =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    refused(&unbound, "node requested token not bound to a pod");
    let mut no_uid = bound("pod-a", uid_a.clone());
    no_uid["spec"]["boundObjectRef"]["uid"] = Value::Null;
    refused(
        &no_uid,
        "node requested token with a pod binding without a uid",
    );
    refused(
        &bound("pod-b", uid_b),
        "node requested token bound to a pod scheduled on a different node",
    );
    refused(
        &bound("pod-a", json!("stale")),
        "the UID in the bound object reference (stale) does not match the UID in record. The object might have \
         been deleted and then recreated",
    );
    let mut vault = bound("pod-a", uid_a.clone());
    vault["spec"]["audiences"] = json!(["vault"]);
    refused(
        &vault,
        "audience \"vault\" not found in pod spec volume, system:node:a is not authorized to request tokens for \
         this audience",
    );
    let node_bound = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest",
        "spec": {"boundObjectRef": {"apiVersion": "v1", "kind": "Node", "name": "a"}}});
    refused(&node_bound, "node requested token not bound to a pod");
    let made = thief
        .post(&token_of("account-a"), &bound("pod-a", uid_a))
        .ok();
    let token = made["status"]["token"].as_str().unwrap();
    let me = cluster.server.bearer(token).whoami().ok();
    let info = &me["status"]["userInfo"];
    assert_eq!(info["username"], "system:serviceaccount:default:account-a");
    let extra = &info["extra"];
    assert_eq!(
        extra["authentication.kubernetes.io/node-name"],
        json!(["a"])
    );
    assert_eq!(
        extra["authentication.kubernetes.io/pod-name"],
        json!(["pod-a"])
    );
}

#[test]
fn a_node_keeps_its_own_lease_and_csi_node_only() {
    let cluster = Cluster::start();
    let (admin, thief) = (cluster.admin(), cluster.thief());
    for node in ["a", "b"] {
        admin.delete(&format!("{LEASES}/{node}")).ok();
        admin.delete(&format!("{CSI_NODES}/{node}")).ok();
    }
    let lease = |name: &str| json!({"metadata": {"name": name}});
    let csi = |name: &str| json!({"metadata": {"name": name}, "spec": {"drivers": []}});
    thief.post(LEASES, &lease("b")).forbidden(
        "leases.coordination.k8s.io \"b\" is forbidden: can only access node lease with the same name as the \
         requesting node",
    );
    thief.post(CSI_NODES, &csi("b")).forbidden(
        "csinodes.storage.k8s.io \"b\" is forbidden: can only access CSINode with the same name as the requesting \
         node",
    );
    thief.post(LEASES, &lease("a")).ok();
    thief.post(CSI_NODES, &csi("a")).ok();
    admin.post(LEASES, &lease("b")).ok();
    admin.post(CSI_NODES, &csi("b")).ok();
    for (verb, answer) in [
        ("get", thief.get(&format!("{LEASES}/b"))),
        ("patch", thief.patch(&format!("{LEASES}/b"), &json!({}))),
        ("delete", thief.delete(&format!("{LEASES}/b"))),
    ] {
        let message = format!(
            "leases.coordination.k8s.io \"b\" is forbidden: User \"system:node:a\" cannot {verb} resource \"leases\" \
             in API group \"coordination.k8s.io\" in the namespace \"kube-node-lease\": can only access node lease \
             with the same name as the requesting node"
        );
        answer.forbidden(&message);
    }
    thief
        .patch(&format!("{CSI_NODES}/b"), &json!({}))
        .forbidden(
            "csinodes.storage.k8s.io \"b\" is forbidden: User \"system:node:a\" cannot patch resource \"csinodes\" in \
             API group \"storage.k8s.io\" at the cluster scope: can only access CSINode with the same name as the \
             requesting node",
        );
    let elsewhere = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases";
    thief.post(elsewhere, &lease("a")).forbidden(
        "leases.coordination.k8s.io is forbidden: User \"system:node:a\" cannot create resource \"leases\" in API \
         group \"coordination.k8s.io\" in the namespace \"kube-system\": can only access leases in the \
         \"kube-node-lease\" system namespace",
    );
}
