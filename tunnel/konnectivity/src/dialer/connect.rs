//! HTTP CONNECT, the client's side.

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::{DialError, Tunnel};

// As much of a header as the API server reads.
const MAX_HEAD: usize = 1 << 20;
// As much of an error's body as is worth showing.
const MAX_REASON: u64 = 1024;

/// Asks for a tunnel on a fresh connection to the proxy.
pub(super) async fn open(
    mut socket: Tunnel,
    proxy: &str,
    address: &str,
) -> Result<Tunnel, DialError> {
    let broken = |source| DialError::Proxy {
        proxy: proxy.to_owned(),
        source,
    };
    let request = format!("CONNECT {address} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    socket.write_all(request.as_bytes()).await.map_err(broken)?;
    socket.flush().await.map_err(broken)?;
    let head = head(&mut socket).await.map_err(broken)?;
    match status(&head) {
        Some((200, _)) => Ok(socket),
        Some((code, reason)) => Err(DialError::Refused {
            proxy: proxy.to_owned(),
            address: address.to_owned(),
            code,
            text: refusal(reason, socket).await,
        }),
        None => Err(DialError::Protocol {
            proxy: proxy.to_owned(),
            text: "its answer to CONNECT has no HTTP status line".to_owned(),
        }),
    }
}

// What is behind the header belongs to the tunnel, which gives it to its reader first.
async fn head(socket: &mut Tunnel) -> std::io::Result<Bytes> {
    let mut read = BytesMut::with_capacity(512);
    loop {
        if socket.read_buf(&mut read).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        if let Some(end) = read.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = read.split_to(end + 4).freeze();
            socket.early = Bytes::copy_from_slice(&read);
            return Ok(head);
        }
        if read.len() > MAX_HEAD {
            return Err(std::io::Error::other("its header has no end"));
        }
    }
}

fn status(head: &[u8]) -> Option<(u16, &str)> {
    let line = head.split(|&byte| byte == b'\r').next()?;
    let line = std::str::from_utf8(line).ok()?;
    let rest = line.strip_prefix("HTTP/1.")?.get(2..)?;
    let (code, reason) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((code.parse().ok()?, reason))
}

async fn refusal(reason: &str, socket: Tunnel) -> String {
    let mut body = Vec::new();
    // What could be read is enough: the status is the answer.
    let _ = socket.take(MAX_REASON).read_to_end(&mut body).await;
    match String::from_utf8_lossy(&body).trim() {
        "" => reason.to_owned(),
        body => format!("{reason}: {body}"),
    }
}

#[cfg(test)]
mod tests {
    use super::status;

    #[test]
    fn a_status_line_is_read() {
        assert_eq!(
            status(b"HTTP/1.1 200 Connection Established\r\n\r\n"),
            Some((200, "Connection Established"))
        );
        assert_eq!(status(b"HTTP/1.1 502\r\n\r\n"), Some((502, "")));
        assert_eq!(status(b"SSH-2.0\r\n\r\n"), None);
    }
}
