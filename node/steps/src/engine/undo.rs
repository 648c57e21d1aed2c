//! Takes everything back that runs have done, newest first, from what the journal says was there before.

use std::io;
use std::path::Path;

use super::journal::{Before, Journal, Was};
use super::run::Engine;
use super::step::{Failure, Scene};
use super::units;
use crate::host::{Command, Files, Kind, draft_of};

/// How an undo went.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Undone {
    /// How many things were looked at.
    pub restored: usize,
    /// Directories of ours that hold files of others, and so stay.
    pub kept: Vec<String>,
    /// Commands that ran and that nothing takes back: what they did is still there.
    pub remains: Vec<String>,
    /// What could not be taken back. The journal stays, so that undo can be tried again.
    pub failures: Vec<Failure>,
}

impl Engine<'_> {
    /// Restores the host. May be repeated, also after it was killed.
    pub fn undo(&self) -> Undone {
        let mut undone = Undone::default();
        let journal = Journal::open(self.host.files(), &self.state)
            .and_then(|journal| journal.sweep().map(|()| journal))
            .and_then(|journal| journal.sweep_parts().map(|()| journal));
        let journal = match journal {
            Ok(journal) => journal,
            Err(failure) => {
                undone.failures.push(failure);
                return undone;
            }
        };
        let befores = journal.befores();
        for before in befores.iter().rev() {
            undone.restored += 1;
            if let Before::Command { name, undo: None } = before {
                undone.remains.push(name.clone());
            }
            if let Err(failure) = self.restore(&journal, before, &mut undone.kept) {
                undone.failures.push(failure);
            }
        }
        if let Err(failure) = self.restart(&befores) {
            undone.failures.push(failure);
        }
        if undone.failures.is_empty()
            && let Err(failure) = journal.forget()
        {
            undone.failures.push(failure);
        }
        undone
    }

    fn restore(
        &self,
        journal: &Journal<'_>,
        before: &Before,
        kept: &mut Vec<String>,
    ) -> Result<(), Failure> {
        let files = self.host.files();
        match before {
            Before::Path { path, was } => {
                let stays = restore_path(files, journal, path, was)
                    .map_err(|e| Failure::file("restore", path, &e))?;
                if stays {
                    kept.push(path.display().to_string());
                }
                Ok(())
            }
            Before::Setting { path, value } => files
                .set(path, value)
                .map_err(|e| Failure::file("restore", path, &e)),
            Before::Command { undo: None, .. } => Ok(()),
            Before::Command {
                undo: Some(undo), ..
            } => self.run_one(undo),
            Before::Unit {
                name,
                enabled,
                active,
            } => {
                let now = units::look(&self.scene(), name)?;
                if now.active && !*active {
                    self.run_one(&Command::new("systemctl", &["stop", name]))?;
                }
                if now.enabled && !*enabled {
                    self.run_one(&Command::new("systemctl", &["disable", name]))?;
                }
                Ok(())
            }
        }
    }

    /// Once their old files are back, units that ran before run with them again.
    fn restart(&self, befores: &[Before]) -> Result<(), Failure> {
        let mut units = befores.iter().filter_map(|before| match before {
            Before::Unit {
                name,
                enabled,
                active,
            } => Some((name, *enabled, *active)),
            _ => None,
        });
        let Some(first) = units.next() else {
            return Ok(());
        };
        self.run_one(&Command::new("systemctl", &["daemon-reload"]))?;
        for (name, enabled, active) in std::iter::once(first).chain(units) {
            if enabled {
                self.run_one(&Command::new("systemctl", &["enable", name]))?;
            }
            if active {
                self.run_one(&Command::new("systemctl", &["restart", name]))?;
            }
        }
        Ok(())
    }

    fn scene(&self) -> Scene<'_> {
        Scene {
            host: self.host,
            stop: &self.stop,
            until: self.host.elapsed().saturating_add(self.deadline),
            planning: false,
        }
    }

    fn run_one(&self, command: &Command) -> Result<(), Failure> {
        let finished = self.scene().run(command)?;
        match finished.success() {
            true => Ok(()),
            false => Err(Failure::command(command, &finished)),
        }
    }
}

/// Brings one path back; says whether it is a directory that had to stay.
fn restore_path(files: &Files, journal: &Journal<'_>, path: &Path, was: &Was) -> io::Result<bool> {
    let now = files.entry(path)?;
    match was {
        Was::Absent => match now.map(|e| e.kind) {
            Some(Kind::Directory) if !files.list(path)?.is_empty() => return Ok(true),
            _ => files.remove(path)?,
        },
        Was::Directory { mode, owner } => match now {
            Some(_) => files.set_attributes(path, *mode, *owner)?,
            None => files.make_directory(path, *mode, *owner)?,
        },
        Was::File { mode, owner, copy } => {
            let draft = draft_of(path);
            let mut file = files.create(&draft)?;
            io::copy(&mut files.open(journal.copy(*copy))?, &mut file)?;
            files.finish(&file, *mode, *owner)?;
            file.sync_all()?;
            files.rename(&draft, path)?;
        }
        Was::Link { target } => {
            let draft = draft_of(path);
            files.remove(&draft)?;
            files.make_link(&draft, target)?;
            files.rename(&draft, path)?;
        }
    }
    Ok(false)
}
