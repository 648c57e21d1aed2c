//! HTTP CONNECT, the client's side.

use tokio::io::AsyncReadExt as _;
use wire::proxy::ask;

use super::{DialError, Tunnel};

// As upstream's API server names the host.
const HOST: &str = "Host: 127.0.0.1\r\n";
// Answers are short.
const AT_A_TIME: usize = 512;
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
    let (answer, early) = ask(&mut socket, address, HOST, AT_A_TIME)
        .await
        .map_err(broken)?;
    // What came with the answer belongs to the tunnel, which gives it to its reader first.
    socket.early = early;
    match answer.status {
        Some((200, _)) => Ok(socket),
        Some((code, reason)) => Err(DialError::Refused {
            proxy: proxy.to_owned(),
            address: address.to_owned(),
            code,
            text: refusal(&reason, socket).await,
        }),
        None => Err(DialError::Protocol {
            proxy: proxy.to_owned(),
            text: "its answer to CONNECT has no HTTP status line".to_owned(),
        }),
    }
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
