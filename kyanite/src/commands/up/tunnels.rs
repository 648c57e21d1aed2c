//! The konnectivity server inside `kyanite up`: nodes open tunnels to it, the API server dials through them.
//!
//! Off unless asked for: nodes have no agents before somebody gives them any, and two clusters on one machine would
//! meet at the port. Agents trust the cluster's CA and prove themselves as upstream's do, with a token of the service
//! account [`ACCOUNT`] for the audience [`AUDIENCE`]; the API server in this process judges it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ::apiserver::settings::Callers;
use konnectivity::server::{
    AgentsFrom, FrontEnd, Mode, Reviewer, Server, ServerConfig, TokenSettings,
};
use konnectivity::{Listen, Strategy};
use serde_json::{Value, json};
use wire::tls::{Clients, Policy, ServerFiles};

use crate::exit::Result;
use crate::pki::Pki;

/// The namespace of the agents' service account.
const NAMESPACE: &str = "kube-system";
/// Its name, that of upstream's manifests.
const ACCOUNT: &str = "konnectivity-agent";
/// Whom its tokens must be for, as in upstream's manifests.
const AUDIENCE: &str = "system:konnectivity-server";
/// A node's own agent is preferred; pods and services have none.
const STRATEGIES: [Strategy; 2] = [Strategy::DestHost, Strategy::Default];
/// After how much silence agents are asked whether they are there.
const KEEPALIVE: Duration = Duration::from_secs(30);

/// Where agents come in, and where the API server does.
pub(super) struct Place {
    pub(super) agents: SocketAddr,
    pub(super) socket: PathBuf,
    pub(super) callers: Callers,
}

/// Takes the port and the socket.
pub(super) async fn open(place: Place, pki: &Pki, reviewer: Arc<dyn Reviewer>) -> Result<Server> {
    let Place {
        agents,
        socket,
        callers,
    } = place;
    let certificate = pki.server();
    let config = ServerConfig {
        // Another one at each start: agents keep one connection per server.
        server_id: format!("kyanite-{:016x}", rand::random::<u64>()),
        server_count: 1,
        mode: Mode::HttpConnect,
        front: FrontEnd::Uds {
            path: socket,
            replace: true,
        },
        agents: Listen {
            host: agents.ip().to_string(),
            port: agents.port(),
        },
        agents_from: AgentsFrom::only(move |address| callers.may_knock(address)),
        agent_tls: ServerFiles {
            cert: certificate.cert,
            key: certificate.key,
            clients: Clients::Anybody,
            policy: Policy::default(),
        },
        health: None,
        admin: None,
        strategies: STRATEGIES.to_vec(),
        keepalive: KEEPALIVE,
        dial_timeout: None,
        // It ends after the API server, which is then the only one to miss it.
        graceful: Duration::ZERO,
        tokens: Some(TokenSettings {
            reviewer,
            audience: AUDIENCE.to_owned(),
            namespace: NAMESPACE.to_owned(),
            service_account: ACCOUNT.to_owned(),
        }),
        leases: None,
    };
    Ok(Server::bind(config).await?)
}

/// The collection and the object that agents' tokens are made of.
pub(super) fn account() -> (String, Value) {
    let collection = format!("/api/v1/namespaces/{NAMESPACE}/serviceaccounts");
    let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
                         "metadata": {"name": ACCOUNT, "labels": {"k8s-app": ACCOUNT}}});
    (collection, account)
}
