//! What goes wrong: on the disk, with units and commands, in time.

use super::*;

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
