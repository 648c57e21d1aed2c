//! The whole command with stand-ins for every program: told to end, it leaves nothing running.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use harness::eventually;
use rustix::process::{Pid, Signal, kill_process, test_kill_process};

fn program(dir: &Path, name: &str, script: &str) {
    let file = dir.join(name);
    fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
}

fn interop(dir: &Path) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kyanite-interop"));
    command.arg("--kyanite").arg(dir.join("kyanite"));
    for option in ["--upstream", "--containerd", "--chart", "--clients"] {
        command.arg(option).arg(dir);
    }
    command.arg("--report").arg(dir.join("report.md"));
    command.args(["--only", "kubectl"]).stderr(Stdio::null());
    command.env("TMPDIR", dir).spawn().unwrap()
}

fn written_pid(file: &Path) -> Option<Pid> {
    let text = fs::read_to_string(file).ok()?;
    Pid::from_raw(text.trim().parse().ok()?)
}

fn leaves_nothing_when_told(signal: Signal) {
    let dir = tempfile::tempdir().unwrap();
    let pid_files = ["server.pid", "client.pid"].map(|name| dir.path().join(name));
    let says_its_pid = |n: usize| format!("echo $$ > {}\nexec sleep 600", pid_files[n].display());
    program(dir.path(), "kyanite", &says_its_pid(0));
    program(dir.path(), "kubectl", &says_its_pid(1));
    let mut interop = interop(dir.path());
    let pids = pid_files
        .each_ref()
        .map(|file| eventually("both run", || written_pid(file)));
    kill_process(Pid::from_child(&interop), signal).unwrap();
    let status = eventually("it ends", || interop.try_wait().unwrap());
    assert!(!status.success());
    for pid in pids {
        assert!(test_kill_process(pid).is_err(), "{pid:?} still runs");
    }
    let left = fs::read_dir(dir.path()).unwrap().flatten();
    let names: Vec<_> = left.map(|entry| entry.file_name()).collect();
    let of_cells = |name: &&std::ffi::OsString| name.to_string_lossy().starts_with("kyanite-");
    assert_eq!(names.iter().filter(of_cells).count(), 0, "{names:?}");
}

#[test]
fn terminated_it_leaves_nothing() {
    leaves_nothing_when_told(Signal::TERM);
}

#[test]
fn interrupted_it_leaves_nothing() {
    leaves_nothing_when_told(Signal::INT);
}
