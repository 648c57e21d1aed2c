//! The engine under a real SIGKILL: a child process kills itself at a chosen point, the next one finishes the work.

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use steps::engine::{Change, Check, Engine, Event, Report, Scene, Step, Stop, Watcher};
use steps::host::{self, Entry, Fault, Host as _, SimulatedHost};

/// Set for the child only: where its machine is, and at which point it dies.
const THIS_TEST: &str = "a_run_that_was_really_killed_is_finished_by_the_next";
const ROOT: &str = "KILL_TEST_ROOT";
const POINT: &str = "KILL_TEST_POINT";

struct Deaf;

impl Watcher for Deaf {
    fn event(&self, _: &Event<'_>) {}
}

fn steps() -> Vec<Step> {
    let files = |_: &Scene<'_>| {
        let file = |n: usize| Change::file(format!("/etc/many/{n}"), 0o640, "x".repeat(n * 5000));
        let mut changes: Vec<_> = (0..6).map(file).collect();
        changes.push(Change::file("/etc/replaced", 0o600, "new\n"));
        changes.push(Change::link("/etc/link", "many/3"));
        Ok(changes)
    };
    let command = |_: &Scene<'_>| {
        let check = Check::Inputs {
            paths: vec!["/etc/many".into()],
            per_boot: false,
        };
        let reload = host::Command::new("reload", &[]);
        Ok(vec![
            Change::absent("/etc/removed"),
            Change::command("reload", check, reload),
        ])
    };
    vec![
        Step::changes("files", 1, files),
        Step::changes("command", 2, command).after(&["files"]),
    ]
}

fn run(host: &SimulatedHost) -> Report {
    let engine = Engine {
        host,
        state: "/var/lib/state".into(),
        stop: Stop::new().expect("an event counter"),
        watcher: &Deaf,
        workers: 2,
        deadline: Duration::from_secs(60),
    };
    engine.run(&steps())
}

fn machine() -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a directory");
    let host = SimulatedHost::new(root.path());
    let files = host.files();
    files
        .ensure_directory(Path::new("/etc"), 0o755)
        .expect("a directory");
    for name in ["/etc/replaced", "/etc/removed"] {
        files
            .replace(Path::new(name), b"old\n", 0o644)
            .expect("a file");
    }
    root
}

fn tree(root: &Path) -> BTreeMap<PathBuf, (Entry, Vec<u8>)> {
    let mut tree = SimulatedHost::new(root).tree().expect("a readable tree");
    tree.retain(|path, _| !path.starts_with("/var"));
    tree
}

/// What the test's own program does when it is started as a child: it is killed at a point.
fn is_killed(root: &str, point: &str) {
    let host = SimulatedHost::new(root);
    host.fault(Fault::KillAt(point.parse().expect("a number")));
    run(&host);
}

#[test]
fn a_run_that_was_really_killed_is_finished_by_the_next() {
    if let (Ok(root), Ok(point)) = (std::env::var(ROOT), std::env::var(POINT)) {
        return is_killed(&root, &point);
    }
    let undisturbed = machine();
    let host = SimulatedHost::new(undisturbed.path());
    assert_eq!(run(&host).code(), 0);
    let (expected, points) = (tree(undisturbed.path()), host.points());
    let me = std::env::current_exe().expect("this program");
    for point in 1..=points {
        let root = machine();
        let status = Command::new(&me)
            .args(["--exact", THIS_TEST, "--quiet"])
            .env(ROOT, root.path())
            .env(POINT, point.to_string())
            .output()
            .expect("a child")
            .status;
        assert_eq!(status.signal(), Some(9), "point {point}: {status}");
        let report = run(&SimulatedHost::new(root.path()));
        assert_eq!(report.code(), 0, "point {point}: {report:?}");
        assert_eq!(tree(root.path()), expected, "point {point}");
    }
}
