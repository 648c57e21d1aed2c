//! The books of a network: who has which addresses and ports. Whoever makes something has it in the books before,
//! and whoever takes something away has it in the books until it is gone: so the books know of everything there is.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};

use crate::conf::PortMapping;
use crate::error::Error;
use crate::firewall::Base;
use crate::ipam::Pick;
use crate::namespace::Identity;

/// One interface of one container.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attachment {
    pub(crate) container: String,
    pub(crate) interface: String,
    pub(crate) namespace: PathBuf,
    pub(crate) identity: Option<Identity>,
    /// The node's end of the cable.
    pub(crate) host: String,
    pub(crate) addresses: Vec<IpAddr>,
    #[serde(default)]
    pub(crate) ports: Vec<PortMapping>,
    /// Its turn: of two that want the same port, the later one gets it.
    pub(crate) order: u64,
    /// Everything has been made; until then a further ADD may begin anew.
    pub(crate) complete: bool,
}

/// What is in the books.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ledger {
    pub(crate) boot: String,
    pub(crate) orders: u64,
    /// The last address given of each set.
    pub(crate) last: BTreeMap<usize, IpAddr>,
    pub(crate) attachments: BTreeMap<String, Attachment>,
    /// The rules that the network needs besides those for ports.
    pub(crate) base: Base,
}

/// The key of an attachment.
pub(crate) fn key(container: &str, interface: &str) -> String {
    format!("{container}/{interface}")
}

impl Ledger {
    pub(crate) fn enter(&mut self, mut attachment: Attachment, picks: &[Pick]) {
        self.orders += 1;
        attachment.order = self.orders;
        attachment.addresses = picks.iter().map(|pick| pick.address).collect();
        self.last
            .extend(attachment.addresses.iter().copied().enumerate());
        let key = key(&attachment.container, &attachment.interface);
        self.attachments.insert(key, attachment);
    }
}

/// The books while nobody else has them.
#[derive(Debug)]
pub(crate) struct Books {
    _lock: File,
    path: PathBuf,
    /// Set when there were none that could be read: then the kernel must tell.
    pub(crate) lost: bool,
    pub(crate) ledger: Ledger,
}

impl Books {
    /// Takes the books; others wait. What an earlier boot wrote is void, as its namespaces are gone.
    pub(crate) fn take(directory: &Path) -> Result<Books, Error> {
        fs::create_dir_all(directory).map_err(Error::file("make", directory))?;
        let lock_path = directory.join("lock");
        let mut options = OpenOptions::new();
        options.create(true).append(true);
        let lock = options
            .open(&lock_path)
            .map_err(Error::file("open", &lock_path))?;
        rustix::fs::flock(lock.as_fd(), FlockOperation::LockExclusive)
            .map_err(Error::file("lock", &lock_path))?;
        let path = directory.join("ledger.json");
        let read = fs::read(&path).ok();
        let read = read.and_then(|bytes| serde_json::from_slice::<Ledger>(&bytes).ok());
        let boot = boot();
        let current = read.filter(|ledger| ledger.boot == boot);
        let lost = current.is_none();
        let ledger = current.unwrap_or_else(|| Ledger {
            boot,
            ..Ledger::default()
        });
        Ok(Books {
            _lock: lock,
            path,
            lost,
            ledger,
        })
    }

    /// Writes the books: the old ones or the new ones are there, whenever this is killed or the power goes.
    pub(crate) fn save(&self) -> Result<(), Error> {
        let text = serde_json::to_vec(&self.ledger).map_err(Error::file("write", &self.path))?;
        let new = self.path.with_extension("new");
        let write = || -> std::io::Result<()> {
            let mut file = File::create(&new)?;
            file.write_all(&text)?;
            file.sync_data()?;
            fs::rename(&new, &self.path)?;
            let directory = self.path.parent().unwrap_or(Path::new("/"));
            File::open(directory)?.sync_all()
        };
        write().map_err(Error::file("write", &self.path))
    }
}

fn boot() -> String {
    let id = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    id.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn books_of_another_boot_are_void_and_torn_ones_are_lost() {
        let directory = tempfile::tempdir().expect("a directory");
        let mut books = Books::take(directory.path()).expect("books");
        assert!(books.lost);
        let pod = Attachment {
            container: "a".to_owned(),
            ..Attachment::default()
        };
        books.ledger.enter(pod, &[]);
        books.save().expect("saved");
        let file = books.path.clone();
        drop(books);
        let again = Books::take(directory.path()).expect("books");
        assert_eq!((again.lost, again.ledger.attachments.len()), (false, 1));
        drop(again);
        let text = fs::read_to_string(&file).expect("a file");
        fs::write(&file, text.replace(&boot(), "another")).expect("written");
        let void = Books::take(directory.path()).expect("books");
        assert_eq!((void.lost, void.ledger.attachments.len()), (true, 0));
        drop(void);
        fs::write(&file, &text[..20]).expect("written");
        assert!(Books::take(directory.path()).expect("books").lost);
    }
}
