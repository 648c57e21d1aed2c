//! Which drivers there are: whoever puts a socket into the directory is asked what it is
//! (`pkg/kubelet/pluginmanager`).

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;

use super::driver::{Abilities, Driver};
use crate::changes::Changes;

/// A plugin that could not be registered is tried again after this time.
const AGAIN: Duration = Duration::from_secs(5);
/// How often the directory is looked at where it cannot be watched.
const LOOK: Duration = Duration::from_secs(30);

/// What a driver says of this node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DriverOnNode {
    /// The driver's name.
    pub name: String,
    /// The node, as the driver calls it.
    pub node_id: String,
    /// How many volumes can be attached here; `None` if there is no limit.
    pub limit: Option<i32>,
    /// Where the node is, in the driver's terms.
    pub topology: BTreeMap<String, String>,
}

/// Who is told about drivers: CSINode and the node's labels.
#[async_trait]
pub trait Announcements: Send + Sync {
    /// A driver is there.
    async fn added(&self, driver: &DriverOnNode) -> Result<(), String>;

    /// A driver is gone.
    async fn removed(&self, name: &str) -> Result<(), String>;
}

/// A driver that is registered.
#[derive(Debug, Clone)]
pub(super) struct Registered {
    pub(super) driver: Driver,
    pub(super) abilities: Abilities,
}

/// The drivers by name.
#[derive(Debug, Default)]
pub struct Registry(Mutex<BTreeMap<String, Registered>>);

impl Registry {
    pub(super) fn get(&self, name: &str) -> Result<Registered, String> {
        let drivers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        drivers.get(name).cloned().ok_or_else(|| {
            format!("driver name {name} not found in the list of registered CSI drivers")
        })
    }

    fn put(&self, name: &str, registered: Option<Registered>) {
        let mut drivers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match registered {
            Some(registered) => drivers.insert(name.to_owned(), registered),
            None => drivers.remove(name),
        };
    }

    /// Watches the directory of registration sockets for ever.
    pub async fn watch(self: Arc<Self>, directory: PathBuf, announcements: Arc<dyn Announcements>) {
        if let Err(error) = fs::create_dir_all(&directory) {
            tracing::error!(directory = %directory.display(), %error, "plugins cannot register");
        }
        let changes = Changes::of(&directory);
        let mut known: BTreeMap<PathBuf, String> = BTreeMap::new();
        loop {
            let mut failed = false;
            let found = sockets(&directory);
            for gone in known
                .keys()
                .filter(|path| !found.contains(path))
                .cloned()
                .collect::<Vec<_>>()
            {
                let Some(name) = known.remove(&gone) else {
                    continue;
                };
                self.put(&name, None);
                if let Err(error) = announcements.removed(&name).await {
                    tracing::warn!(name, error, "a driver that is gone is still announced");
                }
            }
            for path in found
                .into_iter()
                .filter(|path| !known.contains_key(path))
                .collect::<Vec<_>>()
            {
                match self.register(&path, &*announcements).await {
                    Ok(name) => {
                        tracing::info!(name, "a CSI driver is registered");
                        known.insert(path, name);
                    }
                    Err(error) => {
                        tracing::warn!(path = %path.display(), error, "a plugin cannot be registered");
                        failed = true;
                    }
                }
            }
            let wait = match (failed, &changes) {
                (true, _) => AGAIN,
                (false, None) => LOOK,
                (false, Some(_)) => Duration::MAX,
            };
            match &changes {
                Some(changes) => {
                    let _ = tokio::time::timeout(wait, changes.next()).await;
                }
                None => tokio::time::sleep(wait).await,
            }
        }
    }

    async fn register(
        &self,
        socket: &Path,
        announcements: &dyn Announcements,
    ) -> Result<String, String> {
        let registration = Driver::at(socket);
        let info = registration
            .plugin_info()
            .await
            .map_err(|s| s.message().to_owned())?;
        if info.kind != "CSIPlugin" {
            return Err(format!(
                "plugins of type {:?} are not known here",
                info.kind
            ));
        }
        let outcome = self
            .add(
                &info.name,
                &info.endpoint,
                &info.supported_versions,
                announcements,
            )
            .await;
        registration.notify(outcome.clone()).await;
        outcome.map(|()| info.name)
    }

    async fn add(
        &self,
        name: &str,
        endpoint: &str,
        versions: &[String],
        announcements: &dyn Announcements,
    ) -> Result<(), String> {
        if !versions
            .iter()
            .any(|version| version.trim_start_matches('v').starts_with("1."))
        {
            return Err(format!(
                "{name} supports none of our versions of CSI, but {versions:?}"
            ));
        }
        let said = |status: tonic::Status| status.message().to_owned();
        let driver = Driver::at(Path::new(endpoint));
        let info = driver.node_info().await.map_err(said)?;
        let abilities = driver.abilities().await.map_err(said)?;
        let on_node = DriverOnNode {
            name: name.to_owned(),
            node_id: info.node_id,
            limit: i32::try_from(info.max_volumes_per_node)
                .ok()
                .filter(|limit| *limit > 0),
            topology: info
                .accessible_topology
                .map(|t| t.segments)
                .unwrap_or_default(),
        };
        announcements.added(&on_node).await?;
        self.put(name, Some(Registered { driver, abilities }));
        Ok(())
    }
}

fn sockets(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sockets = entries.filter(|entry| {
        let hidden = entry.file_name().to_string_lossy().starts_with('.');
        !hidden && entry.file_type().is_ok_and(|kind| kind.is_socket())
    });
    sockets.map(|entry| entry.path()).collect()
}
