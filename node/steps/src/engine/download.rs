//! Fetches a file: from where an earlier attempt broke off, from the first place that has it, verified by its digest.

use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use super::compare::file_sha256;
use super::run::{Event, Watcher};
use super::step::{Failure, Scene};
use crate::host::{Body, NetworkError, Request, without_query};

/// How often somebody who watches is told.
const TELL_EVERY: Duration = Duration::from_millis(200);

/// A file on its way.
pub(super) struct Download<'a> {
    pub(super) step: &'a str,
    pub(super) scene: &'a Scene<'a>,
    pub(super) watcher: &'a dyn Watcher,
    pub(super) draft: &'a Path,
    pub(super) sha256: &'a str,
}

impl Download<'_> {
    /// Fills the draft. What a connection that broke off has brought stays for the next attempt; what has the wrong digest does not.
    pub(super) fn fetch(&self, urls: &[String], output: &mut fs::File) -> Result<(), Failure> {
        let mut last = Failure::permanent("no place to fetch it from", "name one");
        for url in urls {
            match self.fetch_one(url, output) {
                Ok(()) => return Ok(()),
                Err(failure) => last = failure,
            }
        }
        let is_empty = output.metadata().is_ok_and(|found| found.len() == 0);
        if is_empty {
            // Nothing to go on with.
            let _ = self.scene.host.files().remove(self.draft);
        }
        Err(last)
    }

    fn fetch_one(&self, url: &str, output: &mut fs::File) -> Result<(), Failure> {
        let failed = |e: io::Error| Failure::file("write", self.draft, &e);
        let kept = output.metadata().map_err(failed)?.len();
        let outcome = self.ask(url, kept, output);
        let shown = without_query(url);
        match outcome {
            Ok(200 | 206) => {}
            // A server that has nothing beyond what is kept: it is whole, or of something else.
            Ok(416) if kept > 0 => {}
            Ok(status) => {
                return Err(Failure::new(
                    format!("{shown} answers {status}"),
                    "check that the URL names a file that exists and may be read from here",
                ));
            }
            Err(error) => return Err(error.into()),
        }
        self.verify(shown, output)
    }

    fn ask(&self, url: &str, kept: u64, output: &mut fs::File) -> Result<u16, NetworkError> {
        let mut request = Request::get(url).at_most(self.scene.remaining());
        if kept > 0 {
            request = request.with_header("Range", &format!("bytes={kept}-"));
        }
        let mut incoming = Incoming {
            download: self,
            output,
            start: self.scene.host.elapsed(),
            kept,
            got: 0,
            total: None,
            told: None,
        };
        let response = self
            .scene
            .host
            .http(&request, &mut incoming, self.scene.stop)?;
        incoming.tell();
        Ok(response.status)
    }

    fn verify(&self, url: &str, output: &fs::File) -> Result<(), Failure> {
        let failed = |e: io::Error| Failure::file("read", self.draft, &e);
        let found = file_sha256(self.scene.host.files(), self.draft).map_err(failed)?;
        if found.eq_ignore_ascii_case(self.sha256) {
            return Ok(());
        }
        // Of no use to anybody; the next attempt begins anew.
        output.set_len(0).map_err(failed)?;
        Err(Failure::new(
            format!("{url} has SHA-256 {found}, not {}", self.sha256),
            "check the digest in the configuration, and whether a proxy answers in the server's place",
        ))
    }
}

/// Bytes as they come.
struct Incoming<'a> {
    download: &'a Download<'a>,
    output: &'a mut fs::File,
    start: Duration,
    kept: u64,
    got: u64,
    total: Option<u64>,
    told: Option<Duration>,
}

impl Incoming<'_> {
    fn tell(&mut self) {
        let now = self.download.scene.host.elapsed();
        self.told = Some(now);
        self.download.watcher.event(&Event::Fetching {
            step: self.download.step,
            bytes: self.kept + self.got,
            total: self.total,
            fresh: self.got,
            time: now.saturating_sub(self.start),
        });
    }
}

impl Write for Incoming<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.output.write(bytes)?;
        self.got += count as u64;
        let now = self.download.scene.host.elapsed();
        if self
            .told
            .is_none_or(|told| now.saturating_sub(told) >= TELL_EVERY)
        {
            self.tell();
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.output.flush()
    }
}

impl Body for Incoming<'_> {
    /// A part goes on where the draft ends; the whole begins it anew.
    fn begin(&mut self, status: u16, length: Option<u64>) -> io::Result<bool> {
        if status == 200 {
            self.kept = 0;
            self.output.set_len(0)?;
            io::Seek::seek(self.output, io::SeekFrom::Start(0))?;
        }
        self.total = length.map(|length| self.kept + length);
        Ok(matches!(status, 200 | 206))
    }
}
