//! A small web server to try a cluster with: says which pod answers, in which version, and what it was told.
//!
//! `/` is for people, `/json` for programs, `/healthz` for probes, `/env` shows the environment, `/slow` takes a
//! second. After SIGTERM it answers `/healthz` with 503 and whoever still comes, for a moment: so a rolling update
//! drops nothing.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{Ipv6Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use nix::sys::signal::{SigSet, Signal};
use serde_json::json;

const PATIENCE: Duration = Duration::from_secs(30);
/// How long a pod is still sent requests after it was told to end.
const GRACE: Duration = Duration::from_secs(3);

#[derive(Default)]
struct Demo {
    served: AtomicU64,
    ending: AtomicBool,
}

fn main() -> std::io::Result<()> {
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
            let (status, kind, body) = self.answer(&path);
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
