//! One HTTP/2 connection without its socket: bytes in, bytes out, streams in between.

use std::collections::{HashMap, VecDeque};
use std::task::Waker;

use bytes::{Bytes, BytesMut};

use super::frame::{self, Code, Head};
use super::hpack::{self, Decoder, Fields};
use super::messages::Assembler;
use super::output::Output;
use super::stream::StreamError;

pub(crate) mod leaving;
pub(crate) mod progress;
mod receive;

/// The window of every stream and connection before anybody says otherwise.
const DEFAULT_WINDOW: i64 = 65_535;
/// The largest window there can be.
const MAX_WINDOW: i64 = 0x7fff_ffff;
/// The frame size every peer takes.
const DEFAULT_FRAME: usize = 16_384;
/// The frame size we take. DATA is handed on in pieces, so this costs nothing.
const OWN_FRAME: usize = 64 << 10;
/// What all streams of a connection may have under way towards us.
const CONNECTION_WINDOW: i64 = 16 << 20;
/// The most bytes of headers of one message.
const MAX_HEADERS: usize = 64 << 10;

/// Which side opens streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Role {
    Client,
    Server,
}

/// What differs between the uses of a connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tuning {
    /// Bytes a peer may send on a stream ahead of its reader.
    pub(crate) stream_window: u32,
    /// Streams a peer may have open.
    pub(crate) max_streams: u32,
}

/// What ends a connection.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct Fault {
    pub(super) code: Code,
    pub(super) text: String,
}

pub(super) fn fault(code: Code, text: impl Into<String>) -> Fault {
    let text = text.into();
    Fault { code, text }
}

/// One stream's state; its holder reads and writes it under the connection's lock.
#[derive(Default)]
pub(super) struct StreamState {
    /// The request's or the response's header, until taken.
    pub(super) headers: Option<Fields>,
    /// Whole messages, oldest first.
    pub(super) inbox: VecDeque<Bytes>,
    inbox_bytes: usize,
    assembler: Assembler,
    recv_window: i64,
    unreleased: i64,
    seen_headers: bool,
    /// How the peer ended its direction.
    pub(super) ended: Option<Result<(), StreamError>>,
    send_window: i64,
    pending: VecDeque<Bytes>,
    /// Bytes that wait for a window or the socket.
    pub(super) pending_bytes: usize,
    /// The block that follows everything queued and ends the stream.
    trailers: Option<Vec<u8>>,
    in_ready: bool,
    pub(super) sent_headers: bool,
    local_closed: bool,
    /// Nobody holds it any more: it goes when it is closed.
    abandoned: bool,
    pub(super) reader: Option<Waker>,
    pub(super) writer: Option<Waker>,
}

impl StreamState {
    /// Wakes both holders.
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()]
            .into_iter()
            .flatten()
        {
            waker.wake();
        }
    }

    fn finish(&mut self, result: Result<(), StreamError>) {
        self.ended.get_or_insert(result);
        self.wake();
    }

    fn wants_to_send(&self) -> bool {
        !self.local_closed
            && (self.trailers.is_some() && self.pending.is_empty()
                || self.pending_bytes > 0 && self.send_window > 0)
    }
}

/// The connection.
pub(super) struct Core {
    role: Role,
    tuning: Tuning,
    decoder: Decoder,
    /// Bytes of a frame, or of the preface, that has not arrived whole.
    partial: BytesMut,
    preface_left: usize,
    /// A DATA frame whose payload is still arriving: its head, with the length that is left.
    data: Option<Head>,
    block: Option<(Head, BytesMut)>,
    pub(super) streams: HashMap<u32, StreamState>,
    next_id: u32,
    highest_peer_id: u32,
    /// Streams the peer opened, for the server's loop to take.
    pub(super) accepted: VecDeque<u32>,
    peer_window: i64,
    peer_frame: usize,
    send_window: i64,
    recv_window: i64,
    ready: VecDeque<u32>,
    /// What is to be written next.
    pub(super) out: Output,
    /// The connection's end, told to every stream and every later caller.
    pub(super) lost: Option<StreamError>,
    /// The peer takes no new streams.
    pub(super) going_away: bool,
    /// Who wants to know when it says so.
    leaving: Option<tokio::sync::oneshot::Sender<()>>,
    /// We take none, and have said so.
    refusing: bool,
    /// How often the peer has opened a window.
    openings: u64,
    /// Acknowledged pings, for the keepalive.
    pub(super) pongs: u64,
    /// Who can still use it; a client's connection nobody holds is closed.
    pub(super) holders: usize,
    pub(super) driver: Option<Waker>,
}

impl Core {
    pub(super) fn new(role: Role, tuning: Tuning) -> Core {
        let mut core = Core {
            role,
            tuning,
            decoder: Decoder::default(),
            partial: BytesMut::new(),
            preface_left: if role == Role::Server {
                frame::PREFACE.len()
            } else {
                0
            },
            data: None,
            block: None,
            streams: HashMap::new(),
            next_id: 1,
            highest_peer_id: 0,
            accepted: VecDeque::new(),
            peer_window: DEFAULT_WINDOW,
            peer_frame: DEFAULT_FRAME,
            send_window: DEFAULT_WINDOW,
            recv_window: CONNECTION_WINDOW,
            ready: VecDeque::new(),
            out: Output::default(),
            lost: None,
            going_away: false,
            leaving: None,
            refusing: false,
            openings: 0,
            pongs: 0,
            holders: 0,
            driver: None,
        };
        core.greet();
        core
    }

    fn greet(&mut self) {
        if self.role == Role::Client {
            self.out.end().extend_from_slice(frame::PREFACE);
        }
        let own_frame = u32::try_from(OWN_FRAME).expect("a frame is at most 16 MiB");
        let settings = [
            (frame::SETTING_ENABLE_PUSH, 0),
            (frame::SETTING_MAX_STREAMS, self.tuning.max_streams),
            (frame::SETTING_INITIAL_WINDOW, self.tuning.stream_window),
            (frame::SETTING_MAX_FRAME, own_frame),
        ];
        // A server may not say anything about pushes but "off", which is for clients to say.
        let skipped = usize::from(self.role == Role::Server);
        let mut payload = Vec::with_capacity(24);
        for (id, value) in &settings[skipped..] {
            payload.extend_from_slice(&id.to_be_bytes());
            payload.extend_from_slice(&value.to_be_bytes());
        }
        frame::put(self.out.end(), frame::SETTINGS, 0, 0, &payload);
        self.window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW);
    }

    fn window_update(&mut self, stream: u32, bytes: i64) {
        let bytes = u32::try_from(bytes).expect("windows are positive and below 2^31");
        frame::put(
            self.out.end(),
            frame::WINDOW_UPDATE,
            0,
            stream,
            &bytes.to_be_bytes(),
        );
    }

    /// Has the driver look at the output.
    pub(super) fn nudge(&mut self) {
        if let Some(waker) = self.driver.take() {
            waker.wake();
        }
    }

    /// Opens a stream as a client.
    pub(super) fn open(&mut self, fields: &[(&str, &[u8])]) -> Result<u32, StreamError> {
        if let Some(lost) = &self.lost {
            return Err(lost.clone());
        }
        if self.going_away {
            return Err(StreamError::connection("the server takes no new streams"));
        }
        let id = self.next_id;
        self.next_id += 2;
        let block = hpack::encode(fields.iter().copied());
        frame::put_headers(self.out.end(), id, &block, false, self.peer_frame);
        let state = StreamState {
            sent_headers: true,
            ..self.fresh()
        };
        self.streams.insert(id, state);
        self.nudge();
        Ok(id)
    }

    fn fresh(&self) -> StreamState {
        StreamState {
            recv_window: i64::from(self.tuning.stream_window),
            send_window: self.peer_window,
            ..StreamState::default()
        }
    }

    /// Sends the response's header.
    pub(super) fn respond(&mut self, id: u32, fields: &[(&str, &[u8])]) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.local_closed || stream.sent_headers {
            return;
        }
        stream.sent_headers = true;
        let block = hpack::encode(fields.iter().copied());
        frame::put_headers(self.out.end(), id, &block, false, self.peer_frame);
        self.nudge();
    }

    /// Queues bytes of messages.
    pub(super) fn send(&mut self, id: u32, pieces: [Bytes; 2]) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.local_closed || stream.trailers.is_some() {
            return;
        }
        for piece in pieces {
            if !piece.is_empty() {
                stream.pending_bytes += piece.len();
                stream.pending.push_back(piece);
            }
        }
        self.make_ready(id);
        self.nudge();
    }

    /// Ends the stream with trailers, once everything queued is sent.
    pub(super) fn end(&mut self, id: u32, trailers: &[(&str, &[u8])]) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        if stream.local_closed || stream.trailers.is_some() {
            return;
        }
        stream.trailers = Some(hpack::encode(trailers.iter().copied()));
        self.make_ready(id);
        self.nudge();
    }

    fn make_ready(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id)
            && !stream.in_ready
            && stream.wants_to_send()
        {
            stream.in_ready = true;
            self.ready.push_back(id);
        }
    }

    /// Moves what windows allow into `out`, in turns, until it holds `limit` bytes.
    pub(super) fn fill(&mut self, limit: usize) {
        while self.out.len() < limit {
            let Some(id) = self.ready.pop_front() else {
                return;
            };
            let Some(stream) = self.streams.get_mut(&id) else {
                continue;
            };
            stream.in_ready = false;
            let room = self.send_window.min(stream.send_window).max(0);
            let room = usize::try_from(room)
                .expect("not negative")
                .min(self.peer_frame);
            let amount = room.min(stream.pending_bytes);
            if amount == 0 && stream.pending_bytes > 0 {
                // Only the connection's window is in the way: wait in line for it.
                if self.send_window <= 0 && stream.send_window > 0 {
                    stream.in_ready = true;
                    self.ready.push_front(id);
                    return;
                }
                continue;
            }
            if amount > 0 {
                put_data(&mut self.out, id, stream, amount);
                self.send_window -= amount as i64;
            }
            if stream.pending.is_empty() && stream.trailers.is_some() {
                self.put_end(id);
            } else {
                self.make_ready(id);
            }
        }
    }

    fn put_end(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let peer_open = stream.ended.is_none();
        if let Some(block) = stream.trailers.take() {
            frame::put_headers(self.out.end(), id, &block, true, self.peer_frame);
            // The answer is complete; what the client still sends is not wanted (RFC 9113, 8.1).
            if peer_open {
                self.put_reset(id, Code::NoError);
            }
            self.close_local(id);
        }
    }

    fn close_local(&mut self, id: u32) {
        if let Some(stream) = self.streams.get_mut(&id) {
            stream.local_closed = true;
            stream.wake();
            if stream.abandoned {
                self.streams.remove(&id);
            }
        }
    }

    fn put_reset(&mut self, id: u32, code: Code) {
        let code = (code as u32).to_be_bytes();
        frame::put(self.out.end(), frame::RST_STREAM, 0, id, &code);
    }

    /// The holder is gone. What it queued together with an end is still sent; anything else is
    /// cancelled.
    pub(super) fn abandon(&mut self, id: u32) {
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        stream.abandoned = true;
        stream.inbox.clear();
        // A server that has sent its trailers has said all there is to say.
        let done = stream.local_closed && (self.role == Role::Server || stream.ended.is_some());
        if stream.trailers.is_some() && !matches!(stream.ended, Some(Err(_))) && self.lost.is_none()
        {
            return;
        }
        if !done && self.lost.is_none() {
            self.put_reset(id, Code::Cancel);
            self.nudge();
        }
        self.streams.remove(&id);
    }

    /// Takes the next message and gives its bytes back to the peer's window.
    pub(super) fn take_message(&mut self, id: u32) -> Option<Bytes> {
        let stream = self.streams.get_mut(&id)?;
        let message = stream.inbox.pop_front()?;
        stream.inbox_bytes -= message.len();
        self.release(id);
        Some(message)
    }

    // A reader that keeps up never lets the window run dry; one that does not, stops its stream.
    fn release(&mut self, id: u32) {
        let window = i64::from(self.tuning.stream_window);
        let Some(stream) = self.streams.get_mut(&id) else {
            return;
        };
        let keeps_up = (stream.inbox_bytes as i64) < window / 2;
        if keeps_up && stream.unreleased >= window / 4 && stream.ended.is_none() {
            let bytes = std::mem::take(&mut stream.unreleased);
            stream.recv_window += bytes;
            self.window_update(id, bytes);
            self.nudge();
        }
    }

    /// The connection is over, for everybody on it.
    pub(super) fn lose(&mut self, why: StreamError) {
        if self.lost.is_some() {
            return;
        }
        self.lost = Some(why.clone());
        for stream in self.streams.values_mut() {
            stream.local_closed = true;
            stream.pending.clear();
            stream.pending_bytes = 0;
            stream.finish(Err(why.clone()));
        }
        self.streams.retain(|_, stream| !stream.abandoned);
        self.nudge();
    }

    /// Asks whether the peer is there.
    pub(super) fn ping(&mut self) {
        frame::put(self.out.end(), frame::PING, 0, 0, &[0; 8]);
    }

    /// Says that no stream is taken after those that are there, and why.
    pub(super) fn say_goodbye(&mut self, fault: &Fault) {
        let mut payload = self.highest_peer_id.to_be_bytes().to_vec();
        payload.extend_from_slice(&(fault.code as u32).to_be_bytes());
        payload.extend_from_slice(fault.text.as_bytes());
        frame::put(self.out.end(), frame::GOAWAY, 0, 0, &payload);
    }
}

fn put_data(out: &mut Output, id: u32, stream: &mut StreamState, amount: usize) {
    Head {
        length: amount,
        kind: frame::DATA,
        flags: 0,
        stream: id,
    }
    .write(out.end());
    let mut left = amount;
    while left > 0 {
        let Some(front) = stream.pending.front_mut() else {
            return;
        };
        let now = left.min(front.len());
        out.put(front.split_to(now));
        if front.is_empty() {
            stream.pending.pop_front();
        }
        left -= now;
    }
    stream.pending_bytes -= amount;
    stream.send_window -= amount as i64;
    if let Some(waker) = stream.writer.take() {
        waker.wake();
    }
}

#[cfg(test)]
mod tests;
