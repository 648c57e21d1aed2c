//! The disks of a machine: block devices at their LUN in its own `/dev`, and in nobody else's.
//!
//! `disks.json` says which it is to have, and counts its changes. The supervisor follows it: it holds the devices,
//! has the machine's `/dev` changed, and answers in `plugged.json` with the count that it has come to. A disk that is
//! unplugged while the machine uses it is unmounted there, as far as that goes; who still holds on to it then is killed.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags};
use rustix::fd::{AsFd as _, OwnedFd};
use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::mount::UnmountFlags;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::ThreadNameSpaceType;
use serde::{Deserialize, Serialize};

use super::loops::Loop;
use super::patience::wait_until;
use super::record::{Home, Process};
use super::{Launcher, cgroups, devices, enter, supervisor};
use crate::{Disk, Error};

/// How long a program may hold on to a disk that is unplugged, before and after it is killed.
const LETTING_GO: Duration = Duration::from_secs(5);

/// Where a process's mounts are seen from. Of mounts alone the kernel lets nobody in whose root is shared with another
/// thread; with a second one it makes a root for the thread that enters.
const MOUNTS: ThreadNameSpaceType =
    ThreadNameSpaceType::MOUNT.union(ThreadNameSpaceType::HOST_NAME_AND_NIS_DOMAIN_NAME);

/// What a machine is to have.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Wanted {
    /// How often this was changed.
    pub(crate) count: u64,
    pub(crate) disks: Vec<Disk>,
}

/// What became of it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Plugged {
    pub(crate) count: u64,
    pub(crate) trouble: Option<String>,
}

/// A disk as the machine's `/dev` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Plug {
    pub(crate) lun: u32,
    /// The number of its device.
    pub(crate) number: u64,
}

/// The disks that a supervisor holds for its machine.
#[derive(Debug)]
pub(crate) struct Disks {
    held: BTreeMap<(u32, PathBuf), Loop>,
    followed: u64,
    /// Says when files of the machine's directory are replaced.
    news: OwnedFd,
}

impl Disks {
    /// Attaches what the machine is to have when it starts.
    pub(crate) fn open(home: &Home) -> Result<Disks, Error> {
        let news = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)
            .map_err(Error::kernel("watch the machine's directory"))?;
        inotify::add_watch(&news, home.path(), WatchFlags::MOVED_TO)
            .map_err(Error::file("watch", home.path()))?;
        let mut disks = Disks {
            held: BTreeMap::new(),
            followed: 0,
            news,
        };
        let wanted = home.disks()?;
        disks.attach(&wanted)?;
        disks.answer(home, &wanted, &Ok(()))?;
        Ok(disks)
    }

    /// What `/dev` of the machine is to show.
    pub(crate) fn plugs(&self) -> Vec<Plug> {
        let held = self.held.iter();
        held.map(|((lun, _), device)| Plug {
            lun: *lun,
            number: device.number,
        })
        .collect()
    }

    /// What to wait on for [`Disks::follow`].
    pub(crate) fn news(&self) -> PollFd<'_> {
        PollFd::from_borrowed_fd(self.news.as_fd(), PollFlags::IN)
    }

    /// Brings the machine to what it is to have now.
    pub(crate) fn follow(&mut self, launcher: &Launcher, home: &Home) -> Result<(), Error> {
        let mut told = [0; 4096];
        while rustix::io::read(&self.news, &mut told).is_ok() {}
        let wanted = home.disks()?;
        if wanted.count == self.followed {
            return Ok(());
        }
        supervisor::own_pid_namespace()?;
        let outcome = self.bring(launcher, home, &wanted);
        self.answer(home, &wanted, &outcome)
    }

    fn bring(&mut self, launcher: &Launcher, home: &Home, wanted: &Wanted) -> Result<(), Error> {
        let is_wanted =
            |lun: &u32, file: &Path| wanted.disks.iter().any(|d| d.lun == *lun && d.file == file);
        let gone: Vec<(u32, PathBuf)> = self.held.keys().cloned().collect();
        let gone = gone.into_iter().filter(|(lun, file)| !is_wanted(lun, file));
        // Held until nobody in the machine uses it: the next to attach it must find all that was written.
        let gone: Vec<Loop> = gone.filter_map(|key| self.held.remove(&key)).collect();
        let attached = self.attach(wanted);
        let record = home.record()?;
        home.write_record(&super::record::Record {
            disks: self.plugs(),
            ..record.clone()
        })?;
        let group = record.group.unwrap_or_default();
        if record.init.is_some_and(Process::is_alive) {
            child(launcher, &["plug".as_ref(), home.path().as_os_str()])?;
            for device in &gone {
                let_go(launcher, &group, device.number)?;
            }
        }
        attached
    }

    // All that can be, also when the first cannot.
    fn attach(&mut self, wanted: &Wanted) -> Result<(), Error> {
        let mut trouble = Ok(());
        for Disk { lun, file } in &wanted.disks {
            let key = (*lun, file.clone());
            if self.held.contains_key(&key) {
                continue;
            }
            match Loop::of(file) {
                Ok(device) => drop(self.held.insert(key, device)),
                Err(error) => trouble = Err(error),
            }
        }
        trouble
    }

    fn answer(
        &mut self,
        home: &Home,
        wanted: &Wanted,
        outcome: &Result<(), Error>,
    ) -> Result<(), Error> {
        self.followed = wanted.count;
        home.write_plugged(&Plugged {
            count: wanted.count,
            trouble: outcome.as_ref().err().map(ToString::to_string),
        })
    }
}

// What changes namespaces is a process of its own.
fn child(launcher: &Launcher, words: &[&std::ffi::OsStr]) -> Result<(), Error> {
    let (word, rest) = words.split_first().expect("callers name what to do");
    let mut command = launcher.command(&word.to_string_lossy());
    command
        .args(rest)
        .stdin(Stdio::null())
        .stdout(Stdio::null());
    let output = command
        .stderr(Stdio::piped())
        .output()
        .map_err(Error::kernel("run the launcher"))?;
    match output.status.success() {
        true => Ok(()),
        false => Err(Error::Start(
            String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        )),
    }
}

/// Changes the `/dev` of a machine that runs to what is recorded.
pub(crate) fn plug(home: PathBuf) -> Result<(), Error> {
    let record = Home::at(home).record()?;
    if let Some(init) = record.init {
        enter::move_into(init, MOUNTS)?;
        devices::show_disks(Path::new("/dev"), &record.disks)?;
    }
    Ok(())
}

// Nobody in the machine uses the device any more.
fn let_go(launcher: &Launcher, group: &str, number: u64) -> Result<(), Error> {
    let hierarchies = cgroups::of_this_host()?;
    let processes = || cgroups::processes_of(&hierarchies, group);
    for pid in one_of_each_namespace(&processes()) {
        // A process that has just ended has let go.
        let _ = child(
            launcher,
            &[
                "unmount".as_ref(),
                pid.to_string().as_ref(),
                number.to_string().as_ref(),
            ],
        );
    }
    let users = || -> Vec<i32> {
        let all = processes().into_iter();
        all.filter(|pid| uses(*pid, number)).collect()
    };
    if wait_until(LETTING_GO, || Ok(users().is_empty()))? {
        return Ok(());
    }
    let gone = wait_until(LETTING_GO, || {
        for pid in users().into_iter().filter_map(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
        Ok(users().is_empty())
    })?;
    match gone {
        true => Ok(()),
        false => Err(Error::Remains(
            "a program of the machine does not let go of the disk".to_owned(),
        )),
    }
}

// Containers of the machine have mounts of their own.
fn one_of_each_namespace(processes: &[i32]) -> Vec<i32> {
    let mut seen = BTreeMap::new();
    for pid in processes {
        if let Ok(namespace) = fs::metadata(format!("/proc/{pid}/ns/mnt")) {
            seen.entry(namespace.ino()).or_insert(*pid);
        }
    }
    seen.into_values().collect()
}

// Whether a process has the device open, or a file on it.
fn uses(pid: i32, number: u64) -> bool {
    let own = ["cwd", "root", "exe"].map(|name| PathBuf::from(format!("/proc/{pid}/{name}")));
    let open = fs::read_dir(format!("/proc/{pid}/fd"))
        .into_iter()
        .flatten();
    let all = open.flatten().map(|entry| entry.path()).chain(own);
    all.filter_map(|path| fs::metadata(path).ok())
        .any(|file| file.dev() == number || (file.rdev() == number && is_block(&file)))
}

fn is_block(file: &fs::Metadata) -> bool {
    std::os::unix::fs::FileTypeExt::is_block_device(&file.file_type())
}

/// Takes away what a process's namespace has mounted of a device.
pub(crate) fn unmount(pid: &str, number: &str) -> Result<(), Error> {
    let path = PathBuf::from(format!("/proc/{pid}/mountinfo"));
    let mounts = fs::read_to_string(&path).map_err(Error::file("read", &path))?;
    let process = pid.parse().ok().and_then(Process::of);
    let (Some(process), Ok(number)) = (process, number.parse::<u64>()) else {
        return Ok(());
    };
    let places = mounted(&mounts, number);
    if places.is_empty() {
        return Ok(());
    }
    enter::move_into(process, MOUNTS)?;
    // What was mounted last lies on top.
    for place in places.iter().rev() {
        let _ = rustix::mount::unmount(place, UnmountFlags::DETACH);
    }
    Ok(())
}

/// Where a device is mounted, by a mount table as `/proc/self/mountinfo` shows it.
fn mounted(mountinfo: &str, number: u64) -> Vec<PathBuf> {
    let device = format!(
        "{}:{}",
        rustix::fs::major(number),
        rustix::fs::minor(number)
    );
    let rows = mountinfo.lines().map(|line| line.split(' '));
    rows.filter_map(|mut row| {
        (row.nth(2)? == device).then_some(())?;
        Some(PathBuf::from(unescaped(row.nth(1)?)))
    })
    .collect()
}

// Blanks and backslashes are written as three octal digits.
fn unescaped(text: &str) -> String {
    let mut parts = text.split('\\');
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |mut done, part| {
        let code = part
            .get(..3)
            .and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match code {
            Some(byte) => {
                done.push(byte as char);
                done.push_str(&part[3..]);
            }
            None => {
                done.push('\\');
                done.push_str(part);
            }
        }
        done
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mounts_of_a_device_are_found_with_blanks_in_their_names() {
        let table = "36 35 7:3 / /mnt/a\\040b rw - ext4 /dev/sdc rw\n\
            37 35 7:4 / /mnt/other rw - ext4 /dev/sdd rw\n\
            38 36 7:3 /x /mnt/a\\040b/c rw shared:1 - ext4 /dev/sdc rw\n";
        let number = rustix::fs::makedev(7, 3);
        let expected = ["/mnt/a b", "/mnt/a b/c"].map(PathBuf::from);
        assert_eq!(mounted(table, number), expected);
    }
}
