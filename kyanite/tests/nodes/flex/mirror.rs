//! A mirror in the machines' network: files by name, and their digests as releases publish them.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;

use super::site::Site;

pub(super) type Files = Vec<(String, Vec<u8>)>;

/// As releases name this machine's architecture.
pub(super) fn architecture() -> &'static str {
    if cfg!(target_arch = "x86_64") {
        "amd64"
    } else {
        "arm64"
    }
}

/// Serves until the test ends.
pub(super) fn open(site: &Site, files: Files) -> SocketAddr {
    let (listener, address) = site.listen();
    serve(listener, files);
    address
}

fn serve(listener: TcpListener, files: Files) {
    let files = Arc::new(files);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let files = Arc::clone(&files);
            // A client that goes away is none of our business.
            std::thread::spawn(move || answer(stream, &files));
        }
    });
}

fn digest(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

fn answer(mut stream: TcpStream, files: &Files) -> std::io::Result<()> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte)? == 1 {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let path = head
        .split(' ')
        .nth(1)
        .unwrap_or_default()
        .trim_start_matches('/');
    let lines = files
        .iter()
        .map(|(name, bytes)| format!("{}  {name}\n", digest(bytes)));
    let list: String = lines.collect();
    let found = files
        .iter()
        .find(|(name, _)| name == path)
        .map(|(_, bytes)| bytes.as_slice());
    let (status, body) = match found {
        Some(body) => ("200 OK", body),
        None if path.contains(".sha256") => ("200 OK", list.as_bytes()),
        None => ("404 Not Found", &b""[..]),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    stream.write_all(body)
}
