//! Is there anything to do? Compares a change with the host, without touching it.

use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use aws_lc_rs::digest;

use super::change::{Change, Check, CommandChange, Content, File, Goal, Unit};
use super::journal::Journal;
use super::step::{Failure, Scene};
use super::units;
use crate::host::{Entry, Files, Kind, without_query};

/// What would have to be done, for people; nothing when the host is as it should be.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Difference {
    /// A verb: create, replace, remove, run, start …
    pub action: &'static str,
    /// What it is about.
    pub subject: String,
    /// How it differs; no secrets.
    pub detail: String,
}

/// A comparison in progress: the host, and what the journal remembers.
pub(super) struct Comparison<'a> {
    pub(super) scene: &'a Scene<'a>,
    pub(super) journal: &'a Journal<'a>,
    /// Paths that would have changed by now, when this is only a plan.
    pub(super) planned: &'a [PathBuf],
}

impl Comparison<'_> {
    fn files(&self) -> &Files {
        self.scene.host.files()
    }

    /// What must be done for `change`, if anything.
    pub(super) fn difference(&self, change: &Change) -> Result<Option<Difference>, Failure> {
        let found = match change.path() {
            Some(path) => self
                .files()
                .entry(path)
                .map_err(|e| Failure::file("look at", path, &e))?,
            None => None,
        };
        let verdict = match change {
            Change::Directory { mode, owner, .. } => match found {
                None => Some(("create", format!("directory, mode {mode:04o}"))),
                Some(e) if e.kind != Kind::Directory => return Err(in_the_way(change, &e)),
                Some(e) => self.attributes(&e, *mode, *owner),
            },
            Change::File(file) => self.file(file, found)?,
            Change::Link { target, .. } => link(change, target, found)?,
            Change::Absent { .. } => found.map(|_| ("remove", String::new())),
            Change::Setting { path, value } => self.setting(path, value)?,
            Change::Command(command) => self.command(command)?,
            Change::Unit(unit) => self.unit(unit)?,
        };
        Ok(verdict.map(|(action, detail)| Difference {
            action,
            subject: change.subject(),
            detail,
        }))
    }

    fn attributes(
        &self,
        found: &Entry,
        mode: u32,
        owner: crate::host::Owner,
    ) -> Option<(&'static str, String)> {
        let mut differences = Vec::new();
        if found.mode != mode {
            differences.push(format!("mode {:04o} -> {mode:04o}", found.mode));
        }
        if !self.files().same_owner(found.owner, owner) {
            differences.push(format!(
                "owner {}:{} -> {}:{}",
                found.owner.uid, found.owner.gid, owner.uid, owner.gid
            ));
        }
        (!differences.is_empty()).then(|| ("set", differences.join(", ")))
    }

    fn file(
        &self,
        file: &File,
        found: Option<Entry>,
    ) -> Result<Option<(&'static str, String)>, Failure> {
        let Some(found) = found else {
            return Ok(Some(("create", new_file(file))));
        };
        match found.kind {
            Kind::File => {}
            Kind::Link(target) => {
                return Ok(Some(("replace", format!("a link to {}", target.display()))));
            }
            _ => return Err(in_the_way(&Change::File(file.clone()), &found)),
        }
        let differs = self
            .content_difference(file, &found)
            .map_err(|e| Failure::file("compare", &file.path, &e))?;
        let attributes = || self.attributes(&found, file.mode, file.owner);
        Ok(differs.map(|d| ("replace", d)).or_else(attributes))
    }

    fn content_difference(&self, file: &File, found: &Entry) -> io::Result<Option<String>> {
        match &file.content {
            Content::Bytes(bytes) => {
                if found.size == bytes.len() as u64 && self.files().read(&file.path)? == *bytes {
                    return Ok(None);
                }
                match file.secret || found.size > 1 << 20 {
                    true => Ok(Some("content differs".to_owned())),
                    false => Ok(Some(line_difference(
                        &self.files().read(&file.path)?,
                        bytes,
                    ))),
                }
            }
            Content::CopyOf(source) => {
                let same = self.files().same_content(source, &file.path);
                match same {
                    Ok(true) => Ok(None),
                    Ok(false) => Ok(Some(format!("differs from {}", source.display()))),
                    // While planning, the source may be made by a step that has not run.
                    Err(_) if self.scene.planning => {
                        Ok(Some(format!("copy of {}", source.display())))
                    }
                    Err(e) => Err(e),
                }
            }
            Content::Download { urls, sha256 } => {
                let url = urls.first().map(String::as_str).unwrap_or_default();
                let same = file_sha256(self.files(), &file.path)?.eq_ignore_ascii_case(sha256);
                Ok((!same).then(|| format!("is not {}", without_query(url))))
            }
        }
    }

    fn setting(&self, path: &Path, value: &str) -> Result<Option<(&'static str, String)>, Failure> {
        let text = self
            .files()
            .text(path)
            .map_err(|e| Failure::file("read", path, &e))?;
        let Some(text) = text else {
            return Err(Failure::permanent(
                format!("this kernel has no {}", path.display()),
                "the kernel, or a module that must be loaded first, lacks this setting: remove it from the configuration or use another image",
            ));
        };
        let found = chosen(&text);
        let same = found.split_whitespace().eq(value.split_whitespace());
        Ok((!same).then(|| ("set", format!("{found} -> {value}"))))
    }

    fn command(&self, command: &CommandChange) -> Result<Option<(&'static str, String)>, Failure> {
        let line = || Some(("run", command.apply.summary()));
        match &command.check {
            Check::Succeeds(check) => {
                let finished = self.scene.run(check)?;
                Ok(if finished.success() { None } else { line() })
            }
            Check::Exists(path) => Ok(match self.files().exists(path) {
                true => None,
                false => line(),
            }),
            Check::Mounted(path) => Ok(match self.mounted(path)? {
                true => None,
                false => line(),
            }),
            Check::Inputs { paths, per_boot } => {
                let now = self.inputs(paths, *per_boot)?;
                let done = self.journal.stamp(&stamp_name(command)) == Some(now);
                Ok(match done && !self.will_change(paths) {
                    true => None,
                    false => line(),
                })
            }
        }
    }

    fn unit(&self, unit: &Unit) -> Result<Option<(&'static str, String)>, Failure> {
        let found = units::look(self.scene, &unit.name)?;
        let steps = units::steps(unit, &found, self.unit_is_current(unit)?);
        match (steps.first(), found.missing) {
            // A plan sees units whose files come with an earlier step.
            (_, true) if self.scene.planning && wanted(unit) => {
                Ok(Some(("start", "once its files are there".to_owned())))
            }
            (None, _) => Ok(None),
            (Some(first), _) => Ok(Some((first.verb(), units::sentence(&steps)))),
        }
    }

    /// Whether a unit was last started with its inputs as they are now.
    pub(super) fn unit_is_current(&self, unit: &Unit) -> Result<bool, Failure> {
        if unit.inputs.is_empty() && unit.goal != Goal::Ran {
            return Ok(true);
        }
        let now = self.inputs(&unit.inputs, false)?;
        let stamp = self.journal.stamp(&units::stamp_name(&unit.name));
        Ok(stamp == Some(now) && !self.will_change(&unit.inputs))
    }

    /// A digest of everything under these paths, and of the boot if that counts.
    pub(super) fn inputs(&self, paths: &[PathBuf], per_boot: bool) -> Result<String, Failure> {
        let mut context = digest::Context::new(&digest::SHA256);
        for path in paths {
            digest_tree(self.files(), path, &mut context)
                .map_err(|e| Failure::file("read", path, &e))?;
        }
        if per_boot {
            context.update(self.scene.host.boot_id().as_bytes());
        }
        Ok(hex(context.finish().as_ref()))
    }

    fn will_change(&self, paths: &[PathBuf]) -> bool {
        let touches = |input: &PathBuf| self.planned.iter().any(|p| p.starts_with(input));
        paths.iter().any(touches)
    }

    fn mounted(&self, path: &Path) -> Result<bool, Failure> {
        let table = Path::new("/proc/self/mountinfo");
        let text = self
            .files()
            .text(table)
            .map_err(|e| Failure::file("read", table, &e))?;
        // The fifth field is the mount point, with spaces written as \040.
        let point = |line: &str| {
            line.split(' ')
                .nth(4)
                .map(|p| p.replace("\\040", " "))
                .is_some_and(|p| Path::new(&p) == path)
        };
        Ok(text.unwrap_or_default().lines().any(point))
    }
}

/// The stamp of a command. Another command of the same name is another command.
pub(super) fn stamp_name(command: &CommandChange) -> String {
    let line = digest::digest(&digest::SHA256, command.apply.line().as_bytes());
    format!("command {} {}", command.name, &hex(line.as_ref())[..16])
}

fn wanted(unit: &Unit) -> bool {
    unit.enabled == Some(true) || matches!(unit.goal, Goal::Running | Goal::Ran)
}

fn link(
    change: &Change,
    target: &Path,
    found: Option<Entry>,
) -> Result<Option<(&'static str, String)>, Failure> {
    match found {
        None => Ok(Some(("create", format!("link to {}", target.display())))),
        Some(Entry {
            kind: Kind::Link(now),
            ..
        }) if now == target => Ok(None),
        Some(Entry {
            kind: Kind::Link(now),
            ..
        }) => Ok(Some((
            "replace",
            format!("link to {} -> {}", now.display(), target.display()),
        ))),
        Some(Entry {
            kind: Kind::File, ..
        }) => Ok(Some((
            "replace",
            format!("a file by a link to {}", target.display()),
        ))),
        Some(entry) => Err(in_the_way(change, &entry)),
    }
}

fn in_the_way(change: &Change, found: &Entry) -> Failure {
    let what = match found.kind {
        Kind::Directory => "a directory",
        Kind::File => "a file",
        Kind::Link(_) => "a link",
        Kind::Other => "a device, socket or pipe",
    };
    Failure::permanent(
        format!("{what} is in the way at {}", change.subject()),
        "move it away and run again",
    )
}

fn new_file(file: &File) -> String {
    match &file.content {
        Content::Bytes(bytes) => format!("file, mode {:04o}, {} bytes", file.mode, bytes.len()),
        Content::CopyOf(source) => {
            format!("file, mode {:04o}, copy of {}", file.mode, source.display())
        }
        Content::Download { urls, .. } => {
            let url = urls.first().map(String::as_str).unwrap_or_default();
            format!("file, mode {:04o}, from {}", file.mode, without_query(url))
        }
    }
}

/// How many lines are only in one of two texts; cheap, and enough to judge a plan by.
fn line_difference(old: &[u8], new: &[u8]) -> String {
    let lines = |bytes: &[u8]| -> Vec<Vec<u8>> {
        let mut lines: Vec<_> = bytes.split(|&b| b == b'\n').map(<[u8]>::to_vec).collect();
        lines.sort_unstable();
        lines
    };
    let (old, new) = (lines(old), lines(new));
    let only = |one: &[Vec<u8>], other: &[Vec<u8>]| {
        one.iter()
            .filter(|l| other.binary_search(l).is_err())
            .count()
    };
    format!("lines +{} -{}", only(&new, &old), only(&old, &new))
}

/// `always [madvise] never` is a choice: the bracketed word is what is set.
pub(super) fn chosen(text: &str) -> String {
    let bracketed = text
        .split_once('[')
        .and_then(|(_, rest)| rest.split_once(']'));
    bracketed.map_or(text, |(word, _)| word).trim().to_owned()
}

/// The digest of a file, as hexadecimal digits.
pub(super) fn file_sha256(files: &Files, path: &Path) -> io::Result<String> {
    let mut context = digest::Context::new(&digest::SHA256);
    digest_file(files, path, &mut context)?;
    Ok(hex(context.finish().as_ref()))
}

fn digest_file(files: &Files, path: &Path, context: &mut digest::Context) -> io::Result<()> {
    let mut file = files.open(path)?;
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(()),
            n => context.update(&buffer[..n]),
        }
    }
}

/// Names, modes and contents of everything under a path, in order.
fn digest_tree(files: &Files, path: &Path, context: &mut digest::Context) -> io::Result<()> {
    context.update(path.as_os_str().as_encoded_bytes());
    let Some(entry) = files.entry(path)? else {
        context.update(b"\0absent\0");
        return Ok(());
    };
    context.update(format!("\0{:o}\0", entry.mode).as_bytes());
    match entry.kind {
        Kind::File => {
            context.update(&entry.size.to_le_bytes());
            digest_file(files, path, context)
        }
        Kind::Directory => files
            .list(path)?
            .iter()
            .try_for_each(|name| digest_tree(files, &path.join(name), context)),
        Kind::Link(target) => {
            context.update(target.as_os_str().as_encoded_bytes());
            Ok(())
        }
        Kind::Other => Ok(()),
    }
}

/// Lower-case hexadecimal digits.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_of_the_kernel_is_its_bracketed_word() {
        assert_eq!(chosen("always [madvise] never\n"), "madvise");
        assert_eq!(chosen("32768\t60999\n"), "32768\t60999");
    }

    #[test]
    fn a_difference_counts_lines_on_either_side_only() {
        assert_eq!(line_difference(b"a\nb\n", b"b\nc\nd\n"), "lines +2 -1");
    }
}
