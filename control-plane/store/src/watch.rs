//! The reader's end of a watch, the same for every engine.

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};

use tokio::sync::mpsc;

use crate::{Error, Result, Tell, WatchItem};

/// A running watch. Dropping it ends it. The stream ends with an `Err` when the store cannot keep
/// its promise any longer (history compacted under a slow reader, connection to etcd lost); the
/// reader then starts again from the last revision it saw.
#[derive(Debug)]
pub struct Watch {
    /// What happened before the watch was registered; delivered first.
    backlog: VecDeque<WatchItem>,
    receiver: mpsc::Receiver<Result<WatchItem>>,
    ending: Ending,
    change: Option<Mapping>,
}

/// What is done to every item.
#[derive(Clone)]
struct Mapping(Arc<dyn Fn(WatchItem) -> WatchItem + Send + Sync>);

impl std::fmt::Debug for Mapping {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Mapping")
    }
}

/// Why a watch was ended by the store. It travels beside the channel, because a watch that is
/// ended for being slow has no room left in the channel.
pub(crate) type Ending = Arc<OnceLock<Error>>;

impl Watch {
    /// A watch that delivers what is sent into the channel and ends when its senders are dropped.
    pub fn new(receiver: mpsc::Receiver<Result<WatchItem>>) -> Self {
        Self::with_backlog(VecDeque::new(), receiver, Ending::default())
    }

    /// A watch that first delivers `backlog`, then the channel, then the reason of its ending.
    pub(crate) fn with_backlog(
        backlog: VecDeque<WatchItem>,
        receiver: mpsc::Receiver<Result<WatchItem>>,
        ending: Ending,
    ) -> Self {
        Self {
            backlog,
            receiver,
            ending,
            change: None,
        }
    }

    /// The same watch, with something done to every item.
    pub fn map(self, change: impl Fn(WatchItem) -> WatchItem + Send + Sync + 'static) -> Self {
        Self {
            change: Some(Mapping(Arc::new(change))),
            ..self
        }
    }

    /// The next item; `None` after the end.
    pub async fn next(&mut self) -> Option<Result<WatchItem>> {
        let item = self.next_as_it_is().await?;
        Some(match &self.change {
            Some(Mapping(change)) => item.map(|item| change(item)),
            None => item,
        })
    }

    async fn next_as_it_is(&mut self) -> Option<Result<WatchItem>> {
        if let Some(item) = self.backlog.pop_front() {
            return Some(Ok(item));
        }
        match self.receiver.recv().await {
            Some(item) => Some(item),
            None => std::mem::take(&mut self.ending).get().cloned().map(Err),
        }
    }

    /// Tells every item until the end, and gives its reason.
    pub(crate) async fn tell_all(mut self, tell: Tell) -> Error {
        loop {
            match self.next().await {
                Some(Ok(item)) => tell(item),
                Some(Err(error)) => return error,
                None => {
                    return Error::Unavailable {
                        cause: "the store closed the watch".to_owned(),
                    };
                }
            }
        }
    }
}
