//! What was allocated and what was actuated, in files that outlive a kubelet.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use k8s_openapi::api::core::v1::ResourceRequirements;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use super::PodResources;

/// Upstream's name of the file with what was allocated.
pub const ALLOCATED: &str = "allocated_pods_state";
/// Upstream's name of the file with what was actuated.
pub const ACTUATED: &str = "actuated_pods_state";

/// Why a ledger cannot be read. Without it nobody knows what pods were promised, so nothing is guessed.
#[derive(Debug, thiserror::Error)]
#[error("`{}` cannot be used: {cause}; hint: drain this node and delete the file", path.display())]
pub struct Error {
    path: PathBuf,
    cause: String,
}

#[derive(Serialize, Deserialize)]
struct File {
    data: String,
    checksum: String,
}

type Entries = BTreeMap<String, PodResources>;

/// Resources of pods by UID, as a file.
#[derive(Debug)]
pub struct Ledger {
    path: PathBuf,
    entries: Mutex<Entries>,
}

impl Ledger {
    /// Reads the file, if there is one.
    pub fn open(directory: &Path, name: &str) -> Result<Self, Error> {
        let path = directory.join(name);
        let wrong = |cause: String| Error {
            path: path.clone(),
            cause,
        };
        let entries = match fs::read(&path) {
            Ok(bytes) => parse(&bytes).map_err(wrong)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Entries::new(),
            Err(error) => return Err(wrong(error.to_string())),
        };
        Ok(Self {
            entries: Mutex::new(entries),
            path,
        })
    }

    /// A pod's resources.
    pub fn get(&self, uid: &str) -> Option<PodResources> {
        self.lock().get(uid).cloned()
    }

    /// Notes a pod's resources.
    pub fn set(&self, uid: &str, resources: PodResources) {
        self.change(|entries| {
            let before = entries.insert(uid.to_owned(), resources.clone());
            before.as_ref() != Some(&resources)
        });
    }

    /// Notes the resources of one container.
    pub fn set_container(&self, uid: &str, name: &str, resources: ResourceRequirements) {
        self.change(|entries| {
            let all = &mut entries.entry(uid.to_owned()).or_default().containers;
            let before = all.insert(name.to_owned(), resources.clone());
            before.as_ref() != Some(&resources)
        });
    }

    /// Notes the resources of a pod as a whole.
    pub fn set_whole(&self, uid: &str, resources: Option<&ResourceRequirements>) {
        self.change(|entries| {
            let entry = entries.entry(uid.to_owned()).or_default();
            let changed = entry.pod.as_ref() != resources;
            entry.pod = resources.cloned();
            changed
        });
    }

    /// Forgets a pod.
    pub fn forget(&self, uid: &str) {
        self.change(|entries| entries.remove(uid).is_some());
    }

    /// Forgets all pods but these.
    pub fn keep_only(&self, uids: &BTreeSet<&str>) {
        self.change(|entries| {
            let before = entries.len();
            entries.retain(|uid, _| uids.contains(uid.as_str()));
            entries.len() != before
        });
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, change: impl FnOnce(&mut Entries) -> bool) {
        let mut entries = self.lock();
        if change(&mut entries)
            && let Err(error) = write(&self.path, &entries)
        {
            tracing::warn!(path = %self.path.display(), %error, "what pods were given cannot be written down");
        }
    }
}

fn parse(bytes: &[u8]) -> Result<Entries, String> {
    let file: File = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if file.checksum != checksum(&file.data) {
        return Err("its checksum is wrong".to_owned());
    }
    serde_json::from_str(&file.data).map_err(|error| error.to_string())
}

/// Whole or not at all. Not synced: after a power cut all containers start anew, with what their pods' specs say.
fn write(path: &Path, entries: &Entries) -> io::Result<()> {
    let data = serde_json::to_string(entries)?;
    let checksum = checksum(&data);
    let bytes = serde_json::to_vec(&File { data, checksum })?;
    let new = path.with_extension("new");
    let mut options = fs::OpenOptions::new();
    let options = options.create(true).write(true).truncate(true).mode(0o600);
    io::Write::write_all(&mut options.open(&new)?, &bytes)?;
    fs::rename(new, path)
}

fn checksum(data: &str) -> String {
    let digest = Sha256::digest(data.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use serde_json::json;

    #[test]
    fn what_was_noted_is_there_again_and_a_broken_file_stops_the_kubelet() {
        let directory = tempfile::tempdir().unwrap();
        let half: ResourceRequirements =
            serde_json::from_value(json!({"limits": {"cpu": "500m"}})).unwrap();
        let ledger = Ledger::open(directory.path(), ALLOCATED).unwrap();
        ledger.set_container("u", "c", half.clone());
        ledger.set("other", PodResources::default());
        ledger.keep_only(&BTreeSet::from(["u"]));
        let again = Ledger::open(directory.path(), ALLOCATED).unwrap();
        assert_eq!(again.get("u").unwrap().containers["c"], half);
        assert_eq!(again.get("other"), None);
        let path = directory.path().join(ALLOCATED);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("500m", "900m")).unwrap();
        let error = Ledger::open(directory.path(), ALLOCATED).unwrap_err();
        assert!(error.to_string().contains("drain this node"), "{error}");
    }
}
