//! The connections that share one stream between a server and an agent: what each holds in both
//! directions, whose turn it is, and how far each may run ahead.
//!
//! No sockets and no clock. Both sides use it; they differ in the packet that ends a connection.
//!
//! A peer of ours sends no more than it was granted, per connection (`Credit`), so a reader that
//! stops stops its own connection only. Upstream's peers know no such thing: there, a connection
//! whose reader is too slow is reported as congested, and the shell waits for it a little while or
//! cuts it.

use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;

use crate::packet::{MAX_DATA, Packet};

/// What a peer of ours may send on a connection before it hears from us.
pub(crate) const FIRST_WINDOW: i64 = 256 << 10;
/// What it may have under way once its reader has shown that it keeps up.
const LARGEST_WINDOW: i64 = 4 << 20;
/// What the windows of all connections of a stream may grow by, together.
const GROWTH_TOTAL: i64 = 64 << 20;
/// What may wait for its turn before the local socket is left alone.
const OUTBOX_BOUND: usize = 256 << 10;
/// What may wait for a local reader when the peer knows no windows.
const LEGACY_BOUND: usize = 8 << 20;
/// The same for all connections of the stream together.
const LEGACY_TOTAL: usize = 64 << 20;
/// A connection that holds less than this is never the one in the way.
const LEGACY_SMALL: usize = 1 << 20;

/// Answers that may wait for a peer that does not read; beyond it, the peer is not read either.
const CONTROL_BOUND: usize = 1 << 16;

/// Which end of the stream this is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Server,
    Agent,
}

/// What a connection's local half is given.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Inbound {
    Data(Bytes),
    /// The other half writes no more, but reads.
    EndOfData,
    /// It is over; with the reason where there is one.
    Closed(String),
}

/// What became of data that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Delivery {
    Taken,
    /// Taken, but its reader is too far behind.
    Congested,
    /// There is no such connection.
    Unknown,
}

#[derive(Default)]
struct Lane {
    inbox: VecDeque<Bytes>,
    inbox_bytes: usize,
    taken: u64,
    end_of_data: bool,
    closed: Option<String>,
    /// Closed by the peer, which has nothing more to say about it.
    peer_closed: bool,
    /// What the peer may still send, and the window that is a part of.
    allowance: i64,
    window: i64,
    consumed: i64,
    /// Its reader has had nothing left to take since the last grant.
    drained: bool,
    reader: Option<Waker>,

    outbox: VecDeque<Bytes>,
    outbox_bytes: usize,
    credit: i64,
    end_to_send: bool,
    end_sent: bool,
    farewell: Option<Packet>,
    said_farewell: bool,
    writer: Option<Waker>,

    held: bool,
    in_turns: bool,
}

/// All connections of a stream.
pub(crate) struct Lanes {
    side: Side,
    lanes: HashMap<i64, Lane>,
    /// What the peer grants each connection at first; `None` for upstream's peers.
    peer_window: Option<i64>,
    control: VecDeque<Packet>,
    turns: VecDeque<i64>,
    inbox_total: usize,
    growth: i64,
    lost: Option<String>,
    /// Told when there is something to send.
    pub(crate) pump: Option<Waker>,
    /// Whether it also waits for a congested reader to move.
    pub(crate) stalled: bool,
}

impl Lanes {
    pub(crate) fn new(side: Side, peer_window: Option<i64>) -> Lanes {
        Lanes {
            side,
            lanes: HashMap::new(),
            peer_window,
            control: VecDeque::new(),
            turns: VecDeque::new(),
            inbox_total: 0,
            growth: 0,
            lost: None,
            pump: None,
            stalled: false,
        }
    }

    /// Whether the peer is ours.
    pub(crate) fn extended(&self) -> bool {
        self.peer_window.is_some()
    }

    /// How many connections there are, those that are being closed included.
    pub(crate) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Whether there is such a connection.
    pub(crate) fn has(&self, id: i64) -> bool {
        self.lanes.contains_key(&id)
    }

    /// Adds a connection; whoever asked holds it.
    pub(crate) fn open(&mut self, id: i64) {
        let lane = Lane {
            allowance: FIRST_WINDOW,
            window: FIRST_WINDOW,
            credit: self.peer_window.unwrap_or(i64::MAX),
            closed: self.lost.clone(),
            peer_closed: self.lost.is_some(),
            held: true,
            ..Lane::default()
        };
        self.lanes.insert(id, lane);
    }

    /// Sends a packet that belongs to no connection's order.
    pub(crate) fn control(&mut self, packet: Packet) {
        if self.lost.is_none() {
            self.control.push_back(packet);
            self.wake_pump();
        }
    }

    /// Whether a peer that does not read has been sent too much already.
    pub(crate) fn flooded(&self) -> bool {
        self.control.len() > CONTROL_BOUND
    }

    fn remove(&mut self, id: i64) {
        if let Some(lane) = self.lanes.remove(&id) {
            self.growth -= lane.window - FIRST_WINDOW;
        }
    }

    fn wake_pump(&mut self) {
        if let Some(waker) = self.pump.take() {
            waker.wake();
        }
    }

    // ---- from the wire

    /// Data for a connection.
    pub(crate) fn deliver(&mut self, id: i64, data: Bytes) -> Delivery {
        let extended = self.extended();
        let Some(lane) = self.lanes.get_mut(&id) else {
            return Delivery::Unknown;
        };
        if data.is_empty() || lane.closed.is_some() || !lane.held {
            return Delivery::Taken;
        }
        if extended {
            lane.allowance -= data.len() as i64;
            if lane.allowance < 0 {
                self.cut(id, "more data than was granted");
                return Delivery::Taken;
            }
        }
        lane.inbox_bytes += data.len();
        self.inbox_total += data.len();
        let first = lane.inbox.is_empty();
        lane.inbox.push_back(data);
        if first && let Some(waker) = lane.reader.take() {
            waker.wake();
        }
        if !extended && self.congested(id) {
            return Delivery::Congested;
        }
        Delivery::Taken
    }

    /// Whether this connection's reader is why reading the stream must wait.
    pub(crate) fn congested(&self, id: i64) -> bool {
        self.lanes.get(&id).is_some_and(|lane| {
            lane.inbox_bytes > LEGACY_BOUND
                || lane.inbox_bytes > LEGACY_SMALL && self.inbox_total > LEGACY_TOTAL
        })
    }

    /// How much its reader has taken so far.
    pub(crate) fn progress(&self, id: i64) -> u64 {
        self.lanes.get(&id).map_or(0, |lane| lane.taken)
    }

    /// The peer sends no more data on it.
    pub(crate) fn end_of_data(&mut self, id: i64) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.end_of_data = true;
            if let Some(waker) = lane.reader.take() {
                waker.wake();
            }
        }
    }

    /// The peer is done with it. What it sent before is still read; nothing more is sent.
    /// Says whether there was such a connection.
    pub(crate) fn close(&mut self, id: i64, reason: String) -> bool {
        let Some(lane) = self.lanes.get_mut(&id) else {
            return false;
        };
        lane.closed.get_or_insert(reason);
        lane.peer_closed = true;
        lane.wake();
        // Nobody there reads any more, so nothing may hold the farewell up.
        lane.drop_outbox();
        if self.side == Side::Server {
            lane.silence();
        }
        if !lane.held && (self.side == Side::Server || lane.said_farewell) {
            self.remove(id);
        }
        true
    }

    /// Ends one connection for both halves, dropping what it holds.
    pub(crate) fn cut(&mut self, id: i64, reason: &str) {
        let farewell = self.farewell(id, reason.to_owned());
        let Some(lane) = self.lanes.get_mut(&id) else {
            return;
        };
        self.inbox_total -= lane.inbox_bytes;
        lane.inbox_bytes = 0;
        lane.inbox.clear();
        lane.drop_outbox();
        lane.closed.get_or_insert(reason.to_owned());
        lane.wake();
        self.say(id, farewell);
    }

    /// More may be sent on a connection.
    pub(crate) fn credit(&mut self, id: i64, bytes: i64) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.credit = lane.credit.saturating_add(bytes.max(0));
            self.enqueue(id);
        }
    }

    /// The stream is over, and with it everything on it.
    pub(crate) fn lose(&mut self, reason: &str) {
        self.lost = Some(reason.to_owned());
        self.control.clear();
        self.turns.clear();
        self.lanes.retain(|_, lane| lane.held);
        for lane in self.lanes.values_mut() {
            lane.silence();
            lane.peer_closed = true;
            lane.closed.get_or_insert_with(|| reason.to_owned());
            lane.wake();
        }
    }

    // ---- to the wire

    /// The next packet: control first, then one connection after the other.
    pub(crate) fn next_packet(&mut self) -> Option<Packet> {
        if let Some(packet) = self.control.pop_front() {
            return Some(packet);
        }
        while let Some(id) = self.turns.pop_front() {
            let Some(lane) = self.lanes.get_mut(&id) else {
                continue;
            };
            lane.in_turns = false;
            let Some(packet) = lane.next_packet(id) else {
                continue;
            };
            if lane.said_farewell && !lane.held && self.side == Side::Agent {
                self.remove(id);
            } else {
                self.enqueue(id);
            }
            return Some(packet);
        }
        None
    }

    fn enqueue(&mut self, id: i64) {
        if let Some(lane) = self.lanes.get_mut(&id)
            && !lane.in_turns
            && lane.has_packet()
        {
            lane.in_turns = true;
            self.turns.push_back(id);
            self.wake_pump();
        }
    }

    // ---- for the local half

    /// What comes next from the other half.
    pub(crate) fn poll_take(&mut self, id: i64, cx: &mut Context<'_>) -> Poll<Inbound> {
        let extended = self.extended();
        let Some(lane) = self.lanes.get_mut(&id) else {
            return Poll::Ready(Inbound::Closed(String::new()));
        };
        if let Some(data) = lane.inbox.pop_front() {
            lane.taken += data.len() as u64;
            lane.inbox_bytes -= data.len();
            self.inbox_total -= data.len();
            let may_grow = self.growth + lane.window <= GROWTH_TOTAL;
            let before = lane.window;
            let grant = lane.consume(data.len() as i64, may_grow);
            self.growth += lane.window - before;
            if self.stalled {
                self.wake_pump();
            }
            if extended && let Some(bytes) = grant {
                self.control(Packet::Credit { id, bytes });
            }
            return Poll::Ready(Inbound::Data(data));
        }
        if let Some(reason) = &lane.closed {
            return Poll::Ready(Inbound::Closed(reason.clone()));
        }
        if std::mem::take(&mut lane.end_of_data) {
            return Poll::Ready(Inbound::EndOfData);
        }
        lane.reader = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Whether the peer has closed it, even if there is something left to take. If not, the caller
    /// is woken when it does.
    pub(crate) fn poll_closed(&mut self, id: i64, cx: &mut Context<'_>) -> Poll<()> {
        match self.lanes.get_mut(&id) {
            Some(lane) if lane.closed.is_none() => {
                lane.reader = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Whether more may be sent now.
    pub(crate) fn poll_ready(&mut self, id: i64, cx: &mut Context<'_>) -> Poll<()> {
        match self.lanes.get_mut(&id) {
            Some(lane) if lane.outbox_bytes >= OUTBOX_BOUND => {
                lane.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Sends data.
    pub(crate) fn send(&mut self, id: i64, data: Bytes) {
        if let Some(lane) = self.lanes.get_mut(&id)
            && !data.is_empty()
            && lane.may_send()
        {
            lane.outbox_bytes += data.len();
            lane.outbox.push_back(data);
            self.enqueue(id);
        }
    }

    /// Says, after all data, that there is no more. Only a peer of ours understands.
    pub(crate) fn send_end(&mut self, id: i64) {
        if let Some(lane) = self.lanes.get_mut(&id)
            && lane.may_send()
        {
            lane.end_to_send = true;
            self.enqueue(id);
        }
    }

    /// Ends the connection, after all data.
    pub(crate) fn finish(&mut self, id: i64, reason: String) {
        let farewell = self.farewell(id, reason);
        self.say(id, farewell);
    }

    /// The local half is gone.
    pub(crate) fn release(&mut self, id: i64) {
        let farewell = self.farewell(id, String::new());
        let lost = self.lost.is_some();
        let Some(lane) = self.lanes.get_mut(&id) else {
            return;
        };
        lane.held = false;
        lane.reader = None;
        lane.writer = None;
        self.inbox_total -= lane.inbox_bytes;
        lane.inbox_bytes = 0;
        lane.inbox.clear();
        let answered = match self.side {
            Side::Server => lane.peer_closed,
            Side::Agent => lane.said_farewell,
        };
        if lost || answered {
            self.remove(id);
        } else {
            self.say(id, farewell);
        }
        if self.stalled {
            self.wake_pump();
        }
    }

    /// Ends what nobody holds and what does not end by itself: last data that the other half does
    /// not take, an answer that does not come. Called now and then; what was left at the previous
    /// call goes a step further.
    pub(crate) fn sweep(&mut self, before: &mut Vec<i64>) {
        for id in before.drain(..) {
            match self.lanes.get(&id) {
                Some(lane) if !lane.held && lane.said_farewell => {
                    self.remove(id);
                }
                Some(lane) if !lane.held => self.cut(id, "its data was not taken"),
                _ => {}
            }
        }
        let left = self.lanes.iter().filter(|(_, lane)| !lane.held);
        before.extend(left.map(|(id, _)| *id));
    }

    fn farewell(&self, id: i64, error: String) -> Packet {
        match self.side {
            Side::Server => Packet::CloseRequest { id },
            Side::Agent => Packet::CloseResponse { id, error },
        }
    }

    fn say(&mut self, id: i64, farewell: Packet) {
        if let Some(lane) = self.lanes.get_mut(&id)
            && !lane.said_farewell
            && self.lost.is_none()
        {
            lane.farewell.get_or_insert(farewell);
            self.enqueue(id);
        }
    }
}

impl Lane {
    fn wake(&mut self) {
        for waker in [self.reader.take(), self.writer.take()]
            .into_iter()
            .flatten()
        {
            waker.wake();
        }
    }

    fn may_send(&self) -> bool {
        let said_all = self.end_to_send || self.end_sent;
        let over = self.farewell.is_some() || self.said_farewell || self.closed.is_some();
        !said_all && !over
    }

    fn drop_outbox(&mut self) {
        self.outbox.clear();
        self.outbox_bytes = 0;
        self.end_to_send = false;
    }

    /// Nothing more is sent.
    fn silence(&mut self) {
        self.drop_outbox();
        self.farewell = None;
        self.said_farewell = true;
    }

    fn has_packet(&self) -> bool {
        if self.outbox.is_empty() {
            self.end_to_send || self.farewell.is_some()
        } else {
            self.credit > 0
        }
    }

    fn next_packet(&mut self, id: i64) -> Option<Packet> {
        if self.outbox.is_empty() {
            if std::mem::take(&mut self.end_to_send) {
                self.end_sent = true;
                return Some(Packet::EndOfData { id });
            }
            self.said_farewell |= self.farewell.is_some();
            return self.farewell.take();
        }
        let room = usize::try_from(self.credit).unwrap_or(0).min(MAX_DATA);
        if room == 0 {
            return None;
        }
        let front = self.outbox.front_mut()?;
        let data = if front.len() > room {
            front.split_to(room)
        } else {
            self.outbox.pop_front()?
        };
        self.outbox_bytes -= data.len();
        if self.credit != i64::MAX {
            self.credit -= data.len() as i64;
        }
        if self.outbox_bytes < OUTBOX_BOUND
            && let Some(waker) = self.writer.take()
        {
            waker.wake();
        }
        Some(Packet::Data { id, data })
    }

    // What to grant now that so much was taken. A reader that had nothing left to take keeps up, and
    // may be sent more at a time. Not only now: what arrives together is taken piece by piece.
    fn consume(&mut self, bytes: i64, may_grow: bool) -> Option<i64> {
        self.consumed += bytes;
        self.drained |= self.inbox.is_empty();
        if self.consumed < self.window / 2 {
            return None;
        }
        let mut grant = std::mem::take(&mut self.consumed);
        if std::mem::take(&mut self.drained) && may_grow && self.window < LARGEST_WINDOW {
            grant += self.window;
            self.window *= 2;
        }
        self.allowance += grant;
        Some(grant)
    }
}

#[cfg(test)]
mod tests;
