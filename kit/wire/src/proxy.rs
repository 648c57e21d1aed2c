//! A way through HTTP proxies: `CONNECT`, the client's side.

use std::io;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

/// The most bytes of a proxy's answer.
const MAX_HEAD: usize = 64 << 10;

/// A proxy that takes `CONNECT`. Shown without its credentials.
#[derive(Clone, PartialEq, Eq)]
pub struct Proxy {
    /// Its name or address, without brackets.
    pub host: String,
    /// Its port.
    pub port: u16,
    /// `user:password`, which nobody shall see in a log.
    credentials: Option<String>,
}

/// Why a proxy gives no way.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The connection to it broke.
    #[error("{0}")]
    Broken(#[from] io::Error),
    /// It answered something else than 200; its status line.
    #[error("it answered `{0}`")]
    Refused(String),
}

impl std::fmt::Display for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&authority(&self.host, self.port))
    }
}

impl std::fmt::Debug for Proxy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Proxy({self})")
    }
}

/// A host and a port as URLs have them.
pub fn authority(host: &str, port: u16) -> String {
    match host.contains(':') {
        true => format!("[{host}]:{port}"),
        false => format!("{host}:{port}"),
    }
}

impl Proxy {
    /// Reads a URL, or a host and perhaps a port.
    pub fn parse(text: &str, usual_port: u16) -> Option<Proxy> {
        let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
        let authority = rest.split(['/', '?', '#']).next()?;
        let (credentials, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port.parse().ok()?),
            _ => (place, usual_port),
        };
        (!host.is_empty()).then(|| Proxy {
            host: host.trim_matches(['[', ']']).to_owned(),
            port,
            credentials: credentials.map(|user| {
                let (name, password) = user.split_once(':').unwrap_or((user, ""));
                format!("{}:{}", percent_decode(name), percent_decode(password))
            }),
        })
    }

    /// Has the proxy connect to `host:port`, with its credentials where it has some; from then on the stream leads
    /// there. `agent` is who we say we are.
    pub async fn connect<S>(
        &self,
        stream: &mut S,
        target: &str,
        agent: &str,
    ) -> Result<(), ConnectError>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let authorization = match &self.credentials {
            None => String::new(),
            Some(secret) => format!("Proxy-Authorization: Basic {}\r\n", STANDARD.encode(secret)),
        };
        let headers = format!("Host: {target}\r\nUser-Agent: {agent}\r\n{authorization}");
        // Byte by byte: what follows belongs to the server.
        let (answer, _) = ask(stream, target, &headers, 1).await?;
        match answer.status {
            Some((200, _)) => Ok(()),
            _ => Err(ConnectError::Refused(answer.line)),
        }
    }
}

/// A proxy's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Code and reason, where the first line is a status line of HTTP.
    pub status: Option<(u16, String)>,
    /// The first line.
    pub line: String,
}

/// Asks for a way to `target`; `headers` are whole lines. Reads at most so many bytes at a time, and gives what came
/// behind the answer's header: nothing, where it is one.
pub async fn ask<S>(
    stream: &mut S,
    target: &str,
    headers: &str,
    at_a_time: usize,
) -> io::Result<(Answer, Bytes)>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let request = format!("CONNECT {target} HTTP/1.1\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await?;
    stream.flush().await?;
    let mut read = BytesMut::with_capacity(512);
    loop {
        let before = read.len();
        let some = (&mut *stream)
            .take(at_a_time as u64)
            .read_buf(&mut read)
            .await?;
        if some == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let from = before.saturating_sub(3);
        if let Some(end) = read[from..].windows(4).position(|w| w == b"\r\n\r\n") {
            let head = read.split_to(from + end + 4);
            return Ok((Answer::of(&head), read.freeze()));
        }
        if read.len() > MAX_HEAD {
            return Err(io::Error::other("its answer has no end"));
        }
    }
}

impl Answer {
    fn of(head: &[u8]) -> Answer {
        let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line).into_owned();
        Answer {
            status: status(&line).map(|(code, reason)| (code, reason.to_owned())),
            line,
        }
    }
}

fn status(line: &str) -> Option<(u16, &str)> {
    let rest = line.strip_prefix("HTTP/1.")?.get(2..)?;
    let (code, reason) = rest.split_once(' ').unwrap_or((rest, ""));
    Some((code.parse().ok()?, reason))
}

/// Text with its `%xx` resolved; what is no such code stays.
pub fn percent_decode(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let code = after.get(..2).and_then(|two| std::str::from_utf8(two).ok());
        let byte = code.and_then(|two| u8::from_str_radix(two, 16).ok());
        match byte.filter(|_| *first == b'%') {
            Some(byte) => {
                out.push(byte);
                rest = &after[2..];
            }
            None => {
                out.push(*first);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests;
