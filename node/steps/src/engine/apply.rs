//! Makes the host so: for each difference first the journal, then the change.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::change::{Change, Check, CommandChange, Content, File, Unit};
use super::compare::{Comparison, Difference, file_sha256, stamp_name};
use super::download::Download;
use super::journal::{Before, Journal, look};
use super::run::{Event, Watcher};
use super::step::{Failure, Scene};
use super::units::{self, Action};
use crate::host::{Files, Kind, Owner, draft_of, part_of};

/// What steps share while they apply.
pub(super) struct Workshop<'a> {
    pub(super) journal: Journal<'a>,
    /// One at a time, so that a reload of systemd that one step has made is seen by the next.
    pub(super) systemd: Mutex<()>,
}

/// One attempt of one step.
pub(super) struct Application<'a> {
    pub(super) step: &'a str,
    pub(super) scene: &'a Scene<'a>,
    pub(super) workshop: &'a Workshop<'a>,
    pub(super) watcher: &'a dyn Watcher,
}

impl<'a> Application<'a> {
    /// Applies all changes in order; says how many were needed.
    pub(super) fn apply(&self, changes: &[Change]) -> Result<usize, Failure> {
        let mut done = 0;
        let mut rest = changes;
        while !rest.is_empty() {
            self.go_on()?;
            let batch = batch_length(rest);
            done += match batch {
                0 => self.single(&rest[0])?,
                n => self.batch(&rest[..n])?,
            };
            rest = &rest[batch.max(1)..];
        }
        Ok(done)
    }

    /// Between two changes is where a run can end.
    fn go_on(&self) -> Result<(), Failure> {
        if self.scene.stop.cancelled() {
            return Err(Failure::permanent(
                "the run was cancelled",
                "run again: it goes on where it stopped",
            ));
        }
        if self.scene.remaining().is_zero() {
            return Err(Failure::new(
                "the step ran out of time",
                "look for a slow disk or a machine that is too small, and run again",
            ));
        }
        Ok(())
    }

    fn files(&self) -> &'a Files {
        self.scene.host.files()
    }

    fn comparison(&self) -> Comparison<'_> {
        Comparison {
            scene: self.scene,
            journal: &self.workshop.journal,
            planned: &[],
        }
    }

    fn tell(&self, difference: &Difference) {
        self.watcher.event(&Event::Changing {
            step: self.step,
            difference,
        });
    }

    fn record(&self, befores: Vec<Before>) -> Result<(), Failure> {
        self.workshop.journal.record(self.step, befores)
    }

    /// Files, links and directories: one synced journal entry for all of them, then the changes.
    fn batch(&self, changes: &[Change]) -> Result<usize, Failure> {
        let mut needed = Vec::new();
        for change in changes {
            if let Some(difference) = self.comparison().difference(change)? {
                self.tell(&difference);
                needed.push(change);
            }
        }
        // Directories first, so that what belongs into them finds them, in whatever order they were asked for.
        needed.sort_by_key(|change| !matches!(change, Change::Directory { .. }));
        let parents = self.missing_parents(&needed);
        let paths = needed.iter().filter_map(|c| c.path());
        let befores = parents.iter().map(PathBuf::as_path).chain(paths);
        let befores: Result<Vec<_>, _> = befores.map(|p| look(self.files(), p)).collect();
        self.record(befores?)?;
        for parent in &parents {
            self.files()
                .make_directory(parent, 0o755, Owner::ROOT)
                .or_else(|e| already_there(self.files(), parent, e))
                .map_err(|e| Failure::file("make", parent, &e))?;
        }
        for change in &needed {
            self.path_change(change)?;
        }
        self.sync(&needed, &parents)?;
        Ok(needed.len())
    }

    /// Directories above the paths that are not there and that no change of the batch makes, uppermost first.
    fn missing_parents(&self, needed: &[&Change]) -> Vec<PathBuf> {
        let made: BTreeSet<&Path> = needed
            .iter()
            .filter(|c| matches!(c, Change::Directory { .. }))
            .filter_map(|c| c.path())
            .collect();
        let mut missing = BTreeSet::new();
        for change in needed
            .iter()
            .filter(|c| !matches!(c, Change::Absent { .. }))
        {
            let ancestors = change
                .path()
                .into_iter()
                .flat_map(|p| p.ancestors().skip(1));
            for parent in ancestors {
                // Followed, unlike the path itself: /lib is a link on many machines.
                if fs::metadata(self.files().locate(parent)).is_ok() {
                    break;
                }
                if !made.contains(parent) {
                    missing.insert(parent.to_owned());
                }
            }
        }
        missing.into_iter().collect()
    }

    fn path_change(&self, change: &Change) -> Result<(), Failure> {
        let files = self.files();
        match change {
            Change::Directory { path, mode, owner } => match files.exists(path) {
                true => files.set_attributes(path, *mode, *owner),
                // Another step may make it in between, as the parent of something.
                false => files.make_directory(path, *mode, *owner).or_else(|e| {
                    already_there(files, path, e)
                        .and_then(|()| files.set_attributes(path, *mode, *owner))
                }),
            }
            .map_err(|e| Failure::file("make", path, &e)),
            Change::File(file) => self.file(file),
            Change::Link { path, target } => {
                let draft = draft_of(path);
                files
                    .remove(&draft)
                    .and_then(|()| files.make_link(&draft, target))
                    .and_then(|()| files.rename(&draft, path))
                    .map_err(|e| Failure::file("link", path, &e))
            }
            Change::Absent { path } => files
                .remove(path)
                .map_err(|e| Failure::file("remove", path, &e)),
            Change::Setting { .. } | Change::Command(_) | Change::Unit(_) => {
                unreachable!("batches hold changes of paths only")
            }
        }
    }

    /// Writes beside the file, syncs, and renames: at every instant the file is the old or the new one.
    fn file(&self, file: &File) -> Result<(), Failure> {
        let failed = |e: io::Error| Failure::file("write", &file.path, &e);
        if self.only_attributes_differ(file).map_err(failed)? {
            return self
                .files()
                .set_attributes(&file.path, file.mode, file.owner)
                .map_err(failed);
        }
        let (draft, output) = match file.content {
            // What an earlier attempt has got is not asked for again.
            Content::Download { .. } => {
                let part = part_of(&file.path);
                let output = self.files().resume(&part);
                (part, output)
            }
            _ => {
                let draft = draft_of(&file.path);
                let output = self.files().create(&draft);
                (draft, output)
            }
        };
        let mut output = output.map_err(failed)?;
        self.fill(&mut output, file, &draft)?;
        self.files()
            .finish(&output, file.mode, file.owner)
            .and_then(|()| output.sync_all())
            .and_then(|()| self.files().rename(&draft, &file.path))
            .map_err(failed)
    }

    fn only_attributes_differ(&self, file: &File) -> io::Result<bool> {
        let Some(entry) = self.files().entry(&file.path)? else {
            return Ok(false);
        };
        match &file.content {
            _ if entry.kind != Kind::File => Ok(false),
            Content::Bytes(bytes) => Ok(self.files().read(&file.path)? == *bytes),
            Content::CopyOf(source) => self.files().same_content(source, &file.path),
            Content::Download { sha256, .. } => {
                Ok(file_sha256(self.files(), &file.path)?.eq_ignore_ascii_case(sha256))
            }
        }
    }

    fn fill(&self, output: &mut fs::File, file: &File, draft: &Path) -> Result<(), Failure> {
        let failed = |e: io::Error| Failure::file("write", &file.path, &e);
        match &file.content {
            Content::Bytes(bytes) => io::Write::write_all(output, bytes).map_err(failed),
            Content::CopyOf(source) => {
                let mut input = self
                    .files()
                    .open(source)
                    .map_err(|e| Failure::file("read", source, &e))?;
                io::copy(&mut input, output).map(drop).map_err(failed)
            }
            Content::Download { urls, sha256 } => {
                let download = Download {
                    step: self.step,
                    scene: self.scene,
                    watcher: self.watcher,
                    draft,
                    sha256,
                };
                download.fetch(urls, output)
            }
        }
    }

    /// Makes names safe on disk, each directory once.
    fn sync(&self, needed: &[&Change], parents: &[PathBuf]) -> Result<(), Failure> {
        let paths = needed.iter().filter_map(|c| c.path());
        let all = paths.chain(parents.iter().map(PathBuf::as_path));
        let directories: BTreeSet<&Path> = all.filter_map(Path::parent).collect();
        for directory in directories {
            let synced = self.files().open(directory).and_then(|d| d.sync_all());
            match synced {
                // The parent of something that was removed may be gone, or never have been.
                Err(e) if !crate::host::absent(&e) => {
                    return Err(Failure::file("sync", directory, &e));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn single(&self, change: &Change) -> Result<usize, Failure> {
        match change {
            Change::Setting { path, value } => self.setting(change, path, value),
            Change::Command(command) => self.command(change, command),
            Change::Unit(unit) => self.unit(unit),
            _ => unreachable!("changes of paths come in batches"),
        }
    }

    fn setting(&self, change: &Change, path: &Path, value: &str) -> Result<usize, Failure> {
        let Some(difference) = self.comparison().difference(change)? else {
            return Ok(0);
        };
        self.tell(&difference);
        let failed = |e: io::Error| Failure::file("set", path, &e);
        let old = self.files().text(path).map_err(failed)?.unwrap_or_default();
        self.record(vec![Before::Setting {
            path: path.to_owned(),
            value: super::compare::chosen(&old),
        }])?;
        self.files().set(path, value).map_err(failed)?;
        Ok(1)
    }

    fn command(&self, change: &Change, command: &CommandChange) -> Result<usize, Failure> {
        let Some(difference) = self.comparison().difference(change)? else {
            return Ok(0);
        };
        self.tell(&difference);
        // What the inputs are now is what the command sees; a change in between makes it run again next time.
        let stamp = match &command.check {
            Check::Inputs { paths, per_boot } => Some(self.comparison().inputs(paths, *per_boot)?),
            _ => None,
        };
        self.record(vec![Before::Command {
            name: command.name.clone(),
            undo: command.undo.clone(),
        }])?;
        let ran = self.scene.run(&command.apply);
        let succeeded = ran.and_then(|finished| match finished.success() {
            true => Ok(()),
            false => Err(Failure::command(&command.apply, &finished)),
        });
        // What a script is for is said by its name, not by its first line.
        succeeded.map_err(|failure| Failure {
            cause: format!("{}: {}", command.name, failure.cause),
            ..failure
        })?;
        if let Some(stamp) = stamp {
            let name = stamp_name(command);
            self.workshop.journal.set_stamp(&name, &stamp)?;
        }
        Ok(1)
    }

    fn unit(&self, unit: &Unit) -> Result<usize, Failure> {
        let (_, steps) = self.unit_steps(unit)?;
        if steps.is_empty() {
            return Ok(0);
        }
        let turn = &self.workshop.systemd;
        let _turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Another step may have reloaded systemd in the meantime.
        let (found, steps) = self.unit_steps(unit)?;
        if steps.is_empty() {
            return Ok(0);
        }
        self.tell(&Difference {
            action: steps[0].verb(),
            subject: unit.name.clone(),
            detail: units::sentence(&steps),
        });
        let stamp = self.comparison().inputs(&unit.inputs, false)?;
        self.record(vec![Before::Unit {
            name: unit.name.clone(),
            enabled: found.enabled,
            active: found.active,
        }])?;
        for action in &steps {
            self.call(unit, *action)?;
        }
        if steps
            .iter()
            .any(|s| matches!(s, Action::Start | Action::Restart))
        {
            let name = units::stamp_name(&unit.name);
            self.workshop.journal.set_stamp(&name, &stamp)?;
        }
        Ok(1)
    }

    fn unit_steps(&self, unit: &Unit) -> Result<(units::State, Vec<Action>), Failure> {
        let found = units::look(self.scene, &unit.name)?;
        let current = self.comparison().unit_is_current(unit)?;
        let steps = units::steps(unit, &found, current);
        Ok((found, steps))
    }

    fn call(&self, unit: &Unit, action: Action) -> Result<(), Failure> {
        let command = action.command(unit);
        let finished = self.scene.run(&command)?;
        if finished.success() {
            return Ok(());
        }
        let name = &unit.name;
        Err(Failure::new(
            format!("`{}` failed: {}", command.line(), finished.last_words()),
            format!("see `systemctl status {name}` and `journalctl -u {name}`"),
        ))
    }
}

/// Another step may have made the same directory in between.
fn already_there(files: &Files, path: &Path, error: io::Error) -> io::Result<()> {
    let is_directory = fs::metadata(files.locate(path)).is_ok_and(|m| m.is_dir());
    match error.kind() == io::ErrorKind::AlreadyExists && is_directory {
        true => Ok(()),
        false => Err(error),
    }
}

/// How many changes at the front are changes of paths, each path once.
fn batch_length(changes: &[Change]) -> usize {
    let mut seen = BTreeSet::new();
    let fits = |change: &&Change| {
        !matches!(change, Change::Setting { .. })
            && change
                .path()
                .is_some_and(|path| seen.insert(path.to_owned()))
    };
    changes.iter().take_while(fits).count()
}
