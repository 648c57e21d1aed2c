//! A watch on etcd: a stream of its own, read by a task that ends with the watch.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::{Stream, StreamExt, stream};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::{Status, Streaming};

use super::connection::{Connection, failed};
use super::messages::{
    Event as EtcdEvent, EventType, WatchCommand, WatchCreateRequest, WatchProgressRequest,
    WatchRequest, WatchResponse,
};
use super::{Known, key_value, revision_of, signed, text};
use crate::{Error, Event, Result, Revision, Watch, WatchItem};

const WATCH: &str = "/etcdserverpb.Watch/Watch";
/// How many answers may wait for the reader before the task stops reading; etcd then buffers.
const BUFFER: usize = 256;
/// How often progress is asked for, where that is safe.
const BEAT: Duration = Duration::from_secs(1);

/// Starts a watch and waits until etcd has confirmed it.
pub(super) async fn start(
    connection: &Connection,
    known: Arc<Known>,
    create: WatchCreateRequest,
    patience: Duration,
    ask_progress: bool,
) -> Result<Watch> {
    let requested = revision_of(create.start_revision).saturating_sub(1);
    let mut commands = None;
    let opened = connection.stream(WATCH, || {
        let (sender, receiver) = mpsc::channel(1);
        commands = Some(sender);
        requests(create.clone(), receiver)
    });
    let mut incoming = opened.await.map_err(|status| failed(&status))?;
    confirm(&mut incoming, patience).await?;
    let (sender, receiver) = mpsc::channel(BUFFER);
    let relay = Relay {
        incoming,
        commands,
        ask_progress,
        sender,
        requested,
        known,
    };
    tokio::spawn(relay.run());
    Ok(Watch::new(receiver))
}

/// The requests of a watch stream: its creation, then what the task sends. It ends, and the watch
/// with it, when the task does.
fn requests(
    create: WatchCreateRequest,
    commands: mpsc::Receiver<WatchRequest>,
) -> impl Stream<Item = WatchRequest> + Send + 'static {
    let first = WatchRequest {
        command: Some(WatchCommand::Create(create)),
    };
    let later = stream::unfold(commands, |mut commands| async {
        let next = commands.recv().await?;
        Some((next, commands))
    });
    stream::iter([first]).chain(later)
}

async fn confirm(incoming: &mut Streaming<WatchResponse>, patience: Duration) -> Result<()> {
    let confirmed = tokio::time::timeout(patience, incoming.message()).await;
    let late = |_| Status::deadline_exceeded("etcd did not confirm the watch in time");
    match confirmed.map_err(late).and_then(|answer| answer) {
        Ok(Some(answer)) if answer.created && !answer.canceled => Ok(()),
        Ok(Some(answer)) => Err(refused(&answer.cancel_reason)),
        Ok(None) => Err(refused("the stream ended")),
        Err(status) => Err(failed(&status)),
    }
}

fn refused(reason: &str) -> Error {
    Error::Unavailable {
        cause: format!("etcd ended the watch: {reason}"),
    }
}

/// Passes what etcd sends on to the reader.
struct Relay {
    incoming: Streaming<WatchResponse>,
    /// The way to the server. Kept even if nothing is sent: the stream lives as long as it does.
    commands: Option<mpsc::Sender<WatchRequest>>,
    /// Whether the server can be asked for progress safely.
    ask_progress: bool,
    sender: mpsc::Sender<Result<WatchItem>>,
    requested: Revision,
    known: Arc<Known>,
}

impl Relay {
    async fn run(mut self) {
        let mut beat = tokio::time::interval_at(Instant::now() + BEAT, BEAT);
        loop {
            let answer = tokio::select! {
                answer = self.incoming.message() => answer,
                () = self.sender.closed() => return,
                _ = beat.tick() => {
                    self.ask_progress();
                    continue;
                }
            };
            let item = self.item(answer);
            let last = item.as_ref().is_some_and(Result::is_err);
            if let Some(item) = item
                && (self.sender.send(item).await.is_err() || last)
            {
                return;
            }
        }
    }

    fn ask_progress(&self) {
        let command = WatchCommand::Progress(WatchProgressRequest {});
        if let Some(commands) = self.commands.as_ref().filter(|_| self.ask_progress) {
            // A request that is still waiting to be sent asks the same.
            let _ = commands.try_send(WatchRequest {
                command: Some(command),
            });
        }
    }

    fn item(&self, answer: Result<Option<WatchResponse>, Status>) -> Option<Result<WatchItem>> {
        let answer = match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => return Some(Err(refused("the stream ended"))),
            Err(status) => return Some(Err(failed(&status))),
        };
        if answer.compact_revision != 0 {
            let oldest = revision_of(answer.compact_revision);
            self.known.compacted(oldest);
            return Some(Err(Error::Compacted {
                requested: self.requested,
                oldest,
            }));
        }
        if answer.canceled {
            return Some(Err(refused(&answer.cancel_reason)));
        }
        if answer.events.is_empty() {
            let revision = answer
                .header
                .map_or(0, |header| revision_of(header.revision));
            return (!answer.created).then_some(Ok(WatchItem::Progress(revision)));
        }
        let events: Result<Vec<Event>> = answer.events.into_iter().map(event).collect();
        Some(events.map(WatchItem::Events))
    }
}

fn event(event: EtcdEvent) -> Result<Event> {
    let kv = event.kv.unwrap_or_default();
    let key = text(&kv.key)?;
    let revision = revision_of(kv.mod_revision);
    let deleted = event.kind == EventType::Delete as i32;
    Ok(Event {
        key,
        revision,
        current: if deleted { None } else { Some(key_value(kv)?) },
        previous: event.prev_kv.map(key_value).transpose()?,
    })
}

/// The request for a watch on a prefix.
pub(super) fn create(prefix: &str, after: Revision) -> WatchCreateRequest {
    let (key, range_end) = prefix_range(prefix);
    WatchCreateRequest {
        key,
        range_end,
        start_revision: signed(after.saturating_add(1)),
        progress_notify: true,
        prev_kv: true,
    }
}

/// The keys that start with a prefix, as etcd writes them: up to the prefix with its last byte
/// raised, or to the end (a zero byte) if no byte can be raised.
fn prefix_range(prefix: &str) -> (Bytes, Bytes) {
    const EVERYTHING: Bytes = Bytes::from_static(b"\0");
    if prefix.is_empty() {
        return (EVERYTHING, EVERYTHING);
    }
    // UTF-8 has no byte 0xff, so the last byte can always be raised.
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    (Bytes::copy_from_slice(prefix.as_bytes()), end.into())
}
