//! Runs that were killed, and the way back.

use super::*;

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
