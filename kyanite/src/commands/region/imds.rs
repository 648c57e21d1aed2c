//! The metadata service inside networks: machines ask at 169.254.169.254 who they are, and are known by their address.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ::cloud::{Find, Machine, Metadata, Node};
use machines::{METADATA, Network};
use tokio::net::TcpListener;
use tokio::sync::watch;

/// Who has which address, in one network.
type Table = Arc<Mutex<HashMap<IpAddr, String>>>;

/// The metadata services of a cloud, one for each network.
#[derive(Debug, Default)]
pub(super) struct Imds {
    metadata: Mutex<Option<Metadata>>,
    /// By the file that stands for a network's namespace.
    networks: Mutex<HashMap<PathBuf, Served>>,
}

/// A network that is spoken in.
#[derive(Debug)]
struct Served {
    /// Which namespace the file stood for. None gets its number while the service holds it.
    namespace: Option<u64>,
    table: Table,
    /// The service ends with it.
    _stop: watch::Sender<bool>,
}

pub(super) fn namespace_at(file: &Path) -> Option<u64> {
    std::fs::metadata(file).ok().map(|found| found.ino())
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Imds {
    pub(super) fn open(&self, metadata: Metadata) {
        *lock(&self.metadata) = Some(metadata);
    }

    pub(super) fn close(&self) {
        lock(&self.metadata).take();
        lock(&self.networks).clear();
    }

    /// The networks below a directory go: a socket in one would hold it.
    pub(super) fn forget(&self, directory: &Path) {
        let found = std::fs::canonicalize(directory);
        let directory = found.unwrap_or_else(|_| directory.to_owned());
        lock(&self.networks).retain(|file, _| !file.starts_with(&directory));
    }

    /// Networks that are gone are spoken in no more.
    pub(super) fn forget_gone(&self) {
        lock(&self.networks).retain(|file, served| namespace_at(file) == served.namespace);
    }

    /// Speaks for these machines of a network, besides those it speaks for already.
    pub(super) fn serve(&self, network: &Network, nodes: &[Node]) {
        let mut networks = lock(&self.networks);
        let file = network.namespace();
        let namespace = namespace_at(&file);
        if networks
            .get(&file)
            .is_none_or(|served| served.namespace != namespace)
        {
            match self.begin(network) {
                Ok(Some((table, stop))) => {
                    let served = Served {
                        namespace,
                        table,
                        _stop: stop,
                    };
                    networks.insert(file.clone(), served);
                }
                Ok(None) => return,
                Err(error) => {
                    return tracing::warn!(%error, "machines of a network cannot ask who they are");
                }
            }
        }
        let Some(served) = networks.get(&file) else {
            return;
        };
        let mut table = lock(&served.table);
        for node in nodes {
            if let Some(address) = node.address {
                table.insert(address.into(), node.id.clone());
            }
        }
    }

    fn begin(&self, network: &Network) -> std::io::Result<Option<(Table, watch::Sender<bool>)>> {
        let Some(metadata) = lock(&self.metadata).clone() else {
            return Ok(None);
        };
        let bind = || std::net::TcpListener::bind(SocketAddr::from((METADATA, 80)));
        let listener = network.inside(bind).map_err(std::io::Error::other)??;
        listener.set_nonblocking(true)?;
        let listener = TcpListener::from_std(listener)?;
        let table = Table::default();
        let known = Arc::clone(&table);
        let find: Arc<Find> = Arc::new(move |address| {
            let resource = lock(&known).get(&address).cloned()?;
            Some(Machine {
                resource,
                source: Some(address),
                proofs: None,
            })
        });
        let (stop, stopped) = watch::channel(false);
        tokio::spawn(async move { metadata.serve_network(find, listener, stopped).await });
        Ok(Some((table, stop)))
    }
}
