//! Network namespaces of containers.

use std::fs::{self, File};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use serde::{Deserialize, Serialize};

use crate::error::{Code, Error};

/// The type of the kernel's file system of namespaces, from its `magic.h`.
const NSFS_MAGIC: u32 = 0x6e73_6673;

/// What tells one namespace from another that later has its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    device: u64,
    inode: u64,
}

/// A namespace that is there.
#[derive(Debug)]
pub(crate) struct Namespace {
    file: File,
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
}

impl Namespace {
    pub(crate) fn open(path: &Path) -> Result<Namespace, Error> {
        let none = |cause: String| {
            let message = format!("failed to open netns `{}`", path.display());
            Error::new(Code::InvalidNamespace, message).because(cause)
        };
        let file = File::open(path).map_err(|e| none(e.to_string()))?;
        let kind = rustix::fs::fstatfs(&file).map_err(|e| none(e.to_string()))?;
        if kind.f_type as u32 != NSFS_MAGIC {
            return Err(none("it is not a namespace".to_owned()));
        }
        let metadata = file.metadata().map_err(|e| none(e.to_string()))?;
        Ok(Namespace {
            file,
            path: path.to_owned(),
            identity: identity(&metadata),
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Whether it is the one that the calling thread is in.
    pub(crate) fn is_own(&self) -> bool {
        fs::metadata("/proc/thread-self/ns/net").is_ok_and(|own| identity(&own) == self.identity)
    }

    /// Runs something inside, on a thread of its own: the caller stays where it is.
    pub(crate) fn inside<T: Send>(
        &self,
        work: impl FnOnce() -> Result<T, Error> + Send,
    ) -> Result<T, Error> {
        std::thread::scope(|scope| {
            let inside = scope.spawn(|| {
                move_into_link_name_space(self.fd(), Some(LinkNameSpaceType::Network))
                    .map_err(|e| Error::kernel("enter the container's namespace")(e.into()))?;
                work()
            });
            match inside.join() {
                Ok(done) => done,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

/// Whether the namespace that had this path then is still there.
pub(crate) fn is_alive(path: &Path, then: Option<Identity>) -> bool {
    Namespace::open(path).is_ok_and(|now| then.is_none_or(|then| then == now.identity))
}

fn identity(metadata: &fs::Metadata) -> Identity {
    Identity {
        device: metadata.dev(),
        inode: metadata.ino(),
    }
}

/// Sets a kernel setting of the calling thread's namespace, where it is not so already.
pub(crate) fn set(path: &str, wanted: &str) -> Result<(), Error> {
    let path = Path::new("/proc/sys/net").join(path);
    match fs::read_to_string(&path) {
        Ok(now) if now.trim() == wanted => Ok(()),
        // A kernel without IPv6 has none of its settings.
        Err(_) => Ok(()),
        Ok(_) => fs::write(&path, wanted).map_err(Error::file("set", &path)),
    }
}
