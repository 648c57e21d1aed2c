//! The data directory: one private place for everything a cluster keeps.
//!
//! ```text
//! .kyanite     says that the directory is ours; without it nothing here is adopted or removed
//! name         the cluster's name: that of its context, and of this directory where nobody names one
//! pki/         CAs, certificates and keys; see `pki`
//! store/       the embedded store
//! machines/    the machines of its nodes and their network; images/ what they have from the start
//! kubeconfig   how to reach this server as admin; *.conf are those of the other roles
//! state.json   pid and address of the running server
//! lock         held by the running server
//! pools.json   which machines the cluster is to have
//! cloud/       the cloud's state; azure/ what az and the cloud controllers need; clusters/ and vms/ what stands behind its resources
//! konnectivity.sock  where the API server dials through the nodes' tunnels, if there are any
//! admin.sock   the running server's local door, for backups and new certificates
//! log          what the background server logs
//! ```

use std::fs::{DirBuilder, File, OpenOptions, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::cli::Place;
use crate::exit::{Code, Failure, Result};

/// Says that a directory is ours to change and to remove.
const MARKER: &str = ".kyanite";
/// What we make in one, for those that are older than the marker.
const KNOWN: [&str; 18] = [
    "name",
    "pki",
    "store",
    "machines",
    "images",
    "cloud",
    "azure",
    "clusters",
    "vms",
    "pools.json",
    "faults.json",
    "registry",
    "kubeconfig",
    "state.json",
    "lock",
    "konnectivity.sock",
    "admin.sock",
    "log",
];

/// Makes a directory that only its owner looks into, with those above it.
pub(crate) fn make_private(directory: &Path) -> Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true).mode(0o700);
    let made = builder.create(directory);
    made.map_err(|e| Failure::file("create", directory, &e))
}

/// The name of a cluster that nobody gave one.
pub(crate) const DEFAULT_NAME: &str = "kyanite";

/// A data directory.
#[derive(Debug, Clone)]
pub(crate) struct DataDir {
    path: PathBuf,
    name: String,
}

/// What a running server says about itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    pub(crate) pid: u32,
    pub(crate) server: String,
    /// RFC 3339.
    pub(crate) started: String,
    /// The kubeconfig that has our context.
    pub(crate) kubeconfig: PathBuf,
    /// What was current there before.
    pub(crate) previous_context: Option<String>,
    /// How many machines it has: what add-ons run on.
    #[serde(default)]
    pub(crate) machines: usize,
    /// Why its nodes are on paper, if they are and nobody asked for that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) on_paper: Option<String>,
    /// Where konnectivity agents connect, if they can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) konnectivity: Option<String>,
    /// Where the cloud is reached, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) cloud: Option<String>,
}

impl DataDir {
    /// The directory the flags name, without touching it.
    pub(crate) fn find(place: &Place) -> Result<DataDir> {
        let path = match &place.data_dir {
            Some(dir) => std::path::absolute(dir).map_err(|e| Failure::file("use", dir, &e))?,
            None => usual_place(place.name.as_deref())?,
        };
        let kept = std::fs::read_to_string(path.join("name")).ok();
        let kept = kept.map(|name| name.trim().to_owned());
        if let (Some(asked), Some(kept)) = (&place.name, &kept)
            && asked != kept
        {
            let what = format!("`{}` holds the cluster `{kept}`", path.display());
            return Err(Failure::new(Code::Conflict, what).hint(format!(
                "leave --data-dir out, or name another directory for `{asked}`"
            )));
        }
        let name = place.name.clone().or(kept);
        Ok(DataDir {
            path,
            name: name.unwrap_or_else(|| DEFAULT_NAME.to_owned()),
        })
    }

    /// The cluster's name.
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether Kyanite made it: it says so itself, or holds nothing but what Kyanite makes.
    pub(crate) fn is_ours(&self) -> bool {
        let entries = std::fs::read_dir(&self.path)
            .into_iter()
            .flatten()
            .flatten();
        let is_known = |name: &str| KNOWN.contains(&name) || name.ends_with(".conf");
        self.path.join(MARKER).exists()
            || entries
                .map(|entry| entry.file_name())
                .all(|name| name.to_str().is_some_and(is_known))
    }

    /// Refuses a directory of somebody else's.
    pub(crate) fn check(&self) -> Result<()> {
        if self.is_ours() {
            return Ok(());
        }
        let what = format!(
            "`{}` holds files that are not Kyanite's",
            self.path.display()
        );
        Err(Failure::new(Code::Conflict, what)
            .hint("name a new or an empty directory with --data-dir"))
    }

    /// Makes the directory and sees to it that nobody else can look inside.
    pub(crate) fn prepare(&self) -> Result<()> {
        self.check()?;
        for dir in [self.path.clone(), self.pki()] {
            DirBuilder::new()
                .recursive(true)
                .mode(0o700)
                .create(&dir)
                .and_then(|()| std::fs::set_permissions(&dir, Permissions::from_mode(0o700)))
                .map_err(|e| Failure::file("create", &dir, &e))?;
        }
        write_private(
            &self.path.join("name"),
            format!("{}\n", self.name).as_bytes(),
        )?;
        write_private(&self.path.join(MARKER), b"a data directory of Kyanite\n")
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn pki(&self) -> PathBuf {
        self.path.join("pki")
    }

    pub(crate) fn store(&self) -> PathBuf {
        self.path.join("store")
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.path.join("kubeconfig")
    }

    /// Archives of the images that nodes have from the start.
    pub(crate) fn images(&self) -> PathBuf {
        self.path.join("images")
    }

    /// Eight digits that tell this cluster's machines from those of others.
    pub(crate) fn number(&self) -> String {
        let digest = Sha256::digest(self.path.as_os_str().as_encoded_bytes());
        let number = digest
            .iter()
            .take(8)
            .fold(0u64, |n, byte| n << 8 | u64::from(*byte));
        format!("{:08}", number % 100_000_000)
    }

    /// Which machines the cluster is to have.
    pub(crate) fn pools(&self) -> PathBuf {
        self.path.join("pools.json")
    }

    /// The clusters that the cloud made, each with a data directory of its own.
    pub(crate) fn clusters(&self) -> Vec<DataDir> {
        let entries = std::fs::read_dir(self.path.join("clusters"));
        let entries = entries.into_iter().flatten().flatten();
        entries
            .map(|entry| self.cluster(&entry.file_name().to_string_lossy()))
            .collect()
    }

    /// The data directory of a cluster that the cloud made or is to make.
    pub(crate) fn cluster(&self, name: &str) -> DataDir {
        DataDir {
            path: self.path.join("clusters").join(name),
            // Azure's names may have what names of ours have not.
            name: name.replace('_', "-"),
        }
    }

    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("log")
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path.join("admin.sock")
    }

    /// Where the API server dials through the nodes' tunnels.
    pub(crate) fn tunnel_socket(&self) -> PathBuf {
        self.path.join("konnectivity.sock")
    }

    fn state_file(&self) -> PathBuf {
        self.path.join("state.json")
    }

    /// Takes the lock of the one server that may use this directory.
    pub(crate) fn lock(&self) -> Result<Option<File>> {
        let path = self.path.join("lock");
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path)
            .map_err(|e| Failure::file("open", &path, &e))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(file)),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(errno) => Err(Failure::file("lock", &path, &errno.into())),
        }
    }

    /// What the running server wrote about itself; `None` when none runs.
    pub(crate) fn running(&self) -> Result<Option<State>> {
        if !self.path.join("lock").exists() || self.lock()?.is_some() {
            return Ok(None);
        }
        let path = self.state_file();
        // Between taking the lock and writing its state a server is starting.
        let Ok(text) = std::fs::read_to_string(&path) else {
            return Err(Failure::new(
                Code::Unavailable,
                "a server is starting in this data directory",
            )
            .hint("wait a moment and try again"));
        };
        serde_json::from_str(&text).map(Some).map_err(|e| {
            Failure::new(
                Code::Failure,
                format!("`{}` cannot be read: {e}", path.display()),
            )
        })
    }

    /// What a server that did not end well left written about itself.
    pub(crate) fn left_behind(&self) -> Option<State> {
        let text = std::fs::read_to_string(self.state_file()).ok()?;
        serde_json::from_str(&text).ok()
    }

    pub(crate) fn write_state(&self, state: &State) -> Result<()> {
        let text = serde_json::to_string_pretty(state).expect("state is plain data");
        write_private(&self.state_file(), text.as_bytes())
    }

    /// Removes what a server that has ended left behind.
    pub(crate) fn clear_state(&self) {
        for path in [self.state_file(), self.socket()] {
            if let Err(error) = std::fs::remove_file(&path)
                && error.kind() != std::io::ErrorKind::NotFound
            {
                tracing::warn!(path = %path.display(), %error, "a stale file stays");
            }
        }
    }
}

// Where a cluster of this name lives if nobody says where.
fn usual_place(name: Option<&str>) -> Result<PathBuf> {
    let Some(home) = std::env::var_os("HOME") else {
        let failure = Failure::new(Code::Usage, "HOME is not set");
        return Err(failure.hint("name a directory with --data-dir"));
    };
    Ok(PathBuf::from(home).join(match name {
        None | Some(DEFAULT_NAME) => ".kyanite".to_owned(),
        Some(name) => format!(".kyanite-{name}"),
    }))
}

/// Writes a file that only its owner can read, all of it or nothing. It reaches the disk when the
/// system likes: everything written so can be made again.
pub(crate) fn write_private(path: &Path, bytes: &[u8]) -> Result<()> {
    let temporary = path.with_extension(format!("tmp{}", std::process::id()));
    let written = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)
        .and_then(|mut file| file.write_all(bytes))
        .and_then(|()| std::fs::rename(&temporary, path));
    written.map_err(|e| {
        let _ = std::fs::remove_file(&temporary);
        Failure::file("write", path, &e)
    })
}
