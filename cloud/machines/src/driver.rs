//! The boundary between the cloud and what its machines are made of.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;

use crate::{Missing, Spec};

/// Something that can be a machine.
pub trait Driver: Send + Sync {
    /// Starts a machine: a new one, or one that was powered off, with the disk it had.
    ///
    /// Returns when its first process runs; what that process then starts takes its time.
    fn boot(&self, spec: &Spec) -> Result<(), Error>;

    /// Stops a machine and waits until it has stopped; one that is off already stays off.
    fn power_off(&self, name: &str, how: PowerOff) -> Result<(), Error>;

    /// How the machine is.
    fn state(&self, name: &str) -> Result<State, Error>;

    /// Pulls the plug if need be and forgets the machine with its disk.
    fn remove(&self, name: &str) -> Result<(), Error>;
}

/// Two ways to stop a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerOff {
    /// Ask it to shut down, and pull the plug when it has not within this time.
    Button(Duration),
    /// Pull the plug.
    Plug,
}

/// What a machine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Its first process runs.
    Running,
    /// It runs, but nobody watches it: its supervisor was killed. A sweep ends it.
    Orphaned,
    /// It does not run; its disk is kept.
    Off,
}

/// Why a machine could not be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The name cannot be used.
    #[error(
        "`{0}` is not a name for a machine or network: letters, digits, `-`, `_` and `.`, at most 63, starting with a letter or digit"
    )]
    Name(String),
    /// There is no such machine.
    #[error("there is no machine called `{0}`")]
    NotFound(String),
    /// There is no such network.
    #[error("there is no network called `{0}`")]
    NoNetwork(String),
    /// It runs already.
    #[error("the machine `{0}` is running already")]
    Running(String),
    /// It does not run.
    #[error("the machine `{0}` is not running")]
    Off(String),
    /// This host lacks something.
    #[error("this host cannot run machines: {}", list(.0))]
    Host(Vec<Missing>),
    /// The launcher said why not.
    #[error("the machine `{name}` did not start: {cause}")]
    Boot {
        /// Which one.
        name: String,
        /// What its launcher said.
        cause: String,
    },
    /// A machine's disks are not as they should be.
    #[error("the disks of the machine `{name}` cannot be changed: {cause}")]
    Disks {
        /// Which machine.
        name: String,
        /// What its supervisor said.
        cause: String,
    },
    /// A file or directory did not do.
    #[error("cannot {doing} `{}`: {source}", path.display())]
    File {
        /// What was being done.
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
    /// The kernel refused.
    #[error("cannot {doing}: {source}")]
    Kernel {
        /// What was being done.
        doing: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The network could not be made.
    #[error("cannot {doing}: {source}")]
    Netlink {
        /// What was being done.
        doing: String,
        /// Why not.
        source: rtnetlink::Error,
    },
    /// The custom data is not what cloud-init would take.
    #[error("custom data: {0}")]
    CustomData(#[from] crate::custom_data::Error),
    /// What the first process said before it was systemd.
    #[error("{0}")]
    Start(String),
    /// Something outlived its end.
    #[error("{0}")]
    Remains(String),
}

fn list(missing: &[Missing]) -> String {
    let lines: Vec<String> = missing.iter().map(ToString::to_string).collect();
    lines.join("; ")
}

impl Error {
    /// For `map_err` on file operations.
    pub(crate) fn file<E: Into<std::io::Error>>(
        doing: &'static str,
        path: &Path,
    ) -> impl FnOnce(E) -> Error {
        move |source| Error::File {
            doing,
            path: path.to_owned(),
            source: source.into(),
        }
    }

    /// For `map_err` on system calls.
    pub(crate) fn kernel<E: Into<std::io::Error>>(
        doing: impl Into<String>,
    ) -> impl FnOnce(E) -> Error {
        move |source| Error::Kernel {
            doing: doing.into(),
            source: source.into(),
        }
    }
}
