//! Upstream's `ProxyService`, the client's side.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{DialError, Tunnel};
use crate::http2::{Connection, Stream, Tuning, only};
use crate::packet::{MAX_DATA, Packet};
use crate::wire_names::{HALF_CLOSE, PROXY};

const TUNING: Tuning = Tuning {
    stream_window: 1 << 20,
    max_streams: 0,
};
/// How long the far end may take to finish; upstream's figure.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(10);

/// Asks for a tunnel on a fresh connection to the proxy.
pub(super) async fn open(socket: Tunnel, proxy: &str, address: &str) -> Result<Tunnel, DialError> {
    let (opener, connection) = Connection::client(socket, TUNING);
    // Ends by itself when nobody holds a stream of it.
    tokio::spawn(connection);
    let random = rand::random::<i64>() & i64::MAX;
    let stream = opener
        .call("localhost", PROXY, &[(HALF_CLOSE, "1")])
        .map_err(|_| DialError::TunnelClosed)?;
    drop(opener);
    send(
        &stream,
        Packet::DialRequest {
            random,
            protocol: "tcp".to_owned(),
            address: address.to_owned(),
        },
    );
    let broken = |text: String| DialError::Protocol {
        proxy: proxy.to_owned(),
        text,
    };
    loop {
        let message = match stream.message().await {
            Some(Ok(message)) => message,
            Some(Err(_)) | None => return Err(DialError::TunnelClosed),
        };
        match Packet::decode(message).map_err(|e| broken(e.to_string()))? {
            Packet::DialResponse { random: r, .. } if r != random => {
                return Err(broken("an answer to another dial".to_owned()));
            }
            Packet::DialResponse { error, .. } if !error.is_empty() => {
                return Err(DialError::Endpoint(error));
            }
            Packet::DialResponse { id, .. } => {
                let answer = stream.response().await;
                let answer = answer.map_err(|_| DialError::TunnelClosed)?;
                return Ok(Tunnel::over(GrpcTunnel {
                    half_close: only(&answer, HALF_CLOSE).is_some(),
                    stream: Some(stream),
                    id,
                    chunk: Bytes::new(),
                    read_end: None,
                    write_end: false,
                }));
            }
            Packet::DialClose { .. } => return Err(DialError::Closed),
            _ => {}
        }
    }
}

fn send(stream: &Stream, packet: Packet) {
    let (head, data) = packet.encode();
    stream.send(&head, data);
}

/// How reading ended.
#[derive(Debug, Clone)]
enum ReadEnd {
    /// The destination writes no more.
    EndOfData,
    /// The connection is over, perhaps for a reason.
    Closed(String),
}

struct GrpcTunnel {
    stream: Option<Stream>,
    id: i64,
    half_close: bool,
    chunk: Bytes,
    read_end: Option<ReadEnd>,
    write_end: bool,
}

impl GrpcTunnel {
    fn stream(&self) -> &Stream {
        self.stream.as_ref().expect("taken only when dropped")
    }

    fn closed(&self) -> bool {
        matches!(self.read_end, Some(ReadEnd::Closed(_)))
    }

    // Ready when there is something to read, or never will be.
    fn poll_chunk(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        while self.chunk.is_empty() && self.read_end.is_none() {
            let end = match ready!(self.stream().poll_message(cx)) {
                None => Some(ReadEnd::Closed("tunnel closed".to_owned())),
                Some(Err(error)) => Some(ReadEnd::Closed(error.text)),
                Some(Ok(message)) => match Packet::decode(message) {
                    Ok(Packet::Data { id, data }) if id == self.id => {
                        self.chunk = data;
                        None
                    }
                    Ok(Packet::EndOfData { id }) if id == self.id => Some(ReadEnd::EndOfData),
                    Ok(Packet::CloseResponse { error, .. }) => Some(ReadEnd::Closed(error)),
                    Ok(_) => None,
                    Err(error) => Some(ReadEnd::Closed(error.to_string())),
                },
            };
            self.read_end = end;
        }
        Poll::Ready(())
    }
}

impl AsyncRead for GrpcTunnel {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_chunk(cx));
        if this.chunk.is_empty() {
            return Poll::Ready(match &this.read_end {
                Some(ReadEnd::Closed(reason)) if !reason.is_empty() => Err(io::Error::new(
                    io::ErrorKind::ConnectionReset,
                    reason.clone(),
                )),
                _ => Ok(()),
            });
        }
        let count = buffer.remaining().min(this.chunk.len());
        buffer.put_slice(&this.chunk[..count]);
        this.chunk.advance(count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for GrpcTunnel {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.write_end || self.closed() || self.stream().has_ended() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        ready!(self.stream().poll_ready(cx));
        let count = bytes.len().min(MAX_DATA);
        let data = Bytes::copy_from_slice(&bytes[..count]);
        if !data.is_empty() {
            send(self.stream(), Packet::Data { id: self.id, data });
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    // Upstream's server cannot be told; it learns of the end when the tunnel is dropped.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !std::mem::replace(&mut self.write_end, true) && self.half_close {
            send(self.stream(), Packet::EndOfData { id: self.id });
        }
        self.stream().poll_sent(cx).map(Ok)
    }
}

impl Drop for GrpcTunnel {
    fn drop(&mut self) {
        let Some(stream) = self.stream.take() else {
            return;
        };
        if self.closed() || stream.has_ended() {
            return;
        }
        let id = self.id;
        send(&stream, Packet::CloseRequest { id });
        // Without a runtime there is nobody to wait, and nobody to send either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(tokio::time::timeout(CLOSE_TIMEOUT, closed(stream)));
        }
    }
}

// What was written reaches the destination before the stream is let go.
async fn closed(stream: Stream) {
    while let Some(Ok(message)) = stream.message().await {
        if let Ok(Packet::CloseResponse { .. }) = Packet::decode(message) {
            return;
        }
    }
}
