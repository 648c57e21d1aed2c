//! A node that nothing but a konnectivity tunnel leads to.

use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::harness::{
    INSIDE, KYANITE, LOG, Namespace, Pki, Process, RawConnection, Server, ServerOptions, StandIn,
    eventually,
};

const PODS: &str = "/api/v1/namespaces/default/pods";

/// A konnectivity server and its agent inside a namespace: only the server's socket leads out. `kyanite up` has the
/// server in its own process, where it is asked to.
pub(crate) struct Tunnel {
    pub(crate) _server: Option<Process>,
    pub(crate) agent: Option<Process>,
}

impl Tunnel {
    pub(crate) fn start(namespace: &Namespace, pki: &Pki, dir: &Path, mode: &str) -> Tunnel {
        let file = |name: &str| pki.path(name).display().to_string();
        let socket = dir.join("tunnel.sock");
        let start = |role: &str, flags: &[String]| {
            let mut command = namespace.command(KYANITE);
            command.arg(role).args(flags).stdin(Stdio::null());
            Process::spawn(&mut command)
        };
        let server = start(
            "konnectivity-server",
            &[
                format!("--uds-name={}", socket.display()),
                format!("--mode={mode}"),
                "--server-port=0".into(),
                "--agent-port=8132".into(),
                "--admin-port=8133".into(),
                "--health-port=8134".into(),
                format!("--cluster-cert={}", file("server.crt")),
                format!("--cluster-key={}", file("server.key")),
                format!("--cluster-ca-cert={}", file("ca.crt")),
            ],
        );
        let agent = start(
            "konnectivity-agent",
            &[
                "--proxy-server-host=127.0.0.1".into(),
                "--proxy-server-port=8132".into(),
                "--admin-server-port=8135".into(),
                "--health-server-port=8136".into(),
                format!("--ca-cert={}", file("ca.crt")),
                format!("--agent-cert={}", file("admin.crt")),
                format!("--agent-key={}", file("admin.key")),
            ],
        );
        eventually("the tunnel's server listens", || {
            socket.exists().then_some(()).ok_or("no socket")
        });
        Tunnel {
            _server: Some(server),
            agent: Some(agent),
        }
    }
}

pub(crate) struct Cluster {
    pub(crate) server: Server,
    pub(crate) tunnel: Tunnel,
    kubelet: StandIn,
    /// Says it is a kubelet, with a certificate of another CA.
    impostor: StandIn,
    web: StandIn,
    // The agent reads its keys again whenever it connects.
    _keys: Pki,
    _dir: tempfile::TempDir,
    // Last: everything inside has ended by then.
    pub(crate) namespace: Namespace,
}

/// The flag that sends one kind of traffic through the tunnel of a directory.
pub(crate) fn selected(traffic: &str, protocol: &str, dir: &Path) -> String {
    let file = dir.join("egress.json");
    let connection = json!({"proxyProtocol": protocol,
                            "transport": {"uds": {"udsName": dir.join("tunnel.sock")}}});
    let selections = json!({"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
                            "egressSelections": [{"name": traffic, "connection": connection}]});
    std::fs::write(&file, selections.to_string()).unwrap();
    format!("--egress-selector-config-file={}", file.display())
}

/// A cluster whose only node and only pod are inside a namespace; nothing on a machine without namespaces.
fn cluster(protocol: &str, mode: &str) -> Option<Cluster> {
    let namespace = Namespace::make()?;
    let (dir, pki) = (tempfile::tempdir().unwrap(), Pki::new());
    let tunnel = Tunnel::start(&namespace, &pki, dir.path(), mode);
    let flag = selected("cluster", protocol, dir.path());
    let server = Server::start_with(ServerOptions {
        flags: vec![flag.leak()],
    });
    Some(Cluster::of(server, tunnel, namespace, pki, dir))
}

impl Cluster {
    /// Puts a kubelet and a pod into the namespace, and tells the server of them.
    pub(crate) fn of(
        server: Server,
        tunnel: Tunnel,
        namespace: Namespace,
        pki: Pki,
        dir: tempfile::TempDir,
    ) -> Cluster {
        let keys = server.home().join("data/pki");
        let authority = std::fs::read(keys.join("ca.crt")).unwrap();
        pki.add_kubelet(&keys, INSIDE);
        let (kubelet, impostor, web) = server.block_on(async {
            let kubelet = |own| StandIn::kubelet(namespace.listen(), &pki, own, &authority);
            let (kubelet, impostor) = (kubelet("kubelet"), kubelet("server"));
            (kubelet, impostor, StandIn::pod(namespace.listen()))
        });
        let cluster = Cluster {
            server,
            tunnel,
            kubelet,
            impostor,
            web,
            _keys: pki,
            _dir: dir,
            namespace,
        };
        cluster.fill();
        cluster
    }

    fn fill(&self) {
        let admin = self.server.admin();
        let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"},
            "status": {"addresses": [{"type": "InternalIP", "address": INSIDE}],
                       "daemonEndpoints": {"kubeletEndpoint": {"Port": self.kubelet.port}}}});
        admin.post("/api/v1/nodes", &node).ok();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"},
            "spec": {"nodeName": "n", "automountServiceAccountToken": false,
                     "containers": [{"name": "main", "image": "x", "ports": [{"containerPort": self.web.port}]}]}});
        eventually("the pod can be made", || {
            let answer = admin.post(PODS, &pod);
            (answer.code == 201)
                .then_some(())
                .ok_or(format!("{:#}", answer.body))
        });
        let status = json!({"status": {"podIP": INSIDE, "podIPs": [{"ip": INSIDE}]}});
        admin.patch(&format!("{PODS}/p/status"), &status).ok();
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
            "spec": {"ports": [{"port": 80, "name": "web", "targetPort": self.web.port}]}});
        admin
            .post("/api/v1/namespaces/default/services", &service)
            .ok();
        let target = json!({"kind": "Pod", "name": "p", "namespace": "default"});
        let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": {"name": "s"},
            "subsets": [{"addresses": [{"ip": INSIDE, "targetRef": target}],
                         "ports": [{"name": "web", "port": self.web.port}]}]});
        admin
            .post("/api/v1/namespaces/default/endpoints", &endpoints)
            .ok();
    }

    /// What a server inside was asked, once the tunnel stands.
    fn told(&self, path: &str) -> Value {
        eventually("the tunnel stands", || {
            let answer = self.server.admin().get(path);
            (answer.code == 200)
                .then_some(answer.body.clone())
                .ok_or(format!("{:#}", answer.body))
        })
    }
}

pub(crate) fn everything_reaches_the_node(cluster: &Cluster) {
    let admin = cluster.server.admin();
    let told = cluster.told("/api/v1/nodes/n/proxy/metrics/cadvisor?a=b%20c");
    let head = told["head"].as_str().unwrap().to_lowercase();
    assert!(
        head.starts_with("get /metrics/cadvisor?a=b%20c http/1.1\r\n"),
        "{head}"
    );
    assert!(
        head.contains("x-forwarded-uri: /api/v1/nodes/n/proxy/metrics/cadvisor\r\n"),
        "{head}"
    );
    assert!(head.contains("x-forwarded-for: 127.0.0.1\r\n"), "{head}");
    assert_eq!(admin.get(&format!("{PODS}/p/log")).ok(), LOG);
    let body = json!({"some": "body"});
    let told = admin.put(&format!("{PODS}/p/proxy/a"), &body).ok();
    assert!(
        told["head"]
            .as_str()
            .unwrap()
            .starts_with("PUT /a HTTP/1.1\r\n"),
        "{told:#}"
    );
    assert_eq!(told["body"], body.to_string());
    for name in ["s:80", "s:web", "http:s:web"] {
        let told = admin
            .get(&format!(
                "/api/v1/namespaces/default/services/{name}/proxy/x/y/"
            ))
            .ok();
        assert!(
            told["head"]
                .as_str()
                .unwrap()
                .starts_with("GET /x/y/ HTTP/1.1\r\n"),
            "{told:#}"
        );
    }
}

fn an_impostor_is_not_taken_for_a_kubelet(cluster: &Cluster) {
    let admin = cluster.server.admin();
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "m"},
        "status": {"addresses": [{"type": "InternalIP", "address": INSIDE}],
                   "daemonEndpoints": {"kubeletEndpoint": {"Port": cluster.impostor.port}}}});
    admin.post("/api/v1/nodes", &node).ok();
    let answer = admin.get("/api/v1/nodes/m/proxy/metrics");
    assert!(answer.code >= 500, "{:#}", answer.body);
    assert!(
        answer.body.to_string().contains("tls: "),
        "{:#}",
        answer.body
    );
}

fn pages_and_redirects_are_rewritten(cluster: &Cluster) {
    let base = "/api/v1/namespaces/default/services/s:web/proxy";
    let raw = |target: &str| {
        let ask = format!("GET {target} HTTP/1.1\r\nHost: api\r\nConnection: close\r\n\r\n");
        cluster.server.block_on(async {
            let mut connection = RawConnection::open(&cluster.server).await;
            connection.write(ask.as_bytes()).await.unwrap();
            connection.read_until("the end of it all").await
        })
    };
    let page = raw(&format!("{base}/page"));
    assert!(
        page.ends_with(&format!("<a href=\"{base}/other\">x</a>")),
        "{page}"
    );
    let moved = raw(&format!("{base}/moved"));
    assert!(
        moved.contains(&format!("location: {base}/elsewhere?a=1\r\n")),
        "{moved}"
    );
    let root = raw(&format!("{base}?q=1"));
    assert!(root.starts_with("HTTP/1.1 301"), "{root}");
    assert!(
        root.contains(&format!("location: {base}/?q=1\r\n")),
        "{root}"
    );
    let answer = raw(&format!("{base}/x"));
    assert!(!answer.contains("access-control-allow-origin"), "{answer}");
}

pub(crate) fn streams_pass_by(cluster: &Cluster) {
    let targets = [
        format!("{PODS}/p/exec?command=cat&stdin=true"),
        format!("{PODS}/p/portforward"),
        format!("{PODS}/p/proxy/socket"),
    ];
    for target in targets {
        cluster.server.block_on(async {
            let mut stream = RawConnection::open(&cluster.server).await;
            let ask = format!("GET {target} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n");
            stream.write(ask.as_bytes()).await.unwrap();
            let head = stream.read_until("\r\n\r\n").await;
            assert!(head.starts_with("HTTP/1.1 101"), "{target}: {head}");
            let large = "0123456789abcdef".repeat(64 * 1024) + "the last of it";
            let back = stream.echoed(large.as_bytes()).await;
            assert!(back == large.as_bytes(), "{target}: {} of {} bytes", back.len(), large.len());
        });
    }
}

pub(crate) fn without_its_agent_the_node_is_out_of_reach(cluster: &mut Cluster) {
    cluster.tunnel.agent = None;
    let gone = eventually("the tunnel is gone", || {
        let answer = cluster.server.admin().get("/api/v1/nodes/n/proxy/healthz");
        (answer.code == 503)
            .then_some(answer.body)
            .ok_or("still there")
    });
    let said = gone["message"].as_str().unwrap();
    assert!(
        said.starts_with("error trying to reach service: "),
        "{said}"
    );
}

#[test]
fn a_node_is_reached_through_its_tunnel_by_http_connect() {
    let Some(mut cluster) = cluster("HTTPConnect", "http-connect") else {
        return;
    };
    everything_reaches_the_node(&cluster);
    an_impostor_is_not_taken_for_a_kubelet(&cluster);
    pages_and_redirects_are_rewritten(&cluster);
    streams_pass_by(&cluster);
    without_its_agent_the_node_is_out_of_reach(&mut cluster);
}

#[test]
fn a_node_is_reached_through_its_tunnel_by_grpc() {
    let Some(mut cluster) = cluster("GRPC", "grpc") else {
        return;
    };
    everything_reaches_the_node(&cluster);
    streams_pass_by(&cluster);
    without_its_agent_the_node_is_out_of_reach(&mut cluster);
}
