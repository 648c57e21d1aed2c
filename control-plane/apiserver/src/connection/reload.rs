//! Files that are read again when they change: certificates, CAs, keys.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How often files are looked at. Upstream watches them and looks every minute besides.
const EVERY: Duration = Duration::from_secs(5);

/// Everything of a server that was read from files, and how to read it again.
#[derive(Debug, Default)]
pub struct Reload {
    parts: Mutex<Vec<Part>>,
}

struct Part {
    name: &'static str,
    files: Vec<PathBuf>,
    loaded: Vec<Stamp>,
    load: Load,
}

/// Reads one part again; gives the reason when it cannot, and then nothing has changed.
type Load = Box<dyn Fn() -> Result<(), String> + Send + Sync>;

/// What tells one state of a file from another without reading it.
type Stamp = Option<(SystemTime, u64, u64)>;

impl std::fmt::Debug for Part {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Part")
            .field("name", &self.name)
            .field("files", &self.files)
            .finish_non_exhaustive()
    }
}

impl Reload {
    /// Adds a part that has just been read from its files.
    pub(crate) fn add(
        &self,
        name: &'static str,
        files: Vec<PathBuf>,
        load: impl Fn() -> Result<(), String> + Send + Sync + 'static,
    ) {
        let loaded = stamps(&files);
        let part = Part {
            name,
            files,
            loaded,
            load: Box::new(load),
        };
        self.lock().push(part);
    }

    /// Reads every part whose files have changed; gives the names of those that were read, or the
    /// first reason why one could not be. Such a part keeps what it has and is tried again.
    pub fn now(&self) -> Result<Vec<&'static str>, String> {
        let mut read = Vec::new();
        let mut failure = None;
        for part in self.lock().iter_mut() {
            let found = stamps(&part.files);
            if found == part.loaded {
                continue;
            }
            match (part.load)() {
                Ok(()) => {
                    part.loaded = found;
                    read.push(part.name);
                }
                Err(cause) => {
                    failure.get_or_insert(format!("{} cannot be read again: {cause}", part.name));
                }
            }
        }
        match failure {
            Some(failure) => Err(failure),
            None => Ok(read),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Part>> {
        // A part that panicked while loading has not been marked as loaded.
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Looks at the files until the task is ended.
pub(crate) async fn run(reload: std::sync::Arc<Reload>) {
    let mut last_failure = String::new();
    loop {
        tokio::time::sleep(EVERY).await;
        // Some parts wait for others: a key management service has to answer before it is used.
        let own = std::sync::Arc::clone(&reload);
        let looked = tokio::task::spawn_blocking(move || own.now()).await;
        let looked = looked.unwrap_or_else(|error| Err(error.to_string()));
        match looked {
            Ok(parts) => {
                last_failure.clear();
                for part in parts {
                    tracing::info!(part, "read again after a change");
                }
            }
            // The same complaint every few seconds helps nobody.
            Err(failure) if failure == last_failure => {}
            Err(failure) => {
                tracing::warn!(%failure, "the state from before stays in use");
                last_failure = failure;
            }
        }
    }
}

fn stamps(files: &[PathBuf]) -> Vec<Stamp> {
    files.iter().map(|file| stamp(file)).collect()
}

fn stamp(file: &Path) -> Stamp {
    use std::os::unix::fs::MetadataExt as _;
    let found = std::fs::metadata(file).ok()?;
    Some((found.modified().ok()?, found.len(), found.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn a_part_is_read_again_when_its_file_changes_and_tried_again_when_that_fails() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ca.crt");
        std::fs::write(&file, "one").unwrap();
        let reads = Arc::new(AtomicUsize::new(0));
        let reload = Reload::default();
        let (counted, read_from) = (Arc::clone(&reads), file.clone());
        reload.add("authorities", vec![file.clone()], move || {
            counted.fetch_add(1, Ordering::SeqCst);
            match std::fs::read_to_string(&read_from) {
                Ok(text) if text == "broken" => Err("it is broken".into()),
                _ => Ok(()),
            }
        });
        assert_eq!(reload.now(), Ok(vec![]));
        std::fs::write(&file, "another").unwrap();
        assert_eq!(reload.now(), Ok(vec!["authorities"]));
        assert_eq!(reload.now(), Ok(vec![]));
        std::fs::write(&file, "broken").unwrap();
        for _ in 0..2 {
            let failure = reload.now().unwrap_err();
            assert_eq!(failure, "authorities cannot be read again: it is broken");
        }
        assert_eq!(reads.load(Ordering::SeqCst), 3);
    }
}
