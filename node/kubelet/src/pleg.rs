//! Noticing what happens to containers: the runtime's events where it has them, and lists that are compared.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use futures::StreamExt as _;
use jiff::Timestamp;
use tokio::sync::mpsc;

use crate::cri::{self, Runtime};
use crate::seen;

/// How often lists are compared without events, and with them.
const EVERY: Duration = Duration::from_secs(1);
const WITH_EVENTS: Duration = Duration::from_secs(60);

/// When the runtime was last seen to answer.
#[derive(Clone, Default)]
pub struct Pulse(Arc<AtomicI64>);

impl Pulse {
    /// It answered now.
    pub fn beat(&self) {
        self.0
            .store(Timestamp::now().as_second(), Ordering::Relaxed);
    }

    /// What is wrong, in upstream's words.
    pub fn problem(&self) -> Option<String> {
        let last = self.0.load(Ordering::Relaxed);
        let ago = Timestamp::now().as_second() - last;
        match last {
            0 => Some("PLEG is not healthy: pleg has yet to be successful".to_owned()),
            _ if ago > 180 => Some(format!(
                "PLEG is not healthy: pleg was last seen active {ago}s ago; threshold is 3m0s"
            )),
            _ => None,
        }
    }
}

/// Tells the UIDs of pods to which something happened, for ever.
pub async fn watch(runtime: Arc<dyn Runtime>, pulse: Pulse, changed: mpsc::Sender<String>) {
    let (with_events, mut signals) = tokio::sync::watch::channel(false);
    let listening = listen(Arc::clone(&runtime), changed.clone(), with_events);
    let relisting = async move {
        let mut before = BTreeMap::new();
        loop {
            match list(&*runtime).await {
                Ok(now) => {
                    pulse.beat();
                    for uid in differences(&before, &now) {
                        let _ = changed.send(uid).await;
                    }
                    before = now;
                }
                Err(status) => tracing::warn!(
                    error = status.message(),
                    "the runtime cannot be asked for its containers"
                ),
            }
            let wait = if *signals.borrow_and_update() {
                WITH_EVENTS
            } else {
                EVERY
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                Ok(()) = signals.changed() => {}
            }
        }
    };
    tokio::join!(listening, relisting);
}

async fn listen(
    runtime: Arc<dyn Runtime>,
    changed: mpsc::Sender<String>,
    with_events: tokio::sync::watch::Sender<bool>,
) {
    loop {
        let mut stream = match runtime.container_events().await {
            Err(status) if status.code() == tonic::Code::Unimplemented => return,
            Err(_) => {
                tokio::time::sleep(Duration::from_secs(5)).await;
                continue;
            }
            Ok(stream) => stream,
        };
        while let Some(event) = stream.next().await {
            match event {
                Ok(event) => {
                    with_events.send_replace(true);
                    let uid = event
                        .pod_sandbox_status
                        .and_then(|s| s.metadata)
                        .map(|m| m.uid);
                    if let Some(uid) = uid {
                        let _ = changed.send(uid).await;
                    }
                }
                Err(status) if status.code() == tonic::Code::Unimplemented => return,
                Err(_) => break,
            }
        }
        with_events.send_replace(false);
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
}

/// Each container and sandbox with its pod and its state.
type Listing = BTreeMap<String, (String, i32)>;

async fn list(runtime: &dyn Runtime) -> Result<Listing, tonic::Status> {
    let sandboxes = runtime
        .list_pod_sandbox(cri::ListPodSandboxRequest::default())
        .await?
        .items;
    let containers = runtime
        .list_containers(cri::ListContainersRequest::default())
        .await?
        .containers;
    let sandboxes = sandboxes
        .into_iter()
        .map(|s| (s.id, (s.metadata.unwrap_or_default().uid, s.state)));
    let containers = containers.into_iter().map(|mut c| {
        let uid = c.labels.remove(seen::POD_UID).unwrap_or_default();
        (c.id, (uid, c.state + 10))
    });
    Ok(sandboxes.chain(containers).collect())
}

fn differences(before: &Listing, now: &Listing) -> Vec<String> {
    let came = now
        .iter()
        .filter(|(id, state)| before.get(*id) != Some(state));
    let went = before.iter().filter(|(id, _)| !now.contains_key(*id));
    let mut uids: Vec<String> = came.chain(went).map(|(_, (uid, _))| uid.clone()).collect();
    uids.sort();
    uids.dedup();
    uids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_went_or_changed_is_told_once_per_pod() {
        let listing = |items: &[(&str, &str, i32)]| -> Listing {
            items
                .iter()
                .map(|(id, uid, state)| ((*id).to_owned(), ((*uid).to_owned(), *state)))
                .collect()
        };
        let before = listing(&[("a", "p", 0), ("b", "p", 11), ("c", "q", 11), ("d", "r", 0)]);
        let now = listing(&[("a", "p", 1), ("b", "p", 12), ("c", "q", 11)]);
        assert_eq!(differences(&before, &now), ["p", "r"]);
        assert!(differences(&now, &now).is_empty());
    }
}
