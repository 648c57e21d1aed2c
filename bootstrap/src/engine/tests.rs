//! The engine over simulated hosts: sample steps of every kind, killed at every point, undone, and troubled.

#![allow(clippy::unwrap_used, reason = "tests")]

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
            Event::Changing { .. } => return,
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
fn killed_at_any_point_the_next_run_ends_where_an_undisturbed_one_does() {
    let (expected, points) = undisturbed();
    assert!(points > 30, "only {points} points");
    for point in 1..=points {
        let root = root();
        let host = host(&root);
        host.fault(Fault::CrashAt(point));
        assert_ne!(run(&host, &sample()).code(), 0, "point {point}");
        host.repair();
        let report = run(&host, &sample());
        assert_eq!(report.code(), 0, "point {point}: {report:?}");
        assert_eq!(tree(&host), expected, "point {point}");
    }
}

#[test]
fn killed_twice_and_with_workers_in_parallel_it_still_ends_well() {
    let (expected, points) = undisturbed();
    for point in 1..=points {
        let root = root();
        let host = host(&root);
        for _ in 0..2 {
            host.fault(Fault::CrashAt(host.points() + point));
            engine(&host, &Notes::default(), 3).run(&sample());
            host.repair();
        }
        let report = engine(&host, &Notes::default(), 3).run(&sample());
        assert_eq!(report.code(), 0, "point {point}: {report:?}");
        assert_eq!(tree(&host), expected, "point {point}");
    }
}

#[test]
fn undo_restores_the_host_wherever_the_run_was_killed() {
    let (_, points) = undisturbed();
    for point in (1..=points + 1).step_by(2) {
        let root = root();
        let host = host(&root);
        let pristine = tree(&host);
        host.fault(Fault::CrashAt(point));
        run(&host, &sample());
        host.repair();
        let undone = engine(&host, &Notes::default(), 1).undo();
        assert_eq!(undone.failures, [], "point {point}");
        assert_eq!(tree(&host), pristine, "point {point}");
        assert!(host.unit("old.service").unwrap().active, "point {point}");
        assert!(
            host.unit("new.service")
                .is_none_or(|u| !u.active && !u.enabled)
        );
    }
}

#[test]
fn a_killed_undo_is_finished_by_the_next() {
    let run_and_undo = |kill: Option<u64>| {
        let root = root();
        let host = host(&root);
        let pristine = tree(&host);
        run(&host, &sample());
        let start = host.points();
        if let Some(point) = kill {
            host.fault(Fault::CrashAt(start + point));
            engine(&host, &Notes::default(), 1).undo();
            host.repair();
        }
        let undone = engine(&host, &Notes::default(), 1).undo();
        assert_eq!(undone.failures, [], "point {kill:?}");
        assert_eq!(tree(&host), pristine, "point {kill:?}");
        host.points() - start
    };
    let points = run_and_undo(None);
    for point in 1..=points {
        run_and_undo(Some(point));
    }
}

#[test]
fn undo_leaves_what_others_have_put_into_our_directories() {
    let root = root();
    let host = host(&root);
    run(&host, &sample());
    host.files()
        .replace("/srv/data/theirs".as_ref(), b"mine", 0o644)
        .unwrap();
    let undone = engine(&host, &Notes::default(), 1).undo();
    assert_eq!(
        (undone.failures, undone.kept),
        (vec![], vec!["/srv/data".to_owned(), "/srv".to_owned()])
    );
    assert!(host.files().exists("/srv/data/theirs"));
}

#[test]
fn a_journal_line_that_was_cut_off_is_dropped() {
    let root = root();
    let host = host(&root);
    run(&host, &sample());
    let journal = PathBuf::from(STATE).join("journal");
    host.files()
        .append(&journal, b"{\"Before\":{\"st", 0o600, true)
        .unwrap();
    assert_eq!(run(&host, &sample()).code(), 0);
    let pristine = SimulatedHost::new(root.path());
    assert_eq!(
        engine(&pristine, &Notes::default(), 1)
            .plan(&sample()[1..2])
            .unwrap()
            .changes(),
        0
    );
}

#[test]
fn a_disk_that_refuses_gives_the_steps_code_and_a_remedy() {
    let table = [
        (
            Fault::ReadOnly,
            "Read-only file system",
            "mounted read-only",
        ),
        (
            Fault::NoSpaceFrom(1),
            "No space left on device",
            "the disk is full",
        ),
        (
            Fault::NoSpaceFrom(8),
            "No space left on device",
            "the disk is full",
        ),
    ];
    for (fault, cause, remedy) in table {
        let root = root();
        let host = host(&root);
        host.fault(fault);
        let report = run(&host, &sample()[1..2]);
        let (step, code, failure) = report.failure.unwrap();
        assert_eq!((step.as_deref(), code), (Some("files"), 1), "{fault:?}");
        assert!(failure.cause.contains(cause), "{failure:?}");
        assert!(failure.remedy.contains(remedy), "{failure:?}");
        host.repair();
        assert_eq!(run(&host, &sample()[1..2]).code(), 0, "{fault:?}");
    }
}

#[test]
fn without_systemd_the_failure_says_so_at_once() {
    let root = root();
    let host = host(&root);
    host.fault(Fault::NoSystemd);
    let report = run(&host, &sample());
    let (step, code, failure) = report.failure.unwrap();
    assert_eq!((step.as_deref(), code), (Some("units"), 4));
    assert_eq!(failure.cause, "`systemctl` is not installed");
    assert!(
        failure.remedy.contains("does not run systemd"),
        "{failure:?}"
    );
    assert_eq!(report.duration, Duration::ZERO);
}

#[test]
fn a_unit_that_does_not_start_is_named_with_where_to_look() {
    let root = root();
    let host = host(&root).with_unit(
        "new.service",
        UnitRecord {
            broken: true,
            ..UnitRecord::default()
        },
    );
    let (_, code, failure) = run(&host, &sample()).failure.unwrap();
    assert_eq!(code, 4);
    assert!(
        failure
            .cause
            .contains("`systemctl start new.service` failed"),
        "{failure:?}"
    );
    assert!(
        failure.remedy.contains("journalctl -u new.service"),
        "{failure:?}"
    );
}

#[test]
fn a_unit_restarts_when_what_it_reads_has_changed() {
    let root = root();
    let host = host(&root);
    run(&host, &sample());
    host.files()
        .replace("/etc/sample/b".as_ref(), b"drift", 0o644)
        .unwrap();
    run(&host, &sample());
    // Back to the old content: nothing differs from the last start.
    assert_eq!(host.unit("new.service").unwrap().starts, 1);
    host.files()
        .replace("/etc/sample/more".as_ref(), b"news", 0o644)
        .unwrap();
    run(&host, &sample());
    assert_eq!(host.unit("new.service").unwrap().starts, 2);
}

#[test]
fn attempts_end_with_the_count_the_deadline_or_a_permanent_failure() {
    let second = Duration::from_secs(1);
    let table = [
        (
            Retry::times(3, second, second),
            Duration::from_secs(60),
            false,
            3,
            2,
        ),
        (
            Retry::times(100, 5 * second, second),
            Duration::from_secs(12),
            false,
            3,
            10,
        ),
        (
            Retry::times(100, second, second),
            Duration::from_secs(60),
            true,
            1,
            0,
        ),
        (Retry::ONCE, Duration::from_secs(60), false, 1, 0),
    ];
    for (retry, deadline, permanent, attempts, seconds) in table {
        let root = TempDir::new().unwrap();
        let host = SimulatedHost::new(root.path());
        let step = Step::probe("probe", 50, move |_| {
            Err(Failure {
                permanent,
                ..Failure::new("no", "try")
            })
        });
        let report = run(&host, &[step.within(deadline).retrying(retry)]);
        assert_eq!(report.steps[0].attempts, attempts, "{retry:?}");
        assert_eq!(report.duration, seconds * second, "{retry:?}");
        assert_eq!(report.code(), 50);
    }
}

#[test]
fn a_command_that_hangs_is_stopped_in_time_and_the_runs_deadline_is_124() {
    let root = TempDir::new().unwrap();
    let host = SimulatedHost::new(root.path())
        .answering("hang", Answer::Takes(Duration::from_secs(10_000)));
    let step = || {
        Step::changes("hanging", 31, |_| {
            let check = Check::Exists("/nowhere".into());
            let command = Command::new("hang", &[]).at_most(Duration::from_secs(5000));
            Ok(vec![Change::command("hang", check, command)])
        })
    };
    let report = run(&host, &[step().within(Duration::from_secs(30))]);
    assert_eq!((report.code(), report.duration.as_secs()), (31, 30));
    let report = run(&host, &[step().within(Duration::from_secs(5000))]);
    assert_eq!((report.code(), report.duration.as_secs()), (124, 900));
    let (_, _, failure) = report.failure.unwrap();
    assert!(
        failure
            .cause
            .starts_with("the 900 s of the whole run were over in step `hanging`"),
        "{failure:?}"
    );
}

#[test]
fn after_a_failure_nothing_new_begins_and_waiting_ends() {
    let root = TempDir::new().unwrap();
    let host = SimulatedHost::new(root.path());
    let notes = Notes::default();
    let steps = [
        Step::probe("fails", 51, |_| Err(Failure::permanent("no", ""))),
        Step::probe("after", 1, |_| Ok(String::new())).after(&["fails"]),
        Step::probe("apart", 1, |_| Ok(String::new())),
    ];
    let report = engine(&host, &notes, 1).run(&steps);
    assert_eq!(report.code(), 51);
    let outcomes: Vec<_> = report.steps.iter().map(|s| s.outcome).collect();
    assert_eq!(
        outcomes,
        [Outcome::Failed, Outcome::Skipped, Outcome::Skipped]
    );
    assert_eq!(*notes.0.lock().unwrap(), ["start fails", "Failed fails"]);
}

#[test]
fn commands_of_others_do_not_hold_up_a_failure_for_long() {
    let root = TempDir::new().unwrap();
    let slow = Answer::Takes(Duration::from_secs(10));
    let host = SimulatedHost::new(root.path()).answering("slow", slow);
    let years = Duration::from_secs(1_000_000_000);
    let (begun, wait) = std::sync::mpsc::sync_channel(1);
    let wait = Mutex::new(wait);
    let steps = [
        Step::probe("fails", 51, move |_| {
            wait.lock().unwrap().recv().unwrap();
            Err(Failure::permanent("no", ""))
        })
        .within(years),
        Step::probe("slow", 1, move |scene| {
            begun.send(()).unwrap();
            loop {
                scene.run(&Command::new("slow", &[]))?;
            }
        })
        .within(years),
    ];
    let notes = Notes::default();
    let mut engine = engine(&host, &notes, 2);
    engine.deadline = years;
    let report = engine.run(&steps);
    assert_eq!(report.code(), 51);
    let (code, failure) = report.steps[1].failure.clone().unwrap();
    assert_eq!(code, 255);
    assert!(failure.cause.contains("was cancelled"), "{failure:?}");
}

#[test]
fn a_panic_is_the_controllers_error_and_not_the_end() {
    let root = TempDir::new().unwrap();
    let host = SimulatedHost::new(root.path());
    let report = run(&host, &[Step::probe("bug", 1, |_| panic!("a bug"))]);
    assert_eq!(report.code(), 240);
}

#[test]
fn a_cancelled_run_is_255_and_runs_no_more_commands() {
    let root = root();
    let host = host(&root);
    let notes = Notes::default();
    let engine = engine(&host, &notes, 1);
    engine.stop.pull(Reason::Cancelled);
    let report = engine.run(&sample());
    assert_eq!((report.code(), host.commands().len()), (255, 0));
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
            url: "https://example.net/kubelet".to_owned(),
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
