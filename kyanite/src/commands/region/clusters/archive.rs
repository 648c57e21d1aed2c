//! The files that come with a command: az sends a ZIP archive of them. Pure.

use std::io::Read as _;

use flate2::read::DeflateDecoder;

/// The most that files may be in all: they travel in an object of the cluster.
const LARGEST: usize = 700 * 1024;
/// The record that ends an archive; behind it is only a comment.
const END: [u8; 4] = *b"PK\x05\x06";
const ENTRY: [u8; 4] = *b"PK\x01\x02";
const END_LENGTH: usize = 22;
const ENTRY_LENGTH: usize = 46;
const LOCAL_LENGTH: usize = 30;

/// The files of an archive with their paths; directories are left out.
pub(super) fn files(archive: &[u8]) -> Result<Vec<(String, Vec<u8>)>, &'static str> {
    read(archive).ok_or("these files are no ZIP archive, or more than 700 KiB")
}

fn read(archive: &[u8]) -> Option<Vec<(String, Vec<u8>)>> {
    let end = archive.windows(END.len()).rposition(|four| four == END)?;
    let end = archive.get(end..end + END_LENGTH)?;
    let (count, mut at) = (number(end, 10, 2)?, number(end, 16, 4)?);
    let (mut files, mut room) = (Vec::new(), LARGEST);
    for _ in 0..count {
        let entry = archive.get(at..at + ENTRY_LENGTH)?;
        if entry[..4] != ENTRY {
            return None;
        }
        let (method, packed, size) = (
            number(entry, 10, 2)?,
            number(entry, 20, 4)?,
            number(entry, 24, 4)?,
        );
        let (name, more, comment) = (
            number(entry, 28, 2)?,
            number(entry, 30, 2)?,
            number(entry, 32, 2)?,
        );
        let path = archive.get(at + ENTRY_LENGTH..at + ENTRY_LENGTH + name)?;
        let path = String::from_utf8(path.to_vec()).ok()?;
        room = room.checked_sub(size)?;
        if !path.ends_with('/') {
            let packed = packed_bytes(archive, number(entry, 42, 4)?, packed)?;
            files.push((path, unpacked(packed, method, size)?));
        }
        at += ENTRY_LENGTH + name + more + comment;
    }
    Some(files)
}

/// A number of so many bytes, the smallest first.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<usize> {
    let bytes = bytes.get(at..at + length)?;
    Some(
        bytes
            .iter()
            .rev()
            .fold(0, |sum, byte| sum << 8 | usize::from(*byte)),
    )
}

fn packed_bytes(archive: &[u8], at: usize, length: usize) -> Option<&[u8]> {
    let local = archive.get(at..at + LOCAL_LENGTH)?;
    let begin = at + LOCAL_LENGTH + number(local, 26, 2)? + number(local, 28, 2)?;
    archive.get(begin..begin + length)
}

fn unpacked(packed: &[u8], method: usize, size: usize) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    match method {
        0 => bytes.extend_from_slice(packed),
        8 => {
            // What an archive says of itself need not be true.
            let mut reader = DeflateDecoder::new(packed).take(LARGEST as u64);
            reader.read_to_end(&mut bytes).ok()?;
        }
        _ => return None,
    }
    (bytes.len() == size).then_some(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;

    use super::*;

    // Python's, as az makes them: `a.txt` (stored), a directory, and `d/b.txt` in it (deflated).
    const ARCHIVE: &str = include_str!("archive.b64");

    #[test]
    fn files_come_out_as_they_went_in() {
        let archive = STANDARD.decode(ARCHIVE.trim()).unwrap();
        let files = files(&archive).unwrap();
        let expected = [
            ("a.txt".to_owned(), b"hello\n".to_vec()),
            ("d/b.txt".to_owned(), b"x".repeat(1000)),
        ];
        assert_eq!(files, expected);
    }

    #[test]
    fn what_is_no_archive_is_refused_wherever_it_ends() {
        let archive = STANDARD.decode(ARCHIVE.trim()).unwrap();
        for length in 0..archive.len() {
            assert!(files(&archive[..length]).is_err(), "{length}");
        }
        let mut larger = archive.clone();
        let at = larger.windows(4).position(|four| four == ENTRY).unwrap();
        larger[at + 24..at + 28].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(files(&larger).is_err());
    }
}
