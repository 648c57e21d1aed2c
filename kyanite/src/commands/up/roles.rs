//! What runs beside the API server, as clients of it: the objects nodes need to join, the controllers.

use std::time::Duration;

use controllers::{Config, Connection, KeyPairFiles, Selection};
use tokio::sync::{oneshot, watch};

use super::tunnels;
use crate::client::Client;
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};
use crate::join_tokens;
use crate::pki::{Authority, Pki};

const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
/// How long to wait before something that failed is tried again.
const PAUSE: Duration = Duration::from_secs(1);

/// Runs everything until `stop` is set. Says when it has begun: whoever hears that may ask for an agent's token at once,
/// so it is after a first attempt to let nodes join.
pub(super) async fn run(
    dir: DataDir,
    agents: bool,
    begun: oneshot::Sender<()>,
    config: Config,
    mut stop: watch::Receiver<bool>,
    rotated: watch::Receiver<()>,
) {
    let stopped = stop.clone();
    let mut joined = let_nodes_join(&dir, agents).await;
    // Whoever waited for it may have gone.
    let _ = begun.send(());
    let join = async {
        while let Err(failure) = joined {
            tracing::warn!(%failure, "nodes cannot join yet");
            tokio::time::sleep(PAUSE).await;
            joined = let_nodes_join(&dir, agents).await;
        }
    };
    let until_joined = async {
        tokio::select! {
            () = join => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    };
    tokio::join!(until_joined, run_controllers(config, stopped, rotated));
}

// Whoever changed or replaced an object meant it: only missing ones are made.
async fn let_nodes_join(dir: &DataDir, agents: bool) -> Result<()> {
    let client = Client::connect(dir).await?;
    let bindings = join_tokens::bindings().map(|binding| (BINDINGS.to_owned(), binding));
    let account = agents.then(tunnels::account);
    for (collection, object) in bindings.chain(account) {
        match client.create(&collection, &object).await {
            Err(failure) if failure.code != Code::Conflict => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}

/// What the controllers of a data directory's cluster are told.
pub(super) fn controllers(server: &str, pki: &Pki, names: &[String]) -> Result<Config> {
    let ca = pki.authority(Authority::Cluster);
    let client = pki.leaf("controller-manager");
    let connection = Connection::Certificate {
        server: server.to_owned(),
        ca: ca.cert.clone(),
        client: KeyPairFiles {
            cert: client.cert,
            key: client.key,
        },
    };
    Ok(Config {
        selection: selection(names)?,
        root_ca: Some(ca.cert.clone()),
        signing: Some(KeyPairFiles {
            cert: ca.cert,
            key: ca.key,
        }),
        service_account_key: Some(pki.service_account_key()),
        ..Config::new(connection)
    })
}

// Where upstream leaves some off unless named, `*` is all here: this cluster has nobody else to do their work.
fn selection(names: &[String]) -> Result<Selection> {
    match names {
        [all] if all == "*" => Ok(Selection::everything()),
        names => {
            let named = names
                .iter()
                .map(String::as_str)
                .filter(|name| !name.is_empty());
            Selection::parse(named).map_err(|cause| Failure::new(Code::Usage, cause))
        }
    }
}

// Controllers read their client certificate when they start, so new certificates start them anew.
async fn run_controllers(
    config: Config,
    mut stop: watch::Receiver<bool>,
    mut rotated: watch::Receiver<()>,
) {
    while !*stop.borrow() {
        let mut until = stop.clone();
        rotated.mark_unchanged();
        let changed = async {
            tokio::select! {
                _ = until.wait_for(|stop| *stop) => {}
                Ok(()) = rotated.changed() => tracing::info!("controllers start anew with new certificates"),
            }
        };
        if let Err(error) = controllers::run(config.clone(), changed).await {
            tracing::error!(%error, "controllers failed and start anew");
            tokio::select! {
                _ = stop.wait_for(|stop| *stop) => {}
                () = tokio::time::sleep(PAUSE) => {}
            }
        }
    }
}
