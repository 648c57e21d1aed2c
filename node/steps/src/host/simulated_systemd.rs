//! As much of `systemctl` as provisioning uses, over a table of units.

use std::collections::BTreeMap;

use super::{Command, Files, Finished};

/// A unit of the simulated systemd.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnitRecord {
    /// Starts at boot.
    pub enabled: bool,
    /// Runs.
    pub active: bool,
    /// Its start fails.
    pub broken: bool,
    /// Ends by itself: never seen active.
    pub oneshot: bool,
    /// How often it was started or restarted.
    pub starts: u32,
}

/// Where unit files are.
const UNIT_DIRECTORIES: [&str; 3] = [
    "/etc/systemd/system",
    "/lib/systemd/system",
    "/usr/lib/systemd/system",
];

/// Units by name.
#[derive(Debug, Default)]
pub(super) struct Systemd {
    pub(super) units: BTreeMap<String, UnitRecord>,
}

impl Systemd {
    /// Answers one call.
    pub(super) fn call(&mut self, files: &Files, command: &Command) -> Finished {
        let words: Vec<&str> = command.arguments.iter().map(String::as_str).collect();
        let mut plain = words.iter().filter(|w| !w.starts_with('-'));
        let verb = plain.next().copied().unwrap_or_default();
        let now = words.contains(&"--now");
        let mut last = Finished::default();
        for &name in plain {
            let name = with_suffix(name);
            last = match self.find(files, &name) {
                None if verb == "show" => Finished::ok(SHOW_MISSING),
                None => Finished::failed(5, format!("Unit {name} not found.")),
                Some(unit) => act(unit, &name, verb, now),
            };
            if !last.success() {
                return last;
            }
        }
        last
    }

    fn find(&mut self, files: &Files, name: &str) -> Option<&mut UnitRecord> {
        let on_disk = || {
            UNIT_DIRECTORIES
                .iter()
                .any(|d| files.exists(std::path::Path::new(d).join(name)))
        };
        if !self.units.contains_key(name) && on_disk() {
            self.units.insert(name.to_owned(), UnitRecord::default());
        }
        self.units.get_mut(name)
    }
}

const SHOW_MISSING: &str =
    "LoadState=not-found\nActiveState=inactive\nUnitFileState=\nNeedDaemonReload=no\n";

fn with_suffix(name: &str) -> String {
    match name.contains('.') {
        true => name.to_owned(),
        false => format!("{name}.service"),
    }
}

fn act(unit: &mut UnitRecord, name: &str, verb: &str, now: bool) -> Finished {
    match verb {
        "show" => return Finished::ok(show(unit)),
        "is-active" if unit.active => return Finished::ok("active\n"),
        "is-active" => {
            return Finished {
                status: 3,
                ..Finished::ok("inactive\n")
            };
        }
        "is-enabled" if unit.enabled => return Finished::ok("enabled\n"),
        "is-enabled" => {
            return Finished {
                status: 1,
                ..Finished::ok("disabled\n")
            };
        }
        "enable" => unit.enabled = true,
        "disable" | "mask" => unit.enabled = false,
        _ => {}
    }
    match verb {
        "start" if unit.active => {}
        "start" | "restart" | "try-restart" | "reload-or-restart" => return start(unit, name),
        "enable" if now => return start(unit, name),
        "stop" => unit.active = false,
        "disable" | "mask" if now => unit.active = false,
        _ => {}
    }
    Finished::default()
}

fn start(unit: &mut UnitRecord, name: &str) -> Finished {
    unit.starts += 1;
    unit.active = !unit.broken && !unit.oneshot;
    match unit.broken {
        true => Finished::failed(
            1,
            format!("Job for {name} failed because the control process exited with error code."),
        ),
        false => Finished::default(),
    }
}

fn show(unit: &UnitRecord) -> String {
    let active = match (unit.active, unit.broken && unit.starts > 0) {
        (true, _) => "active",
        (false, true) => "failed",
        (false, false) => "inactive",
    };
    let enabled = if unit.enabled { "enabled" } else { "disabled" };
    format!(
        "LoadState=loaded\nActiveState={active}\nUnitFileState={enabled}\nNeedDaemonReload=no\n"
    )
}
