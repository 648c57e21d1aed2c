//! Downloads from small servers on loopback: cut off and gone on with, corrupted and thrown away, from another place instead.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use steps::engine::{Change, Content, Engine, Event, File, Report, Retry, Step, Stop, Watcher};
use steps::host::RealHost;

/// What a server was asked for, and how much of the file it sends before it hangs up.
#[derive(Default)]
struct Asked(Mutex<Vec<String>>);

impl Asked {
    fn ranges(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

type Answer = dyn Fn(usize, &str) -> Vec<u8> + Send;

/// A server; `answer` is told which request it is, from 0, and its range.
fn listen(answer: Box<Answer>) -> (String, Arc<Asked>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}/file", listener.local_addr().unwrap());
    let asked = Arc::new(Asked::default());
    let told = Arc::clone(&asked);
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let range = range(&stream);
            let count = {
                let mut all = told.0.lock().unwrap();
                all.push(range.clone());
                all.len() - 1
            };
            let mut stream = stream;
            let _ = stream.write_all(&answer(count, &range));
        }
    });
    (address, asked)
}

/// Reads the head of a request; gives the value of its `Range`.
fn range(mut stream: &TcpStream) -> String {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|n| n == 1) {
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).to_lowercase();
    let line = head.lines().find_map(|line| line.strip_prefix("range: "));
    line.unwrap_or_default().to_owned()
}

fn content() -> Vec<u8> {
    (0..200_000_u32).flat_map(u32::to_le_bytes).collect()
}

fn sha256(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().iter().map(|b| format!("{b:02x}")).collect()
}

/// An answer that promises this and sends as much of it as `limit`.
fn sends(status: &str, body: &[u8], limit: usize) -> Vec<u8> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    [head.as_bytes(), &body[..limit.min(body.len())]].concat()
}

/// Serves the file, in parts where it is asked for them.
fn honest(range: &str) -> Vec<u8> {
    let from = range
        .strip_prefix("bytes=")
        .and_then(|r| r.trim_end_matches('-').parse::<usize>().ok());
    match from {
        Some(from) => sends("206 Partial Content", &content()[from..], usize::MAX),
        None => sends("200 OK", &content(), usize::MAX),
    }
}

#[derive(Default)]
struct Heard(Mutex<Vec<(u64, Option<u64>)>>);

impl Watcher for Heard {
    fn event(&self, event: &Event<'_>) {
        if let Event::Fetching { bytes, total, .. } = event {
            self.0.lock().unwrap().push((*bytes, *total));
        }
    }
}

fn fetch(directory: &Path, urls: &[String], attempts: u32, heard: &Heard) -> Report {
    let host = RealHost::new();
    let engine = Engine {
        host: &host,
        state: directory.join("state"),
        stop: Stop::new().unwrap(),
        watcher: heard,
        workers: 2,
        deadline: Duration::from_secs(120),
    };
    let content = Content::Download {
        urls: urls.to_vec(),
        sha256: sha256(&content()),
    };
    let change = Change::File(File::new(directory.join("file"), 0o600, content));
    let retry = Retry::times(attempts, Duration::from_millis(10), Duration::from_secs(60));
    let step = Step::changes("fetch", 9, move |_| Ok(vec![change.clone()]));
    engine.run(&[step.within(Duration::from_secs(100)).retrying(retry)])
}

#[test]
fn a_download_that_is_cut_goes_on_where_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let (url, asked) = listen(Box::new(|count, range| match count {
        0 => sends("200 OK", &content(), 300_000),
        _ => honest(range),
    }));
    let heard = Heard::default();
    let report = fetch(dir.path(), &[url], 3, &heard);
    assert_eq!(report.failure, None);
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), content());
    assert_eq!(
        asked.ranges(),
        ["", "bytes=300000-"],
        "nothing is asked for twice"
    );
    let last = *heard.0.lock().unwrap().last().unwrap();
    assert_eq!(
        last,
        (800_000, Some(800_000)),
        "whoever watches sees how much of how much"
    );
}

#[test]
fn what_a_run_that_was_killed_has_got_is_gone_on_with_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let (cut, _) = listen(Box::new(|_, _| sends("200 OK", &content(), 500_000)));
    assert!(
        fetch(dir.path(), &[cut], 1, &Heard::default())
            .failure
            .is_some()
    );
    assert!(!dir.path().join("file").exists());
    let (whole, asked) = listen(Box::new(|_, range| honest(range)));
    assert_eq!(
        fetch(dir.path(), &[whole], 1, &Heard::default()).failure,
        None
    );
    assert_eq!(asked.ranges(), ["bytes=500000-"]);
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), content());
}

#[test]
fn a_server_that_knows_no_parts_sends_the_whole_again() {
    let dir = tempfile::tempdir().unwrap();
    let (url, _) = listen(Box::new(|count, _| match count {
        0 => sends("200 OK", &content(), 300_000),
        _ => sends("200 OK", &content(), usize::MAX),
    }));
    assert_eq!(
        fetch(dir.path(), &[url], 3, &Heard::default()).failure,
        None
    );
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), content());
}

#[test]
fn what_is_corrupted_is_thrown_away_and_another_place_is_asked() {
    let dir = tempfile::tempdir().unwrap();
    let (wrong, _) = listen(Box::new(|_, _| {
        let mut bytes = content();
        bytes[1000] ^= 1;
        sends("200 OK", &bytes, usize::MAX)
    }));
    let alone = fetch(
        dir.path(),
        std::slice::from_ref(&wrong),
        2,
        &Heard::default(),
    );
    let (_, _, failure) = alone.failure.unwrap();
    assert!(failure.cause.contains("has SHA-256"), "{failure:?}");
    let names: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .flatten()
        .map(|e| e.file_name())
        .collect();
    assert_eq!(names, ["state"], "nothing of it is left");
    let (gone, _) = listen(Box::new(|_, _| sends("404 Not Found", b"no", usize::MAX)));
    let (right, _) = listen(Box::new(|_, range| honest(range)));
    assert_eq!(
        fetch(dir.path(), &[wrong, gone, right], 1, &Heard::default()).failure,
        None
    );
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), content());
}
