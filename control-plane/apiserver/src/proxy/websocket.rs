//! A stream of bytes over a WebSocket, for browsers that want a log.
//!
//! Only the half that is needed: the server sends, and the client is listened to for its goodbye. The subprotocols are
//! upstream's `wsstream`'s.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use futures::StreamExt as _;
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

use super::forward;
use crate::body::Body;
use crate::status::{ApiError, Result};

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

/// Whether a client wants a WebSocket.
pub(super) fn is_asked_for(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(UPGRADE).and_then(|value| value.to_str().ok());
    forward::is_upgrade(headers)
        && upgrade.is_some_and(|text| text.eq_ignore_ascii_case("websocket"))
}

/// Agrees, and sends the stream once the client has heard so.
pub(super) fn send(
    headers: &HeaderMap,
    stream: Incoming,
    client: OnUpgrade,
    mut stop: watch::Receiver<bool>,
) -> Result<Response<Body>> {
    let (response, wrapping) = agree(headers)?;
    tokio::spawn(async move {
        let Ok(client) = client.await else {
            return;
        };
        let (from, to) = tokio::io::split(TokioIo::new(client));
        tokio::select! {
            _ = messages(stream, wrapping, to) => {}
            _ = goodbye(from) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    });
    Ok(response)
}

fn agree(headers: &HeaderMap) -> Result<(Response<Body>, Wrapping)> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let key = text(SEC_WEBSOCKET_KEY)
        .ok_or_else(|| ApiError::bad_request("missing Sec-WebSocket-Key"))?;
    let asked = text(SEC_WEBSOCKET_PROTOCOL).unwrap_or_default();
    let mut wanted = asked.split(',').map(str::trim);
    let found = wanted.find_map(|name| PROTOCOLS.iter().find(|(known, _)| *known == name));
    let Some((protocol, wrapping)) = found else {
        return Err(ApiError::bad_request(format!(
            "requested protocol(s) are not supported: [{asked}]"
        )));
    };
    let mut response = Response::new(Body::from(""));
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let out = response.headers_mut();
    out.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    out.insert(UPGRADE, HeaderValue::from_static("websocket"));
    let accept = HeaderValue::from_str(&accept(key)).map_err(ApiError::internal)?;
    out.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if !protocol.is_empty() {
        out.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    }
    Ok((response, *wrapping))
}

fn accept(key: &str) -> String {
    let text = format!("{key}{MAGIC}");
    let digest = &aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY;
    STANDARD.encode(aws_lc_rs::digest::digest(digest, text.as_bytes()))
}

// An empty message first, as upstream sends one: proxies then see that the connection lives.
async fn messages(
    stream: Incoming,
    wrapping: Wrapping,
    mut to: impl AsyncWrite + Unpin,
) -> std::io::Result<()> {
    let mut stream = BodyDataStream::new(stream);
    to.write_all(&message(wrapping, &Bytes::new())).await?;
    to.flush().await?;
    while let Some(Ok(bytes)) = stream.next().await {
        to.write_all(&message(wrapping, &bytes)).await?;
        to.flush().await?;
    }
    // Normal closure, code 1000.
    to.write_all(&[0x88, 2, 0x03, 0xe8]).await?;
    to.shutdown().await
}

fn message(wrapping: Wrapping, bytes: &[u8]) -> Vec<u8> {
    match wrapping {
        Wrapping::Binary => frame(2, bytes),
        Wrapping::Base64 => frame(1, STANDARD.encode(bytes).as_bytes()),
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
            agree(&headers).map(|(_, wrapping)| wrapping).ok()
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
