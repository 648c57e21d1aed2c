//! What a step wants of the host, as data: the engine compares, journals, applies and undoes it.

use std::fmt;
use std::path::{Path, PathBuf};

use crate::host::{Command, Owner};

/// A wish about one thing on the host. Paths are the machine's own (`/etc/…`), wherever its root is.
///
/// Missing parent directories of files, directories and links are made with mode 0755 and owner root, and go away again
/// on undo.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "a few hundred exist at a time, and plain values are easier to write down"
)]
pub enum Change {
    /// A directory with this mode and owner. What is inside is left alone.
    Directory {
        /// Where.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
        /// Who owns it.
        owner: Owner,
    },
    /// A regular file with exactly this content, mode and owner; replaced atomically.
    File(File),
    /// A symbolic link.
    Link {
        /// Where.
        path: PathBuf,
        /// What it points to, literally.
        target: PathBuf,
    },
    /// Nothing at this path: a file or link goes, a directory goes if it is empty.
    Absent {
        /// Where.
        path: PathBuf,
    },
    /// A value of the running kernel under `/proc/sys` or `/sys`: compared without surrounding white space, written in
    /// place. For a choice such as `always [madvise] never` the bracketed word is what counts.
    Setting {
        /// Where.
        path: PathBuf,
        /// The value, without a newline.
        value: String,
    },
    /// A command that is run unless its check says that there is nothing to do.
    Command(CommandChange),
    /// A systemd unit that is enabled, started, restarted or stopped as needed; its files are changes of their own.
    Unit(Unit),
}

/// A regular file.
#[derive(Clone, PartialEq, Eq)]
pub struct File {
    /// Where.
    pub path: PathBuf,
    /// What is in it.
    pub content: Content,
    /// Permission bits.
    pub mode: u32,
    /// Who owns it.
    pub owner: Owner,
    /// Never shown, not even as a difference.
    pub secret: bool,
}

/// Where the bytes of a file come from.
#[derive(Clone, PartialEq, Eq)]
pub enum Content {
    /// From here.
    Bytes(Vec<u8>),
    /// From another file of the host, which must exist when the change is applied.
    CopyOf(PathBuf),
    /// From the network; what does not have this SHA-256 (64 hexadecimal digits) is thrown away. With the file already
    /// there and right, nothing is fetched.
    Download {
        /// `http://` or `https://`; where the first does not have it the next is asked.
        urls: Vec<String>,
        /// The digest it must have.
        sha256: String,
    },
}

/// A command with the question that comes before it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommandChange {
    /// Names it in plans and in the journal; unique within its step.
    pub name: String,
    /// Says whether there is anything to do.
    pub check: Check,
    /// Does it. Runs again from its beginning when it was interrupted, so it must bear that.
    pub apply: Command,
    /// Takes it back.
    pub undo: Option<Command>,
}

/// How the engine knows that a command need not run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Check {
    /// This command exits with 0: nothing to do.
    Succeeds(Command),
    /// It ran to its end before, and these files (and everything in these directories) have not changed since.
    Inputs {
        /// What the command reads.
        paths: Vec<PathBuf>,
        /// Its effect ends with the machine's uptime, so it runs again after a reboot.
        per_boot: bool,
    },
    /// This path exists.
    Exists(PathBuf),
    /// This is a mount point.
    Mounted(PathBuf),
}

/// A systemd unit as it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unit {
    /// With its suffix: `kubelet.service`.
    pub name: String,
    /// Enabled at boot or not; `None` leaves it.
    pub enabled: Option<bool>,
    /// Running or not.
    pub goal: Goal,
    /// Files and directories it reads when it starts: it is restarted when they differ from what they were at its
    /// last start by us.
    pub inputs: Vec<PathBuf>,
    /// Do not wait for the unit's start to finish; a later probe asks for its health.
    pub no_block: bool,
}

/// The state a unit should be in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Goal {
    /// Active.
    Running,
    /// A oneshot that ran to its end since its inputs last changed.
    Ran,
    /// Not active.
    Stopped,
    /// As it is.
    AsIs,
}

impl Change {
    /// A directory of root's.
    pub fn directory(path: impl Into<PathBuf>, mode: u32) -> Change {
        Change::Directory {
            path: path.into(),
            mode,
            owner: Owner::ROOT,
        }
    }

    /// A file of root's.
    pub fn file(path: impl Into<PathBuf>, mode: u32, content: impl Into<Vec<u8>>) -> Change {
        Change::File(File::new(path, mode, Content::Bytes(content.into())))
    }

    /// A file of root's that nobody gets to see: mode 0600.
    pub fn secret_file(path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Change {
        Change::File(File {
            secret: true,
            ..File::new(path, 0o600, Content::Bytes(content.into()))
        })
    }

    /// A symbolic link.
    pub fn link(path: impl Into<PathBuf>, target: impl Into<PathBuf>) -> Change {
        Change::Link {
            path: path.into(),
            target: target.into(),
        }
    }

    /// Nothing at this path.
    pub fn absent(path: impl Into<PathBuf>) -> Change {
        Change::Absent { path: path.into() }
    }

    /// A value of the running kernel by its sysctl name, such as `net.ipv4.ip_forward`.
    pub fn sysctl(name: &str, value: impl Into<String>) -> Change {
        Change::Setting {
            path: Path::new("/proc/sys").join(name.replace('.', "/")),
            value: value.into(),
        }
    }

    /// A command that is run unless `check` says that it is not needed.
    pub fn command(name: impl Into<String>, check: Check, apply: Command) -> Change {
        Change::Command(CommandChange {
            name: name.into(),
            check,
            apply,
            undo: None,
        })
    }

    /// A unit that is enabled and running, restarted when `inputs` differ.
    pub fn running_unit(name: impl Into<String>, inputs: &[&str]) -> Change {
        Change::Unit(Unit {
            name: name.into(),
            enabled: Some(true),
            goal: Goal::Running,
            inputs: inputs.iter().map(PathBuf::from).collect(),
            no_block: false,
        })
    }

    /// A unit that is neither enabled nor running. One that does not exist is content.
    pub fn stopped_unit(name: impl Into<String>) -> Change {
        Change::Unit(Unit {
            name: name.into(),
            enabled: Some(false),
            goal: Goal::Stopped,
            inputs: Vec::new(),
            no_block: false,
        })
    }

    /// A mounted file system.
    pub fn mount(source: &str, target: &str, kind: &str, options: &str) -> Change {
        Change::Command(CommandChange {
            name: format!("mount {target}"),
            check: Check::Mounted(PathBuf::from(target)),
            apply: Command::new("mount", &["-t", kind, "-o", options, source, target]),
            undo: Some(Command::new("umount", &[target])),
        })
    }

    /// What it is about: a path, a unit, or a command's name.
    pub fn subject(&self) -> String {
        match self {
            Change::Directory { path, .. }
            | Change::Link { path, .. }
            | Change::Absent { path }
            | Change::Setting { path, .. } => path.display().to_string(),
            Change::File(file) => file.path.display().to_string(),
            Change::Command(command) => command.name.clone(),
            Change::Unit(unit) => unit.name.clone(),
        }
    }

    /// The path, where the change is about one.
    pub fn path(&self) -> Option<&Path> {
        match self {
            Change::Directory { path, .. }
            | Change::Link { path, .. }
            | Change::Absent { path }
            | Change::Setting { path, .. } => Some(path),
            Change::File(file) => Some(&file.path),
            Change::Command(_) | Change::Unit(_) => None,
        }
    }
}

impl File {
    /// A file of root's, not secret.
    pub fn new(path: impl Into<PathBuf>, mode: u32, content: Content) -> File {
        File {
            path: path.into(),
            content,
            mode,
            owner: Owner::ROOT,
            secret: false,
        }
    }
}

/// Contents stay out of debug output: some of them are secrets.
impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File")
            .field("path", &self.path)
            .field("mode", &format_args!("{:o}", self.mode))
            .field("secret", &self.secret)
            .finish_non_exhaustive()
    }
}
