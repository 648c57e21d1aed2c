//! Watches: every change from a revision on, as a stream of events.
//!
//! A watch begins with the present objects or at a revision, follows its collection's ring, and ends
//! at its deadline, when the server stops, or with an ERROR event when it has fallen behind the ring
//! (`410 Expired`: the client lists again).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::watch as signal;
use tokio::time::{Instant, Sleep};

use crate::body::Body;
use crate::cache::Cache;
use crate::collection::{Change, Collection, Cursor, Listed, TooOld};
use crate::negotiate::Shape;
use crate::request::ListOptions;
use crate::select::Selection;
use crate::status::{ApiError, Result};
use crate::stored::Stored;
use crate::view::View;

/// How often a quiet watch that asked for bookmarks gets one (upstream: about a minute), and how long
/// before its end it gets the last one.
const BOOKMARK_EVERY: Duration = Duration::from_secs(60);
const BOOKMARK_BEFORE_END: Duration = Duration::from_secs(2);
/// Upstream's `--min-request-timeout`: a watch without a timeout lives this long, up to twice.
const MIN_LIFE_SECONDS: u64 = 1_800;
/// Changes encoded at one go, and bytes sent at one go.
const BATCH: usize = 256;
const CHUNK: usize = 64 * 1024;

/// What a watch needs of the server.
#[derive(Debug)]
pub(crate) struct Source {
    /// The cache.
    pub(crate) cache: Arc<Cache>,
    /// The collection watched.
    pub(crate) collection: Arc<Collection>,
    /// Turns true when the server stops.
    pub(crate) shutdown: signal::Receiver<bool>,
}

/// Starts a watch. The caller has made sure that the cache is fresh enough for the options.
pub(crate) fn start(
    source: Source,
    view: View,
    selection: Selection,
    options: &ListOptions,
) -> Result<Body> {
    let wants_initial = match (options.send_initial_events, options.resource_version) {
        (Some(wanted), _) => wanted,
        (None, version) => version.unwrap_or(0) == 0,
    };
    let now = Instant::now();
    let life = options
        .timeout_seconds
        .unwrap_or_else(|| MIN_LIFE_SECONDS + rand::random_range(0..MIN_LIFE_SECONDS));
    let deadline = now + Duration::from_secs(life);
    let reached = source.cache.revision();
    let bookmark_at = options.bookmarks.then(|| next_bookmark(now, deadline));
    let mut shutdown = source.shutdown.clone();
    let mut watch = Watch {
        drained: false,
        timer: Box::pin(tokio::time::sleep_until(
            bookmark_at.map_or(deadline, |at| at.min(deadline)),
        )),
        stopped: Box::pin(async move {
            // A sender that is gone has stopped, too.
            let _ = shutdown.wait_for(|stop| *stop).await.is_ok();
        }),
        view,
        after: 0,
        seen: reached,
        initial: VecDeque::new(),
        initial_bookmark: false,
        bookmark_due: false,
        cursor: None,
        columns_sent: false,
        failure: None,
        deadline,
        selection,
        source,
    };
    if wants_initial {
        watch.begin_with_objects(options.bookmarks && options.send_initial_events == Some(true));
    } else {
        watch.begin_after(
            options
                .resource_version
                .filter(|v| *v > 0)
                .unwrap_or(reached),
        );
    }
    Ok(Body::Stream(Box::pin(futures::stream::unfold(
        watch,
        |mut watch| async move { watch.next().await.map(|bytes| (bytes, watch)) },
    ))))
}

fn next_bookmark(now: Instant, deadline: Instant) -> Instant {
    let last = deadline.checked_sub(BOOKMARK_BEFORE_END).unwrap_or(now);
    let regular = now + BOOKMARK_EVERY;
    if now < last {
        regular.min(last)
    } else {
        regular
    }
}

struct Watch {
    source: Source,
    view: View,
    selection: Selection,
    /// Events up to here are not wanted.
    after: u64,
    /// Everything up to here has been delivered or did not match.
    seen: u64,
    initial: VecDeque<Arc<Stored>>,
    initial_bookmark: bool,
    cursor: Option<Cursor>,
    columns_sent: bool,
    failure: Option<TooOld>,
    deadline: Instant,
    /// A bookmark goes out once everything there is has been read: it then holds the newest revision, also
    /// where only other collections changed. A bookmark of an old one would not keep anybody from `410`.
    bookmark_due: bool,
    /// Everything there was has been read: nothing to do before the next wake-up.
    drained: bool,
    /// Made once: a new timer and a new subscription per event would cost more than the event.
    timer: Pin<Box<Sleep>>,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
}

impl Watch {
    fn begin_with_objects(&mut self, bookmark: bool) {
        let reached = self.source.cache.revision();
        let topic = self.selection.topic();
        let (Listed { objects, revision }, cursor) = self
            .source
            .collection
            .snapshot(&self.selection.within(), topic);
        let selected = objects
            .into_iter()
            .filter(|(key, object)| self.selection.matches(key, object));
        self.initial = selected.map(|(_, object)| object).collect();
        self.seen = reached.max(revision);
        self.after = self.seen;
        self.initial_bookmark = bookmark;
        self.cursor = Some(cursor);
    }

    fn begin_after(&mut self, revision: u64) {
        self.after = revision;
        match self
            .source
            .collection
            .cursor_after(revision, self.selection.topic())
        {
            Ok(cursor) => self.cursor = Some(cursor),
            Err(too_old) => self.failure = Some(too_old),
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        if let Some(chunk) = self.initial_chunk() {
            return Some(chunk);
        }
        loop {
            if let Some(too_old) = self.failure.take() {
                self.cursor = None;
                return Some(self.expired(too_old));
            }
            if std::mem::take(&mut self.drained) && !self.bookmark_due {
                self.wait().await?;
            }
            let reached = self.source.cache.revision();
            let cursor = self.cursor.as_mut()?;
            match self.source.collection.read_changes(cursor, BATCH) {
                Err(too_old) => self.failure = Some(too_old),
                Ok(changes) => {
                    self.drained = changes.len() < BATCH;
                    let bytes = self.encode(&changes);
                    if self.drained {
                        self.seen = self.seen.max(reached);
                    }
                    if bytes.is_some() {
                        return bytes;
                    }
                    if self.drained && std::mem::take(&mut self.bookmark_due) {
                        return Some(self.view.bookmark(self.seen, false));
                    }
                }
            }
        }
    }

    fn initial_chunk(&mut self) -> Option<Bytes> {
        if self.initial.is_empty() && !self.initial_bookmark {
            return None;
        }
        let mut out = BytesMut::new();
        while out.len() < CHUNK {
            let Some(object) = self.initial.pop_front() else {
                if std::mem::take(&mut self.initial_bookmark) {
                    out.extend_from_slice(&self.view.bookmark(self.seen, true));
                }
                break;
            };
            let columns = !std::mem::replace(&mut self.columns_sent, true);
            out.extend_from_slice(&self.view.frame("ADDED", &object, object.revision, columns));
        }
        Some(out.freeze())
    }

    /// Waits for more: `None` ends the watch, otherwise there may be something to read or to say.
    async fn wait(&mut self) -> Option<()> {
        let cursor = self.cursor.as_mut()?;
        tokio::select! {
            () = cursor.changed() => return Some(()),
            () = &mut self.stopped => return None,
            () = &mut self.timer => {}
        }
        let now = self.timer.deadline();
        if now >= self.deadline {
            return None;
        }
        let next = next_bookmark(now, self.deadline);
        self.timer.as_mut().reset(next.min(self.deadline));
        self.bookmark_due = true;
        Some(())
    }

    fn encode(&mut self, changes: &[Arc<Change>]) -> Option<Bytes> {
        let mut frames: Vec<Bytes> = Vec::with_capacity(changes.len());
        for change in changes {
            self.seen = self.seen.max(change.revision);
            if change.revision <= self.after {
                continue;
            }
            if let Some(kind) = self.classify(change) {
                frames.push(self.frame(kind, change));
            }
        }
        match frames.len() {
            0 => None,
            1 => frames.pop(),
            _ => Some(frames.concat().into()),
        }
    }

    fn frame(&mut self, kind: &'static str, change: &Change) -> Bytes {
        let first_table =
            matches!(self.view.accepted.shape, Shape::Table { .. }) && !self.columns_sent;
        let object = if kind == "DELETED" {
            &change.previous
        } else {
            &change.current
        };
        match object {
            Some(object) if first_table => {
                self.columns_sent = true;
                self.view.frame(kind, object, change.revision, true)
            }
            _ => self.view.event(kind, change),
        }
    }

    // An object that enters the selection is ADDED, one that leaves it is DELETED, whatever happened
    // to the object itself.
    fn classify(&self, change: &Change) -> Option<&'static str> {
        let selected = |object: &Option<Arc<Stored>>| {
            object
                .as_ref()
                .is_some_and(|o| self.selection.matches(&change.key, o))
        };
        match (selected(&change.previous), selected(&change.current)) {
            (false, true) => Some("ADDED"),
            (true, true) => Some("MODIFIED"),
            (true, false) => Some("DELETED"),
            (false, false) => None,
        }
    }

    fn expired(&self, too_old: TooOld) -> Bytes {
        let message = format!(
            "too old resource version: {} ({})",
            self.after, too_old.oldest
        );
        self.view.error(&ApiError::expired(message))
    }
}
