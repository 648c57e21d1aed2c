//! Kubelets reached directly: logs, exec, attach, port-forward, and who may.

use std::net::TcpListener;

use serde_json::{Value, json};

use crate::harness::{
    Credentials, LOG, Pki, RawConnection, Replica, Server, StandIn, eventually, eventually_async,
};

const PODS: &str = "/api/v1/namespaces/default/pods";

fn node(name: &str, address: &str, port: u16) -> Value {
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
           "status": {"addresses": [{"type": "InternalIP", "address": address}],
                      "daemonEndpoints": {"kubeletEndpoint": {"Port": port}}}})
}

fn pod(name: &str, node: Option<&str>) -> Value {
    let container = |name: &str| json!({"name": name, "image": "x"});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
           "spec": {"nodeName": node, "automountServiceAccountToken": false,
                    "containers": [container("main"), container("side")]}})
}

/// A server with a node at this address and its pod `p`.
fn server_with_node() -> (Server, Pki, StandIn) {
    let server = Server::start();
    let pki = Pki::new();
    let keys = server.home().join("data/pki");
    let authority = std::fs::read(keys.join("ca.crt")).unwrap();
    pki.add_kubelet(&keys, "127.0.0.1");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let kubelet =
        server.block_on(async { StandIn::kubelet(listener, &pki, "kubelet", &authority) });
    let admin = server.admin();
    admin
        .post("/api/v1/nodes", &node("n", "127.0.0.1", kubelet.port))
        .ok();
    eventually("pods can be made", || {
        let answer = admin.post(PODS, &pod("p", Some("n")));
        (answer.code == 201)
            .then_some(())
            .ok_or(format!("{:#}", answer.body))
    });
    (server, pki, kubelet)
}

#[test]
fn logs_come_from_the_kubelet_of_the_pod() {
    let (server, _pki, kubelet) = server_with_node();
    let admin = server.admin();
    let log = |query: &str| admin.get(&format!("{PODS}/p/log{query}"));
    assert_eq!(log("?container=main&follow=true").ok(), LOG);
    log("").is(
        400,
        "BadRequest",
        "a container name must be specified for pod p, choose one of: [main side]",
    );
    log("?container=x").is(400, "BadRequest", "container x is not valid for pod p");
    log("?container=main&tailLines=-1").is(
        422,
        "Invalid",
        "PodLogOptions \"p\" is invalid: tailLines: Invalid value: -1: must be greater than or equal to 0",
    );
    admin
        .get(&format!("{PODS}/absent/log"))
        .is(404, "NotFound", "pods \"absent\" not found");
    admin.post(PODS, &pod("nowhere", None)).ok();
    assert_eq!(
        admin
            .get(&format!("{PODS}/nowhere/log?container=main"))
            .code,
        204
    );
    let ask = format!(
        "GET {PODS}/p/log?container=main HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
         Sec-WebSocket-Key: a\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: binary.k8s.io\r\n\r\n"
    );
    let messages = server.block_on(async {
        let mut socket = RawConnection::open(&server).await;
        socket.write(ask.as_bytes()).await.unwrap();
        let head = socket.read_until("\r\n\r\n").await;
        assert!(head.starts_with("HTTP/1.1 101"), "{head}");
        head + &socket.read_until("nothing comes after the end").await
    });
    assert!(messages.contains(LOG), "{messages:?}");
    drop(kubelet);
    let gone = log("?container=main");
    assert_eq!(gone.code, 500);
    let said = gone.body["message"].as_str().unwrap().to_owned();
    assert!(said.starts_with("Get \"https://127.0.0.1:"), "{said}");
    assert!(said.ends_with("connect: connection refused"), "{said}");
}

#[test]
fn a_stream_passes_bytes_both_ways_and_ends_when_either_side_does() {
    let (server, _pki, _kubelet) = server_with_node();
    server.block_on(async {
        let mut stream = RawConnection::open(&server).await;
        let ask = format!(
            "POST {PODS}/p/exec?container=side&command=cat&stdin=1 HTTP/1.1\r\nHost: x\r\n\
             Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\nContent-Length: 0\r\n\r\n"
        );
        stream.write(ask.as_bytes()).await.unwrap();
        let head = stream.read_until("\r\n\r\n").await.to_lowercase();
        assert!(head.starts_with("http/1.1 101"), "{head}");
        assert!(head.contains("upgrade: spdy/3.1"), "{head}");
        assert!(head.contains("x-target: /exec/default/p/side?command=cat&input=1"), "{head}");
        stream.write(b"some bytes").await.unwrap();
        assert_eq!(stream.read_until("some bytes").await, "some bytes");
        stream.finish().await;
        assert_eq!(stream.read_until("that was all").await, "that was all");
        assert_eq!(stream.read_until("more").await, "");
    });
    let admin = server.admin();
    admin.get(&format!("{PODS}/p/exec?container=main")).is(
        400,
        "BadRequest",
        "Upgrade request required",
    );
    admin.get(&format!("{PODS}/p/portforward?dryRun=All")).is(
        400,
        "BadRequest",
        "dryRun is not supported",
    );
    admin.post(PODS, &pod("nowhere", None)).ok();
    let attach = admin.post(
        &format!("{PODS}/nowhere/attach?container=main"),
        &Value::Null,
    );
    attach.is(
        400,
        "BadRequest",
        "pod nowhere does not have a host assigned",
    );
    assert_eq!(admin.put(&format!("{PODS}/p/exec"), &json!({})).code, 405);
}

#[test]
fn who_may_only_get_a_stream_may_not_open_it() {
    let (server, _pki, _kubelet) = server_with_node();
    let admin = server.admin();
    let group = "rbac.authorization.k8s.io";
    let role = json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": {"name": "reader"},
        "rules": [{"apiGroups": [""], "resources": ["pods/exec", "pods/log"], "verbs": ["get"]}]});
    let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": {"name": "reader"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "reader"},
        "subjects": [{"kind": "ServiceAccount", "name": "default", "namespace": "default"}]});
    let base = format!("/apis/{group}/v1/namespaces/default");
    admin.post(&format!("{base}/roles"), &role).ok();
    admin.post(&format!("{base}/rolebindings"), &binding).ok();
    let request =
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}});
    let token = admin
        .post(
            "/api/v1/namespaces/default/serviceaccounts/default/token",
            &request,
        )
        .ok();
    let token = token["status"]["token"].as_str().unwrap().to_owned();
    let reader = server.person(Credentials::Token(token));
    assert_eq!(
        reader.get(&format!("{PODS}/p/log?container=main")).ok(),
        LOG
    );
    reader.get(&format!("{PODS}/p/exec?container=main")).is(
        403,
        "Forbidden",
        "pods \"p\" is forbidden: ",
    );
    assert_eq!(
        reader.post(&format!("{PODS}/p/exec"), &Value::Null).code,
        403
    );
    assert_eq!(reader.get(&format!("{PODS}/p/attach")).code, 403);
}

#[test]
fn nothing_leads_back_into_this_machine() {
    let (server, _pki, kubelet) = server_with_node();
    let admin = server.admin();
    let refused = |path: String| {
        admin
            .get(&path)
            .is(400, "BadRequest", "address not allowed")
    };
    refused("/api/v1/nodes/n/proxy/healthz".into());
    refused(format!("/api/v1/nodes/n:{}/proxy/healthz", kubelet.port));
    refused(format!("{PODS}/p:80/proxy/"));
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
                         "spec": {"ports": [{"port": 80}]}});
    admin
        .post("/api/v1/namespaces/default/services", &service)
        .ok();
    // Whoever writes endpoints must not choose where the server connects to.
    let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "s"},
        "subsets": [{"addresses": [{"ip": "10.0.0.9", "targetRef": {"kind": "Pod", "name": "p", "namespace": "default"}}],
                     "ports": [{"port": kubelet.port}]}]});
    admin
        .post("/api/v1/namespaces/default/endpoints", &endpoints)
        .ok();
    let proxied = admin.get("/api/v1/namespaces/default/services/s:80/proxy/");
    proxied.is(
        503,
        "ServiceUnavailable",
        "no endpoints available for service \"s:80\"",
    );
    admin.get("/api/v1/nodes/a:b:c:d/proxy/").is(
        400,
        "BadRequest",
        "invalid node request \"a:b:c:d\"",
    );
    admin
        .get("/api/v1/nodes/absent/proxy/")
        .is(404, "NotFound", "nodes \"absent\" not found");
}

#[tokio::test]
async fn a_kubelet_must_be_who_its_ca_says_unless_the_client_does_not_care() {
    let (pki, other) = (Pki::new(), Pki::new());
    let authority = std::fs::read(pki.path("ca.crt")).unwrap();
    let flag = |name: &str, file: &str| format!("--{name}={}", pki.path(file).display());
    let flags = [
        flag("kubelet-client-certificate", "admin.crt"),
        flag("kubelet-client-key", "admin.key"),
        flag("kubelet-certificate-authority", "ca.crt"),
        "--disable-admission-plugins=ServiceAccount".to_owned(),
    ];
    let replica = Replica::alone(&pki, &flags).await;
    let listen = || TcpListener::bind("127.0.0.1:0").unwrap();
    let kubelets = [("good", &pki), ("bad", &other)]
        .map(|(name, keys)| (name, StandIn::kubelet(listen(), keys, "server", &authority)));
    for (name, kubelet) in &kubelets {
        replica
            .post("/api/v1/nodes", &node(name, "127.0.0.1", kubelet.port))
            .await;
        eventually_async("the namespace is there", async || {
            let (code, body) = replica.post(PODS, &pod(name, Some(name))).await;
            (code == 201).then_some(()).ok_or(body)
        })
        .await;
    }
    let log = async |query: &str| replica.get(&format!("{PODS}/{query}")).await;
    assert_eq!(log("good/log?container=main").await, (200, LOG.to_owned()));
    let (code, body) = log("bad/log?container=main").await;
    assert_eq!(code, 500);
    assert!(body.contains("tls: invalid peer certificate"), "{body}");
    let unchecked = "bad/log?container=main&insecureSkipTLSVerifyBackend=true";
    assert_eq!(log(unchecked).await, (200, LOG.to_owned()));
}
