//! A directory of machines that takes everything away with it, and says when something stays.

use std::fs;
use std::path::Path;

use harness::{eventually, skip};
use machines::{Driver as _, Launcher, Namespaces, Spec};

const LAUNCHER: &str = env!("CARGO_BIN_EXE_machine-launcher");

/// A place for machines; with it end all machines in it.
pub(crate) struct Host {
    pub(crate) driver: Namespaces,
    dir: tempfile::TempDir,
}

impl Host {
    /// Nothing when this host cannot run machines.
    pub(crate) fn new() -> Option<Host> {
        Host::with(Launcher::new(LAUNCHER, &[]))
    }

    /// A host as most are today: nothing but cgroup2.
    pub(crate) fn with_cgroup2_alone() -> Option<Host> {
        let remount =
            "umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec \"$@\"";
        let arguments = ["--mount", "/bin/sh", "-c", remount, "sh", LAUNCHER];
        Host::with(Launcher::new("/usr/bin/unshare", &arguments))
    }

    fn with(launcher: Launcher) -> Option<Host> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        let driver = Namespaces::new(dir.path(), launcher).expect("a driver");
        match driver.missing().as_slice() {
            [] => Some(Host { driver, dir }),
            missing => {
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                skip(&missing.join("; "));
                None
            }
        }
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Boots a machine and waits until it is up.
    pub(crate) fn boot(&self, spec: &Spec) {
        self.driver.boot(spec).expect("the machine starts");
        self.up(&spec.name);
    }

    /// Waits until everything that the machine starts has started; nothing may have failed.
    pub(crate) fn up(&self, name: &str) {
        let up = || {
            self.run(
                name,
                "systemctl is-active kyanite-machine.target && systemctl is-system-running",
            )
        };
        eventually(&format!("{name} is up"), || match up() {
            Ok(said) if said == "active\nrunning\n" => Ok(()),
            Ok(said) | Err(said) => Err(self.told(name, &said)),
        });
    }

    /// What this shell line prints in the machine, or prints and says when it fails.
    pub(crate) fn run(&self, name: &str, line: &str) -> Result<String, String> {
        let command = self.driver.command(name, ["/bin/bash", "-c", line]);
        let output = command
            .map_err(|e| e.to_string())?
            .output()
            .map_err(|e| e.to_string())?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.success() {
            true => Ok(text),
            false => Err(format!("{text}{}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    /// The same for what cannot fail.
    pub(crate) fn must(&self, name: &str, line: &str) -> String {
        self.run(name, line)
            .unwrap_or_else(|said| panic!("{line}: {}", self.told(name, &said)))
    }

    // A failure with the end of the machine's console.
    fn told(&self, name: &str, said: &str) -> String {
        let log = self.driver.console_log(name).map(fs::read_to_string);
        let console = log.ok().and_then(Result::ok).unwrap_or_default();
        let lines: Vec<&str> = console.lines().collect();
        let failed = self
            .run(name, "systemctl --failed --no-legend --no-pager")
            .unwrap_or_default();
        format!(
            "{said}\nfailed: {failed}\nconsole:\n{}",
            lines[lines.len().saturating_sub(15)..].join("\n")
        )
    }

    /// What is still there of machines: mounts, control groups and processes.
    pub(crate) fn remains(&self) -> Vec<String> {
        let here = self.dir.path().to_str().expect("a path in ASCII");
        let mounts = fs::read_to_string("/proc/self/mountinfo").expect("a mount table");
        let mut remains: Vec<String> = mounts
            .lines()
            .filter(|m| m.contains(here))
            .map(str::to_owned)
            .collect();
        let groups = self
            .driver
            .list()
            .expect("a list")
            .into_iter()
            .flat_map(|machine| groups_of(&machine.name));
        remains.extend(groups);
        remains.extend(
            processes(here)
                .into_iter()
                .map(|pid| format!("process {pid}")),
        );
        remains
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for machine in self.driver.list().unwrap_or_default() {
            let removed = self.driver.remove(&machine.name);
            assert!(removed.is_ok() || std::thread::panicking(), "{removed:?}");
            let left = groups_of(&machine.name);
            assert!(left.is_empty() || std::thread::panicking(), "{left:?}");
        }
        let swept = self.driver.sweep();
        assert!(swept.is_ok() || std::thread::panicking(), "{swept:?}");
        let remains = self.remains();
        assert!(
            remains.is_empty() || std::thread::panicking(),
            "{remains:#?}"
        );
    }
}

/// A machine's control groups in every hierarchy. Names of machines are unique among tests.
pub(crate) fn groups_of(name: &str) -> Vec<String> {
    let mut places = vec![Path::new("/sys/fs/cgroup").to_owned()];
    places.extend(
        fs::read_dir(&places[0])
            .into_iter()
            .flatten()
            .flatten()
            .map(|e| e.path()),
    );
    let groups = places
        .iter()
        .filter_map(|place| fs::read_dir(place.join("kyanite")).ok());
    let groups = groups
        .flatten()
        .flatten()
        .map(|e| e.path().display().to_string());
    groups
        .filter(|group| group.contains(&format!("/kyanite/{name}-")))
        .collect()
}

/// Processes that have this text in their arguments: supervisors have their machine's directory there.
pub(crate) fn processes(text: &str) -> Vec<i32> {
    let all = fs::read_dir("/proc").expect("/proc").flatten();
    let pids = all.filter_map(|e| e.file_name().to_str()?.parse().ok());
    let has = |pid: &i32| {
        let arguments = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&arguments).contains(text)
    };
    pids.filter(has).collect()
}
