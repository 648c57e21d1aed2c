//! Works off a queue, a bounded number of keys at a time.

use std::sync::Arc;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;

use crate::queue::{End, Key, Queue};

/// Why a key could not be brought to the state it should have.
#[derive(Debug, thiserror::Error)]
pub enum SyncError {
    /// The API server refused or did not answer.
    #[error("{0}")]
    Api(#[from] kube::Error),
    /// A request could not be written.
    #[error("{0}")]
    Request(#[from] kube::core::request::Error),
    /// Anything else, in words.
    #[error("{0}")]
    Other(String),
    /// To be expected and tried again, such as a request nobody may approve yet.
    #[error("{0}")]
    NotYet(String),
}

/// What a controller's sync gives.
pub type Synced = Result<End, SyncError>;

/// Brings key after key to the state it should have, for ever.
pub async fn work<K, F>(
    controller: &'static str,
    queue: Arc<Queue<K>>,
    at_once: usize,
    sync: impl Fn(K) -> F + Send,
) where
    K: Key,
    F: Future<Output = Synced> + Send,
{
    queue.named(controller);
    let mut running = FuturesUnordered::new();
    loop {
        tokio::select! {
            key = queue.next(), if running.len() < at_once => {
                let work = sync(key.clone());
                running.push(async move { (key, work.await) });
            }
            Some((key, synced)) = running.next(), if !running.is_empty() => {
                queue.end(&key, ended(controller, &key, synced));
            }
        }
    }
}

fn ended(controller: &str, key: &impl Key, synced: Synced) -> End {
    match synced {
        Ok(end) => end,
        Err(reason @ SyncError::NotYet(_)) => {
            tracing::debug!(controller, ?key, %reason, "not yet");
            End::Failed
        }
        Err(error) => {
            tracing::warn!(controller, ?key, %error, "failed, will be tried again");
            End::Failed
        }
    }
}
