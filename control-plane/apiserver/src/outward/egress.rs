//! The way out: connections from the API server to nodes, pods and services.
//!
//! Everybody who needs one asks here for "a connection to this host and port, for this kind of traffic".
//! Whether it goes straight there or through a konnectivity server is decided by the
//! `--egress-selector-config-file`, or by `kyanite up`, which has such a server in its own process; without
//! either everything is direct, which is also how a cluster runs whose API server sits in the nodes' network.

mod configuration;
mod dials;

use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::BoxFuture;
use konnectivity::dialer::{self, DialError, TcpProxy, Tunnel, Via};
use rustls_pki_types::ServerName;
use store::etcd::{Dialer, Socket};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::settings;

use crate::connection::tls;
use configuration::{Keys, Protocol, Selection, Transport, Way};
pub(crate) use dials::Dials;

/// How long a direct connection may take to come about (Go's default transport).
const DIRECT_TIMEOUT: Duration = Duration::from_secs(30);

/// Where traffic goes, as far as its way depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// To what the cluster consists of: kubelets, pods, services, webhooks.
    Cluster,
    /// To other parts of the control plane.
    ControlPlane,
    /// To the store.
    Etcd,
}

impl Traffic {
    /// Every kind with its name in files.
    pub(crate) const NAMES: [(&'static str, Traffic); 3] = [
        ("cluster", Traffic::Cluster),
        ("controlplane", Traffic::ControlPlane),
        ("etcd", Traffic::Etcd),
    ];
}

/// A connection, whichever way it took.
pub(crate) trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

/// Why there is no connection, in the words Go's dialer has for it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// A direct connection failed.
    #[error("dial tcp {address}: {}", go_words(.source))]
    Direct {
        /// `host:port`.
        address: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// The tunnel failed, or what is behind it.
    #[error(transparent)]
    Tunnel(#[from] DialError),
}

/// Somebody who stands in the nodes' network when this process does not: what they dial is reached from there.
pub trait Nearby: std::fmt::Debug + Send + Sync {
    /// A connection to an address of that network.
    fn connect(&self, address: SocketAddr) -> BoxFuture<'static, std::io::Result<TcpStream>>;
}

/// The ways out.
#[derive(Debug, Default)]
pub struct Egress {
    tunnels: Vec<(Traffic, Exit)>,
    nearby: Option<Arc<dyn Nearby>>,
    /// What became of dials.
    pub(crate) dials: Dials,
}

#[derive(Debug)]
struct Exit {
    via: Via,
    labels: dials::Labels,
}

impl Egress {
    /// Reads the file, where there is one.
    pub fn open(settings: &settings::Egress) -> Result<Arc<Egress>, crate::Error> {
        let egress = match settings {
            settings::Egress::Direct => Ok(Egress::default()),
            settings::Egress::File(file) => Egress::read(file),
            settings::Egress::Tunnel(socket) => Egress::through(socket),
        };
        egress.map(Arc::new).map_err(crate::Error::Egress)
    }

    /// Straight to nodes, pods and services, from where somebody else stands.
    pub fn from_nearby(nearby: Arc<dyn Nearby>) -> Arc<Egress> {
        Arc::new(Egress {
            nearby: Some(nearby),
            ..Egress::default()
        })
    }

    /// The way to etcd, where it is not direct.
    pub fn etcd(self: &Arc<Self>) -> Option<Arc<dyn Dialer>> {
        self.exit(Traffic::Etcd)?;
        Some(Arc::clone(self) as Arc<dyn Dialer>)
    }

    fn through(socket: &Path) -> Result<Egress, String> {
        let exit = Exit::new(Protocol::HttpConnect, Transport::Uds(socket.to_owned()))?;
        Ok(Egress {
            tunnels: vec![(Traffic::Cluster, exit)],
            ..Egress::default()
        })
    }

    fn read(file: &Path) -> Result<Egress, String> {
        let shown = file.display();
        let text = std::fs::read(file).map_err(|e| {
            format!("failed to read egress selector config: unable to read egress selector configuration from \"{shown}\" [{e}]")
        })?;
        let selections = configuration::parse(&text, &|path| path.exists())?;
        let mut tunnels = Vec::new();
        for Selection { traffic, way } in selections {
            let Way::Tunnel(protocol, transport) = way else {
                continue;
            };
            let exit = Exit::new(protocol, transport)
                .map_err(|why| format!("failed to setup egress selector with `{shown}`: {why}"))?;
            tunnels.push((traffic, exit));
        }
        Ok(Egress {
            tunnels,
            ..Egress::default()
        })
    }

    fn exit(&self, traffic: Traffic) -> Option<&Exit> {
        let row = self.tunnels.iter().find(|(kind, _)| *kind == traffic);
        row.map(|(_, exit)| exit)
    }

    /// A connection to `host:port`.
    pub(crate) async fn connect(
        &self,
        traffic: Traffic,
        (host, port): (&str, u16),
    ) -> Result<Box<dyn Connection>, Error> {
        let address = join_host_port(host, port);
        match self.exit(traffic) {
            Some(exit) => Ok(Box::new(exit.dial(&address, &self.dials).await?)),
            None => match self.direct(traffic, host, port).await {
                Ok(stream) => Ok(Box::new(stream)),
                Err(source) => Err(Error::Direct { address, source }),
            },
        }
    }

    async fn direct(&self, traffic: Traffic, host: &str, port: u16) -> std::io::Result<TcpStream> {
        let nearby = self.nearby.as_ref().filter(|_| traffic == Traffic::Cluster);
        let connecting = match (nearby, host.parse::<IpAddr>()) {
            (Some(nearby), Ok(ip)) => nearby.connect((ip, port).into()),
            _ => Box::pin(TcpStream::connect((host.to_owned(), port))),
        };
        let connected = tokio::time::timeout(DIRECT_TIMEOUT, connecting).await;
        let stream = connected.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()))?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }
}

// Only asked where etcd has a tunnel.
impl Dialer for Egress {
    fn dial(
        self: Arc<Self>,
        host: String,
        port: u16,
    ) -> BoxFuture<'static, std::io::Result<Box<dyn Socket>>> {
        Box::pin(async move {
            let opened = self.connect(Traffic::Etcd, (&host, port)).await;
            let stream: Box<dyn Socket> = Box::new(opened.map_err(std::io::Error::other)?);
            Ok(stream)
        })
    }
}

impl Exit {
    fn new(protocol: Protocol, transport: Transport) -> Result<Exit, String> {
        let (name, transport_name) = match (protocol, &transport) {
            (Protocol::Grpc, Transport::Uds(_)) => ("grpc", "uds"),
            (Protocol::Grpc, Transport::Tcp(..)) => ("grpc", "tcp"),
            (Protocol::HttpConnect, Transport::Uds(_)) => ("http_connect", "uds"),
            (Protocol::HttpConnect, Transport::Tcp(..)) => ("http_connect", "tcp"),
        };
        let via = match (protocol, transport) {
            (Protocol::Grpc, Transport::Uds(path)) => Via::GrpcUds(path),
            (Protocol::HttpConnect, Transport::Uds(path)) => Via::ConnectUds(path),
            (protocol, Transport::Tcp(address, Some(keys))) => {
                let proxy = proxy(address, &keys)?;
                match protocol {
                    Protocol::Grpc => Via::GrpcTcp(proxy),
                    Protocol::HttpConnect => Via::ConnectTcp(proxy),
                }
            }
            (_, Transport::Tcp(address, None)) => {
                return Err(format!(
                    "a tunnel's server at http://{address} would be spoken to without encryption; use https:// and a tlsConfig"
                ));
            }
        };
        let labels = dials::Labels {
            protocol: name,
            transport: transport_name,
        };
        Ok(Exit { via, labels })
    }

    async fn dial(&self, address: &str, dials: &Dials) -> Result<Tunnel, DialError> {
        let start = Instant::now();
        dials.start(self.labels);
        let outcome = dialer::dial(&self.via, address).await;
        match &outcome {
            Ok(_) => dials.done(self.labels, start.elapsed().as_secs_f64()),
            Err(DialError::Proxy { .. }) => dials.failed(self.labels, "connect"),
            Err(_) => dials.failed(self.labels, "proxy"),
        }
        outcome
    }
}

fn proxy(address: String, keys: &Keys) -> Result<TcpProxy, String> {
    let host = address.rsplit_once(':').map_or(&*address, |(host, _)| host);
    let name = keys
        .server_name
        .as_deref()
        .unwrap_or(host.trim_matches(['[', ']']));
    let server_name = ServerName::try_from(name.to_owned())
        .map_err(|_| format!("{name:?} is not a name that a certificate can have"))?;
    let pair = (&*keys.certificate, &*keys.key);
    let tls = tls::client(keys.authority.as_deref(), Some(pair)).map_err(|e| e.to_string())?;
    Ok(TcpProxy {
        address,
        server_name,
        tls: Arc::new(tls),
    })
}

/// `host:port`, with brackets around IPv6 addresses.
pub(crate) fn join_host_port(host: &str, port: impl std::fmt::Display) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

// Clients look for these words.
fn go_words(error: &std::io::Error) -> String {
    use std::io::ErrorKind;
    match error.kind() {
        ErrorKind::ConnectionRefused => "connect: connection refused".into(),
        ErrorKind::TimedOut => "i/o timeout".into(),
        ErrorKind::HostUnreachable => "connect: no route to host".into(),
        ErrorKind::NetworkUnreachable => "connect: network is unreachable".into(),
        _ => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    #[tokio::test]
    async fn without_a_file_connections_are_direct_and_fail_in_gos_words() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let egress = Egress::default();
        let there = ("127.0.0.1", port);
        let mut stream = egress.connect(Traffic::Cluster, there).await.unwrap();
        let (mut other, _) = listener.accept().await.unwrap();
        stream.write_all(b"hello").await.unwrap();
        let mut said = [0; 5];
        other.read_exact(&mut said).await.unwrap();
        assert_eq!(&said, b"hello");
        drop(listener);
        let refused = egress.connect(Traffic::Cluster, there).await;
        let refused = refused.err().unwrap().to_string();
        assert_eq!(
            refused,
            format!("dial tcp 127.0.0.1:{port}: connect: connection refused")
        );
    }

    #[tokio::test]
    async fn a_tunnel_is_taken_for_its_kind_of_traffic_and_counted() {
        let dir = tempfile::tempdir().unwrap();
        let (file, socket) = (dir.path().join("egress.yaml"), dir.path().join("gone.sock"));
        let text = format!(
            "apiVersion: apiserver.k8s.io/v1beta1\nkind: EgressSelectorConfiguration\negressSelections:\n\
             - name: cluster\n  connection: {{proxyProtocol: HTTPConnect, transport: {{uds: {{udsName: {}}}}}}}\n",
            socket.display()
        );
        std::fs::write(&file, text).unwrap();
        let egress = Egress::read(&file).unwrap();
        assert!(egress.exit(Traffic::ControlPlane).is_none());
        let failed = egress.connect(Traffic::Cluster, ("10.0.0.1", 1)).await;
        assert!(failed.err().unwrap().to_string().contains("gone.sock"));
        let mut registry = prometheus_client::registry::Registry::default();
        egress.dials.register(&mut registry);
        let mut shown = String::new();
        prometheus_client::encoding::text::encode(&mut shown, &registry).unwrap();
        assert!(shown.contains("apiserver_egress_dialer_dial_start_total{protocol=\"http_connect\",transport=\"uds\"} 1"), "{shown}");
        assert!(shown.contains("apiserver_egress_dialer_dial_failure_count{protocol=\"http_connect\",transport=\"uds\",stage=\"connect\"} 1"), "{shown}");
    }

    #[test]
    fn a_tunnels_server_is_reached_over_tls_or_not_at_all() {
        let dir = tempfile::tempdir().unwrap();
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(vec!["proxy".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        std::fs::write(dir.path().join("crt"), certificate.pem()).unwrap();
        std::fs::write(dir.path().join("key"), key.serialize_pem()).unwrap();
        let open = |name: &str, tcp: String| {
            let file = dir.path().join("egress.yaml");
            let text = format!(
                "{{apiVersion: apiserver.k8s.io/v1beta1, kind: EgressSelectorConfiguration, egressSelections: \
                 [{{name: {name}, connection: {{proxyProtocol: HTTPConnect, transport: {{tcp: {tcp}}}}}}}]}}"
            );
            std::fs::write(&file, text).unwrap();
            Egress::read(&file)
        };
        let file = |name: &str| dir.path().join(name).display().to_string();
        let (crt, key) = (file("crt"), file("key"));
        let tls = format!(
            "{{url: 'https://10.0.0.1:8131', tlsConfig: {{caBundle: {crt}, clientCert: {crt}, clientKey: {key}}}}}"
        );
        let egress = open("cluster", tls.clone()).unwrap();
        let exit = egress.exit(Traffic::Cluster).unwrap();
        assert!(matches!(&exit.via, Via::ConnectTcp(proxy) if proxy.address == "10.0.0.1:8131"));
        let plain = open("cluster", "{url: 'http://10.0.0.1:8131'}".into()).unwrap_err();
        assert!(plain.contains("without encryption"), "{plain}");
        let store = Arc::new(open("etcd", tls).unwrap());
        assert!(store.etcd().is_some() && store.exit(Traffic::Cluster).is_none());
        assert!(Arc::new(egress).etcd().is_none());
    }

    #[test]
    fn addresses_of_six_get_brackets() {
        assert_eq!(join_host_port("fd00::1", 443), "[fd00::1]:443");
        assert_eq!(join_host_port("node", 10250), "node:10250");
    }
}
