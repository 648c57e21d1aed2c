//! What was there before, on disk before anything changes: the memory of undo and of interrupted runs.
//!
//! One file of JSON lines, only ever appended to. A line says what a thing was like before the engine first touched it,
//! or that a command ran to its end with certain inputs (a stamp; the last one counts). The contents of replaced files lie
//! beside it, one file each. A last line that was cut off by a crash was never acted upon, and is dropped.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};

use super::step::Failure;
use crate::host::{Command, Files, Kind, Owner, draft_of, part_of};

/// The state of one thing before the engine first touched it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Before {
    /// Something with a path.
    Path { path: PathBuf, was: Was },
    /// A value of the running kernel.
    Setting { path: PathBuf, value: String },
    /// A command that is about to run.
    Command { name: String, undo: Option<Command> },
    /// A unit.
    Unit {
        name: String,
        enabled: bool,
        active: bool,
    },
}

/// What was at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Was {
    Absent,
    Directory {
        mode: u32,
        owner: Owner,
    },
    /// The content is in the journal's directory, under this number.
    File {
        mode: u32,
        owner: Owner,
        copy: u64,
    },
    Link {
        target: PathBuf,
    },
}

impl Before {
    /// What it is about: its first state is the one that counts.
    fn key(&self, step: &str) -> String {
        match self {
            Before::Path { path, .. } | Before::Setting { path, .. } => path.display().to_string(),
            Before::Command { name, .. } => format!("command {step} {name}"),
            Before::Unit { name, .. } => format!("unit {name}"),
        }
    }
}

#[derive(Debug, Serialize, Deserialize)]
enum Line {
    Before { step: String, before: Before },
    Stamp { name: String, value: String },
}

/// The journal of one state directory.
pub(super) struct Journal<'a> {
    files: &'a Files,
    directory: PathBuf,
    memory: Mutex<Memory>,
}

#[derive(Default)]
struct Memory {
    befores: Vec<Before>,
    keys: BTreeSet<String>,
    stamps: BTreeMap<String, String>,
    copies: u64,
}

impl Memory {
    fn learn(&mut self, line: Line) {
        match line {
            Line::Stamp { name, value } => {
                self.stamps.insert(name, value);
            }
            Line::Before { step, before } => {
                if let Before::Path {
                    was: Was::File { copy, .. },
                    ..
                } = &before
                {
                    self.copies = self.copies.max(*copy);
                }
                if self.keys.insert(before.key(&step)) {
                    self.befores.push(before);
                }
            }
        }
    }
}

impl<'a> Journal<'a> {
    /// Reads what earlier runs wrote. Nothing is made before there is something to write.
    pub(super) fn open(files: &'a Files, directory: &Path) -> Result<Journal<'a>, Failure> {
        let journal = Journal {
            files,
            directory: directory.to_owned(),
            memory: Mutex::default(),
        };
        let path = journal.path();
        let text = files
            .text(&path)
            .map_err(|e| Failure::file("read", &path, &e))?
            .unwrap_or_default();
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        for line in text[..whole].lines() {
            let line = serde_json::from_str(line).map_err(|e| damaged(&path, &e))?;
            journal.memory().learn(line);
        }
        if whole < text.len() {
            files
                .replace(&path, &text.as_bytes()[..whole], 0o600)
                .map_err(|e| Failure::file("repair", &path, &e))?;
        }
        Ok(journal)
    }

    fn path(&self) -> PathBuf {
        self.directory.join("journal")
    }

    fn copy_path(&self, number: u64) -> PathBuf {
        self.directory.join("before").join(number.to_string())
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes down what things are like before they change. What is known already is the older truth and stays.
    pub(super) fn record(&self, step: &str, befores: Vec<Before>) -> Result<(), Failure> {
        let mut memory = self.memory();
        let mut text = Vec::new();
        let mut lines = Vec::new();
        for mut before in befores {
            if memory.keys.contains(&before.key(step)) {
                continue;
            }
            self.keep_content(&mut memory, &mut before)?;
            let line = Line::Before {
                step: step.to_owned(),
                before,
            };
            push_line(&mut text, &line);
            lines.push(line);
        }
        self.append(&text)?;
        for line in lines {
            memory.learn(line);
        }
        Ok(())
    }

    /// A file's content is copied before the line that names the copy is written.
    fn keep_content(&self, memory: &mut Memory, before: &mut Before) -> Result<(), Failure> {
        let Before::Path {
            path,
            was: Was::File { copy, .. },
        } = before
        else {
            return Ok(());
        };
        memory.copies += 1;
        *copy = memory.copies;
        let target = self.copy_path(*copy);
        let copied = self
            .files
            .ensure_directory(&self.directory, 0o700)
            .and_then(|()| {
                self.files
                    .ensure_directory(&self.directory.join("before"), 0o700)
            })
            .and_then(|()| {
                let mut file = self.files.create(&target)?;
                std::io::copy(&mut self.files.open(&*path)?, &mut file)?;
                file.sync_all()
            })
            .and_then(|()| self.files.sync_parent(&target));
        copied.map_err(|e| Failure::file("keep a copy of", path, &e))
    }

    fn append(&self, text: &[u8]) -> Result<(), Failure> {
        if text.is_empty() {
            return Ok(());
        }
        let path = self.path();
        let fresh = !self.files.exists(&path);
        self.files
            .ensure_directory(&self.directory, 0o700)
            .and_then(|()| self.files.append(&path, text, 0o600, true))
            .and_then(|()| match fresh {
                true => self.files.sync_parent(&path),
                false => Ok(()),
            })
            .map_err(|e| Failure::file("write", &path, &e))
    }

    /// What a command's inputs were when it last ran to its end.
    pub(super) fn stamp(&self, name: &str) -> Option<String> {
        self.memory().stamps.get(name).cloned()
    }

    /// A command ran to its end with these inputs.
    pub(super) fn set_stamp(&self, name: &str, value: &str) -> Result<(), Failure> {
        let line = Line::Stamp {
            name: name.to_owned(),
            value: value.to_owned(),
        };
        let mut text = Vec::new();
        push_line(&mut text, &line);
        let mut memory = self.memory();
        self.append(&text)?;
        memory.learn(line);
        Ok(())
    }

    /// Everything that was ever touched, oldest first.
    pub(super) fn befores(&self) -> Vec<Before> {
        self.memory().befores.clone()
    }

    /// The content that a file had.
    pub(super) fn copy(&self, number: u64) -> PathBuf {
        self.copy_path(number)
    }

    /// Removes half-written files that a killed run left beside those it was about to replace.
    pub(super) fn sweep(&self) -> Result<(), Failure> {
        self.sweep_beside(draft_of)
    }

    /// Removes what was fetched in part: another run would go on with it.
    pub(super) fn sweep_parts(&self) -> Result<(), Failure> {
        self.sweep_beside(part_of)
    }

    fn sweep_beside(&self, name: fn(&Path) -> PathBuf) -> Result<(), Failure> {
        for before in &self.memory().befores {
            if let Before::Path { path, .. } = before {
                let doomed = name(path);
                self.files
                    .remove(&doomed)
                    .map_err(|e| Failure::file("remove", &doomed, &e))?;
            }
        }
        Ok(())
    }

    /// Forgets everything: after undo.
    pub(super) fn forget(&self) -> Result<(), Failure> {
        let copies = self.directory.join("before");
        let names = self.files.list(&copies).unwrap_or_default();
        // The journal goes first: copies without it are litter, it without copies would be a lie.
        let mut doomed = vec![self.path()];
        doomed.extend(names.iter().map(|name| copies.join(name)));
        doomed.push(copies);
        for path in doomed {
            self.files
                .remove(&path)
                .map_err(|e| Failure::file("remove", &path, &e))?;
        }
        *self.memory() = Memory::default();
        Ok(())
    }
}

/// What is at a path now, in the journal's words. The number of a file's copy is given when it is made.
pub(super) fn look(files: &Files, path: &Path) -> Result<Before, Failure> {
    let entry = files
        .entry(path)
        .map_err(|e| Failure::file("look at", path, &e))?;
    let was = match entry {
        None => Was::Absent,
        Some(entry) => match entry.kind {
            Kind::Directory => Was::Directory {
                mode: entry.mode,
                owner: entry.owner,
            },
            Kind::Link(target) => Was::Link { target },
            Kind::File => Was::File {
                mode: entry.mode,
                owner: entry.owner,
                copy: 0,
            },
            Kind::Other => {
                return Err(Failure::permanent(
                    format!("{} is neither file, link nor directory", path.display()),
                    "a device, socket or pipe is in the way: move it and run again",
                ));
            }
        },
    };
    Ok(Before::Path {
        path: path.to_owned(),
        was,
    })
}

fn push_line(text: &mut Vec<u8>, line: &Line) {
    serde_json::to_writer(&mut *text, line).expect("journal lines have string keys only");
    text.push(b'\n');
}

fn damaged(path: &Path, error: &serde_json::Error) -> Failure {
    Failure::permanent(
        format!("the journal {} is damaged: {error}", path.display()),
        "it says how to take changes back: keep a copy of it for inspection, then remove it and run again",
    )
}
