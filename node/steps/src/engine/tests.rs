//! The engine over simulated hosts: sample steps of every kind, killed at every point, undone, and troubled.

#![allow(clippy::unwrap_used, reason = "tests")]

mod killed;
mod troubles;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;

use super::*;
use crate::host::{
    Answer, Command, Entry, Fault, Files, Finished, Host as _, Owner, SimulatedHost, UnitRecord,
};

const STATE: &str = "/var/lib/sample";

/// Names what happened, in order.
#[derive(Default)]
struct Notes(Mutex<Vec<String>>);

impl Watcher for Notes {
    fn event(&self, event: &Event<'_>) {
        let line = match event {
            Event::Changing { .. } | Event::Fetching { .. } => return,
            Event::Started { step } => format!("start {step}"),
            Event::Retrying { step, attempt, .. } => format!("retry {step} after {attempt}"),
            Event::Finished(report) => format!("{:?} {}", report.outcome, report.name),
        };
        self.0.lock().unwrap().push(line);
    }
}

/// A root with a past: files to replace, to chmod, to remove, a link, a kernel setting.
fn root() -> TempDir {
    // Syncing to a busy disk is most of the time otherwise.
    let memory = std::path::Path::new("/dev/shm");
    let directory = match memory.is_dir() {
        true => TempDir::new_in(memory).unwrap(),
        false => TempDir::new().unwrap(),
    };
    let files = Files::under(directory.path());
    for path in ["/etc/old", "/proc/sys/net/ipv4", "/etc/systemd/system"] {
        files.ensure_directory(path.as_ref(), 0o755).unwrap();
    }
    let write = |path: &str, text: &str, mode| {
        files
            .write_new(
                path.as_ref(),
                text.as_bytes(),
                mode,
                Owner { uid: 7, gid: 8 },
            )
            .unwrap();
    };
    write("/etc/replaced", "old\n", 0o640);
    write("/etc/opened", "same\n", 0o644);
    write("/etc/source", "copied\n", 0o444);
    write("/etc/removed", "gone soon\n", 0o400);
    write("/proc/sys/net/ipv4/ip_forward", "0\n", 0o644);
    files
        .make_link("/etc/link".as_ref(), "elsewhere".as_ref())
        .unwrap();
    files
        .make_link("/etc/was-link".as_ref(), "/etc/removed".as_ref())
        .unwrap();
    directory
}

fn host(root: &TempDir) -> SimulatedHost {
    let ended = |result: std::io::Result<()>| match result {
        Ok(()) => Finished::default(),
        Err(e) => Finished::failed(1, e.to_string()),
    };
    let merge = move |files: &Files, _: &Command| {
        let text = files.text("/etc/sample/b").unwrap().unwrap_or_default();
        ended(files.write_new("/etc/merged".as_ref(), text.as_bytes(), 0o644, Owner::ROOT))
    };
    let unmerge = move |files: &Files, _: &Command| ended(files.remove("/etc/merged".as_ref()));
    let old = UnitRecord {
        active: true,
        enabled: true,
        ..UnitRecord::default()
    };
    SimulatedHost::new(root.path())
        .answering("merge", Answer::Does(Arc::new(merge)))
        .answering("unmerge", Answer::Does(Arc::new(unmerge)))
        .with_unit("old.service", old)
}

/// Every kind of change, in three steps of which two can run at once.
fn sample() -> Vec<Step> {
    let files = |_: &Scene<'_>| {
        Ok(vec![
            Change::directory("/etc/old", 0o700),
            Change::directory("/srv/data", 0o750),
            Change::file("/etc/sample/a", 0o644, "a\n"),
            Change::secret_file("/etc/opened", "same\n"),
            Change::file("/etc/replaced", 0o600, "new\n"),
            Change::File(File {
                owner: Owner { uid: 3, gid: 4 },
                ..File::new(
                    "/etc/was-link",
                    0o644,
                    Content::CopyOf("/etc/source".into()),
                )
            }),
            Change::link("/etc/link", "replaced"),
            Change::sysctl("net.ipv4.ip_forward", "1"),
        ])
    };
    let more = |_: &Scene<'_>| {
        let merge = CommandChange {
            name: "merge".to_owned(),
            check: Check::Inputs {
                paths: vec!["/etc/sample/b".into()],
                per_boot: false,
            },
            apply: Command::new("merge", &[]),
            undo: Some(Command::new("unmerge", &[])),
        };
        Ok(vec![
            Change::file("/etc/sample/b", 0o644, "b\n"),
            Change::Command(merge),
        ])
    };
    let units = |_: &Scene<'_>| {
        Ok(vec![
            Change::absent("/etc/removed"),
            Change::file("/etc/systemd/system/new.service", 0o644, "[Service]\n"),
            Change::running_unit("new.service", &["/etc/sample"]),
            Change::stopped_unit("old.service"),
            Change::stopped_unit("never.service"),
        ])
    };
    vec![
        Step::changes("units", 4, units).after(&["files", "more"]),
        Step::changes("files", 1, files),
        Step::changes("more", 2, more),
    ]
}

fn engine<'a>(host: &'a SimulatedHost, watcher: &'a dyn Watcher, workers: usize) -> Engine<'a> {
    Engine {
        host,
        state: STATE.into(),
        stop: Stop::new().unwrap(),
        watcher,
        workers,
        deadline: Duration::from_secs(900),
    }
}

fn run(host: &SimulatedHost, steps: &[Step]) -> Report {
    engine(host, &Notes::default(), 1).run(steps)
}

type Tree = BTreeMap<PathBuf, (Entry, Vec<u8>)>;

/// The host without the engine's own memory.
fn tree(host: &SimulatedHost) -> Tree {
    let mut tree = host.tree().unwrap();
    tree.retain(|path, _| !path.starts_with("/var"));
    tree
}

fn undisturbed() -> (Tree, u64) {
    let root = root();
    let host = host(&root);
    let report = run(&host, &sample());
    assert_eq!(report.code(), 0, "{report:?}");
    (tree(&host), host.points())
}

#[test]
fn a_run_makes_the_host_so_and_a_second_one_touches_nothing() {
    let root = root();
    let host = host(&root);
    let first = engine(&host, &Notes::default(), 4).run(&sample());
    assert_eq!(first.code(), 0, "{first:?}");
    let outcomes: Vec<_> = first.steps.iter().map(|s| s.outcome).collect();
    assert_eq!(outcomes, [Outcome::Changed; 3]);
    let tree = tree(&host);
    let seen = |path: &str| {
        tree.get(&PathBuf::from(path))
            .map(|(e, c)| (e.mode, c.as_slice()))
    };
    assert_eq!(seen("/etc/replaced"), Some((0o600, b"new\n".as_slice())));
    assert_eq!(seen("/etc/opened"), Some((0o600, b"same\n".as_slice())));
    assert_eq!(seen("/etc/was-link"), Some((0o644, b"copied\n".as_slice())));
    assert_eq!(seen("/etc/removed"), None);
    assert_eq!(seen("/etc/merged"), Some((0o644, b"b\n".as_slice())));
    assert_eq!(seen("/etc/sample"), Some((0o755, b"".as_slice())));
    let new = host.unit("new.service").unwrap();
    assert!(new.active && new.enabled && new.starts == 1);
    assert!(!host.unit("old.service").unwrap().active);

    let before = host.points();
    let queries = host.commands().len();
    let second = run(&host, &sample());
    assert!(
        second.steps.iter().all(|s| s.outcome == Outcome::Unchanged),
        "{second:?}"
    );
    let asked = &host.commands()[queries..];
    assert!(
        asked.iter().all(|c| c.starts_with("systemctl show")),
        "{asked:?}"
    );
    // Two points per question to systemd, and none on the disk.
    assert_eq!(host.points() - before, 2 * asked.len() as u64);
}

#[test]
fn a_plan_names_every_change_and_makes_none() {
    let root = root();
    let host = host(&root);
    let pristine = tree(&host);
    let notes = Notes::default();
    let engine = engine(&host, &notes, 1);
    let plan = engine.plan(&sample()).unwrap();
    let lines: Vec<_> = plan
        .steps
        .iter()
        .flat_map(|s| {
            s.changes
                .iter()
                .map(|c| format!("{}: {} {} ({})", s.name, c.action, c.subject, c.detail))
        })
        .collect();
    let expected = [
        "files: set /etc/old (mode 0755 -> 0700)",
        "files: create /srv/data (directory, mode 0750)",
        "files: create /etc/sample/a (file, mode 0644, 2 bytes)",
        "files: set /etc/opened (mode 0644 -> 0600, owner 7:8 -> 0:0)",
        "files: replace /etc/replaced (lines +1 -1)",
        "files: replace /etc/was-link (a link to /etc/removed)",
        "files: replace /etc/link (link to elsewhere -> replaced)",
        "files: set /proc/sys/net/ipv4/ip_forward (0 -> 1)",
        "more: create /etc/sample/b (file, mode 0644, 2 bytes)",
        "more: run merge (merge)",
        "units: remove /etc/removed ()",
        "units: create /etc/systemd/system/new.service (file, mode 0644, 10 bytes)",
        "units: start new.service (once its files are there)",
        "units: disable old.service (disable, stop)",
    ];
    let owners = |line: &str| line.replace(", owner 7:8 -> 0:0", "");
    assert_eq!(
        lines.iter().map(|l| owners(l)).collect::<Vec<_>>(),
        expected.iter().map(|l| owners(l)).collect::<Vec<_>>()
    );
    assert_eq!(tree(&host), pristine);
    assert!(!host.files().exists(STATE));
    engine.run(&sample());
    assert_eq!(engine.plan(&sample()).unwrap().changes(), 0);
}

#[test]
fn directories_come_before_what_is_in_them() {
    let root = root();
    let host = host(&root);
    let step = Step::changes("upside-down", 1, |_| {
        Ok(vec![
            Change::file("/srv/private/key", 0o600, "k"),
            Change::directory("/srv/private", 0o700),
        ])
    });
    assert_eq!(run(&host, &[step]).code(), 0);
    let entry = host.files().entry("/srv/private").unwrap().unwrap();
    assert_eq!(entry.mode, 0o700);
}

#[test]
fn commands_of_one_name_in_two_steps_are_two_commands() {
    let root = root();
    let host = host(&root);
    let step = |name, word: &'static str| {
        Step::changes(name, 1, move |_| {
            let check = Check::Inputs {
                paths: vec!["/etc/source".into()],
                per_boot: true,
            };
            let change = CommandChange {
                name: "reload".to_owned(),
                check,
                apply: Command::new("reload", &[word]),
                undo: Some(Command::new("unload", &[word])),
            };
            Ok(vec![Change::Command(change)])
        })
    };
    let steps = [step("one", "a"), step("two", "b")];
    run(&host, &steps);
    run(&host, &steps);
    engine(&host, &Notes::default(), 1).undo();
    let expected = ["reload a", "reload b", "unload b", "unload a"];
    assert_eq!(host.commands(), expected);
    let rebooted = SimulatedHost::new(root.path()).booted("another");
    run(&rebooted, &steps);
    assert_eq!(rebooted.commands(), expected[..2]);
}

#[test]
fn downloads_are_kept_only_with_the_right_digest() {
    let step = |sha256: &str| {
        let content = Content::Download {
            urls: vec!["https://example.net/kubelet".to_owned()],
            sha256: sha256.to_owned(),
        };
        let change = Change::File(File::new("/opt/bin/kubelet", 0o755, content));
        [Step::changes("kubelet", 31, move |_| {
            Ok(vec![change.clone()])
        })]
    };
    // The digest of "abc", of FIPS 180-2.
    let right = step("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    let page = |status, body: &[u8]| {
        let root = TempDir::new().unwrap();
        let host = SimulatedHost::new(root.path())
            .serving("https://example.net/", Ok((status, body.to_vec())));
        (root, host)
    };
    for (status, body, cause) in [(200, "abd", "has SHA-256"), (404, "abc", "answers 404")] {
        let (_root, host) = page(status, body.as_bytes());
        let (_, code, failure) = run(&host, &right).failure.unwrap();
        assert_eq!(code, 31);
        assert!(failure.cause.contains(cause), "{failure:?}");
        assert_eq!(host.files().list("/opt/bin").unwrap(), [""; 0]);
    }
    let (_root, host) = page(200, b"abc");
    assert_eq!(run(&host, &right).steps[0].outcome, Outcome::Changed);
    assert_eq!(run(&host, &right).steps[0].outcome, Outcome::Unchanged);
}
