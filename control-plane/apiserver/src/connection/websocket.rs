//! Streams over a WebSocket, for browsers and Java: a log's bytes, a watch's events.
//!
//! Only the half that is needed: the server sends, and the client is listened to for its goodbye. Logs follow upstream's
//! `wsstream` with its subprotocols; watches its `WatchServer`: every event is a message of its own, text if it is JSON.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes};
use futures::{Stream, StreamExt as _};
use http::header::{
    CONNECTION, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use http::{HeaderMap, Response, StatusCode};
use http_body_util::BodyDataStream;
use hyper::body::Incoming;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;

use crate::connection::response_body::{Body, UntilClosed};
use crate::status::{ApiError, Result};

/// A client that takes nothing for so long is let go: it would hold its watch, and with it the past.
const PATIENCE: Duration = Duration::from_secs(60);

/// Opcodes of messages.
const TEXT: u8 = 1;
const BINARY: u8 = 2;

/// What every server appends to a client's key (RFC 6455).
const MAGIC: &str = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// How the bytes are wrapped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wrapping {
    Binary,
    /// Text messages of base64.
    Base64,
}

/// Subprotocols, and what clients get that ask for none.
const PROTOCOLS: [(&str, Wrapping); 3] = [
    ("", Wrapping::Binary),
    ("binary.k8s.io", Wrapping::Binary),
    ("base64.binary.k8s.io", Wrapping::Base64),
];

/// Whether a client wants to change protocols.
pub(crate) fn is_upgrade(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter();
    values
        .filter_map(|value| value.to_str().ok())
        .any(|text| text.to_ascii_lowercase().contains("upgrade"))
}

/// Whether a client wants a WebSocket.
pub(crate) fn is_asked_for(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    is_upgrade(headers) && upgrade.is_some_and(|text| text.eq_ignore_ascii_case("websocket"))
}

/// Agrees to send a log, and sends it once the client has heard so.
pub(crate) fn send_log(
    headers: &HeaderMap,
    log: Incoming,
    client: OnUpgrade,
    stop: watch::Receiver<bool>,
) -> Result<Response<Body>> {
    let (protocol, wrapping) = wrapping(headers)?;
    let mut response = agree(headers, protocol)?;
    let bytes = BodyDataStream::new(log)
        .take_while(|read| std::future::ready(read.is_ok()))
        .filter_map(|read| std::future::ready(read.ok()));
    // An empty message first, as upstream sends one: proxies then see that the connection lives.
    let bytes = futures::stream::iter([Bytes::new()]).chain(bytes);
    let until_closed = serve(
        bytes.map(move |bytes| message(wrapping, &bytes)),
        client,
        stop,
    );
    response.extensions_mut().insert(until_closed);
    Ok(response)
}

/// Agrees to send a watch, whose body this is, and sends it once the client has heard so. `delimited` says how events are
/// told apart in it: by a length in front of each (protobuf), or by a line's end behind it (JSON).
pub(crate) fn send_watch(
    headers: &HeaderMap,
    events: impl Stream<Item = Bytes> + Send + 'static,
    delimited: bool,
    client: OnUpgrade,
    stop: watch::Receiver<bool>,
) -> Result<Response<Body>> {
    let asked = text(headers, SEC_WEBSOCKET_PROTOCOL);
    // As upstream's: one protocol is taken at its word, of several none.
    if asked.is_some_and(|asked| asked.contains(',')) {
        return Err(ApiError::bad_request("bad websocket protocol"));
    }
    let mut response = agree(headers, asked.unwrap_or_default())?;
    let until_closed = serve(
        events.map(move |chunk| events_of(chunk, delimited)),
        client,
        stop,
    );
    response.extensions_mut().insert(until_closed);
    Ok(response)
}

// The messages of a part of a watch. Parts end where events do.
fn events_of(mut chunk: Bytes, delimited: bool) -> Vec<u8> {
    let mut out = Vec::with_capacity(chunk.len() + 16);
    while !chunk.is_empty() {
        if delimited {
            let Some(length) = chunk.try_get_u32().ok().map(|length| length as usize) else {
                break;
            };
            let event = chunk.split_to(length.min(chunk.len()));
            out.extend(frame(BINARY, &event));
        } else {
            let end = chunk.iter().position(|&byte| byte == b'\n');
            let event = chunk.split_to(end.map_or(chunk.len(), |end| end + 1));
            out.extend(frame(TEXT, &event));
        }
    }
    out
}

/// Sends messages until they end, the client leaves or the server stops.
fn serve(
    messages: impl Stream<Item = Vec<u8>> + Send + 'static,
    client: OnUpgrade,
    mut stop: watch::Receiver<bool>,
) -> UntilClosed {
    let until_closed = UntilClosed::default();
    let held = until_closed.clone();
    tokio::spawn(async move {
        let _held = held;
        let Ok(client) = client.await else {
            return;
        };
        let (from, to) = tokio::io::split(TokioIo::new(client));
        tokio::select! {
            _ = send(messages, to) => {}
            _ = goodbye(from) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    });
    until_closed
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

fn wrapping(headers: &HeaderMap) -> Result<(&'static str, Wrapping)> {
    let asked = text(headers, SEC_WEBSOCKET_PROTOCOL).unwrap_or_default();
    let mut wanted = asked.split(',').map(str::trim);
    let found = wanted.find_map(|name| PROTOCOLS.iter().find(|(known, _)| *known == name));
    found.copied().ok_or_else(|| {
        ApiError::bad_request(format!(
            "requested protocol(s) are not supported: [{asked}]"
        ))
    })
}

fn agree(headers: &HeaderMap, protocol: &str) -> Result<Response<Body>> {
    let key = text(headers, SEC_WEBSOCKET_KEY)
        .ok_or_else(|| ApiError::bad_request("missing Sec-WebSocket-Key"))?;
    let mut response = Response::new(Body::from(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let out = response.headers_mut();
    out.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    out.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let accept = HeaderValue::from_str(&accept(key)).map_err(ApiError::internal)?;
    out.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if !protocol.is_empty() {
        let protocol = HeaderValue::from_str(protocol).map_err(ApiError::internal)?;
        out.insert(SEC_WEBSOCKET_PROTOCOL, protocol);
    }
    Ok(response)
}

fn accept(key: &str) -> String {
    let text = format!("{key}{MAGIC}");
    let digest = &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY;
    STANDARD.encode(aws_lc_rs::digest::digest(digest, text.as_bytes()))
}

async fn send(
    messages: impl Stream<Item = Vec<u8>>,
    mut to: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    let mut messages = std::pin::pin!(messages);
    while let Some(message) = messages.next().await {
        let sent = async {
            to.write_all(&message).await?;
            to.flush().await
        };
        tokio::time::timeout(PATIENCE, sent).await??;
    }
    // Normal closure, code 1000.
    to.write_all(&[0x88, 2, 0x03, 0xe8]).await?;
    to.shutdown().await
}

fn message(wrapping: Wrapping, bytes: &[u8]) -> Vec<u8> {
    match wrapping {
        Wrapping::Binary => frame(BINARY, bytes),
        Wrapping::Base64 => frame(TEXT, STANDARD.encode(bytes).as_bytes()),
    }
}

fn frame(opcode: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80 | opcode];
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length), _) if length < 126 => frame.push(length),
        (_, Ok(length)) => {
            frame.push(126);
            frame.extend(length.to_be_bytes());
        }
        _ => {
            frame.push(127);
            frame.extend((payload.len() as u64).to_be_bytes());
        }
    }
    frame.extend_from_slice(payload);
    frame
}

// Ends when the client closes, one way or another. Whatever else it sends is not wanted.
async fn goodbye(mut from: impl AsyncRead + Unpin) -> std::io::Result<()> {
    const CLOSE: u8 = 8;
    loop {
        let (first, second) = (from.read_u8().await?, from.read_u8().await?);
        let length = match second & 0x7f {
            126 => u64::from(from.read_u16().await?),
            127 => from.read_u64().await?,
            short => u64::from(short),
        };
        let mask = if second & 0x80 == 0 { 0 } else { 4 };
        if first & 0x0f == CLOSE {
            return Ok(());
        }
        let mut rest = (&mut from).take(length.saturating_add(mask));
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await?;
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_answer_to_a_key_is_the_one_of_the_rfc() {
        assert_eq!(
            accept("dGhlIHNhbXBsZSBub25jZQ=="),
            "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="
        );
    }

    #[test]
    fn a_protocol_is_agreed_on_or_refused() {
        let agreed = |protocol: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(SEC_WEBSOCKET_KEY, "a".parse().unwrap());
            if let Some(protocol) = protocol {
                headers.insert(SEC_WEBSOCKET_PROTOCOL, protocol.parse().unwrap());
            }
            wrapping(&headers).map(|(_, wrapping)| wrapping).ok()
        };
        assert_eq!(agreed(None), Some(Wrapping::Binary));
        assert_eq!(
            agreed(Some("other, base64.binary.k8s.io")),
            Some(Wrapping::Base64)
        );
        assert_eq!(agreed(Some("other")), None);
    }

    #[test]
    fn frames_say_how_long_they_are() {
        assert_eq!(frame(2, b"ab"), [0x82, 2, b'a', b'b']);
        assert_eq!(frame(1, &[0; 126])[..4], [0x81, 126, 0, 126]);
        assert_eq!(
            frame(2, &[0; 70_000])[..10],
            [0x82, 127, 0, 0, 0, 0, 0, 1, 0x11, 0x70]
        );
        assert_eq!(message(Wrapping::Base64, b"ab"), frame(1, b"YWI="));
    }

    #[test]
    fn every_event_of_a_part_is_a_message() {
        let json = Bytes::from_static(b"{\"a\":1}\n{\"b\":2}\n");
        let sent = events_of(json, false);
        let expected = [frame(TEXT, b"{\"a\":1}\n"), frame(TEXT, b"{\"b\":2}\n")];
        assert_eq!(sent, expected.concat());
        let protobuf = Bytes::from_static(b"\0\0\0\x02ab\0\0\0\x01c");
        let sent = events_of(protobuf, true);
        assert_eq!(sent, [frame(BINARY, b"ab"), frame(BINARY, b"c")].concat());
        assert!(events_of(Bytes::new(), false).is_empty());
    }

    #[tokio::test]
    async fn messages_are_followed_by_a_goodbye() {
        let mut sent = Vec::new();
        let messages = futures::stream::iter([frame(TEXT, b"x")]);
        send(messages, &mut sent).await.unwrap();
        assert_eq!(sent, [0x81, 1, b'x', 0x88, 2, 0x03, 0xe8]);
    }

    #[test]
    fn a_watch_takes_one_protocol_at_its_word() {
        let mut headers = HeaderMap::new();
        headers.insert(SEC_WEBSOCKET_KEY, "a".parse().unwrap());
        let answer = agree(&headers, "").unwrap();
        assert_eq!(answer.headers().get(SEC_WEBSOCKET_PROTOCOL), None);
        let answer = agree(&headers, "v1").unwrap();
        assert_eq!(answer.headers()[SEC_WEBSOCKET_PROTOCOL], "v1");
        assert!(agree(&HeaderMap::new(), "").is_err());
    }

    #[tokio::test]
    async fn a_client_is_heard_out_until_its_goodbye() {
        let said = [
            &[0x82, 0x83, 1, 2, 3, 4, 9, 9, 9][..],
            &[0x88, 0x80, 0, 0, 0, 0],
        ]
        .concat();
        goodbye(&said[..]).await.unwrap();
        assert!(goodbye(&said[..9]).await.is_err());
    }
}
