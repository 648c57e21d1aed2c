//! A machine's control groups: one in every hierarchy that this host has, whichever layout it uses.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::patience::wait_until;
use crate::Error;

/// Where every host mounts them.
pub(crate) const MOUNT: &str = "/sys/fs/cgroup";

/// The directory of ours in every hierarchy.
const PARENT: &str = "kyanite";

/// What a mount of version 1 may carry; other options are not part of what makes the hierarchy.
const CONTROLLERS: [&str; 13] = [
    "cpu",
    "cpuacct",
    "cpuset",
    "memory",
    "devices",
    "freezer",
    "blkio",
    "pids",
    "net_cls",
    "net_prio",
    "perf_event",
    "hugetlb",
    "rdma",
];

/// How long the kernel may take to let go of a group whose processes have ended.
const LETTING_GO: Duration = Duration::from_secs(10);

/// One tree of control groups.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Hierarchy {
    /// Its mount point, below [`MOUNT`].
    pub(crate) mount: PathBuf,
    pub(crate) version: Version,
}

/// What to mount to see it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Version {
    /// Controllers, or `name=systemd`.
    One(Vec<String>),
    Two,
}

/// The hierarchies of this host.
pub(crate) fn of_this_host() -> Result<Vec<Hierarchy>, Error> {
    let path = Path::new("/proc/self/mountinfo");
    let mounts = fs::read_to_string(path).map_err(Error::file("read", path))?;
    Ok(hierarchies(&mounts))
}

/// The hierarchies in a mount table as `/proc/self/mountinfo` shows it.
pub(crate) fn hierarchies(mountinfo: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for hierarchy in mountinfo.lines().filter_map(hierarchy) {
        if !found.iter().any(|other| other.mount == hierarchy.mount) {
            found.push(hierarchy);
        }
    }
    found
}

fn hierarchy(line: &str) -> Option<Hierarchy> {
    let (place, file_system) = line.split_once(" - ")?;
    let mount = PathBuf::from(place.split(' ').nth(4)?);
    let mut fields = file_system.split(' ');
    let kind = fields.next()?;
    let options = fields.nth(1)?.split(',');
    let version = match kind {
        "cgroup2" => Version::Two,
        "cgroup" => Version::One(
            options
                .filter(|o| CONTROLLERS.contains(o) || o.starts_with("name="))
                .map(str::to_owned)
                .collect(),
        ),
        _ => return None,
    };
    mount
        .starts_with(MOUNT)
        .then_some(Hierarchy { mount, version })
}

impl Hierarchy {
    /// Whether systemd can keep its units in it.
    pub(crate) fn suits_systemd(&self) -> bool {
        self.version == Version::Two || self.has("name=systemd")
    }

    /// The directory of a group.
    pub(crate) fn group(&self, group: &str) -> PathBuf {
        self.mount.join(PARENT).join(group)
    }

    fn has(&self, controller: &str) -> bool {
        matches!(&self.version, Version::One(names) if names.iter().any(|n| n == controller))
    }

    fn make(&self, group: &str) -> Result<(), Error> {
        let parent = self.mount.join(PARENT);
        let group = self.group(group);
        // Another machine may just have taken the shared parent away.
        let made = (0..3)
            .map(|_| fs::create_dir_all(&group))
            .find_map(Result::ok);
        if made.is_none() {
            fs::create_dir_all(&group).map_err(Error::file("make the control group", &group))?;
        }
        match &self.version {
            Version::Two => {
                pass_down_controllers(&self.mount);
                pass_down_controllers(&parent);
            }
            Version::One(_) if self.has("cpuset") => {
                // A new cpuset has neither processors nor memory, and nothing can run in it.
                inherit_cpuset(&self.mount, &parent)?;
                inherit_cpuset(&parent, &group)?;
            }
            Version::One(_) => {}
        }
        Ok(())
    }
}

// What cannot be passed down (a controller that version 1 has taken, a root that has processes) is missing in
// the machine and nowhere else.
fn pass_down_controllers(group: &Path) {
    let available = fs::read_to_string(group.join("cgroup.controllers")).unwrap_or_default();
    for controller in available.split_ascii_whitespace() {
        let _ = fs::write(
            group.join("cgroup.subtree_control"),
            format!("+{controller}"),
        );
    }
}

fn inherit_cpuset(from: &Path, to: &Path) -> Result<(), Error> {
    for file in ["cpuset.cpus", "cpuset.mems"] {
        let (from, to) = (from.join(file), to.join(file));
        let value = fs::read(&from).map_err(Error::file("read", &from))?;
        fs::write(&to, value).map_err(Error::file("write", &to))?;
    }
    Ok(())
}

/// Makes the group in every hierarchy.
pub(crate) fn make(hierarchies: &[Hierarchy], group: &str) -> Result<(), Error> {
    hierarchies.iter().try_for_each(|h| h.make(group))
}

/// Moves the calling process into the group.
pub(crate) fn join(hierarchies: &[Hierarchy], group: &str) -> Result<(), Error> {
    for hierarchy in hierarchies {
        // In version 2 a group with groups below it has no processes: systemd's own place is `init.scope`.
        let whole = hierarchy.group(group);
        let systemd = whole.join("init.scope");
        let place = if systemd.is_dir() { systemd } else { whole };
        let file = place.join("cgroup.procs");
        fs::write(&file, "0").map_err(Error::file("join", &file))?;
    }
    Ok(())
}

/// Stops every process of the group where it is, or lets them go on. In version 2 where there is one: there a frozen
/// process can still be killed.
pub(crate) fn freeze(hierarchies: &[Hierarchy], group: &str, frozen: bool) -> Result<(), Error> {
    let two = hierarchies.iter().find(|h| h.version == Version::Two);
    let one = hierarchies.iter().find(|h| h.has("freezer"));
    let (file, word) = match (two, one) {
        (Some(h), _) => (
            h.group(group).join("cgroup.freeze"),
            if frozen { "1" } else { "0" },
        ),
        (None, Some(h)) => {
            let word = if frozen { "FROZEN" } else { "THAWED" };
            (h.group(group).join("freezer.state"), word)
        }
        (None, None) => {
            return Err(Error::Remains(
                "this host cannot freeze processes".to_owned(),
            ));
        }
    };
    fs::write(&file, word).map_err(Error::file("write", &file))
}

/// Ends every process of the group and takes the group away; one that is not there is gone already.
pub(crate) fn remove(hierarchies: &[Hierarchy], group: &str) -> Result<(), Error> {
    let groups: Vec<PathBuf> = hierarchies.iter().map(|h| h.group(group)).collect();
    let gone = wait_until(LETTING_GO, || {
        groups.iter().for_each(|g| end_processes(g));
        // Every one of them, also when the first does not go yet.
        Ok(groups.iter().filter(|g| !try_remove(g)).count() == 0)
    })?;
    if !gone {
        return Err(Error::Remains(format!(
            "the control group `{group}` does not go away; {MOUNT}/*/{PARENT}/{group}/cgroup.procs says who is in it"
        )));
    }
    for hierarchy in hierarchies {
        // Other machines keep it.
        let _ = fs::remove_dir(hierarchy.mount.join(PARENT));
    }
    Ok(())
}

fn try_remove(group: &Path) -> bool {
    for child in children(group) {
        try_remove(&child);
    }
    match fs::remove_dir(group) {
        Ok(()) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    }
}

fn end_processes(group: &Path) {
    for pid in processes(group) {
        if let Some(pid) = Pid::from_raw(pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}

/// The processes of a machine's group, as this host counts.
pub(crate) fn processes_of(hierarchies: &[Hierarchy], group: &str) -> Vec<i32> {
    let all = hierarchies.iter().map(|h| processes(&h.group(group)));
    let all: BTreeSet<i32> = all.flatten().collect();
    all.into_iter().collect()
}

/// The processes in a group and below.
fn processes(group: &Path) -> BTreeSet<i32> {
    let own = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    let mut all: BTreeSet<i32> = own.lines().filter_map(|line| line.parse().ok()).collect();
    all.extend(children(group).iter().flat_map(|child| processes(child)));
    all
}

fn children(group: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(group).into_iter().flatten().flatten();
    let directories = entries.filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
    directories.map(|e| e.path()).collect()
}

#[cfg(test)]
mod tests;
