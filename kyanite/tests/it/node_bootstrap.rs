//! How a machine with only a bootstrap token becomes a node, and that it becomes nothing else.

use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::KeyPair;
use serde_json::{Value, json};

use crate::harness::{
    Credentials, Finished, KYANITE, Person, Server, certificate_request, eventually,
};

const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const KUBELET: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
const USAGES: [&str; 2] = ["digital signature", "client auth"];

/// A request: its name, signer and usages, and the common name and organisations in it.
type Asked<'a> = (&'a str, &'a str, &'a [&'a str], &'a str, &'a [&'a str]);

/// A token as `kyanite token create` makes it: its id and all of it.
fn token(server: &Server) -> (String, String) {
    let mut command = Command::new(KYANITE);
    command
        .args(["token", "create", "-o", "json"])
        .env("KYANITE_DATA_DIR", server.home().join("data"))
        .env("HOME", server.home());
    let made = Finished::run(&mut command, "").ok().json();
    let text = |field: &str| made[field].as_str().unwrap().to_owned();
    (text("id"), text("token"))
}

/// Waits until what lets nodes join is there: it is made while the server starts.
fn until_nodes_may_join(server: &Server) {
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    for name in [
        "kubelet-bootstrap",
        "node-autoapprove-bootstrap",
        "node-autoapprove-certificate-rotation",
    ] {
        eventually("nodes may join", || {
            let (code, text) = server.get(&format!("{bindings}/kyanite:{name}"));
            if code == 200 { Ok(()) } else { Err(text) }
        });
    }
}

fn csr(name: &str, signer: &str, usages: &[&str], pem: &str) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"signerName": signer, "usages": usages, "request": STANDARD.encode(pem)}})
}

/// Waits for the certificate of a request, looking with the eyes of the one who asked.
fn issued(person: &Person<'_>, name: &str, key: &KeyPair) -> Credentials {
    let certificate = eventually("the certificate is issued", || {
        let found = person.get(&format!("{CSRS}/{name}")).ok();
        match found["status"]["certificate"].as_str() {
            Some(text) => Ok(STANDARD.decode(text).unwrap()),
            None => Err(found.to_string()),
        }
    });
    let certificate = String::from_utf8(certificate).unwrap();
    Credentials::Certificate(certificate, key.serialize_pem())
}

/// Asks for the client certificate of a node and waits for it.
fn become_node(person: &Person<'_>, node: &str, name: &str) -> Credentials {
    let (key, pem) = certificate_request(&format!("system:node:{node}"), &["system:nodes"]);
    person.post(CSRS, &csr(name, KUBELET, &USAGES, &pem)).ok();
    issued(person, name, &key)
}

#[test]
fn a_bootstrap_token_opens_nothing_but_its_own_requests() {
    let server = Server::start();
    until_nodes_may_join(&server);
    let (id, token) = token(&server);
    let joiner = server.bearer(&token);
    let me = joiner.whoami().ok();
    assert_eq!(
        me["status"]["userInfo"]["username"],
        format!("system:bootstrap:{id}")
    );
    assert_eq!(
        me["status"]["userInfo"]["groups"],
        json!([
            "system:bootstrappers",
            "system:bootstrappers:kyanite:default-node-token",
            "system:authenticated"
        ])
    );
    let cannot = |what: &str| format!("User \"system:bootstrap:{id}\" cannot {what}");
    let refused = [
        (
            "/api/v1/namespaces/kube-system/secrets",
            "secrets",
            "list resource \"secrets\" in API group \"\" in the namespace \"kube-system\"",
        ),
        (
            "/api/v1/nodes",
            "nodes",
            "list resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            "/api/v1/nodes/a",
            "nodes \"a\"",
            "get resource \"nodes\" in API group \"\" at the cluster scope",
        ),
        (
            "/api/v1/pods",
            "pods",
            "list resource \"pods\" in API group \"\" at the cluster scope",
        ),
        (
            "/apis/apps/v1/namespaces/default/deployments/d/status",
            "deployments.apps \"d\"",
            "get resource \"deployments/status\" in API group \"apps\" in the namespace \"default\"",
        ),
    ];
    for (path, what, action) in refused {
        let message = format!("{what} is forbidden: {}", cannot(action));
        joiner.get(path).forbidden(&message);
    }
    joiner
        .post("/api/v1/nodes", &json!({"metadata": {"name": "a"}}))
        .forbidden(&format!(
            "nodes is forbidden: {}",
            cannot("create resource \"nodes\" in API group \"\" at the cluster scope")
        ));
    joiner
        .get("/metrics")
        .forbidden(&format!("forbidden: {}", cannot("get path \"/metrics\"")));
}

#[test]
fn a_bootstrap_token_becomes_a_certificate_that_is_a_node_and_renews_itself() {
    let server = Server::start();
    until_nodes_may_join(&server);
    let (id, token) = token(&server);
    let joiner = server.bearer(&token);
    let first = become_node(&joiner, "a", "node-csr-a");
    let seen = joiner.get(&format!("{CSRS}/node-csr-a")).ok();
    assert_eq!(seen["spec"]["username"], format!("system:bootstrap:{id}"));
    let approved = &seen["status"]["conditions"][0];
    assert_eq!(approved["reason"], "AutoApproved");
    assert_eq!(
        approved["message"],
        "Auto approving kubelet client certificate after SubjectAccessReview."
    );
    let node = server.person(first);
    let me = node.whoami().ok();
    assert_eq!(me["status"]["userInfo"]["username"], "system:node:a");
    assert_eq!(
        me["status"]["userInfo"]["groups"],
        json!(["system:nodes", "system:authenticated"])
    );
    node_at_work(&node);
    let second = become_node(&node, "a", "renewal");
    let seen = node.get(&format!("{CSRS}/renewal")).ok();
    assert_eq!(
        seen["status"]["conditions"][0]["message"],
        "Auto approving self kubelet client certificate after SubjectAccessReview."
    );
    let renewed = server.person(second);
    renewed.get("/api/v1/nodes/a").ok();
    renewed.get("/api/v1/nodes").forbidden(
        "nodes is forbidden: User \"system:node:a\" cannot list resource \"nodes\" in API group \"\" at the \
         cluster scope: node 'a' cannot read all nodes, only its own Node object",
    );
}

/// What a kubelet does first: its Node, its status, its lease.
fn node_at_work(node: &Person<'_>) {
    let made = node
        .post("/api/v1/nodes", &json!({"metadata": {"name": "a"}}))
        .ok();
    assert_eq!(
        made["spec"]["taints"],
        json!([{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}])
    );
    let ready =
        json!({"status": {"conditions": [{"type": "Ready", "status": "True", "reason": "r"}]}});
    node.patch("/api/v1/nodes/a/status", &ready).ok();
    let leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
    let lease = json!({"metadata": {"name": "a"},
        "spec": {"holderIdentity": "a", "leaseDurationSeconds": 40}});
    let mut lease = node.post(leases, &lease).ok();
    lease["spec"]["renewTime"] = json!("2030-01-01T00:00:00.000000Z");
    node.put(&format!("{leases}/a"), &lease).ok();
}

#[test]
fn a_bootstrap_token_gets_no_certificate_of_another_kind() {
    let server = Server::start();
    until_nodes_may_join(&server);
    let (_, token) = token(&server);
    let joiner = server.bearer(&token);
    let (_, masters) = certificate_request("admin", &["system:masters"]);
    joiner
        .post(CSRS, &csr("masters", CLIENT, &["client auth"], &masters))
        .forbidden(
            "certificatesigningrequests.certificates.k8s.io \"masters\" is forbidden: use of \
             kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
        );
    let (node, nodes) = ("system:node:a", "system:nodes");
    let pending: [Asked<'_>; 6] = [
        (
            "master-kubelet",
            KUBELET,
            &USAGES,
            "admin",
            &["system:masters"],
        ),
        ("strange-name", KUBELET, &USAGES, "jane", &[nodes]),
        (
            "two-groups",
            KUBELET,
            &USAGES,
            node,
            &[nodes, "system:masters"],
        ),
        ("no-group", KUBELET, &USAGES, node, &[]),
        (
            "serving",
            KUBELET,
            &["digital signature", "server auth"],
            node,
            &[nodes],
        ),
        ("other-signer", CLIENT, &USAGES, node, &[nodes]),
    ];
    for (name, signer, usages, common_name, organisations) in pending {
        let (_, pem) = certificate_request(common_name, organisations);
        joiner.post(CSRS, &csr(name, signer, usages, &pem)).ok();
    }
    // One that comes last is answered by then, so the others have been passed over.
    become_node(&joiner, "a", "right");
    for (name, ..) in pending {
        let seen = joiner.get(&format!("{CSRS}/{name}")).ok();
        assert_eq!(seen["status"], json!({}), "{name}");
    }
    // Nor can it approve what it asked for.
    let mut seen = joiner.get(&format!("{CSRS}/two-groups")).ok();
    seen["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]);
    let refused = joiner.put(&format!("{CSRS}/two-groups/approval"), &seen);
    assert_eq!(refused.code, 403, "{refused:?}");
}

#[test]
fn a_node_renews_only_its_own_certificate() {
    let server = Server::start();
    until_nodes_may_join(&server);
    let (_, token) = token(&server);
    let node = server.person(become_node(&server.bearer(&token), "a", "first"));
    let (_, pem) = certificate_request("system:node:b", &["system:nodes"]);
    node.post(CSRS, &csr("another", KUBELET, &USAGES, &pem))
        .forbidden(
            "certificatesigningrequests.certificates.k8s.io \"another\" is forbidden: can only create a node CSR \
             with CN=system:node:a",
        );
}
