//! Reads a log file to its end, and further while the container writes; the file may be rotated meanwhile.

use std::io::{self, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use jiff::Timestamp;
use tokio::fs::File;
use tokio::io::{AsyncReadExt as _, AsyncSeekExt as _};
use tokio::sync::mpsc;

use super::Writer;
use super::line::Rendering;
use super::options::Options;
use crate::changes::Changes;

/// How much is read at once.
const CHUNK: usize = 64 * 1024;
/// A line longer than this is not waited for: runtimes cut at 16 KiB.
const LONGEST_LINE: usize = 1024 * 1024;
/// How often it is asked whether the container still runs.
const LOOK: Duration = Duration::from_secs(1);
/// Chunks that wait for a slow client.
const QUEUE: usize = 4;

/// Opens a log and sends what of it is asked for; ends with the file, the container or the client.
pub(in crate::server) async fn stream(
    path: PathBuf,
    options: Options,
    writer: Writer,
) -> io::Result<mpsc::Receiver<Bytes>> {
    let mut file = Tail::open(&path).await?;
    if let Some(lines) = options.tail {
        file.seek_to_last(lines).await?;
    }
    let (sender, receiver) = mpsc::channel(QUEUE);
    tokio::spawn(async move {
        let rendering = Rendering::new(&options, Timestamp::now());
        let sent = send(file, rendering, options.follow.then_some(writer), &sender).await;
        if let Err(error) = sent {
            tracing::warn!(path = %path.display(), %error, "a log cannot be read further");
        }
    });
    Ok(receiver)
}

async fn send(
    mut file: Tail,
    mut rendering: Rendering,
    follow: Option<Writer>,
    to: &mpsc::Sender<Bytes>,
) -> io::Result<()> {
    let changes = follow
        .as_ref()
        .and_then(|_| Changes::of(file.path.parent()?));
    // Whether the container had ended before the file was last read to its end.
    let mut ended = follow.is_none();
    // Whether the end was read after another file took the name: what was written just before must not be lost.
    let mut finished = false;
    loop {
        let mut out = Vec::new();
        let more = file.lines(|line| rendering.add(line, &mut out)).await?;
        if !more && ended && !file.was_replaced().await {
            file.rest(|line| rendering.add(line, &mut out));
        }
        if !out.is_empty() && to.send(out.into()).await.is_err() {
            return Ok(());
        }
        if rendering.is_full() {
            return Ok(());
        }
        if more {
            finished = false;
            continue;
        }
        if file.was_replaced().await {
            // Only one look decides: a file that is replaced right after it must be read to its end, too.
            finished = !(finished && file.reopen().await?);
            continue;
        }
        if file.was_cut().await? {
            continue;
        }
        if ended {
            return Ok(());
        }
        ended = !follow.as_ref().is_some_and(Writer::is_running);
        if !ended {
            tokio::select! {
                () = changed(changes.as_ref()) => {}
                () = tokio::time::sleep(LOOK) => {}
                () = to.closed() => return Ok(()),
            }
        }
    }
}

/// A log file, how far it was read, and the beginning of a line that is not whole yet.
struct Tail {
    path: PathBuf,
    file: File,
    inode: u64,
    position: u64,
    begun: Vec<u8>,
}

impl Tail {
    async fn open(path: &Path) -> io::Result<Tail> {
        let file = File::open(path).await?;
        let inode = file.metadata().await?.ino();
        Ok(Tail {
            path: path.to_owned(),
            file,
            inode,
            position: 0,
            begun: Vec::new(),
        })
    }

    /// Goes to where the last lines begin; a line that has no end yet counts as one.
    async fn seek_to_last(&mut self, lines: u64) -> io::Result<()> {
        let end = self.file.metadata().await?.len();
        if lines == 0 {
            return self.go_to(end).await;
        }
        let mut at = end;
        let mut wanted = lines;
        let mut buffer = vec![0; CHUNK];
        while at > 0 {
            let start = at.saturating_sub(CHUNK as u64);
            let length = usize::try_from(at - start).unwrap_or(CHUNK);
            self.file.seek(SeekFrom::Start(start)).await?;
            self.file.read_exact(&mut buffer[..length]).await?;
            for (n, byte) in buffer[..length].iter().enumerate().rev() {
                let place = start + n as u64 + 1;
                // The end of the last line is not the beginning of another.
                if *byte == b'\n' && place != end {
                    wanted = wanted.saturating_sub(1);
                    if wanted == 0 {
                        return self.go_to(place).await;
                    }
                }
            }
            at = start;
        }
        self.go_to(0).await
    }

    async fn go_to(&mut self, place: u64) -> io::Result<()> {
        self.position = place;
        self.file.seek(SeekFrom::Start(place)).await.map(|_| ())
    }

    /// Reads a piece; false at the end of the file.
    async fn lines(&mut self, mut line: impl FnMut(&[u8])) -> io::Result<bool> {
        let mut buffer = vec![0; CHUNK];
        let count = self.file.read(&mut buffer).await?;
        self.position += count as u64;
        let mut rest = &buffer[..count];
        while let Some(at) = rest.iter().position(|byte| *byte == b'\n') {
            match self.begun.is_empty() {
                true => line(&rest[..at]),
                false => {
                    self.begun.extend_from_slice(&rest[..at]);
                    line(&self.begun);
                    self.begun.clear();
                }
            }
            rest = &rest[at + 1..];
        }
        self.begun.extend_from_slice(rest);
        if self.begun.len() > LONGEST_LINE {
            self.begun.clear();
        }
        Ok(count > 0)
    }

    /// The last line, if it has no end.
    fn rest(&mut self, mut line: impl FnMut(&[u8])) {
        if !self.begun.is_empty() {
            line(&self.begun);
            self.begun.clear();
        }
    }

    async fn was_replaced(&self) -> bool {
        let now = tokio::fs::metadata(&self.path).await;
        now.is_ok_and(|now| now.ino() != self.inode)
    }

    /// Goes on with the file that now has the name; not between the steps of another rotation.
    async fn reopen(&mut self) -> io::Result<bool> {
        match Tail::open(&self.path).await {
            Ok(opened) => *self = opened,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        }
        Ok(true)
    }

    /// Goes to the beginning of a file that was cut.
    async fn was_cut(&mut self) -> io::Result<bool> {
        let is_cut = match tokio::fs::metadata(&self.path).await {
            Ok(now) => now.ino() == self.inode && now.len() < self.position,
            // Between the steps of a rotation.
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if is_cut {
            self.go_to(0).await?;
            self.begun.clear();
        }
        Ok(is_cut)
    }
}

async fn changed(changes: Option<&Changes>) {
    match changes {
        Some(changes) => changes.next().await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::fs;
    use std::io::Write as _;
    use std::sync::Arc;

    use super::*;
    use crate::cri::ContainerState;
    use crate::pods::{ContainerRef, KnownPod, Pods};
    use crate::server::query::Query;

    struct Bench {
        dir: tempfile::TempDir,
        pods: Arc<Pods>,
    }

    impl Bench {
        fn new() -> Bench {
            Bench {
                dir: tempfile::tempdir().unwrap(),
                pods: Arc::default(),
            }
        }

        fn path(&self) -> PathBuf {
            self.dir.path().join("0.log")
        }

        fn append(&self, text: &str) {
            let mut options = fs::OpenOptions::new();
            let mut file = options.create(true).append(true).open(self.path()).unwrap();
            file.write_all(text.as_bytes()).unwrap();
        }

        fn set(&self, state: ContainerState) {
            let container = ContainerRef {
                id: "id".into(),
                state,
                attempt: 0,
                log_path: self.path(),
                created_at: 0,
            };
            self.pods.put(
                "uid",
                KnownPod {
                    pod: Arc::default(),
                    sandbox_id: None,
                    containers: [("c".to_owned(), vec![container])].into(),
                },
            );
        }

        async fn open(&self, query: &str) -> mpsc::Receiver<Bytes> {
            let writer = Writer {
                pods: Arc::clone(&self.pods),
                uid: "uid".into(),
                container: "c".into(),
                id: "id".into(),
            };
            let options = Options::read(&Query::parse(Some(query))).unwrap();
            stream(self.path(), options, writer).await.unwrap()
        }

        async fn all(&self, query: &str) -> String {
            let mut receiver = self.open(query).await;
            let mut all = Vec::new();
            while let Some(bytes) = receiver.recv().await {
                all.extend_from_slice(&bytes);
            }
            String::from_utf8(all).unwrap()
        }
    }

    async fn next(log: &mut mpsc::Receiver<Bytes>) -> Option<Bytes> {
        let next = tokio::time::timeout(Duration::from_secs(60), log.recv());
        next.await.expect("something is read within a minute")
    }

    fn line(text: &str) -> String {
        format!("2026-11-18T00:00:00Z stdout F {text}\n")
    }

    #[tokio::test]
    async fn the_last_lines_are_found_in_files_of_any_size() {
        let bench = Bench::new();
        for n in 0..5_000 {
            bench.append(&line(&format!("line {n} {}", "x".repeat(n % 90))));
        }
        let last = |text: String| {
            text.lines()
                .map(|l| l.split(' ').nth(1).unwrap().to_owned())
                .collect::<Vec<_>>()
        };
        assert_eq!(last(bench.all("").await).len(), 5_000);
        assert_eq!(
            last(bench.all("tailLines=3").await),
            ["4997", "4998", "4999"]
        );
        assert_eq!(bench.all("tailLines=0").await, "");
        assert_eq!(last(bench.all("tailLines=4000").await)[0], "1000");
        assert_eq!(last(bench.all("tailLines=9999").await)[0], "0");
        bench.append("2026-11-18T00:00:00Z stdout F no end");
        assert_eq!(bench.all("tailLines=1").await, "no end\n");
    }

    #[tokio::test]
    async fn a_log_is_followed_through_rotation_to_the_containers_end() {
        let bench = Bench::new();
        bench.append(&line("one"));
        bench.set(ContainerState::Running);
        let mut log = bench.open("follow=true").await;
        assert_eq!(next(&mut log).await.unwrap(), "one\n");
        bench.append("2026-11-18T00:00:00Z stdout F tw");
        bench.append("o\n");
        assert_eq!(next(&mut log).await.unwrap(), "two\n");
        bench.append(&line("three"));
        fs::rename(bench.path(), bench.dir.path().join("0.log.20261118-000000")).unwrap();
        bench.append(&line("four"));
        let mut rest = Vec::new();
        while rest != b"three\nfour\n" {
            rest.extend_from_slice(&next(&mut log).await.unwrap());
        }
        bench.append(&line("five"));
        bench.set(ContainerState::Exited);
        assert_eq!(next(&mut log).await.unwrap(), "five\n");
        assert_eq!(next(&mut log).await, None);
    }

    #[tokio::test]
    async fn a_file_that_was_cut_is_read_from_its_beginning() {
        let bench = Bench::new();
        bench.append(&line("long and long and long"));
        bench.set(ContainerState::Running);
        let mut log = bench.open("follow=true").await;
        next(&mut log).await.unwrap();
        fs::write(bench.path(), line("cut")).unwrap();
        assert_eq!(next(&mut log).await.unwrap(), "cut\n");
    }
}
