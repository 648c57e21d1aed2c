//! As much of HTTP/2 as a load needs, without a socket: requests in, answers out, bytes on both sides.
//!
//! A general client spends as much on a request as our server does, on the same two cores. This one knows that
//! bodies fit a frame and that of an answer's header only the status is wanted: it lets the server keep no
//! header table, so that nothing else of a header has to be read. Konnectivity's HTTP/2 reads whole headers and
//! speaks gRPC only.

use std::collections::{HashMap, VecDeque};
use std::task::{Context, Poll, Waker};

use anyhow::{Context as _, Result, anyhow, bail, ensure};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const HEAD: usize = 9;
/// The largest frame that may be sent without asking, and the largest that may come.
const FRAME: usize = 16_384;
/// What may be sent before the server opens its window further.
const FIRST_WINDOW: i64 = 65_535;
/// The windows of Go's HTTP/2 client, which is what API servers mostly talk to.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GO_AWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const PRIORITY: u8 = 0x20;

const HEADER_TABLE_SIZE: u16 = 1;
const ENABLE_PUSH: u16 = 2;
const INITIAL_WINDOW_SIZE: u16 = 4;
const CANCEL: u32 = 8;

/// The entries of HPACK's static table; the first entry of a connection's own follows.
const STATIC_ENTRIES: usize = 61;
/// Those of its entries that are statuses.
const FIRST_STATUS: usize = 8;
const STATUSES: [u16; 7] = [200, 204, 206, 304, 400, 404, 500];

/// A connection without its socket.
pub(super) struct Connection {
    /// What is to be sent.
    pub(super) out: Vec<u8>,
    /// The start of a frame whose rest has not come; of one with data its head only.
    partial: Vec<u8>,
    /// A frame with data of which so much has not come.
    open: Option<(Head, usize)>,
    streams: HashMap<u32, Answer>,
    next: u32,
    /// Headers the server has in its table, oldest first.
    known: Vec<(&'static str, String)>,
    send_window: i64,
    /// Requests that wait for the window.
    waiting: VecDeque<(Vec<u8>, Vec<u8>)>,
    unreleased: u32,
    /// Why it is over.
    lost: Option<String>,
    /// Nobody needs it any more.
    is_left: bool,
    /// Wakes whoever moves the bytes.
    pub(super) driver: Option<Waker>,
}

/// What has come for a request.
#[derive(Default)]
struct Answer {
    status: Option<u16>,
    keeps: bool,
    bytes: Vec<u8>,
    count: usize,
    unreleased: u32,
    ended: bool,
    failed: Option<String>,
    reader: Option<(Until, Waker)>,
}

/// What of an answer is waited for.
#[derive(Clone, Copy)]
pub(super) enum Until {
    Status,
    /// Some of its bytes.
    Some,
    End,
}

/// A part of an answer.
pub(super) struct Part {
    pub(super) status: u16,
    /// What came since the last part, unless it was not to be kept.
    pub(super) bytes: Vec<u8>,
    /// How many bytes have come in all.
    pub(super) count: usize,
    pub(super) ended: bool,
}

/// What a request says.
pub(super) struct Asked<'a> {
    pub(super) method: &'static str,
    pub(super) authority: &'a str,
    pub(super) path: &'a str,
    pub(super) content_type: Option<&'static str>,
    pub(super) body: &'a [u8],
    /// Whether the answer is wanted, or only its length.
    pub(super) keeps: bool,
}

impl Connection {
    pub(super) fn new() -> Connection {
        let mut out = PREFACE.to_vec();
        let mut settings = Vec::new();
        for (setting, value) in [
            (HEADER_TABLE_SIZE, 0),
            (ENABLE_PUSH, 0),
            (INITIAL_WINDOW_SIZE, STREAM_WINDOW),
        ] {
            settings.extend_from_slice(&setting.to_be_bytes());
            settings.extend_from_slice(&value.to_be_bytes());
        }
        frame(&mut out, SETTINGS, 0, 0, &settings);
        frame(
            &mut out,
            WINDOW_UPDATE,
            0,
            0,
            &CONNECTION_WINDOW.to_be_bytes(),
        );
        Connection {
            out,
            partial: Vec::new(),
            open: None,
            streams: HashMap::new(),
            next: 1,
            known: Vec::new(),
            send_window: FIRST_WINDOW,
            waiting: VecDeque::new(),
            unreleased: 0,
            lost: None,
            is_left: false,
            driver: None,
        }
    }

    /// Sends a request, now or when the window allows; gives its stream.
    pub(super) fn ask(&mut self, asked: &Asked<'_>) -> Result<u32> {
        self.check()?;
        ensure!(
            asked.body.len() <= FRAME,
            "a body of {} bytes",
            asked.body.len()
        );
        let id = self.next;
        self.next += 2;
        let block = self.block(asked);
        let ends = if asked.body.is_empty() { END_STREAM } else { 0 };
        let (mut head, mut body) = (Vec::with_capacity(HEAD + block.len()), Vec::new());
        frame(&mut head, HEADERS, END_HEADERS | ends, id, &block);
        if ends == 0 {
            frame(&mut body, DATA, END_STREAM, id, asked.body);
        }
        let answer = Answer {
            keeps: asked.keeps,
            ..Answer::default()
        };
        self.streams.insert(id, answer);
        self.waiting.push_back((head, body));
        self.send_waiting();
        Ok(id)
    }

    fn check(&self) -> Result<()> {
        match &self.lost {
            Some(why) => bail!("the connection has ended: {why}"),
            None => Ok(()),
        }
    }

    // In order: the server's table grows with the headers as they were written.
    fn send_waiting(&mut self) {
        while let Some((head, body)) = self.waiting.front() {
            let length = body.len().saturating_sub(HEAD) as i64;
            if length > self.send_window {
                return;
            }
            self.send_window -= length;
            self.out.extend_from_slice(head);
            self.out.extend_from_slice(body);
            self.waiting.pop_front();
        }
        wake(&mut self.driver);
    }

    fn block(&mut self, asked: &Asked<'_>) -> Vec<u8> {
        let mut block = Vec::with_capacity(64 + asked.path.len());
        self.field(&mut block, ":method", asked.method);
        self.field(&mut block, ":scheme", "https");
        self.field(&mut block, ":authority", asked.authority);
        // Another one each time: not for the table.
        literal(&mut block, 0, ":path", asked.path);
        self.field(&mut block, "accept", super::JSON);
        self.field(&mut block, "user-agent", "kyanite-bench");
        if let Some(content_type) = asked.content_type {
            self.field(&mut block, "content-type", content_type);
            literal(
                &mut block,
                0,
                "content-length",
                &asked.body.len().to_string(),
            );
        }
        block
    }

    // The few that every request repeats are named by their place in the server's table.
    fn field(&mut self, block: &mut Vec<u8>, name: &'static str, value: &str) {
        let place = self
            .known
            .iter()
            .position(|(n, v)| *n == name && v == value);
        match place {
            Some(place) => block.push(0x80 | (STATIC_ENTRIES + self.known.len() - place) as u8),
            None => {
                literal(block, 0x40, name, value);
                self.known.push((name, value.to_owned()));
            }
        }
    }

    /// What has come for a request since this was last asked, once there is as much as is waited for.
    pub(super) fn poll(
        &mut self,
        id: u32,
        until: Until,
        context: &mut Context<'_>,
    ) -> Poll<Result<Part>> {
        let answer = self.streams.get_mut(&id).expect("it is forgotten last");
        if let Some(why) = &answer.failed {
            return Poll::Ready(Err(anyhow!("{why}")));
        }
        if !answer.has(until) {
            answer.reader = Some((until, context.waker().clone()));
            return Poll::Pending;
        }
        Poll::Ready(Ok(Part {
            status: answer.status.unwrap_or_default(),
            bytes: std::mem::take(&mut answer.bytes),
            count: answer.count,
            ended: answer.ended,
        }))
    }

    /// Nobody waits for a request any more.
    pub(super) fn forget(&mut self, id: u32) {
        let answer = self.streams.remove(&id);
        if answer.is_some_and(|answer| !answer.ended) {
            frame(&mut self.out, RESET, 0, id, &CANCEL.to_be_bytes());
            wake(&mut self.driver);
        }
    }

    /// Takes what the server has sent.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<()> {
        let mut left = bytes;
        loop {
            if let Some((head, missing)) = self.open.take() {
                let data = take(&mut left, missing);
                if data.len() < missing {
                    self.data(head.id, data, false);
                    self.open = Some((head, missing - data.len()));
                    return Ok(());
                }
                self.data(head.id, data, head.flags & END_STREAM != 0);
            }
            if !self.has(HEAD, &mut left) {
                return Ok(());
            }
            let head = Head::read(self.partial.first_chunk().expect("it has a head"))?;
            if head.kind == DATA {
                ensure!(head.flags & PADDED == 0, "padding");
                self.partial.clear();
                self.open = Some((head, head.length));
                continue;
            }
            if !self.has(HEAD + head.length, &mut left) {
                return Ok(());
            }
            let mut whole = std::mem::take(&mut self.partial);
            self.frame(head, &whole[HEAD..])?;
            whole.clear();
            self.partial = whole;
        }
    }

    // Whether so much of a frame has come, with what is left.
    fn has(&mut self, length: usize, left: &mut &[u8]) -> bool {
        let missing = length.saturating_sub(self.partial.len());
        self.partial.extend_from_slice(take(left, missing));
        self.partial.len() >= length
    }

    fn frame(&mut self, head: Head, payload: &[u8]) -> Result<()> {
        let Head { flags, id, .. } = head;
        match head.kind {
            HEADERS => self.headers(flags, id, payload)?,
            SETTINGS if flags & ACK == 0 => frame(&mut self.out, SETTINGS, ACK, 0, &[]),
            PING if flags & ACK == 0 => frame(&mut self.out, PING, ACK, 0, payload),
            WINDOW_UPDATE if id == 0 => {
                self.send_window += i64::from(number(payload)?);
                self.send_waiting();
            }
            RESET => {
                let why = format!("the server reset the stream (code {})", number(payload)?);
                if let Some(answer) = self.streams.get_mut(&id) {
                    answer.fail(&why);
                }
            }
            GO_AWAY => bail!("the server goes away"),
            _ => {}
        }
        Ok(())
    }

    fn headers(&mut self, flags: u8, id: u32, payload: &[u8]) -> Result<()> {
        let is_whole = flags & END_HEADERS != 0 && flags & (PADDED | PRIORITY) == 0;
        ensure!(is_whole, "a header in parts, or with padding");
        let Some(answer) = self.streams.get_mut(&id) else {
            return Ok(());
        };
        // What follows an answer ends it, and says nothing else.
        if answer.status.is_none() {
            answer.status = Some(status(payload)?);
        }
        answer.ended |= flags & END_STREAM != 0;
        answer.wake();
        Ok(())
    }

    fn data(&mut self, id: u32, payload: &[u8], is_last: bool) {
        self.unreleased += payload.len() as u32;
        release(&mut self.out, 0, &mut self.unreleased, CONNECTION_WINDOW);
        let Some(answer) = self.streams.get_mut(&id) else {
            return;
        };
        answer.count += payload.len();
        if answer.keeps {
            answer.bytes.extend_from_slice(payload);
        }
        answer.ended |= is_last;
        answer.unreleased += payload.len() as u32;
        if !answer.ended {
            release(&mut self.out, id, &mut answer.unreleased, STREAM_WINDOW);
        }
        answer.wake();
    }

    /// Nobody needs the connection any more.
    pub(super) fn leave(&mut self) {
        self.is_left = true;
        wake(&mut self.driver);
    }

    /// Whether that is so.
    pub(super) fn is_left(&self) -> bool {
        self.is_left
    }

    /// The connection is over.
    pub(super) fn lose(&mut self, why: &str) {
        for answer in self.streams.values_mut() {
            answer.fail(why);
        }
        self.lost = Some(why.to_owned());
    }
}

impl Answer {
    fn has(&self, until: Until) -> bool {
        self.ended
            || match until {
                Until::Status => self.status.is_some(),
                Until::Some => !self.bytes.is_empty(),
                Until::End => false,
            }
    }

    fn wake(&mut self) {
        if self
            .reader
            .as_ref()
            .is_some_and(|(until, _)| self.has(*until))
        {
            self.reader.take().expect("just seen").1.wake();
        }
    }

    fn fail(&mut self, why: &str) {
        if !self.ended {
            self.failed = Some(why.to_owned());
            if let Some((_, reader)) = self.reader.take() {
                reader.wake();
            }
        }
    }
}

/// What stands before a frame.
#[derive(Clone, Copy)]
struct Head {
    length: usize,
    kind: u8,
    flags: u8,
    id: u32,
}

impl Head {
    fn read(bytes: &[u8; HEAD]) -> Result<Head> {
        let [a, b, c, kind, flags, id @ ..] = *bytes;
        let length = u32::from_be_bytes([0, a, b, c]) as usize;
        ensure!(length <= FRAME, "a frame of {length} bytes");
        let id = u32::from_be_bytes(id);
        Ok(Head {
            length,
            kind,
            flags,
            id,
        })
    }
}

// The first bytes of what is left, at most so many.
fn take<'a>(left: &mut &'a [u8], most: usize) -> &'a [u8] {
    let (taken, rest) = left.split_at(most.min(left.len()));
    *left = rest;
    taken
}

fn frame(out: &mut Vec<u8>, kind: u8, flags: u8, id: u32, payload: &[u8]) {
    let length = (payload.len() as u32).to_be_bytes();
    out.extend_from_slice(&length[1..]);
    out.extend_from_slice(&[kind, flags]);
    out.extend_from_slice(&id.to_be_bytes());
    out.extend_from_slice(payload);
}

// Opens a window again when half of it is used.
fn release(out: &mut Vec<u8>, id: u32, unreleased: &mut u32, window: u32) {
    if *unreleased > window / 2 {
        let more = std::mem::take(unreleased);
        frame(out, WINDOW_UPDATE, 0, id, &more.to_be_bytes());
    }
}

fn number(payload: &[u8]) -> Result<u32> {
    let first = payload.first_chunk().context("a frame that is too short")?;
    Ok(u32::from_be_bytes(*first) & 0x7fff_ffff)
}

// A literal header field with a literal name, neither of them compressed.
fn literal(block: &mut Vec<u8>, kind: u8, name: &str, value: &str) {
    block.push(kind);
    for text in [name, value] {
        integer(block, text.len());
        block.extend_from_slice(text.as_bytes());
    }
}

// With a prefix of seven bits, of which none is set yet.
fn integer(block: &mut Vec<u8>, value: usize) {
    let Some(mut rest) = value.checked_sub(127) else {
        return block.push(value as u8);
    };
    block.push(127);
    while rest >= 128 {
        block.push(rest as u8 | 0x80);
        rest /= 128;
    }
    block.push(rest as u8);
}

// The first field of an answer's header, by rule.
fn status(mut block: &[u8]) -> Result<u16> {
    // Beside it only a change of the table's size may come before, which is ours and small.
    while let [0x20..0x3f, rest @ ..] = block {
        block = rest;
    }
    match block {
        [entry @ 0x88..=0x8e, ..] => Ok(STATUSES[usize::from(*entry & 0x7f) - FIRST_STATUS]),
        // A literal whose name is that of any of these entries.
        [0x08..=0x0e | 0x18..=0x1e | 0x48..=0x4e, length, text @ ..] => {
            let text = text
                .get(..usize::from(length & 0x7f))
                .context("a cut header")?;
            let digits = match length & 0x80 {
                0 => text.to_vec(),
                _ => huffman_digits(text),
            };
            let digits = String::from_utf8(digits)?;
            digits.parse().with_context(|| format!("status {digits:?}"))
        }
        _ => bail!("an answer without a status"),
    }
}

// Digits up to 2 take five bits, the others six; three of them are a status.
fn huffman_digits(text: &[u8]) -> Vec<u8> {
    let bits = text
        .iter()
        .fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
    let mut left = 8 * text.len() as u32;
    let mut digits = Vec::new();
    while left >= 6 && digits.len() < 3 {
        let six = (bits >> (left - 6)) & 0x3f;
        let (digit, taken) = if six < 0b110 {
            (six >> 1, 5)
        } else {
            (six.wrapping_sub(0b01_1001) + 3, 6)
        };
        digits.push(b'0'.wrapping_add(digit as u8));
        left -= taken;
    }
    if digits.len() < 3 && left == 5 {
        digits.push(b'0'.wrapping_add((bits & 0x1f) as u8));
    }
    digits
}

fn wake(waker: &mut Option<Waker>) {
    if let Some(waker) = waker.take() {
        waker.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_read_in_every_form_it_may_have() {
        let rows: [(&[u8], u16); 7] = [
            (&[0x88, 0x76], 200),
            (&[0x20, 0x8d], 404),
            (&[0x48, 3, b'2', b'0', b'1', 0x88], 201),
            (&[0x08, 3, b'4', b'0', b'9'], 409),
            // As RFC 7541 has it in C.6.1.
            (&[0x48, 0x82, 0x64, 0x02], 302),
            (&[0x48, 0x83, 0x64, 0x0e, 0xff], 307),
            (&[0x08, 0x82, 0x10, 0x03], 201),
        ];
        for (block, expected) in rows {
            assert_eq!(status(block).expect("a status"), expected, "{block:x?}");
        }
        assert!(status(&[0x76]).is_err());
        assert!(status(&[0x48, 9, b'2']).is_err());
    }

    #[test]
    fn long_texts_have_their_length_in_several_bytes() {
        let mut block = Vec::new();
        for value in [126, 127, 1337] {
            integer(&mut block, value);
        }
        assert_eq!(block, [126, 127, 0, 127, 0xba, 9]);
    }

    #[test]
    fn frames_that_come_in_pieces_are_put_together() {
        let mut connection = Connection::new();
        let asked = Asked {
            method: "GET",
            authority: "localhost",
            path: "/",
            content_type: None,
            body: &[],
            keeps: true,
        };
        let id = connection.ask(&asked).expect("open");
        let mut sent = Vec::new();
        frame(&mut sent, HEADERS, END_HEADERS, id, &[0x88, 0x8c, 0x8d]);
        frame(&mut sent, DATA, 0, id, b"half ");
        frame(&mut sent, DATA, END_STREAM, id, b"and half");
        for byte in sent {
            connection.feed(&[byte]).expect("a good frame");
        }
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(part)) = connection.poll(id, Until::End, &mut context) else {
            panic!("the answer is whole");
        };
        assert_eq!((part.status, &part.bytes[..]), (200, &b"half and half"[..]));
    }

    #[test]
    fn a_request_waits_for_the_window() {
        let mut connection = Connection::new();
        let body = [7; FRAME];
        let asked = Asked {
            method: "POST",
            authority: "localhost",
            path: "/",
            content_type: Some(crate::client::JSON),
            body: &body,
            keeps: true,
        };
        for _ in 0..4 {
            connection.ask(&asked).expect("open");
        }
        // The window is one byte short of four of them.
        assert_eq!(connection.waiting.len(), 1);
        let mut opened = Vec::new();
        frame(&mut opened, WINDOW_UPDATE, 0, 0, &1u32.to_be_bytes());
        connection.feed(&opened).expect("a good frame");
        assert!(connection.waiting.is_empty());
    }
}
