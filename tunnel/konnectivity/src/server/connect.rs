//! The HTTP CONNECT front end: a socket is one connection.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::backend::DialError;
use super::registry::NoConnection;
use super::{GREETING_TIMEOUT, Shared};
use crate::lanes::Side;
use crate::link::Wire;
use crate::pump::{self, Local};

/// The most bytes of a request's header.
const MAX_HEAD: usize = 64 << 10;

/// A refusal: status, reason and the text of the body.
#[derive(Debug, PartialEq, Eq)]
struct Refusal {
    status: &'static str,
    text: String,
}

pub(super) async fn serve(mut socket: impl Local, shared: Arc<Shared>) {
    let _counted = shared.metrics.http.hold();
    match open(&mut socket, &shared).await {
        Ok(Ok((wire, address))) => {
            let _established = shared.metrics.established.hold();
            let (since, id) = (Instant::now(), wire.id());
            let traffic = pump::run(&mut socket, wire, Side::Server).await;
            shared.metrics.connection_duration.observe(since.elapsed());
            tracing::debug!(
                address,
                connection = id,
                sent = traffic.from_local,
                received = traffic.to_local,
                seconds = since.elapsed().as_secs_f64(),
                "connection ended"
            );
        }
        Ok(Err(refusal)) => {
            let written = refuse(&mut socket, &refusal).await;
            tracing::debug!(
                status = refusal.status,
                text = refusal.text,
                ?written,
                "refused"
            );
        }
        Err(error) => tracing::debug!(%error, "a client went before it was served"),
    }
}

// Boxed by the caller's state machine: what is needed to open is gone once the tunnel runs.
async fn open(
    socket: &mut impl Local,
    shared: &Shared,
) -> io::Result<Result<(Wire, String), Refusal>> {
    let reading = Box::pin(read_head(socket));
    let (head, mut early) = tokio::time::timeout(GREETING_TIMEOUT, reading).await??;
    let address = match target(&head) {
        Ok(address) => address,
        Err(refusal) => return Ok(Err(refusal)),
    };
    let dialled = match shared.dial(random_id(), "tcp", &address) {
        Ok((mut pending, _)) => {
            let answer = Box::pin(shared.answer(&mut pending));
            wait(socket, answer, &mut early).await?
        }
        Err(error) => Err(error),
    };
    let wire = match dialled {
        Ok(wire) => wire,
        Err(error) => return Ok(Err(refusal(&error))),
    };
    // Before any byte of the destination: the API server takes it for a part of the header.
    socket
        .write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n")
        .await?;
    socket.flush().await?;
    // A copy, so that an idle connection does not keep the whole buffer.
    wire.send(Bytes::copy_from_slice(&early));
    Ok(Ok((wire, address)))
}

// Waits for the answer and keeps what the client says meanwhile; ends when the client is gone.
async fn wait<T>(
    socket: &mut impl Local,
    mut answer: impl Future<Output = T> + Unpin,
    early: &mut BytesMut,
) -> io::Result<T> {
    let mut open = true;
    loop {
        tokio::select! {
            biased;
            answer = &mut answer => return Ok(answer),
            read = socket.read_buf(early), if open && early.len() < MAX_HEAD => {
                open = read? > 0;
                if !open && socket.peer_gone() {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
        }
    }
}

// As upstream's: not negative.
fn random_id() -> i64 {
    rand::random::<i64>() & i64::MAX
}

async fn read_head(socket: &mut impl Local) -> io::Result<(Bytes, BytesMut)> {
    let mut buffer = BytesMut::with_capacity(512);
    loop {
        if socket.read_buf(&mut buffer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(end) = buffer.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = buffer.split_to(end + 4).freeze();
            return Ok((head, buffer));
        }
        if buffer.len() > MAX_HEAD {
            return Err(io::Error::other("a request's header has no end"));
        }
    }
}

fn target(head: &[u8]) -> Result<String, Refusal> {
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next()) {
        (Some("CONNECT"), Some(address), Some("HTTP/1.1" | "HTTP/1.0")) if !address.is_empty() => {
            Ok(address.to_owned())
        }
        (Some(_), Some(_), Some(version)) if version.starts_with("HTTP/1.") => Err(Refusal {
            status: "405 Method Not Allowed",
            text: "this proxy only supports CONNECT passthrough".to_owned(),
        }),
        _ => Err(Refusal {
            status: "400 Bad Request",
            text: "this is not an HTTP/1.1 request".to_owned(),
        }),
    }
}

const BAD_GATEWAY: &str = "502 Bad Gateway";
const UNAVAILABLE: &str = "503 Service Unavailable";
const GATEWAY_TIMEOUT: &str = "504 Gateway Timeout";

// Upstream's answers, by what went wrong.
fn refusal(error: &NoConnection) -> Refusal {
    let (status, text) = match error {
        NoConnection::NoAgent => (
            "500 Internal Server Error",
            format!("currently no tunnels available: {error}"),
        ),
        NoConnection::ShuttingDown => (UNAVAILABLE, error.to_string()),
        NoConnection::Timeout => (GATEWAY_TIMEOUT, format!("Backend dial timeout: {error}")),
        NoConnection::Failed(DialError::Lost(why)) => {
            (BAD_GATEWAY, format!("Backend context error: {why}"))
        }
        NoConnection::Failed(DialError::Endpoint(text)) => (endpoint_status(text), text.clone()),
        NoConnection::Failed(other) => (
            BAD_GATEWAY,
            format!("Failed to tunnel dial request: {other}"),
        ),
    };
    Refusal { status, text }
}

fn endpoint_status(text: &str) -> &'static str {
    let text = text.to_lowercase();
    if text.contains("timeout") || text.contains("deadline exceeded") {
        GATEWAY_TIMEOUT
    } else if text.contains("too many open files") {
        UNAVAILABLE
    } else {
        BAD_GATEWAY
    }
}

async fn refuse(socket: &mut impl Local, refusal: &Refusal) -> io::Result<()> {
    let Refusal { status, text } = refusal;
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{text}",
        text.len()
    );
    socket.write_all(answer.as_bytes()).await?;
    socket.shutdown().await
}

#[cfg(test)]
mod tests;
