//! Watches: every change from a revision on, as a stream of events.
//!
//! A watch begins with the present objects or at a revision, follows its collection's ring, and ends at its
//! deadline, when the server stops, when its resource is defined anew or no more, or with an ERROR event when it
//! has fallen behind the ring (`410 Expired`: the client lists again).

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::watch as signal;
use tokio::time::{Instant, Sleep};

use crate::api::Api;
use crate::connection::response_body::Body;
use crate::door::request::ListOptions;
use crate::meters::WatchMeter;
use crate::reading::collection::{Change, Collection, Cursor, Listed, TooOld};
use crate::reading::negotiate::Shape;
use crate::reading::select::Selection;
use crate::reading::stored::Stored;
use crate::reading::view::View;
use crate::status::{ApiError, Result};

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
    /// The server.
    pub(crate) api: Arc<Api>,
    /// The collection watched.
    pub(crate) collection: Arc<Collection>,
    /// Turns true when the server stops.
    pub(crate) shutdown: signal::Receiver<bool>,
    /// Counts what is sent.
    pub(crate) meter: WatchMeter,
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
    let deadline = now
        + life(
            options.timeout_seconds,
            rand::random_range(0..MIN_LIFE_SECONDS),
        );
    let reached = source.api.cache.revision();
    let bookmark_at = options.bookmarks.then(|| next_bookmark(now, deadline));
    let (mut shutdown, mut closed) = (source.shutdown.clone(), source.collection.closed());
    let mut watch = Watch {
        timer: Box::pin(tokio::time::sleep_until(
            bookmark_at.map_or(deadline, |at| at.min(deadline)),
        )),
        stopped: Box::pin(async move {
            // A sender that is gone has stopped, too.
            tokio::select! {
                _ = shutdown.wait_for(|stop| *stop) => {}
                _ = closed.wait_for(|closed| *closed) => {}
            }
        }),
        state: State::Over,
        view,
        after: 0,
        seen: reached,
        columns_sent: false,
        deadline,
        selection,
        source,
    };
    let bookmark = options.bookmarks && options.send_initial_events == Some(true);
    let version = options.resource_version.filter(|version| *version > 0);
    watch.state = match wants_initial {
        true => watch.with_objects(bookmark),
        false => watch.after(version.unwrap_or(reached)),
    };
    Ok(Body::Stream(Box::pin(futures::stream::unfold(
        watch,
        |mut watch| async move { watch.next().await.map(|bytes| (bytes, watch)) },
    ))))
}

// Changes as a watch's version has them. A conversion that fails ends the watch.
async fn in_version(
    source: &Source,
    view: &View,
    changes: Vec<Arc<Change>>,
) -> Result<Vec<Arc<Change>>> {
    let (api, collection) = (&source.api, &source.collection);
    if collection.webhook.is_none() {
        return Ok(changes);
    }
    let mut converted = Vec::with_capacity(changes.len());
    for change in &changes {
        let change = api.change_in_version(&view.resource, collection, change);
        converted.push(Arc::new(change.await?));
    }
    Ok(converted)
}

// Zero means no wish, as upstream reads it. Who may watch is asked at the beginning only, so there is an end, whatever
// the wish.
fn life(wanted: Option<u64>, chance: u64) -> Duration {
    let wanted = wanted.filter(|seconds| *seconds > 0);
    let seconds = wanted.unwrap_or(MIN_LIFE_SECONDS + chance);
    Duration::from_secs(seconds.min(2 * MIN_LIFE_SECONDS))
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
    state: State,
    /// Events up to here are not wanted.
    after: u64,
    /// Everything up to here has been delivered or did not match.
    seen: u64,
    columns_sent: bool,
    deadline: Instant,
    /// Made once: a new timer and a new subscription per event would cost more than the event.
    timer: Pin<Box<Sleep>>,
    stopped: Pin<Box<dyn Future<Output = ()> + Send>>,
}

/// What a watch does next.
enum State {
    /// It has objects that a webhook must convert before it is known whether they are selected.
    Converting {
        objects: Vec<(Arc<str>, Arc<Stored>)>,
        bookmark: bool,
        cursor: Cursor,
    },
    /// It tells the objects there were, and that these were all, if that was asked for.
    Beginning {
        objects: VecDeque<Arc<Stored>>,
        bookmark: bool,
        cursor: Cursor,
    },
    /// It reads changes. A bookmark goes out once everything there is has been read: it then holds the newest
    /// revision, also where only other collections changed. A bookmark of an old one would not keep anybody from `410`.
    Reading {
        cursor: Cursor,
        bookmark: bool,
    },
    /// Everything there was has been read.
    Waiting(Cursor),
    /// It says why it cannot go on.
    Failing(ApiError),
    Over,
}

impl Watch {
    fn with_objects(&mut self, bookmark: bool) -> State {
        let reached = self.source.api.cache.revision();
        let topic = self.selection.topic();
        let (Listed { objects, revision }, cursor) = self
            .source
            .collection
            .snapshot(&self.selection.within(), topic);
        self.seen = reached.max(revision);
        self.after = self.seen;
        match self.source.collection.webhook {
            None => State::Beginning {
                objects: self.selected(objects),
                bookmark,
                cursor,
            },
            Some(_) => State::Converting {
                objects,
                bookmark,
                cursor,
            },
        }
    }

    fn selected(&self, objects: Vec<(Arc<str>, Arc<Stored>)>) -> VecDeque<Arc<Stored>> {
        let objects = objects.into_iter();
        let selected = objects.filter(|(key, object)| self.selection.matches(key, object));
        selected.map(|(_, object)| object).collect()
    }

    fn after(&mut self, revision: u64) -> State {
        self.after = revision;
        let topic = self.selection.topic();
        match self.source.collection.cursor_after(revision, topic) {
            Ok(cursor) => State::Reading {
                cursor,
                bookmark: false,
            },
            Err(too_old) => State::Failing(self.expired(too_old)),
        }
    }

    async fn next(&mut self) -> Option<Bytes> {
        loop {
            let (state, said) = match std::mem::replace(&mut self.state, State::Over) {
                State::Converting {
                    objects,
                    bookmark,
                    cursor,
                } => (self.convert(objects, bookmark, cursor).await, None),
                State::Beginning {
                    objects,
                    bookmark,
                    cursor,
                } => self.tell(objects, bookmark, cursor),
                State::Reading { cursor, bookmark } => self.read(cursor, bookmark).await,
                State::Waiting(cursor) => (self.wait(cursor).await, None),
                State::Failing(error) => (State::Over, Some(self.view.error(&error))),
                State::Over => return None,
            };
            self.state = state;
            if said.is_some() {
                return said;
            }
        }
    }

    async fn convert(
        &mut self,
        objects: Vec<(Arc<str>, Arc<Stored>)>,
        bookmark: bool,
        cursor: Cursor,
    ) -> State {
        let (keys, objects): (Vec<_>, Vec<_>) = objects.into_iter().unzip();
        let (api, collection) = (&self.source.api, &self.source.collection);
        let objects = api.in_version(&self.view.resource, collection, objects);
        match objects.await {
            Ok(objects) => State::Beginning {
                objects: self.selected(keys.into_iter().zip(objects).collect()),
                bookmark,
                cursor,
            },
            Err(error) => State::Failing(error),
        }
    }

    // A chunk of the objects there were.
    fn tell(
        &mut self,
        mut objects: VecDeque<Arc<Stored>>,
        bookmark: bool,
        cursor: Cursor,
    ) -> (State, Option<Bytes>) {
        let mut out = BytesMut::new();
        while out.len() < CHUNK
            && let Some(object) = objects.pop_front()
        {
            let columns = !std::mem::replace(&mut self.columns_sent, true);
            let frame = self.view.frame("ADDED", &object, object.revision, columns);
            self.source.meter.sent(frame.len());
            out.extend_from_slice(&frame);
        }
        let state = if objects.is_empty() {
            if bookmark {
                out.extend_from_slice(&self.view.bookmark(self.seen, true));
            }
            State::Reading {
                cursor,
                bookmark: false,
            }
        } else {
            State::Beginning {
                objects,
                bookmark,
                cursor,
            }
        };
        (state, (!out.is_empty()).then(|| out.freeze()))
    }

    async fn read(&mut self, mut cursor: Cursor, bookmark: bool) -> (State, Option<Bytes>) {
        let reached = self.source.api.cache.revision();
        let changes = match self.source.collection.read_changes(&mut cursor, BATCH) {
            Ok(changes) => changes,
            Err(too_old) => return (State::Failing(self.expired(too_old)), None),
        };
        let more = changes.len() == BATCH;
        let changes = match in_version(&self.source, &self.view, changes).await {
            Ok(changes) => changes,
            Err(error) => return (State::Failing(error), None),
        };
        let bytes = self.encode(&changes);
        if more {
            return (State::Reading { cursor, bookmark }, bytes);
        }
        self.seen = self.seen.max(reached);
        match (bytes, bookmark) {
            (None, true) => {
                let said = self.view.bookmark(self.seen, false);
                (State::Waiting(cursor), Some(said))
            }
            (bytes @ Some(_), true) => (State::Reading { cursor, bookmark }, bytes),
            (bytes, false) => (State::Waiting(cursor), bytes),
        }
    }

    async fn wait(&mut self, mut cursor: Cursor) -> State {
        tokio::select! {
            () = cursor.changed() => return State::Reading { cursor, bookmark: false },
            () = &mut self.stopped => return State::Over,
            () = &mut self.timer => {}
        }
        let now = self.timer.deadline();
        if now >= self.deadline {
            return State::Over;
        }
        let next = next_bookmark(now, self.deadline);
        self.timer.as_mut().reset(next.min(self.deadline));
        State::Reading {
            cursor,
            bookmark: true,
        }
    }

    fn encode(&mut self, changes: &[Arc<Change>]) -> Option<Bytes> {
        let mut frames: Vec<Bytes> = Vec::with_capacity(changes.len());
        for change in changes {
            self.seen = self.seen.max(change.revision);
            if change.revision <= self.after {
                continue;
            }
            if let Some(kind) = self.classify(change) {
                let frame = self.frame(kind, change);
                self.source.meter.sent(frame.len());
                frames.push(frame);
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

    fn expired(&self, too_old: TooOld) -> ApiError {
        ApiError::expired(format!(
            "too old resource version: {} ({})",
            self.after, too_old.oldest
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_watch_has_an_end() {
        let hour = 2 * MIN_LIFE_SECONDS;
        let cases = [
            (None, 7, MIN_LIFE_SECONDS + 7),
            (Some(0), 7, MIN_LIFE_SECONDS + 7),
            (Some(5), 7, 5),
            (Some(i64::MAX.unsigned_abs()), 7, hour),
            (Some(u64::MAX), MIN_LIFE_SECONDS, hour),
        ];
        for (wanted, chance, seconds) in cases {
            assert_eq!(life(wanted, chance).as_secs(), seconds, "{wanted:?}");
        }
    }
}
