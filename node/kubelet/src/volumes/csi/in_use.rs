//! Which volumes the node says it uses. The attach controller leaves those alone, so a volume is mounted only after the
//! API server was told.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::watch;

/// How long one waits for the node's status to be written, at each turn of the pod.
const TELLING: Duration = Duration::from_secs(30);

/// The volumes that are in use, and those of which the API server knows.
#[derive(Debug, Default)]
pub struct InUse {
    used: watch::Sender<BTreeSet<String>>,
    told: watch::Sender<BTreeSet<String>>,
}

impl InUse {
    pub(super) fn add(&self, name: &str) {
        self.used
            .send_if_modified(|used| used.insert(name.to_owned()));
    }

    pub(super) fn remove(&self, name: &str) {
        self.used.send_if_modified(|used| used.remove(name));
    }

    /// Waits until the API server knows that a volume is in use.
    pub(super) async fn is_told(&self, name: &str) -> Result<(), String> {
        let mut told = self.told.subscribe();
        let waiting = told.wait_for(|told| told.contains(name));
        match tokio::time::timeout(TELLING, waiting).await {
            Ok(Ok(_)) => Ok(()),
            _ => Err("the node's status does not name the volume as in use yet".to_owned()),
        }
    }

    /// The volumes, by name.
    pub fn names(&self) -> BTreeSet<String> {
        self.used.borrow().clone()
    }

    /// The API server has been told of these.
    pub fn tell(&self, names: BTreeSet<String>) {
        self.told.send_replace(names);
    }

    /// Waits until the volumes are others than the API server knows.
    pub async fn differs(&self) {
        let mut used = self.used.subscribe();
        let told = self.told.subscribe();
        // The sender lives as long as this.
        let _ = used.wait_for(|used| *used != *told.borrow()).await;
    }
}
