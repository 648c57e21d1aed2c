//! Disks and snapshots: files below a directory, as large as they say and as heavy as what is written to them. A
//! machine that has one sees it as a block device.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use ::cloud::{Disk, Done, Order, Task, Trouble};
use machines::image;

use super::turns::Turns;
use super::vms::blocking;
use super::{digest, last};

/// The disks of a cloud.
#[derive(Debug)]
pub(super) struct Disks {
    directory: PathBuf,
    turns: Turns,
}

impl Disks {
    pub(super) fn new(directory: &Path) -> Disks {
        Disks {
            directory: directory.to_owned(),
            turns: Turns::default(),
        }
    }

    /// Carries out an order for a disk or a snapshot.
    pub(super) async fn carry_out(&self, order: &Order) -> Result<Done, Trouble> {
        match &order.task {
            Task::Remove => self.remove(&order.id).await?,
            Task::Bring => drop(self.ready(&order.disks).await?),
            Task::Act { .. } => {}
        }
        Ok(Done::default())
    }

    /// Makes what is not there yet, as large as it should be; gives what a machine is told of them.
    pub(super) async fn ready(&self, disks: &[Disk]) -> Result<Vec<machines::Disk>, Trouble> {
        for disk in disks.iter().filter(|disk| !disk.is_system) {
            self.make(disk).await?;
        }
        let plugged = disks.iter().map(|disk| machines::Disk {
            lun: disk.lun,
            file: self.file(&disk.id),
        });
        Ok(plugged.collect())
    }

    async fn make(&self, disk: &Disk) -> Result<(), Trouble> {
        let (file, bytes, turn) = (self.file(&disk.id), disk.bytes, self.turns.of(&disk.id));
        let source = disk.source.as_deref().filter(|_| !file.exists());
        let from = source.map(|source| self.file(source));
        if let (Some(source), Some(from)) = (source, &from)
            && !from.exists()
        {
            return Err(Trouble::new(
                "OperationNotAllowed",
                format!(
                    "`{source}` has no bytes of its own to copy: the disk of a machine's system is a layer over this \
                     host's root. Data disks and snapshots of them can be copied."
                ),
            ));
        }
        blocking(move || {
            let _turn = turn.lock();
            match from.filter(|_| !file.exists()) {
                Some(from) => image::copy(&from, &file, bytes),
                None => image::make(&file, bytes),
            }
        })
        .await
    }

    /// Takes a disk away.
    pub(super) async fn remove(&self, id: &str) -> Result<(), Trouble> {
        let (file, turn) = (self.file(id), self.turns.of(id));
        blocking(move || {
            let _turn = turn.lock();
            image::remove(&file)
        })
        .await
    }

    /// Takes away what no resource stands for, and what was not made to its end.
    pub(super) async fn clear(&self, known: impl Iterator<Item = &str>) {
        let kept: HashSet<PathBuf> = known.map(|id| self.file(id)).collect();
        let entries = std::fs::read_dir(&self.directory).into_iter().flatten();
        for file in entries.flatten().map(|entry| entry.path()) {
            if kept.contains(&file) {
                continue;
            }
            if let Err(trouble) = blocking(move || image::remove(&file)).await {
                tracing::error!(%trouble, "a disk that no resource stands for stays");
            }
        }
    }

    fn file(&self, id: &str) -> PathBuf {
        let id = id.to_lowercase();
        let name: String = last(&id).chars().take(40).collect();
        self.directory.join(format!("{name}-{}.img", digest(&id)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(id: &str, bytes: u64, source: Option<&str>) -> Disk {
        Disk {
            id: id.to_owned(),
            lun: 3,
            bytes,
            source: source.map(str::to_owned),
            is_system: false,
            goes_with_machine: false,
        }
    }

    #[tokio::test]
    async fn disks_are_made_copied_enlarged_and_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let disks = Disks::new(dir.path());
        let one = disk("/s/g/disks/One", 1 << 20, None);
        let made = disks.ready(std::slice::from_ref(&one)).await.unwrap();
        assert_eq!(
            (made[0].lun, &made[0].file),
            (3, &disks.file("/S/G/disks/one"))
        );
        std::fs::write(&made[0].file, b"bytes").unwrap();
        let copy = disk("/s/g/snapshots/copy", 2 << 20, Some("/s/g/disks/one"));
        let copied = disks.ready(std::slice::from_ref(&copy)).await.unwrap();
        let text = std::fs::read(&copied[0].file).unwrap();
        assert_eq!((&text[..5], text.len()), (&b"bytes"[..], 2 << 20));
        // A copy is made once: what is written to it since stays.
        std::fs::write(&copied[0].file, b"other").unwrap();
        disks.ready(&[copy]).await.unwrap();
        assert_eq!(&std::fs::read(&copied[0].file).unwrap()[..5], b"other");
        let nothing = disk("/s/g/disks/x", 1, Some("/s/g/disks/system"));
        let refused = disks.ready(&[nothing]).await.unwrap_err();
        assert!(refused.message.contains("no bytes of its own"), "{refused}");
        disks.clear(["/s/g/disks/one"].into_iter()).await;
        assert!(made[0].file.exists() && !copied[0].file.exists());
    }
}
