//! Health and metrics over plain HTTP/1.1, one request per connection.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Upstream's limit for the header.
const HEAD_TIMEOUT: Duration = Duration::from_secs(60);
const MAX_HEAD: usize = 16 << 10;

/// An answer.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Page {
    status: u16,
    content_type: &'static str,
    location: Option<String>,
    body: String,
}

impl Page {
    pub(crate) fn ok(body: impl Into<String>) -> Page {
        Page::status(200, body)
    }

    pub(crate) fn status(status: u16, body: impl Into<String>) -> Page {
        Page {
            status,
            content_type: "text/plain; charset=utf-8",
            location: None,
            body: body.into(),
        }
    }

    pub(crate) fn metrics(body: String) -> Page {
        Page {
            content_type: "text/plain; version=0.0.4; charset=utf-8",
            ..Page::ok(body)
        }
    }

    pub(crate) fn moved(location: String) -> Page {
        Page {
            location: Some(location),
            ..Page::status(301, "")
        }
    }

    fn text(&self) -> String {
        let reason = match self.status {
            200 => "OK",
            301 => "Moved Permanently",
            404 => "Not Found",
            405 => "Method Not Allowed",
            503 => "Service Unavailable",
            _ => "Internal Server Error",
        };
        let mut text = format!("HTTP/1.1 {} {reason}\r\nConnection: close\r\n", self.status);
        if let Some(location) = &self.location {
            // Writing to a string cannot fail.
            let _ = write!(text, "Location: {location}\r\n");
        }
        let (kind, length) = (self.content_type, self.body.len());
        let _ = write!(
            text,
            "Content-Type: {kind}\r\nContent-Length: {length}\r\n\r\n"
        );
        text
    }
}

/// Answers one request; `page` gets path and query.
pub(crate) async fn serve(mut socket: TcpStream, page: impl Fn(&str, &str) -> Page) {
    let served = tokio::time::timeout(HEAD_TIMEOUT, answer(&mut socket, page)).await;
    if let Ok(Err(error)) = served {
        tracing::debug!(%error, "a health request was not finished");
    }
}

async fn answer(socket: &mut TcpStream, page: impl Fn(&str, &str) -> Page) -> io::Result<()> {
    let mut head = Vec::with_capacity(512);
    while !head.windows(4).any(|four| four == b"\r\n\r\n") {
        if head.len() > MAX_HEAD || socket.read_buf(&mut head).await? == 0 {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    let line = head.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    let method = words.next().unwrap_or_default();
    let target = words.next().unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let page = match method {
        "GET" | "HEAD" => page(path, query),
        _ => Page::status(405, "method not allowed"),
    };
    socket.write_all(page.text().as_bytes()).await?;
    if method != "HEAD" {
        socket.write_all(page.body.as_bytes()).await?;
    }
    socket.shutdown().await
}
