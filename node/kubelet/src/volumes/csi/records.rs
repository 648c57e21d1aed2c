//! What is known of a volume that was published, in a file beside it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::super::layout::{Plugin, PodDirectory};

const FILE: &str = "vol_data.json";

/// Upstream's fields, so that either kubelet can take over from the other.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Record {
    #[serde(rename = "specVolID")]
    pub(super) name: String,
    pub(super) volume_handle: String,
    pub(super) driver_name: String,
    pub(super) node_name: String,
    #[serde(rename = "attachmentID", default)]
    pub(super) attachment: String,
    pub(super) volume_lifecycle_mode: String,
}

impl Record {
    pub(super) fn write(&self, place: &Path) -> Result<(), String> {
        let written = fs::create_dir_all(place)
            .and_then(|()| serde_json::to_vec(self).map_err(Into::into))
            .and_then(|bytes| fs::write(place.join(FILE), bytes));
        written.map_err(|error| format!("writing {}/{FILE}: {error}", place.display()))
    }

    /// Removes it and the directory it is in.
    pub(super) fn remove(place: &Path) -> Result<(), String> {
        let gone = |done: io::Result<()>| match done {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        gone(fs::remove_file(place.join(FILE)))
            .and_then(|()| gone(fs::remove_dir(place)))
            .map_err(|error| format!("removing {}: {error}", place.display()))
    }
}

/// The volumes of one pod, with their places.
pub(super) fn of_pod(pod: &PodDirectory) -> Vec<(PathBuf, Record)> {
    let places = pod.volumes().join(Plugin::Csi.directory());
    let entries = fs::read_dir(places).into_iter().flatten().flatten();
    let read = |place: PathBuf| {
        let bytes = fs::read(place.join(FILE)).ok()?;
        Some((place, serde_json::from_slice(&bytes).ok()?))
    };
    entries.filter_map(|entry| read(entry.path())).collect()
}

/// Those of all pods below the kubelet's directory, with their places.
pub(super) fn with_places(root: &Path) -> impl Iterator<Item = (PathBuf, Record)> {
    let pods = fs::read_dir(root.join("pods"));
    let pods = pods.into_iter().flatten().flatten();
    pods.flat_map(|pod| of_pod(&PodDirectory::at(&pod.path())))
}

/// Those of all pods.
pub(super) fn all(root: &Path) -> impl Iterator<Item = Record> {
    with_places(root).map(|(_, record)| record)
}
