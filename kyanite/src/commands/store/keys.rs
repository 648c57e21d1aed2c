//! The cluster's keys beside a backup: who trusts a restored cluster is decided by them, not by its objects.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::datadir::write_private;
use crate::exit::{Code, Failure, Result};

/// The files of a `pki` directory, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Keys {
    files: BTreeMap<String, String>,
}

/// Who trusts a cluster that was restored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trust {
    /// Everybody who trusted the old one: its keys came with the backup.
    Restored,
    /// Everybody who trusts this data directory: its keys stay.
    Kept,
    /// Nobody yet: new keys will be made.
    New,
}

/// Where the keys of a backup are.
pub(super) fn beside(backup: &Path) -> PathBuf {
    let mut name = backup.as_os_str().to_owned();
    name.push(".keys");
    PathBuf::from(name)
}

impl Keys {
    /// The keys of a data directory; none if it has none yet.
    pub(super) fn of(pki: &Path) -> Result<Keys> {
        let entries = match std::fs::read_dir(pki) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Ok(Keys::default());
            }
            Err(error) => return Err(Failure::file("read", pki, &error)),
        };
        let mut files = BTreeMap::new();
        for entry in entries.flatten() {
            let (path, name) = (entry.path(), entry.file_name());
            let Some(name) = name.to_str().filter(|name| is_key_file(name)) else {
                continue;
            };
            let text =
                std::fs::read_to_string(&path).map_err(|e| Failure::file("read", &path, &e))?;
            files.insert(name.to_owned(), text);
        }
        Ok(Keys { files })
    }

    /// The keys in a file beside a backup, if it is there.
    pub(super) fn read(path: &Path) -> Result<Option<Keys>> {
        let text = match std::fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(Failure::file("read", path, &error)),
        };
        let unusable = |why: String| {
            let what = format!("`{}` holds no keys of a cluster: {why}", path.display());
            Failure::new(Code::Failure, what)
                .hint("move it away to restore without keys; new ones will be made")
        };
        let keys: Keys = serde_json::from_str(&text).map_err(|e| unusable(e.to_string()))?;
        match keys.files.keys().find(|name| !is_key_file(name)) {
            Some(name) => Err(unusable(format!("it names `{name}`"))),
            None => Ok(Some(keys)),
        }
    }

    pub(super) fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).expect("names and texts are JSON");
        write_private(path, text.as_bytes())
    }

    pub(super) fn put_into(&self, pki: &Path) -> Result<()> {
        let mut files = self.files.iter();
        files.try_for_each(|(name, text)| write_private(&pki.join(name), text.as_bytes()))
    }

    /// What makes the cluster the one it is: its authorities and the key of its tokens.
    fn identity(&self) -> Option<(&String, &String)> {
        Some((self.files.get("ca.key")?, self.files.get("sa.key")?))
    }
}

// A plain name of a certificate or key, so that nothing is written elsewhere.
fn is_key_file(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '.';
    let known = [".crt", ".key", ".pub", "encryption.yaml"];
    name.chars().all(plain) && !name.starts_with('.') && known.iter().any(|end| name.ends_with(end))
}

impl Trust {
    /// Which case a restore is, or why it may not be: a directory with keys of another cluster keeps them.
    pub(super) fn of(saved: Option<&Keys>, present: &Keys) -> Result<Trust> {
        let saved = saved.and_then(Keys::identity);
        match (saved, present.identity()) {
            (None, None) => Ok(Trust::New),
            (None, Some(_)) => Ok(Trust::Kept),
            (Some(_), None) => Ok(Trust::Restored),
            (Some(saved), Some(present)) if saved == present => Ok(Trust::Kept),
            (Some(_), Some(_)) => {
                let what = "the backup comes with keys, and this data directory has others";
                Err(Failure::new(Code::Conflict, what).hint(
                    "restore into a new data directory, or move FILE.keys away to keep the keys that are here",
                ))
            }
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Trust::Restored => "restored",
            Trust::Kept => "kept",
            Trust::New => "new",
        }
    }

    pub(super) fn explain(self) -> &'static str {
        match self {
            Trust::Restored => {
                "its keys are back, too: nodes, tokens and kubeconfigs of the old cluster are trusted as before"
            }
            Trust::Kept => {
                "the keys of this data directory stay: whoever was trusted here still is"
            }
            Trust::New => {
                "no keys came with the backup: `kyanite up` will make new ones, and the nodes, tokens and kubeconfigs of the \
                 old cluster will not be trusted (`kyanite store backup --keys` saves them, too)"
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(of: &str) -> Keys {
        let names = ["ca.crt", "ca.key", "sa.key"];
        let files = names.map(|name| (name.to_owned(), format!("{of} {name}")));
        Keys {
            files: files.into_iter().collect(),
        }
    }

    #[test]
    fn a_restore_says_whose_trust_the_cluster_has() {
        let (old, new, none) = (keys("old"), keys("new"), Keys::default());
        let cases = [
            (None, &none, Some(Trust::New)),
            (None, &new, Some(Trust::Kept)),
            (Some(&old), &none, Some(Trust::Restored)),
            (Some(&old), &old, Some(Trust::Kept)),
            (Some(&old), &new, None),
        ];
        for (saved, present, expected) in cases {
            assert_eq!(Trust::of(saved, present).ok(), expected, "{saved:?}");
        }
    }

    #[test]
    fn keys_go_out_and_come_back_and_nobody_else_reads_them() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().expect("a directory");
        let (pki, file) = (dir.path().join("pki"), dir.path().join("backup.keys"));
        assert_eq!(Keys::of(&pki).expect("none yet"), Keys::default());
        assert_eq!(Keys::read(&file).expect("none yet"), None);
        std::fs::create_dir(&pki).expect("made");
        keys("old").put_into(&pki).expect("written");
        std::fs::write(pki.join("note.txt"), "not ours").expect("written");
        let read = Keys::of(&pki).expect("read");
        assert_eq!(read, keys("old"));
        read.write(&file).expect("written");
        let mode = std::fs::metadata(&file)
            .expect("there")
            .permissions()
            .mode();
        assert_eq!(mode & 0o777, 0o600);
        assert_eq!(Keys::read(&file).expect("read"), Some(keys("old")));
    }

    #[test]
    fn a_file_that_names_other_places_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let file = dir.path().join("keys");
        for name in ["../x.key", "/etc/x.key", ".x.key", "passwd", "a/b.crt"] {
            let text = serde_json::json!({"files": {name: "x"}}).to_string();
            std::fs::write(&file, text).expect("written");
            assert!(Keys::read(&file).is_err(), "{name}");
        }
    }
}
