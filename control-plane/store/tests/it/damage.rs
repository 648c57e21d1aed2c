//! Files that were cut, changed or lost: recovered as far as is safe, refused otherwise.

use std::path::{Path, PathBuf};

use store::embedded::Options;
use store::maintenance::{Report, check};
use store::{Embedded, Error, Expect, Result};
use tempfile::TempDir;

use crate::engines::{done, put};

/// A data directory of several segments, closed in order.
struct Sample {
    dir: TempDir,
    /// The segments, oldest first.
    segments: Vec<PathBuf>,
    /// The lengths the last segment had after each of its writes.
    ends: Vec<usize>,
    /// The revision before the last segment's first write.
    base: u64,
    /// The manifest that was there when the last write had ended.
    manifest: Vec<u8>,
}

const WRITES: u64 = 11;

/// Space is reserved byte by byte, so a segment's length says where its last frame ends.
fn exact() -> Options {
    Options {
        segment_bytes: 300,
        reserve_bytes: 1,
        ..Options::default()
    }
}

impl Sample {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), exact()).unwrap();
        let (mut ends, mut base, mut count) = (Vec::new(), 0, 0);
        for number in 1..=WRITES {
            let key = format!("/{number:02}");
            let value = vec![number as u8; number as usize];
            let revision = done(&*store, &key, Expect::Absent, put(value)).await;
            let segments = segments(dir.path());
            if segments.len() > count {
                (count, base) = (segments.len(), revision - 1);
                ends.clear();
            }
            ends.push(length(segments.last().unwrap()));
        }
        // As a crash leaves it: closing would note the newest revision, and then nothing could be cut off unnoticed.
        let manifest = std::fs::read(dir.path().join("manifest")).unwrap();
        store.close();
        std::fs::write(dir.path().join("manifest"), &manifest).unwrap();
        let segments = segments(dir.path());
        assert!(
            segments.len() > 2 && ends.len() > 2,
            "{segments:?} {ends:?}"
        );
        assert_eq!(length(segments.last().unwrap()), *ends.last().unwrap());
        Self {
            dir,
            segments,
            ends,
            base,
            manifest,
        }
    }

    fn put_manifest_back(&self) {
        std::fs::write(self.dir.path().join("manifest"), &self.manifest).unwrap();
    }

    fn last(&self) -> &Path {
        self.segments.last().unwrap()
    }

    /// The newest revision whose frame ends at or before an offset of the last segment.
    fn revision_before(&self, offset: usize) -> u64 {
        self.base + self.ends.iter().filter(|&&end| end <= offset).count() as u64
    }

    /// The store after a file was replaced; the file is put back afterwards.
    fn with(&self, file: &Path, bytes: &[u8]) -> Result<Report> {
        let sound = std::fs::read(file).unwrap();
        std::fs::write(file, bytes).unwrap();
        let report = check(self.dir.path());
        std::fs::write(file, sound).unwrap();
        report
    }
}

fn length(path: &Path) -> usize {
    std::fs::metadata(path).unwrap().len() as usize
}

fn segments(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension() == Some("seg".as_ref()));
    paths.sort();
    paths
}

/// The damage is refused, and the message names the file and an offset.
fn assert_corrupt(report: Result<Report>, named: &Path) {
    match report {
        Err(Error::Corrupt { file, cause }) => {
            assert_eq!(file, named.display().to_string(), "{cause}");
            assert!(cause.contains("offset"), "{cause}");
        }
        other => panic!("{} taken for sound: {other:?}", named.display()),
    }
}

#[tokio::test]
async fn the_last_segment_cut_at_any_offset_gives_the_whole_records_before() {
    let sample = Sample::new().await;
    let sound = std::fs::read(sample.last()).unwrap();
    for cut in 0..sound.len() {
        for zeros in [0, 100] {
            let mut bytes = sound[..cut].to_vec();
            bytes.resize(cut + zeros, 0);
            // Zeros may restore what was cut off.
            let same = bytes.iter().zip(&sound).take_while(|(a, b)| a == b).count();
            match sample.with(sample.last(), &bytes) {
                Ok(report) => assert_eq!(report.revision, sample.revision_before(same), "at {cut}"),
                // A segment gets its header, on disk, before it is noted: one without cannot come from a crash.
                Err(error) => {
                    assert!(cut < 32, "at {cut}: {error}");
                    assert_corrupt(Err(error), sample.last());
                }
            }
        }
    }
}

#[tokio::test]
async fn the_last_segment_changed_at_any_offset_is_cut_there_or_refused() {
    let sample = Sample::new().await;
    let sound = std::fs::read(sample.last()).unwrap();
    let newest = sample.base + sample.ends.len() as u64;
    for at in 0..sound.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut bytes = sound.clone();
            bytes[at] ^= flip;
            let before = sample.revision_before(at);
            match sample.with(sample.last(), &bytes) {
                // As if the last write had been interrupted.
                Ok(report) => {
                    assert_eq!(
                        (report.revision, before),
                        (newest - 1, newest - 1),
                        "at {at}"
                    );
                    assert!(report.torn_tail.unwrap().contains("offset"));
                }
                refused => {
                    assert!(before < newest - 1, "at {at}");
                    assert_corrupt(refused, sample.last());
                }
            }
        }
    }
}

#[tokio::test]
async fn garbage_behind_the_last_record_is_cut_off() {
    let sample = Sample::new().await;
    let mut bytes = std::fs::read(sample.last()).unwrap();
    for length in [1, 8, 31, 32, 33, 200] {
        bytes.resize(bytes.len() + length, 0xab);
        let report = sample.with(sample.last(), &bytes).unwrap();
        assert_eq!(report.revision, 1 + WRITES);
        assert!(report.torn_tail.is_some());
    }
}

#[tokio::test]
async fn an_older_segment_is_never_cut() {
    let sample = Sample::new().await;
    let file = &sample.segments[1];
    let sound = std::fs::read(file).unwrap();
    for at in 0..sound.len() {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        assert_corrupt(sample.with(file, &bytes), file);
        assert_corrupt(sample.with(file, &sound[..at]), file);
    }
}

#[tokio::test]
async fn a_missing_or_empty_segment_is_refused_by_its_name_wherever_it_was() {
    let sample = Sample::new().await;
    for lost in &sample.segments {
        for zeros in [0, 20, 4096] {
            assert_corrupt(sample.with(lost, &vec![0; zeros]), lost);
        }
        let sound = std::fs::read(lost).unwrap();
        std::fs::remove_file(lost).unwrap();
        let refused = check(sample.dir.path());
        let opened = Embedded::open(sample.dir.path(), exact());
        std::fs::write(lost, sound).unwrap();
        assert!(matches!(refused, Err(Error::Corrupt { .. })), "{refused:?}");
        assert!(matches!(opened, Err(Error::Corrupt { .. })), "{opened:?}");
        if lost == sample.last() {
            assert_corrupt(refused, lost);
        }
    }
    check(sample.dir.path()).unwrap();
}

#[tokio::test]
async fn what_was_there_when_the_store_was_closed_cannot_be_cut_off_unnoticed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Embedded::open(dir.path(), exact()).unwrap();
    for key in ["/a", "/b", "/c"] {
        done(&*store, key, Expect::Absent, put("v")).await;
    }
    store.close();
    let file = segments(dir.path()).pop().unwrap();
    let sound = std::fs::read(&file).unwrap();
    for cut in 0..sound.len() {
        std::fs::write(&file, &sound[..cut]).unwrap();
        assert_corrupt(check(dir.path()), &file);
    }
    std::fs::write(&file, &sound).unwrap();
    assert_eq!(check(dir.path()).unwrap().revision, 4);
}

#[tokio::test]
async fn a_directory_from_before_there_were_manifests_opens_and_gets_one() {
    let sample = Sample::new().await;
    let manifest = sample.dir.path().join("manifest");
    std::fs::remove_file(&manifest).unwrap();
    assert_eq!(check(sample.dir.path()).unwrap().revision, 1 + WRITES);
    drop(Embedded::open(sample.dir.path(), exact()).unwrap());
    assert!(manifest.exists());
    assert_corrupt(sample.with(sample.last(), &[]), sample.last());
}

#[tokio::test]
async fn a_store_with_a_torn_tail_opens_and_goes_on() {
    let sample = Sample::new().await;
    let sound = std::fs::read(sample.last()).unwrap();
    for cut in (32..sound.len()).step_by(13) {
        std::fs::write(sample.last(), &sound[..cut]).unwrap();
        sample.put_manifest_back();
        let store = Embedded::open(sample.dir.path(), exact()).unwrap();
        let before = store.revision_now();
        assert_eq!(before, sample.revision_before(cut));
        let written = done(&*store, "/new", Expect::Absent, put("v")).await;
        assert_eq!(written, before + 1);
        drop(store);
        let report = check(sample.dir.path()).unwrap();
        assert_eq!((report.revision, report.torn_tail), (written, None));
        for made in segments(sample.dir.path()) {
            if !sample.segments.contains(&made) {
                std::fs::remove_file(made).unwrap();
            }
        }
    }
}

#[tokio::test]
async fn garbage_is_gone_after_the_next_write() {
    let sample = Sample::new().await;
    let mut bytes = std::fs::read(sample.last()).unwrap();
    bytes.resize(bytes.len() + 5000, 0xab);
    std::fs::write(sample.last(), bytes).unwrap();
    let store = Embedded::open(sample.dir.path(), Options::default()).unwrap();
    let written = done(&*store, "/new", Expect::Absent, put("v")).await;
    drop(store);
    let report = check(sample.dir.path()).unwrap();
    assert_eq!((report.revision, report.torn_tail), (written, None));
}

#[tokio::test]
async fn opening_refuses_what_a_check_refuses() {
    let sample = Sample::new().await;
    let mut bytes = std::fs::read(&sample.segments[0]).unwrap();
    bytes[70] ^= 1;
    std::fs::write(&sample.segments[0], bytes).unwrap();
    let opened = Embedded::open(sample.dir.path(), exact());
    assert_corrupt(
        opened.map(|_| unreachable!("opened a damaged store")),
        &sample.segments[0],
    );
}
