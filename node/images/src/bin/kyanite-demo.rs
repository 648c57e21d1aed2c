//! A small web server to try a cluster with: says which pod answers, in which version, and what it was told.
//!
//! `/` is for people, `/json` for programs, `/healthz` for probes, `/env` shows the environment, `/peer` says who asks,
//! `/slow` takes a second. After SIGTERM it answers `/healthz` with 503 and whoever still comes, for a moment: so a rolling update
//! drops nothing.
//!
//! It is a client as well, for images that have no other: `get URL` prints the answer, `visit URL` asks again and again
//! and says how many answers came.

use std::io::{BufRead as _, BufReader, Error, Read as _, Write as _};
use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);
/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(5);
/// How long a pod is still sent requests after it was told to end.
const GRACE: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Demo {
    served: AtomicU64,
    ending: AtomicBool,
}

fn main() -> std::process::ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words.as_slice() {
        [] => serve(),
        ["get", url] => get(url).map(|body| print(&body)),
        ["visit", url] => visit(url),
        _ => Err(Error::other("usage: demo [get URL | visit URL]")),
    };
    match done {
        Ok(()) => std::process::ExitCode::SUCCESS,
        Err(error) => {
            let _ = std::io::stderr().write_all(format!("demo: {error}\n").as_bytes());
            std::process::ExitCode::FAILURE
        }
    }
}

/// What a server answers; one that says anything but 200 has failed.
fn get(url: &str) -> std::io::Result<String> {
    let rest = url
        .strip_prefix("http://")
        .ok_or_else(|| Error::other("only http:// can be asked"))?;
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    let place = match host.rsplit_once(':') {
        Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
        _ => format!("{host}:80"),
    };
    let mut last = Error::other(format!("{host} has no address"));
    for address in place.to_socket_addrs()? {
        match ask(address, host, path) {
            Ok(body) => return Ok(body),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn ask(address: SocketAddr, host: &str, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
    stream.set_read_timeout(Some(ANSWER))?;
    let request = format!("GET /{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes())?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    match head.lines().next().unwrap_or_default() {
        first if first.contains(" 200 ") => Ok(body.to_owned()),
        first => Err(Error::other(format!("answered {first:?}"))),
    }
}

// Each on a connection of its own, so that every one goes to whom a Service chooses then.
fn visit(url: &str) -> std::io::Result<()> {
    let (mut answered, mut failed) = (0u64, 0u64);
    let mut said = Instant::now();
    loop {
        match get(url) {
            Ok(_) => answered += 1,
            Err(error) => {
                failed += 1;
                log(&format!("failed: {error}"));
            }
        }
        if said.elapsed() >= Duration::from_secs(1) {
            said = Instant::now();
            log(&format!("answered {answered} failed {failed}"));
        }
        std::thread::park_timeout(Duration::from_millis(20));
    }
}

fn print(text: &str) {
    let _ = std::io::stdout().write_all(text.as_bytes());
}

fn serve() -> std::io::Result<()> {
    let mut signals = SigSet::empty();
    signals.add(Signal::SIGTERM);
    signals.add(Signal::SIGINT);
    signals.thread_block()?;
    let port = std::env::var("PORT")
        .ok()
        .and_then(|port| port.parse().ok());
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port.unwrap_or(8080)))?;
    log(&format!("listening on {}", listener.local_addr()?));
    let demo = Arc::new(Demo::default());
    let serving = Arc::clone(&demo);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let demo = Arc::clone(&serving);
            std::thread::spawn(move || demo.serve(&stream));
        }
    });
    signals.wait()?;
    demo.ending.store(true, Ordering::Relaxed);
    log("told to end; answering whoever still comes");
    std::thread::park_timeout(GRACE);
    Ok(())
}

// Who asks, as the packets say.
fn peer(stream: &TcpStream) -> String {
    let address = stream
        .peer_addr()
        .map(|address| address.ip().to_canonical());
    address.map_or_else(|error| error.to_string(), |ip| format!("{ip}\n"))
}

fn log(line: &str) {
    let _ = std::io::stdout().write_all(format!("{line}\n").as_bytes());
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_default()
}

fn pod() -> String {
    match (variable("POD_NAME"), variable("HOSTNAME")) {
        (name, _) if !name.is_empty() => name,
        (_, name) if !name.is_empty() => name,
        _ => std::fs::read_to_string("/proc/sys/kernel/hostname")
            .map_or_else(|_| "somebody".to_owned(), |name| name.trim().to_owned()),
    }
}

impl Demo {
    // One request after the other on a connection, as HTTP/1.1 has it.
    fn serve(&self, stream: &TcpStream) {
        let _ = stream.set_read_timeout(Some(PATIENCE));
        let mut lines = BufReader::new(stream).lines();
        while let Some(Ok(first)) = lines.next() {
            let mut close = first.ends_with("HTTP/1.0");
            for header in lines.by_ref().map_while(Result::ok) {
                if header.is_empty() {
                    break;
                }
                close |= header.eq_ignore_ascii_case("connection: close");
            }
            close |= self.ending.load(Ordering::Relaxed);
            let path = first.split(' ').nth(1).unwrap_or("/").to_owned();
            let (status, kind, body) = match path.as_str() {
                "/peer" => ("200 OK", "text/plain", peer(stream)),
                path => self.answer(path),
            };
            log(&format!("{status} {path}"));
            let connection = if close { "close" } else { "keep-alive" };
            let text = format!(
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: {connection}\r\n\r\n{body}",
                body.len()
            );
            let mut out = stream;
            if out.write_all(text.as_bytes()).is_err() || close {
                return;
            }
        }
    }

    fn answer(&self, path: &str) -> (&'static str, &'static str, String) {
        const TEXT: &str = "text/plain; charset=utf-8";
        let served = self.served.fetch_add(1, Ordering::Relaxed) + 1;
        let (version, greeting) = (variable("VERSION"), variable("GREETING"));
        let greeting = if greeting.is_empty() {
            "Hello"
        } else {
            &greeting
        };
        match path.split('?').next().unwrap_or_default() {
            "/healthz" | "/readyz" if self.ending.load(Ordering::Relaxed) => {
                ("503 Service Unavailable", TEXT, "ending\n".to_owned())
            }
            "/healthz" | "/readyz" => ("200 OK", TEXT, "ok\n".to_owned()),
            "/json" => {
                let value = json!({
                    "pod": pod(), "node": variable("NODE_NAME"), "version": version,
                    "greeting": greeting, "served": served,
                });
                ("200 OK", "application/json", format!("{value}\n"))
            }
            "/env" => {
                let mut all: Vec<String> = std::env::vars()
                    .map(|(k, v)| format!("{k}={v}\n"))
                    .collect();
                all.sort();
                ("200 OK", TEXT, all.concat())
            }
            "/slow" => {
                std::thread::park_timeout(Duration::from_secs(1));
                (
                    "200 OK",
                    TEXT,
                    format!("{greeting} at last from {}\n", pod()),
                )
            }
            "/" => {
                let node = variable("NODE_NAME");
                let on = if node.is_empty() {
                    String::new()
                } else {
                    format!(" on {node}")
                };
                let text = format!("{greeting} from {}{on}, version {version}\n", pod());
                ("200 OK", TEXT, text)
            }
            _ => ("404 Not Found", TEXT, "nothing here\n".to_owned()),
        }
    }
}
