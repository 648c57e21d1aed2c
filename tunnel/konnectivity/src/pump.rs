//! Moves bytes between a local socket and a connection of the shared stream, both ways in one
//! task. An idle one holds no buffer.

use std::cell::RefCell;
use std::future::Future as _;
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::{Instant, Sleep};

use crate::lanes::{Inbound, Side};
use crate::link::Wire;
use crate::pieces::Pieces;

/// What is read from a socket at once, and written.
const BATCH: usize = 256 << 10;
/// How long a socket may take nothing of the last data before it is closed all the same; the API
/// server's client waits ten seconds for the end.
const LAST_DATA: Duration = Duration::from_secs(5);
/// How long answers are waited for after the client's end, where the end cannot be handed on.
const UNHEARD_END: Duration = Duration::from_secs(1);
/// How long one direction may be silent once the other has ended.
const HALF_CLOSED: Duration = Duration::from_secs(15 * 60);

thread_local! {
    static SCRATCH: RefCell<BytesMut> = RefCell::new(BytesMut::new());
}

// What was read; nothing is the end. A buffer that was well filled is handed on as it is, and of one
// that was not the contents are copied: what waits in a slow connection holds little more than itself.
fn poll_data(socket: &mut impl Local, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
    SCRATCH.with_borrow_mut(|scratch| {
        scratch.reserve(BATCH);
        let read = ready!(pin!(socket.read_buf(scratch)).poll(cx))?;
        if read > BATCH / 2 {
            return Poll::Ready(Ok(scratch.split().freeze()));
        }
        let data = Bytes::copy_from_slice(scratch);
        scratch.clear();
        Poll::Ready(Ok(data))
    })
}

/// A socket that may know that its peer is gone altogether, and not only done with writing.
pub(crate) trait Local: AsyncRead + AsyncWrite + Unpin + Send {
    /// Whether it is certain that nobody reads any more.
    fn peer_gone(&self) -> bool {
        false
    }
}

impl Local for TcpStream {}
impl<T: AsyncRead + AsyncWrite + Unpin + Send> Local for tokio_rustls::server::TlsStream<T> {}

impl Local for UnixStream {
    // A write of nothing fails once the other side is closed, and not when it only ended writing.
    fn peer_gone(&self) -> bool {
        matches!(self.try_write(&[]), Err(error) if error.kind() == io::ErrorKind::BrokenPipe)
    }
}

/// How much went which way.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Traffic {
    pub(crate) to_local: u64,
    pub(crate) from_local: u64,
}

struct Pump<'a, S> {
    socket: &'a mut S,
    wire: &'a Wire,
    side: Side,
    /// Data on its way to the socket.
    held: Pieces,
    shutting_down: bool,
    read_done: bool,
    write_done: bool,
    closed: bool,
    traffic: Traffic,
    timer: Option<Timer>,
}

struct Timer {
    sleep: Pin<Box<Sleep>>,
    limit: Duration,
    moved: u64,
}

/// Runs until the connection is over on both sides.
pub(crate) async fn run<S: Local>(socket: &mut S, wire: Wire, side: Side) -> Traffic {
    let mut pump = Pump {
        socket,
        wire: &wire,
        side,
        held: Pieces::default(),
        shutting_down: false,
        read_done: false,
        write_done: false,
        closed: false,
        traffic: Traffic::default(),
        timer: None,
    };
    let result = std::future::poll_fn(|cx| pump.poll(cx)).await;
    let traffic = pump.traffic;
    if let Err(error) = result {
        wire.finish(error.to_string());
    }
    traffic
}

impl<S: Local> Pump<'_, S> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if let Poll::Ready(Err(error)) = self.poll_write(cx) {
            return Poll::Ready(Err(error));
        }
        if self.is_over() {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(Err(error)) = self.poll_read(cx) {
            return Poll::Ready(Err(error));
        }
        if self.is_over() {
            return Poll::Ready(Ok(()));
        }
        self.poll_timer(cx)
    }

    fn is_over(&self) -> bool {
        let flushed = self.held.is_empty() && !self.shutting_down;
        self.read_done && self.write_done || self.closed && flushed && self.write_done
    }

    // From the connection to the socket.
    fn poll_write(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.write_done {
            self.gather(cx);
            if !self.held.is_empty() {
                let Poll::Ready(written) = self.held.poll_write(self.socket, cx) else {
                    self.closed |= self.wire.poll_closed(cx).is_ready();
                    return Poll::Pending;
                };
                self.traffic.to_local += written? as u64;
            } else if self.shutting_down {
                ready!(Pin::new(&mut *self.socket).poll_shutdown(cx))?;
                self.shutting_down = false;
                self.write_done = true;
            } else {
                return Pin::new(&mut *self.socket).poll_flush(cx);
            }
        }
        // Both ends of data were seen; the close itself may still come.
        self.closed |= self.wire.poll_closed(cx).is_ready();
        Poll::Ready(Ok(()))
    }

    // Takes as much as one write is worth.
    fn gather(&mut self, cx: &mut Context<'_>) {
        while !self.shutting_down && self.held.len() < BATCH && !self.held.is_long() {
            match self.wire.poll_take(cx) {
                Poll::Ready(Inbound::Data(data)) => self.held.push(data),
                Poll::Ready(Inbound::EndOfData) => self.shutting_down = true,
                Poll::Ready(Inbound::Closed(_)) => {
                    self.closed = true;
                    self.shutting_down = true;
                }
                Poll::Pending => return,
            }
        }
    }

    // From the socket to the connection.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.read_done && self.wire.poll_ready(cx).is_ready() {
            let data = ready!(poll_data(self.socket, cx))?;
            if data.is_empty() {
                self.read_done = true;
                self.end_of_socket();
            } else {
                self.traffic.from_local += data.len() as u64;
                self.wire.send(data);
            }
        }
        Poll::Ready(Ok(()))
    }

    fn end_of_socket(&mut self) {
        if self.side == Side::Server && self.socket.peer_gone() {
            self.held = Pieces::default();
            self.write_done = true;
        } else if self.wire.extended {
            self.wire.send_end();
        } else if self.side == Side::Agent {
            // Upstream's server knows only the end of both directions.
            self.wire.finish(String::new());
        }
    }

    // How long nothing may move, in the state it is in.
    fn limit(&self) -> Option<Duration> {
        let unheard = self.read_done && !self.wire.extended;
        if self.closed {
            Some(LAST_DATA)
        } else if unheard {
            Some(UNHEARD_END)
        } else {
            (self.read_done || self.write_done).then_some(HALF_CLOSED)
        }
    }

    fn poll_timer(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(limit) = self.limit() else {
            return Poll::Pending;
        };
        let moved = self.traffic.to_local + self.traffic.from_local;
        let timer = self.timer.get_or_insert_with(|| Timer {
            sleep: Box::pin(tokio::time::sleep(limit)),
            limit,
            moved,
        });
        if timer.limit != limit || timer.moved != moved {
            timer.sleep.as_mut().reset(Instant::now() + limit);
            timer.limit = limit;
            timer.moved = moved;
        }
        timer.sleep.as_mut().poll(cx).map(Ok)
    }
}
