//! Properties of the frame codec and of the scan over a segment.
#![allow(clippy::unwrap_used, reason = "tests")]

use proptest::prelude::*;

use super::frame::{self, Builder, Decoded, Record};
use super::segment::{self, End, Header};

#[derive(Debug, Clone)]
enum Owned {
    Put(String, Vec<u8>, u64),
    Delete(String),
    Compact(u64),
}

impl Owned {
    fn as_record(&self) -> Record<'_> {
        match self {
            Self::Put(key, value, deadline) => Record::Put {
                key,
                value,
                deadline: *deadline,
            },
            Self::Delete(key) => Record::Delete { key },
            Self::Compact(revision) => Record::Compact {
                revision: *revision,
            },
        }
    }
}

fn record() -> impl Strategy<Value = Owned> {
    let key = proptest::collection::vec(any::<char>(), 0..12)
        .prop_map(|chars| chars.into_iter().collect::<String>());
    let value = proptest::collection::vec(any::<u8>(), 0..64);
    prop_oneof![
        (key.clone(), value, any::<u64>()).prop_map(|(k, v, d)| Owned::Put(k, v, d)),
        key.prop_map(Owned::Delete),
        any::<u64>().prop_map(Owned::Compact),
    ]
}

fn records() -> impl Strategy<Value = Vec<Owned>> {
    proptest::collection::vec(record(), 1..6)
}

fn frame(sequence: u64, nonce: u32, records: &[Owned]) -> Vec<u8> {
    let mut builder = Builder::new(sequence * 100);
    for record in records {
        builder.push(record.as_record());
    }
    builder.finish(sequence, nonce).to_vec()
}

fn segment_of(header: &Header, frames: &[Vec<Owned>]) -> (Vec<u8>, Vec<usize>) {
    let mut bytes = header.encode().to_vec();
    let mut starts = Vec::new();
    for (sequence, records) in (header.first_sequence..).zip(frames) {
        starts.push(bytes.len());
        bytes.extend(frame(sequence, header.nonce, records));
    }
    (bytes, starts)
}

/// How many frames a scan finds, and how it ends.
fn scan(bytes: &[u8], header: &Header) -> (usize, End) {
    let mut count = 0;
    let visit = |_, _| {
        count += 1;
        Ok::<(), ()>(())
    };
    let (_, end) = segment::scan(bytes, header, u64::MAX, visit).unwrap();
    (count, end)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_frame_reads_back_as_it_was_written(
        records in records(), sequence in 0..1u64 << 50, nonce: u32, behind: Vec<u8>,
    ) {
        let mut bytes = frame(sequence, nonce, &records);
        let len = bytes.len();
        bytes.extend(behind);
        let Decoded::Frame(read) = frame::decode(&bytes, nonce) else {
            panic!("not read as a frame");
        };
        prop_assert_eq!((read.sequence, read.first_revision), (sequence, sequence * 100));
        prop_assert_eq!(read.len, len);
        let back: Vec<_> = read.records().map(Result::unwrap).collect();
        let written: Vec<_> = records.iter().map(Owned::as_record).collect();
        prop_assert_eq!(back, written);
    }

    #[test]
    fn finishing_twice_moves_the_frame_and_changes_nothing_else(records in records(), nonce: u32) {
        let mut builder = Builder::new(100);
        for record in &records {
            builder.push(record.as_record());
        }
        builder.finish(9, !nonce);
        let again = builder.finish(1, nonce).to_vec();
        prop_assert_eq!(again, frame(1, nonce, &records));
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_are_no_frame(bytes: Vec<u8>, nonce: u32) {
        prop_assert!(!matches!(frame::decode(&bytes, nonce), Decoded::Frame(_)));
        frame::find(&bytes, 0, nonce);
        Header::decode(&bytes);
    }

    #[test]
    fn a_right_checksum_over_nonsense_is_an_error_and_no_panic(payload: Vec<u8>, nonce: u32) {
        let mut builder = Builder::new(1);
        builder.push_raw(&payload);
        let bytes = builder.finish(1, nonce).to_vec();
        let Decoded::Frame(read) = frame::decode(&bytes, nonce) else {
            panic!("not read as a frame");
        };
        // Bounded, and nothing after an error.
        let records: Vec<_> = read.records().collect();
        prop_assert!(records.len() <= payload.len());
        prop_assert!(records.iter().rev().skip(1).all(Result::is_ok));
    }

    #[test]
    fn any_changed_byte_is_noticed(
        frames in proptest::collection::vec(records(), 1..4), at: prop::sample::Index, flip in 1..=255u8,
    ) {
        let header = Header::new(1, 2);
        let (mut bytes, starts) = segment_of(&header, &frames);
        let at = segment::HEADER + at.index(bytes.len() - segment::HEADER);
        bytes[at] ^= flip;
        let hit = starts.partition_point(|&start| start <= at) - 1;
        let (found, end) = scan(&bytes, &header);
        prop_assert_eq!(found, hit);
        let last = hit + 1 == frames.len();
        prop_assert_eq!(matches!(end, End::Torn(_)), last);
        prop_assert_eq!(matches!(end, End::Damaged { .. }), !last);
    }

    #[test]
    fn a_frame_inside_a_value_is_not_taken_for_one(records in records(), cut in 1..40usize) {
        let header = Header::new(1, 2);
        let inner = frame(2, header.nonce.wrapping_add(1), &records);
        // Whatever the alignment inside the value is, one of these copies is aligned.
        let value: Vec<u8> = (0..8).flat_map(|shift| [vec![0; shift], inner.clone()].concat()).collect();
        let (bytes, _) = segment_of(&header, &[vec![Owned::Put("k".into(), value, 0)]]);
        let (found, end) = scan(&bytes[..bytes.len() - cut.max(8)], &header);
        prop_assert_eq!(found, 0);
        prop_assert!(matches!(end, End::Torn(_)), "{:?}", end);
    }
}

#[test]
fn zeros_behind_the_last_frame_are_the_end() {
    let header = Header::new(1, 2);
    let (mut bytes, _) = segment_of(&header, &[vec![Owned::Delete("a".into())]]);
    for zeros in [0, 1, 7, 31, 32, 4096] {
        bytes.resize(bytes.len() + zeros, 0);
        assert_eq!(scan(&bytes, &header), (1, End::Blank), "{zeros}");
    }
}

#[test]
fn a_blank_stretch_before_a_frame_is_damage() {
    let header = Header::new(1, 2);
    let one = vec![Owned::Delete("a".into())];
    let (mut bytes, starts) = segment_of(&header, &[one.clone(), one.clone(), one]);
    bytes[starts[1]..starts[2]].fill(0);
    let (found, end) = scan(&bytes, &header);
    assert_eq!(found, 1);
    assert!(matches!(end, End::Damaged { next, .. } if next == starts[2]));
}
