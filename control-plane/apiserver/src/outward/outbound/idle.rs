//! Connections that wait for their next request: a scrape every few seconds should not cost a tunnel and a
//! handshake each time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::client::conn::http1::SendRequest;

use super::Place;

/// Less than servers usually wait before they hang up.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many wait at once, for all places; more are closed instead.
const MOST: usize = 256;

/// The body of a request to another server.
pub(crate) type Payload = UnsyncBoxBody<Bytes, hyper::Error>;

/// The connections that wait.
#[derive(Debug, Default)]
pub(crate) struct Idle(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    /// Each with its number; who came last is the first to go.
    senders: HashMap<Place, Vec<(u64, SendRequest<Payload>)>>,
    count: usize,
    next: u64,
}

impl Idle {
    /// A connection to a place that was alive a moment ago.
    pub(crate) fn take(&self, place: &Place) -> Option<SendRequest<Payload>> {
        let mut waiting = self.lock();
        while let Some((_, sender)) = waiting.senders.get_mut(place)?.pop() {
            waiting.count -= 1;
            if sender.is_ready() {
                return Some(sender);
            }
        }
        waiting.senders.remove(place);
        None
    }

    /// Keeps a connection for a while, from when its present answer has been read.
    pub(crate) fn keep(self: &Arc<Self>, place: Place, mut sender: SendRequest<Payload>) {
        let own = Arc::clone(self);
        tokio::spawn(async move {
            if sender.ready().await.is_err() {
                return;
            }
            if let Some(number) = own.put(&place, sender) {
                tokio::time::sleep(PATIENCE).await;
                own.remove(&place, number);
            }
        });
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn waiting(&self) -> usize {
        self.lock().count
    }

    fn put(&self, place: &Place, sender: SendRequest<Payload>) -> Option<u64> {
        let mut waiting = self.lock();
        if waiting.count >= MOST {
            return None;
        }
        waiting.count += 1;
        waiting.next += 1;
        let number = waiting.next;
        let senders = waiting.senders.entry(place.clone()).or_default();
        senders.push((number, sender));
        Some(number)
    }

    fn remove(&self, place: &Place, number: u64) {
        let mut waiting = self.lock();
        let Some(senders) = waiting.senders.get_mut(place) else {
            return;
        };
        let before = senders.len();
        senders.retain(|(found, _)| *found != number);
        let (gone, is_empty) = (before - senders.len(), senders.is_empty());
        waiting.count -= gone;
        if is_empty {
            waiting.senders.remove(place);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
