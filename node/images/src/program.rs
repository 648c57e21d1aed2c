//! What a program needs to run: the loader and the libraries that its ELF file names, and those that they name.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Why it cannot be told what a program needs.
#[derive(Debug, thiserror::Error)]
pub enum ProgramError {
    /// It is not a program for Linux that we can read.
    #[error("`{0}` is not a 64-bit ELF program")]
    NotElf(String),
    /// A library is not on this machine.
    #[error(
        "`{program}` needs `{library}`, which is not on this machine; hint: install it, or link statically"
    )]
    Missing {
        /// Who needs it.
        program: String,
        /// What is needed.
        library: String,
    },
}

/// What an ELF file says about itself.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Program {
    /// The loader; static programs have none.
    pub interpreter: Option<String>,
    /// Names of libraries.
    pub needed: Vec<String>,
    /// Where it wants them looked for first.
    pub search: Vec<String>,
}

const LOAD: u32 = 1;
const DYNAMIC: u32 = 2;
const INTERPRETER: u32 = 3;
const NEEDED: u64 = 1;
const STRING_TABLE: u64 = 5;
const RPATH: u64 = 15;
const RUNPATH: u64 = 29;

struct Segment {
    kind: u32,
    offset: u64,
    address: u64,
    size: u64,
}

impl Program {
    /// Reads the headers of an ELF file; nothing when it is none.
    pub fn read(bytes: &[u8]) -> Option<Program> {
        let little_64 = bytes.starts_with(b"\x7fELF\x02\x01");
        if !little_64 {
            return None;
        }
        let segments = segments(bytes)?;
        let content = |segment: &Segment| slice(bytes, segment.offset, segment.size);
        let of = |kind| segments.iter().find(|segment| segment.kind == kind);
        let interpreter = of(INTERPRETER).and_then(content).map(text_at_start);
        let dynamic = of(DYNAMIC).and_then(content).unwrap_or_default();
        let tags: Vec<(u64, u64)> = dynamic
            .chunks_exact(16)
            .map_while(|pair| Some((long(pair, 0)?, long(pair, 8)?)))
            .take_while(|(tag, _)| *tag != 0)
            .collect();
        let strings = tags.iter().find(|(tag, _)| *tag == STRING_TABLE);
        let strings = strings.and_then(|(_, address)| in_file(&segments, *address));
        let string = |offset: u64| {
            let start = usize::try_from(strings? + offset).ok()?;
            Some(text_at_start(bytes.get(start..)?))
        };
        let values = |wanted: &[u64]| -> Vec<String> {
            let of_kind = tags.iter().filter(|(tag, _)| wanted.contains(tag));
            of_kind.filter_map(|(_, value)| string(*value)).collect()
        };
        let search = values(&[RPATH, RUNPATH]);
        Some(Program {
            interpreter,
            needed: values(&[NEEDED]),
            search: search
                .iter()
                .flat_map(|s| s.split(':'))
                .map(str::to_owned)
                .collect(),
        })
    }
}

fn segments(bytes: &[u8]) -> Option<Vec<Segment>> {
    let table = usize::try_from(long(bytes, 32)?).ok()?;
    let (size, count) = (short(bytes, 54)?, short(bytes, 56)?);
    (0..usize::from(count))
        .map(|n| {
            let entry = bytes.get(table + n * usize::from(size)..)?;
            Some(Segment {
                kind: u32::from_le_bytes(*entry.first_chunk()?),
                offset: long(entry, 8)?,
                address: long(entry, 16)?,
                size: long(entry, 32)?,
            })
        })
        .collect()
}

fn in_file(segments: &[Segment], address: u64) -> Option<u64> {
    let mut loaded = segments.iter().filter(|segment| segment.kind == LOAD);
    let inside = |s: &&Segment| (s.address..s.address.saturating_add(s.size)).contains(&address);
    loaded.find(inside).map(|s| address - s.address + s.offset)
}

fn slice(bytes: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    bytes.get(start..start.checked_add(usize::try_from(size).ok()?)?)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn text_at_start(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0);
    String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned()
}

/// Where loaders look without being told, in the order of the distributions we know.
const USUAL: [&str; 9] = [
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib",
    "/usr/local/lib",
];

/// The files that a program needs besides itself: their paths in an image, and what is in them.
pub fn dependencies(
    file: &Path,
    content: &[u8],
    read: impl Fn(&Path) -> Option<Vec<u8>>,
) -> Result<BTreeMap<String, Vec<u8>>, ProgramError> {
    let name = file.display().to_string();
    let program = Program::read(content).ok_or_else(|| ProgramError::NotElf(name.clone()))?;
    let mut found = BTreeMap::new();
    if let Some(loader) = &program.interpreter {
        let missing = || ProgramError::Missing {
            program: name.clone(),
            library: loader.clone(),
        };
        let content = read(Path::new(loader)).ok_or_else(missing)?;
        found.insert(loader.clone(), content);
    }
    let mut waiting = vec![(file.to_owned(), program)];
    let mut seen: Vec<String> = Vec::new();
    while let Some((asker, program)) = waiting.pop() {
        for library in &program.needed {
            if seen.contains(library) {
                continue;
            }
            seen.push(library.clone());
            let (path, content) =
                locate(&asker, &program, library, &read).ok_or_else(|| ProgramError::Missing {
                    program: asker.display().to_string(),
                    library: library.clone(),
                })?;
            waiting.extend(Program::read(&content).map(|next| (path.clone(), next)));
            found.insert(path.display().to_string(), content);
        }
    }
    Ok(found)
}

fn locate(
    asker: &Path,
    program: &Program,
    library: &str,
    read: impl Fn(&Path) -> Option<Vec<u8>>,
) -> Option<(PathBuf, Vec<u8>)> {
    let origin = asker
        .parent()
        .unwrap_or(Path::new("/"))
        .display()
        .to_string();
    let own = program.search.iter().map(|directory| {
        directory
            .replace("$ORIGIN", &origin)
            .replace("${ORIGIN}", &origin)
    });
    let usual = USUAL.iter().map(|directory| (*directory).to_owned());
    own.chain(usual).find_map(|directory| {
        let path = Path::new(&directory).join(library);
        Some((path.clone(), read(&path)?))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_program_is_said_to_be_none() {
        for bytes in [&b"#!/bin/sh"[..], b"\x7fELF\x02\x01", b""] {
            assert_eq!(Program::read(bytes), None);
        }
        let error = dependencies(Path::new("/x"), b"text", |_| None).expect_err("no program");
        assert!(error.to_string().contains("/x"));
    }

    #[test]
    fn a_library_that_is_not_here_is_named() {
        let own = std::env::current_exe().expect("this test");
        let content = std::fs::read(&own).expect("a program");
        let program = Program::read(&content).expect("ELF");
        if program.interpreter.is_some() {
            let error = dependencies(&own, &content, |_| None).expect_err("nothing is here");
            assert!(matches!(error, ProgramError::Missing { .. }));
        }
    }
}
