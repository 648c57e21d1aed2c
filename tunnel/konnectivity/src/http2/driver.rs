//! Moves a connection's bytes.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::time::{Instant, Sleep};

use super::core::{Core, Role, Tuning};
use super::stream::{Opener, Shared, Stream, StreamError, lock};
use super::transport::Transport;
use crate::pieces::Pieces;

/// What is written at once, and when reading waits for writing.
const BATCH: usize = 256 << 10;
/// What is read in a row, before those who wait for it get the thread.
const TURN: usize = 64 << 10;
/// Nobody needs to know more often; gRPC's figure.
const LEAST_INTERVAL: Duration = Duration::from_secs(10);
/// How long a ping may stay unanswered; upstream's figure.
const PING_TIMEOUT: Duration = Duration::from_secs(20);

/// One connection; a future that completes when it is over.
pub(crate) struct Connection<IO> {
    io: IO,
    role: Role,
    shared: Shared,
    writing: Pieces,
    /// What this turn has read.
    read: usize,
    keepalive: Option<Keepalive>,
}

struct Keepalive {
    interval: Duration,
    timer: Pin<Box<Sleep>>,
    /// How many answers there were when the question was asked.
    asked: Option<u64>,
}

impl<IO: Transport> Connection<IO> {
    /// A server's side.
    pub(crate) fn server(io: IO, tuning: Tuning) -> Connection<IO> {
        Connection::new(io, Role::Server, tuning)
    }

    /// A client's side.
    pub(crate) fn client(io: IO, tuning: Tuning) -> (Opener, Connection<IO>) {
        let connection = Connection::new(io, Role::Client, tuning);
        let shared = Arc::clone(&connection.shared);
        lock(&shared).holders += 1;
        (Opener { shared }, connection)
    }

    fn new(io: IO, role: Role, tuning: Tuning) -> Connection<IO> {
        Connection {
            io,
            role,
            shared: Arc::new(Mutex::new(Core::new(role, tuning))),
            writing: Pieces::default(),
            read: 0,
            keepalive: None,
        }
    }

    /// Asks the peer after so much time whether it is there, and gives up when it is not.
    pub(crate) fn keepalive(mut self, interval: Duration) -> Connection<IO> {
        let interval = interval.max(LEAST_INTERVAL);
        self.keepalive = Some(Keepalive {
            interval,
            timer: Box::pin(tokio::time::sleep(interval)),
            asked: None,
        });
        self
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let result = match self.poll_io(cx) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(result) => result,
        };
        let why = match result {
            Ok(()) => "the connection was closed".to_owned(),
            Err(error) => error.to_string(),
        };
        lock(&self.shared).lose(StreamError::connection(why));
        Poll::Ready(())
    }

    fn poll_io(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.poll_keepalive(cx) {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        self.read = 0;
        loop {
            let written = self.poll_write(cx)?;
            if self.unused() && written.is_ready() {
                return Poll::Ready(Ok(()));
            }
            if written.is_pending() && lock(&self.shared).out.len() > BATCH {
                return Poll::Pending;
            }
            if self.read >= TURN {
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            match self.poll_read(cx)? {
                Poll::Ready(true) => {}
                Poll::Ready(false) => return Poll::Ready(Ok(())),
                Poll::Pending => break,
            }
        }
        // Reading may have made something to write.
        match self.poll_write(cx) {
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            _ => Poll::Pending,
        }
    }

    fn unused(&self) -> bool {
        self.role == Role::Client && lock(&self.shared).holders == 0
    }

    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            if self.writing.is_empty() {
                let mut core = lock(&self.shared);
                if !core
                    .driver
                    .as_ref()
                    .is_some_and(|w| w.will_wake(cx.waker()))
                {
                    core.driver = Some(cx.waker().clone());
                }
                core.fill(BATCH);
                self.writing = core.out.take();
            }
            let nothing = self.writing.is_empty();
            ready!(self.io.poll_output(&mut self.writing, cx))?;
            if nothing {
                return Poll::Ready(Ok(()));
            }
        }
    }

    // Whether more may come; `false` is the end.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<bool>> {
        let mut core = lock(&self.shared);
        let mut offence = None;
        let read = self.io.poll_input(cx, &mut |bytes| {
            self.read += bytes.len();
            core.feed(bytes).map_err(|fault| {
                let error = io::Error::other(fault.clone());
                offence = Some(fault);
                error
            })
        });
        if let Some(fault) = offence {
            core.say_goodbye(&fault);
            let mut goodbye = core.out.take();
            drop(core);
            // The peer may listen or not: the connection ends either way.
            let _ = self.io.poll_output(&mut goodbye, cx);
        }
        read
    }

    // Whether the peer has been silent for too long.
    fn poll_keepalive(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(keepalive) = &mut self.keepalive else {
            return false;
        };
        while keepalive.timer.as_mut().poll(cx).is_ready() {
            let mut core = lock(&self.shared);
            let wait = match keepalive.asked {
                Some(then) if core.pongs == then => return true,
                Some(_) => {
                    keepalive.asked = None;
                    keepalive.interval
                }
                None => {
                    keepalive.asked = Some(core.pongs);
                    core.ping();
                    PING_TIMEOUT
                }
            };
            keepalive.timer.as_mut().reset(Instant::now() + wait);
        }
        false
    }

    fn accepted(&self) -> Option<Stream> {
        let id = lock(&self.shared).accepted.pop_front()?;
        Some(Stream::new(id, &self.shared))
    }
}

impl<IO> Drop for Connection<IO> {
    fn drop(&mut self) {
        lock(&self.shared).lose(StreamError::connection("the connection was dropped"));
    }
}

impl<IO: Transport> Future for Connection<IO> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        self.poll_connection(cx)
    }
}

/// Serves a connection and the calls on it, in the caller's task: a call costs no task of its own.
pub(crate) async fn serve<IO, F, C>(mut connection: Connection<IO>, mut call: F)
where
    IO: Transport,
    F: FnMut(Stream) -> C,
    C: Future<Output = ()>,
{
    let mut calls = FuturesUnordered::new();
    let mut over = false;
    std::future::poll_fn(|cx| {
        over = over || connection.poll_connection(cx).is_ready();
        while let Some(stream) = connection.accepted() {
            calls.push(call(stream));
        }
        while let Poll::Ready(Some(())) = calls.poll_next_unpin(cx) {}
        if over && calls.is_empty() {
            return Poll::Ready(());
        }
        if !over {
            // What the calls answered goes out now, not at the next turn. An error shows again
            // when reading.
            let _ = connection.poll_write(cx);
        }
        Poll::Pending
    })
    .await;
}

/// Runs a connection and a future that uses it in one task, until the future is done.
pub(crate) async fn drive<IO, F>(mut connection: Pin<Box<Connection<IO>>>, user: F)
where
    IO: Transport,
    F: Future<Output = ()>,
{
    tokio::pin!(user);
    let mut over = false;
    std::future::poll_fn(|cx| {
        over = over || connection.poll_connection(cx).is_ready();
        if user.as_mut().poll(cx).is_ready() {
            return Poll::Ready(());
        }
        if !over {
            // As in `serve`.
            let _ = connection.poll_write(cx);
        }
        Poll::Pending
    })
    .await;
}
