//! What the rest of the crate holds of a connection.

use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll};

use bytes::Bytes;
use wire::proxy::percent_decode;

use super::core::Core;
use super::hpack::Fields;
use super::messages;

/// How many bytes may wait on a stream before its writer does.
const SEND_BOUND: usize = 256 << 10;

/// gRPC's status for errors that are only a text.
const UNKNOWN: u32 = 2;
const UNIMPLEMENTED: u32 = 12;

/// Why a stream ended before its end.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct StreamError {
    /// gRPC's name of the status, as metrics have it.
    pub(crate) code: &'static str,
    pub(crate) text: String,
}

impl StreamError {
    pub(super) fn new(code: &'static str, text: impl Into<String>) -> StreamError {
        let text = text.into();
        StreamError { code, text }
    }

    pub(super) fn connection(text: impl Into<String>) -> StreamError {
        StreamError::new("Unavailable", text)
    }

    pub(super) fn peer(text: impl Into<String>) -> StreamError {
        StreamError::new("ResourceExhausted", text)
    }

    /// The peer speaks another language.
    pub(crate) fn malformed(error: impl std::fmt::Display) -> StreamError {
        StreamError::new("Internal", error.to_string())
    }

    pub(super) fn reset(code: u32) -> StreamError {
        let name = if code == 8 { "Canceled" } else { "Internal" };
        StreamError::new(name, format!("the peer reset the stream (code {code})"))
    }

    /// What a response's last header says.
    pub(super) fn from_trailers(fields: &Fields) -> Result<(), StreamError> {
        let status = super::only(fields, "grpc-status").unwrap_or("2");
        if status == "0" {
            return Ok(());
        }
        let message = super::only(fields, "grpc-message").unwrap_or_default();
        let name = status.parse().map_or("Unknown", code_name);
        Err(StreamError::new(name, percent_decode(message)))
    }
}

fn code_name(code: usize) -> &'static str {
    const NAMES: [&str; 17] = [
        "OK",
        "Canceled",
        "Unknown",
        "InvalidArgument",
        "DeadlineExceeded",
        "NotFound",
        "AlreadyExists",
        "PermissionDenied",
        "ResourceExhausted",
        "FailedPrecondition",
        "Aborted",
        "OutOfRange",
        "Unimplemented",
        "Internal",
        "Unavailable",
        "DataLoss",
        "Unauthenticated",
    ];
    NAMES.get(code).copied().unwrap_or("Unknown")
}

pub(super) type Shared = Arc<Mutex<Core>>;

pub(super) fn lock(shared: &Shared) -> MutexGuard<'_, Core> {
    shared
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// Opens streams on a client's connection.
pub(crate) struct Opener {
    pub(super) shared: Shared,
}

impl Opener {
    /// Begins a gRPC call.
    pub(crate) fn call(
        &self,
        authority: &str,
        path: &str,
        metadata: &[(&str, &str)],
    ) -> Result<Stream, StreamError> {
        let mut fields: Vec<(&str, &[u8])> = vec![
            (":method", b"POST"),
            (":scheme", b"http"),
            (":path", path.as_bytes()),
            (":authority", authority.as_bytes()),
            ("content-type", b"application/grpc"),
            ("te", b"trailers"),
            ("user-agent", b"kyanite-konnectivity"),
        ];
        fields.extend(
            metadata
                .iter()
                .map(|(name, value)| (*name, value.as_bytes())),
        );
        let id = lock(&self.shared).open(&fields)?;
        Ok(Stream::new(id, &self.shared))
    }
}

impl Drop for Opener {
    fn drop(&mut self) {
        let mut core = lock(&self.shared);
        core.holders -= 1;
        core.nudge();
    }
}

/// One gRPC call. Dropping it ends it.
pub(crate) struct Stream {
    pub(super) id: u32,
    pub(super) shared: Shared,
}

impl Stream {
    pub(super) fn new(id: u32, shared: &Shared) -> Stream {
        lock(shared).holders += 1;
        Stream {
            id,
            shared: Arc::clone(shared),
        }
    }

    /// The request's header, once.
    pub(crate) fn take_request(&self) -> Fields {
        let mut core = lock(&self.shared);
        let stream = core.streams.get_mut(&self.id);
        stream.and_then(|s| s.headers.take()).unwrap_or_default()
    }

    /// The response's header, once it is there.
    pub(crate) async fn response(&self) -> Result<Fields, StreamError> {
        std::future::poll_fn(|cx| self.poll_response(cx)).await
    }

    fn poll_response(&self, cx: &mut Context<'_>) -> Poll<Result<Fields, StreamError>> {
        let mut core = lock(&self.shared);
        let Some(stream) = core.streams.get_mut(&self.id) else {
            return Poll::Ready(Err(StreamError::connection("the stream has gone")));
        };
        // A response of trailers only is an error, and nothing else.
        match (&stream.ended, stream.headers.take()) {
            (Some(Err(error)), _) => Poll::Ready(Err(error.clone())),
            (_, Some(fields)) => Poll::Ready(accepted(fields)),
            (Some(Ok(())), None) => Poll::Ready(Err(StreamError::connection("no response"))),
            (None, None) => {
                stream.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The next message; `None` when the peer has said all.
    pub(crate) fn poll_message(
        &self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, StreamError>>> {
        let mut core = lock(&self.shared);
        if let Some(message) = core.take_message(self.id) {
            return Poll::Ready(Some(Ok(message)));
        }
        let Some(stream) = core.streams.get_mut(&self.id) else {
            return Poll::Ready(None);
        };
        match &stream.ended {
            Some(Ok(())) => Poll::Ready(None),
            Some(Err(error)) => Poll::Ready(Some(Err(error.clone()))),
            None => {
                stream.reader = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// The next message, awaited.
    pub(crate) async fn message(&self) -> Option<Result<Bytes, StreamError>> {
        std::future::poll_fn(|cx| self.poll_message(cx)).await
    }

    /// Whether more may be sent now. A stream that has ended takes everything and sends nothing.
    pub(crate) fn poll_ready(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut core = lock(&self.shared);
        match core.streams.get_mut(&self.id) {
            Some(stream) if stream.pending_bytes >= SEND_BOUND => {
                stream.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Whether nothing can be sent any more.
    pub(crate) fn has_ended(&self) -> bool {
        let core = lock(&self.shared);
        let stream = core.streams.get(&self.id);
        stream.is_none_or(|stream| stream.ended.is_some())
    }

    /// Completes when everything was handed to the socket, or the stream has ended.
    pub(crate) fn poll_sent(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut core = lock(&self.shared);
        match core.streams.get_mut(&self.id) {
            Some(stream) if stream.pending_bytes > 0 => {
                stream.writer = Some(cx.waker().clone());
                Poll::Pending
            }
            _ => Poll::Ready(()),
        }
    }

    /// Sends a message that is `head` and `payload` one after the other.
    pub(crate) fn send(&self, head: &[u8], payload: Bytes) {
        let mut start = Vec::with_capacity(messages::PREFIX + head.len());
        start.extend_from_slice(&messages::prefix(head.len() + payload.len()));
        start.extend_from_slice(head);
        lock(&self.shared).send(self.id, [start.into(), payload]);
    }

    /// Accepts the call, with metadata.
    pub(crate) fn accept(&self, metadata: &[(&str, &str)]) {
        let mut fields: Vec<(&str, &[u8])> = START.to_vec();
        fields.extend(
            metadata
                .iter()
                .map(|(name, value)| (*name, value.as_bytes())),
        );
        lock(&self.shared).respond(self.id, &fields);
    }

    /// Ends the call with a status, after everything that was sent.
    pub(crate) fn finish(self, result: Result<(), &str>) {
        match result {
            Ok(()) => self.end(0, ""),
            Err(text) => self.end(UNKNOWN, text),
        }
    }

    /// Refuses a method that does not exist.
    pub(crate) fn unimplemented(self) {
        self.end(UNIMPLEMENTED, "unknown service or method");
    }

    fn end(self, status: u32, text: &str) {
        let (status, text) = (status.to_string(), percent_encode(text));
        let mut core = lock(&self.shared);
        let started = core.streams.get(&self.id).is_none_or(|s| s.sent_headers);
        let mut fields: Vec<(&str, &[u8])> = if started { Vec::new() } else { START.to_vec() };
        fields.push(("grpc-status", status.as_bytes()));
        fields.push(("grpc-message", text.as_bytes()));
        core.end(self.id, &fields);
    }
}

const START: [(&str, &[u8]); 2] = [(":status", b"200"), ("content-type", b"application/grpc")];

impl Drop for Stream {
    fn drop(&mut self) {
        let mut core = lock(&self.shared);
        core.abandon(self.id);
        core.holders -= 1;
        core.nudge();
    }
}

fn accepted(fields: Fields) -> Result<Fields, StreamError> {
    match super::only(&fields, ":status") {
        Some("200") => Ok(fields),
        status => Err(StreamError::connection(format!(
            "the server answered with HTTP status {}",
            status.unwrap_or("none")
        ))),
    }
}

fn percent_encode(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'%' | ..b' ' | 0x7f.. => out.push_str(&format!("%{byte:02X}")),
            plain => out.push(char::from(plain)),
        }
    }
    out
}
