//! Runs the stream between a server and an agent: packets in, packets out, in one task that never
//! waits for a single connection longer than it must.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, Interval, MissedTickBehavior, Sleep};

use crate::http2::{Stream, StreamError};
use crate::lanes::{Inbound, Lanes};
use crate::metrics::{Held, Segment, Segments};
use crate::packet::Packet;

/// How long a reader may take nothing before its connection is cut for the others' sake. Only
/// with upstream's peers: ours do not send what was not granted.
const STALL_GRACE: Duration = Duration::from_secs(1);
/// How often connections that nobody holds are looked after.
const SWEEP: Duration = Duration::from_secs(10);
/// Packets taken before others get the thread.
const TURN: usize = 64;

/// The connections of a stream, shared with the tasks that own their local halves.
pub(crate) type SharedLanes = Arc<Mutex<Lanes>>;

/// The lock; nothing panics while it is held, and if something did the tables are still whole.
pub(crate) fn lock(lanes: &Mutex<Lanes>) -> MutexGuard<'_, Lanes> {
    lanes.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One connection, held by whoever owns its local half. Dropping it ends the connection, after
/// everything that was sent.
pub(crate) struct Wire {
    lanes: SharedLanes,
    id: i64,
    /// Whether the peer knows the end of one direction.
    pub(crate) extended: bool,
}

impl Wire {
    /// Adds a connection to the table.
    pub(crate) fn open(lanes: &SharedLanes, id: i64) -> Wire {
        let mut table = lock(lanes);
        table.open(id);
        Wire {
            lanes: Arc::clone(lanes),
            id,
            extended: table.extended(),
        }
    }

    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    pub(crate) fn poll_take(&self, cx: &mut Context<'_>) -> Poll<Inbound> {
        lock(&self.lanes).poll_take(self.id, cx)
    }

    pub(crate) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        lock(&self.lanes).poll_closed(self.id, cx)
    }

    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        lock(&self.lanes).poll_ready(self.id, cx)
    }

    pub(crate) fn send(&self, data: Bytes) {
        lock(&self.lanes).send(self.id, data);
    }

    pub(crate) fn send_end(&self) {
        lock(&self.lanes).send_end(self.id);
    }

    pub(crate) fn finish(&self, reason: String) {
        lock(&self.lanes).finish(self.id, reason);
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        lock(&self.lanes).release(self.id);
    }
}

/// A connection whose reader is behind, and how far it was when it was last looked at.
struct Stalled<'a> {
    _full: Held<'a>,
    id: i64,
    progress: u64,
    timer: Pin<Box<Sleep>>,
}

/// The state of a running stream.
pub(crate) struct Link<'a, R> {
    stream: &'a Stream,
    lanes: &'a SharedLanes,
    segments: &'a Segments,
    receive: R,
    stalled: Option<Stalled<'a>>,
    sweep: Interval,
    left: Vec<i64>,
}

/// Runs until the stream ends. `receive` judges a packet and names the connection it found
/// congested, if any.
pub(crate) async fn run(
    stream: &Stream,
    lanes: &SharedLanes,
    segments: &Segments,
    receive: impl FnMut(Packet) -> Option<i64>,
) -> Result<(), StreamError> {
    let mut sweep = tokio::time::interval(SWEEP);
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut link = Link {
        stream,
        lanes,
        segments,
        receive,
        stalled: None,
        sweep,
        left: Vec::new(),
    };
    std::future::poll_fn(|cx| link.poll(cx)).await
}

impl<R: FnMut(Packet) -> Option<i64>> Link<'_, R> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        while self.sweep.poll_tick(cx).is_ready() {
            lock(self.lanes).sweep(&mut self.left);
        }
        lock(self.lanes).pump = Some(cx.waker().clone());
        loop {
            if let Poll::Ready(end) = self.poll_receive(cx) {
                return Poll::Ready(end);
            }
            let flooded = lock(self.lanes).flooded();
            self.poll_send(cx);
            // What is still too much waits for the stream, which wakes us.
            if !flooded || lock(self.lanes).flooded() {
                return Poll::Pending;
            }
        }
    }

    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), StreamError>> {
        for _ in 0..TURN {
            if self.poll_stalled(cx).is_pending() || lock(self.lanes).flooded() {
                return Poll::Pending;
            }
            let message = match self.stream.poll_message(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(None) => return Poll::Ready(Ok(())),
                Poll::Ready(Some(Err(error))) => {
                    self.segments.error(Segment::In, error.code);
                    return Poll::Ready(Err(error));
                }
                Poll::Ready(Some(Ok(message))) => message,
            };
            let packet = match Packet::decode(message) {
                Ok(packet) => packet,
                Err(error) => return Poll::Ready(Err(StreamError::malformed(error))),
            };
            self.segments.count(Segment::In, &packet);
            if let Some(id) = (self.receive)(packet) {
                self.stalled = Some(Stalled {
                    _full: self.segments.full.hold(),
                    id,
                    progress: lock(self.lanes).progress(id),
                    timer: Box::pin(tokio::time::sleep(STALL_GRACE)),
                });
            }
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    // Ready when nobody is in the way. A reader that moves is waited for, as upstream does; one that
    // does not is cut.
    fn poll_stalled(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while let Some(stalled) = &mut self.stalled {
            let mut lanes = lock(self.lanes);
            lanes.stalled = lanes.congested(stalled.id);
            if !lanes.stalled {
                self.stalled = None;
                break;
            }
            if stalled.timer.as_mut().poll(cx).is_pending() {
                return Poll::Pending;
            }
            let progress = lanes.progress(stalled.id);
            if progress == stalled.progress {
                lanes.cut(stalled.id, "its reader stopped reading");
                tracing::warn!(connection = stalled.id, "cut: its reader stopped reading");
            } else {
                stalled.progress = progress;
                stalled.timer.as_mut().reset(Instant::now() + STALL_GRACE);
            }
        }
        Poll::Ready(())
    }

    fn poll_send(&mut self, cx: &mut Context<'_>) {
        while self.stream.poll_ready(cx).is_ready() {
            let Some(packet) = lock(self.lanes).next_packet() else {
                return;
            };
            self.segments.count(Segment::Out, &packet);
            let (head, data) = packet.encode();
            self.stream.send(&head, data);
        }
    }
}
