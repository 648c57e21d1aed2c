//! Tar archives: what is needed to write layers and to look into archives. Everything belongs to root and is of 1970,
//! so that content alone decides about digests.

/// What an entry is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// A file and what is in it.
    File(Vec<u8>),
    /// A directory.
    Directory,
    /// A link that names its target.
    Symlink(String),
}

/// An entry of an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where, without a slash at the beginning.
    pub path: String,
    /// Permissions.
    pub mode: u32,
    /// What.
    pub kind: Kind,
}

const BLOCK: usize = 512;
/// The most that names in a header may have.
const NAME: usize = 100;

/// Writes an archive.
pub fn write(entries: &[Entry]) -> Vec<u8> {
    let mut out = Vec::new();
    for entry in entries {
        append(&mut out, entry);
    }
    out.resize(out.len() + 2 * BLOCK, 0);
    out
}

fn append(out: &mut Vec<u8>, entry: &Entry) {
    let (flag, content, target): (u8, &[u8], &str) = match &entry.kind {
        Kind::File(content) => (b'0', content, ""),
        Kind::Directory => (b'5', &[], ""),
        Kind::Symlink(target) => (b'2', &[], target),
    };
    let slash = if entry.kind == Kind::Directory {
        "/"
    } else {
        ""
    };
    let path = format!("{}{slash}", entry.path);
    // Longer names stand in an entry of their own before (POSIX.1-2001).
    let mut long = String::new();
    for (key, value) in [("path", path.as_str()), ("linkpath", target)] {
        if value.len() > NAME {
            long += &record(key, value);
        }
    }
    if !long.is_empty() {
        header(out, "long-names", 0o644, long.len(), b'x', "");
        body(out, long.as_bytes());
    }
    header(out, &path, entry.mode, content.len(), flag, target);
    body(out, content);
}

// "length key=value\n", where the length counts itself.
fn record(key: &str, value: &str) -> String {
    let rest = format!(" {key}={value}\n");
    let mut length = rest.len() + 1;
    while length.to_string().len() + rest.len() != length {
        length += 1;
    }
    format!("{length}{rest}")
}

fn header(out: &mut Vec<u8>, path: &str, mode: u32, size: usize, flag: u8, target: &str) {
    let mut block = [0_u8; BLOCK];
    put(&mut block, 0, NAME, path.as_bytes());
    put(
        &mut block,
        100,
        8,
        format!("{:07o}", mode & 0o7777).as_bytes(),
    );
    put(&mut block, 108, 8, b"0000000");
    put(&mut block, 116, 8, b"0000000");
    put(&mut block, 124, 12, format!("{size:011o}").as_bytes());
    put(&mut block, 136, 12, b"00000000000");
    put(&mut block, 148, 8, b"        ");
    block[156] = flag;
    put(&mut block, 157, NAME, target.as_bytes());
    put(&mut block, 257, 8, b"ustar\x0000");
    put(&mut block, 265, 32, b"root");
    put(&mut block, 297, 32, b"root");
    let sum: u32 = block.iter().copied().map(u32::from).sum();
    put(&mut block, 148, 8, format!("{sum:06o}\0 ").as_bytes());
    out.extend(block);
}

fn put(block: &mut [u8], at: usize, most: usize, bytes: &[u8]) {
    let length = bytes.len().min(most);
    block[at..at + length].copy_from_slice(&bytes[..length]);
}

fn body(out: &mut Vec<u8>, content: &[u8]) {
    out.extend(content);
    out.resize(out.len().next_multiple_of(BLOCK), 0);
}

/// Reads an archive; what it does not know, it leaves out, and a broken archive ends where it breaks.
pub fn read(mut bytes: &[u8]) -> Vec<Entry> {
    let mut entries = Vec::new();
    let (mut path, mut target) = (None, None);
    while let Some((header, rest)) = bytes.split_first_chunk::<BLOCK>() {
        if header.iter().all(|byte| *byte == 0) {
            break;
        }
        let size = octal(&header[124..136]);
        let Some(content) = rest.get(..size) else {
            break;
        };
        bytes = rest.get(size.next_multiple_of(BLOCK)..).unwrap_or_default();
        if header[156] == b'x' {
            path = extended(content, "path");
            target = extended(content, "linkpath");
            continue;
        }
        let named = |at: usize| text(&header[at..at + NAME]);
        let kind = match header[156] {
            b'0' | 0 => Some(Kind::File(content.to_vec())),
            b'5' => Some(Kind::Directory),
            b'2' => Some(Kind::Symlink(target.take().unwrap_or_else(|| named(157)))),
            _ => None,
        };
        let name = path.take().unwrap_or_else(|| full_name(header));
        entries.extend(kind.map(|kind| Entry {
            path: name.trim_end_matches('/').to_owned(),
            mode: u32::try_from(octal(&header[100..108])).unwrap_or_default(),
            kind,
        }));
    }
    entries
}

// Others put the beginning of long names into a prefix.
fn full_name(header: &[u8; BLOCK]) -> String {
    let (prefix, name) = (text(&header[345..500]), text(&header[..NAME]));
    if prefix.is_empty() || &header[257..262] != b"ustar" {
        return name;
    }
    format!("{prefix}/{name}")
}

fn octal(bytes: &[u8]) -> usize {
    let digits = text(bytes);
    usize::from_str_radix(digits.trim(), 8).unwrap_or_default()
}

fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

fn extended(content: &[u8], key: &str) -> Option<String> {
    let content = String::from_utf8_lossy(content);
    let mut lines = content.lines();
    lines.find_map(|line| {
        let (found, value) = line.split_once(' ')?.1.split_once('=')?;
        (found == key).then(|| value.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_record_counts_itself() {
        for length in 80..120 {
            let record = record("path", &"x".repeat(length));
            let counted = record.split(' ').next().expect("a number");
            assert_eq!(counted.parse(), Ok(record.len()));
        }
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(
            name in "[a-z]{1,20}(/[a-z]{1,60}){0,4}", target in "[a-z/]{1,150}",
            content in proptest::collection::vec(any::<u8>(), 0..1500), mode in 0_u32..0o7777,
        ) {
            let entries: Vec<Entry> = [Kind::Directory, Kind::File(content), Kind::Symlink(target)]
                .into_iter()
                .map(|kind| Entry { path: name.clone(), mode, kind })
                .collect();
            prop_assert_eq!(read(&write(&entries)), entries);
        }

        #[test]
        fn anything_can_be_looked_into(bytes in proptest::collection::vec(any::<u8>(), 0..3000)) {
            let _ = read(&bytes);
        }
    }
}
