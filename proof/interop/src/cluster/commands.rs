//! The flags of every part. They are upstream's, and ours takes them as they are.

use std::path::PathBuf;

use anyhow::Result;
use serde_json::json;

use super::Cluster;

const SERVICE_ADDRESSES: &str = "10.96.0.0/16";

fn flags<const N: usize>(pairs: [(&str, String); N]) -> Vec<String> {
    pairs
        .into_iter()
        .map(|(name, value)| format!("--{name}={value}"))
        .collect()
}

fn shown(path: PathBuf) -> String {
    path.display().to_string()
}

pub(super) fn etcd(cluster: &Cluster<'_>) -> Vec<String> {
    let url = |port: u16| format!("http://127.0.0.1:{port}");
    let (client, peer) = (url(cluster.ports.etcd), url(cluster.ports.etcd_peer));
    flags([
        ("data-dir", shown(cluster.dir.join("etcd"))),
        ("initial-cluster", format!("default={peer}")),
        ("initial-advertise-peer-urls", peer.clone()),
        ("listen-peer-urls", peer),
        ("advertise-client-urls", client.clone()),
        ("listen-client-urls", client),
    ])
}

pub(super) fn api_server(cluster: &Cluster<'_>, embedded_store: bool) -> Vec<String> {
    let pki = |name: &str| shown(cluster.pki.file(name));
    let store = if embedded_store {
        ("data-dir", shown(cluster.dir.join("store")))
    } else {
        (
            "etcd-servers",
            format!("http://127.0.0.1:{}", cluster.ports.etcd),
        )
    };
    let mut all = flags([
        store,
        ("bind-address", "127.0.0.1".into()),
        // Upstream does not let the `kubernetes` service point at loopback; nothing is sent there.
        ("advertise-address", "192.0.2.1".into()),
        ("secure-port", cluster.ports.api_server.to_string()),
        ("cert-dir", shown(cluster.dir.join("certs"))),
        ("tls-cert-file", pki("server.crt")),
        ("tls-private-key-file", pki("server.key")),
        ("client-ca-file", pki("ca.crt")),
        ("requestheader-client-ca-file", pki("front-proxy-ca.crt")),
        ("requestheader-username-headers", "X-Remote-User".into()),
        ("requestheader-group-headers", "X-Remote-Group".into()),
        (
            "requestheader-extra-headers-prefix",
            "X-Remote-Extra-".into(),
        ),
        (
            "service-account-issuer",
            "https://kubernetes.default.svc".into(),
        ),
        ("service-account-key-file", pki("accounts.pub")),
        ("service-account-signing-key-file", pki("accounts.key")),
        ("service-cluster-ip-range", SERVICE_ADDRESSES.into()),
        ("authorization-mode", "Node,RBAC".into()),
        ("enable-admission-plugins", "NodeRestriction".into()),
        ("enable-bootstrap-token-auth", "true".into()),
        ("kubelet-client-certificate", pki("admin.crt")),
        ("kubelet-client-key", pki("admin.key")),
        // The node's name means nothing to this machine's resolver.
        ("kubelet-preferred-address-types", "InternalIP".into()),
    ]);
    let egress = cluster.dir.join(EGRESS);
    if egress.exists() {
        all.extend(flags([("egress-selector-config-file", shown(egress))]));
    }
    all
}

const EGRESS: &str = "egress.json";

fn tunnel_socket(cluster: &Cluster<'_>) -> PathBuf {
    cluster.dir.join("tunnel.sock")
}

/// Tells the API server to take the tunnel.
pub(super) fn write_egress(cluster: &Cluster<'_>) -> Result<()> {
    let uds = json!({"udsName": tunnel_socket(cluster)});
    let connection = json!({"proxyProtocol": "GRPC", "transport": {"uds": uds}});
    let selections = json!([{"name": "cluster", "connection": connection}]);
    let file = json!({"apiVersion": "apiserver.k8s.io/v1beta1", "kind": "EgressSelectorConfiguration",
                      "egressSelections": selections});
    Ok(std::fs::write(cluster.dir.join(EGRESS), file.to_string())?)
}

pub(super) fn tunnel_server(cluster: &Cluster<'_>) -> Vec<String> {
    let pki = |name: &str| shown(cluster.pki.file(name));
    let [agents, admin, health, ..] = cluster.ports.tunnel;
    flags([
        ("uds-name", shown(tunnel_socket(cluster))),
        ("mode", "grpc".into()),
        ("server-port", "0".into()),
        ("agent-port", agents.to_string()),
        ("agent-bind-address", "127.0.0.1".into()),
        ("admin-port", admin.to_string()),
        ("health-port", health.to_string()),
        ("health-bind-address", "127.0.0.1".into()),
        ("cluster-cert", pki("server.crt")),
        ("cluster-key", pki("server.key")),
        ("cluster-ca-cert", pki("ca.crt")),
    ])
}

pub(super) fn tunnel_agent(cluster: &Cluster<'_>) -> Vec<String> {
    let pki = |name: &str| shown(cluster.pki.file(name));
    let [server, _, _, admin, health] = cluster.ports.tunnel;
    flags([
        ("proxy-server-host", "127.0.0.1".into()),
        ("proxy-server-port", server.to_string()),
        ("admin-server-port", admin.to_string()),
        ("health-server-port", health.to_string()),
        ("ca-cert", pki("ca.crt")),
        ("agent-cert", pki("admin.crt")),
        ("agent-key", pki("admin.key")),
    ])
}

pub(super) fn manager(cluster: &Cluster<'_>) -> Result<Vec<String>> {
    let pki = |name: &str| shown(cluster.pki.file(name));
    let kubeconfig = shown(
        cluster
            .pki
            .kubeconfig("controller-manager", cluster.ports.api_server)?,
    );
    let mut all = serving(cluster, &kubeconfig, cluster.ports.manager);
    all.extend(flags([
        ("kubeconfig", kubeconfig),
        ("cluster-signing-cert-file", pki("ca.crt")),
        ("cluster-signing-key-file", pki("ca.key")),
        ("root-ca-file", pki("ca.crt")),
        ("service-account-private-key-file", pki("accounts.key")),
        ("use-service-account-credentials", "true".into()),
        (
            "controllers",
            "*,bootstrap-signer-controller,token-cleaner-controller".into(),
        ),
        ("client-ca-file", pki("ca.crt")),
        ("requestheader-client-ca-file", pki("front-proxy-ca.crt")),
        (
            "flex-volume-plugin-dir",
            shown(cluster.dir.join("flex-volumes")),
        ),
        ("service-cluster-ip-range", SERVICE_ADDRESSES.into()),
        ("cluster-cidr", "10.244.0.0/16".into()),
        ("allocate-node-cidrs", "true".into()),
    ]));
    Ok(all)
}

pub(super) fn scheduler(cluster: &Cluster<'_>) -> Result<Vec<String>> {
    let kubeconfig = shown(
        cluster
            .pki
            .kubeconfig("scheduler", cluster.ports.api_server)?,
    );
    let mut all = flags([("kubeconfig", kubeconfig.clone())]);
    all.extend(serving(cluster, &kubeconfig, cluster.ports.scheduler));
    Ok(all)
}

// Components ask the API server about their own callers, too.
fn serving(cluster: &Cluster<'_>, kubeconfig: &str, port: u16) -> Vec<String> {
    flags([
        ("authentication-kubeconfig", kubeconfig.to_owned()),
        ("authorization-kubeconfig", kubeconfig.to_owned()),
        ("bind-address", "127.0.0.1".into()),
        ("secure-port", port.to_string()),
        ("cert-dir", shown(cluster.dir.join(format!("certs-{port}")))),
    ])
}
