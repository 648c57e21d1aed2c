//! The real host's commands: whole groups end, output is bounded, nothing leaks in.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, test_kill_process_group};
use steps::engine::{Reason, Stop};
use steps::host::{Command, CommandError, Finished, Host as _, RealHost};

fn shell(script: &str) -> Command {
    Command::new("sh", &["-c", script])
}

fn run(command: &Command) -> Result<Finished, CommandError> {
    RealHost::new().run(command, &Stop::new().expect("an event counter"))
}

#[test]
fn output_status_and_input_come_through() {
    let finished = run(&shell("cat; echo no >&2; exit 7").reading("a secret")).expect("it runs");
    assert_eq!(
        (finished.status, finished.text()),
        (7, "a secret".to_owned())
    );
    assert_eq!(finished.last_words(), "no");
    let killed = run(&shell("kill -9 $$")).expect("it runs");
    assert_eq!(killed.status, 128 + 9);
    let missing = run(&Command::new("no-such-program-here", &[]));
    assert!(
        matches!(missing, Err(CommandError::Missing { .. })),
        "{missing:?}"
    );
}

#[test]
fn a_flood_of_output_is_cut_off_and_does_not_block() {
    let finished = run(&shell("head -c 5000000 /dev/zero")).expect("it runs");
    assert_eq!((finished.status, finished.stdout.len()), (0, 1 << 20));
}

#[test]
fn the_environment_is_small_and_fixed() {
    let finished =
        run(&Command::new("env", &[]).with_variable("HTTP_PROXY", "p")).expect("it runs");
    let text = finished.text();
    let mut names: Vec<_> = text.lines().filter_map(|l| l.split('=').next()).collect();
    names.sort_unstable();
    assert_eq!(names, ["HOME", "HTTP_PROXY", "LANG", "PATH"]);
}

fn pid(text: &str) -> Pid {
    Pid::from_raw(text.trim().parse().expect("a number")).expect("a pid")
}

#[test]
fn a_daemon_that_keeps_the_pipes_is_not_waited_for() {
    let begin = Instant::now();
    let finished = run(&shell("sleep 60 & echo $!")).expect("it runs");
    assert!(begin.elapsed() < Duration::from_secs(30));
    kill_process(pid(&finished.text()), Signal::KILL).expect("the daemon lives");
}

/// Waits until nobody of a process group is left.
fn gone(group: Pid) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while test_kill_process_group(group).is_ok() {
        assert!(Instant::now() < deadline, "the group is still there");
        std::thread::yield_now();
    }
}

#[test]
fn a_command_over_its_time_ends_with_all_its_children() {
    let notes = tempfile::NamedTempFile::new().expect("a file");
    let script = format!(
        "echo $$ > {}; trap '' TERM; sleep 60 & sleep 60",
        notes.path().display()
    );
    let command = shell(&script).at_most(Duration::from_secs(1));
    let error = run(&command).expect_err("it takes too long");
    assert!(matches!(error, CommandError::TimedOut { .. }), "{error}");
    gone(pid(&std::fs::read_to_string(notes.path()).expect("its pid")));
}

#[test]
fn cancelling_the_run_ends_its_commands() {
    let stop = Stop::new().expect("an event counter");
    let notes = tempfile::NamedTempFile::new().expect("a file");
    let script = format!("echo $$ > {}; sleep 60 & sleep 60", notes.path().display());
    let ended = std::thread::scope(|scope| {
        let running = scope.spawn(|| RealHost::new().run(&shell(&script), &stop));
        let deadline = Instant::now() + Duration::from_secs(20);
        while std::fs::read_to_string(notes.path()).is_ok_and(|t| !t.ends_with('\n')) {
            assert!(Instant::now() < deadline, "the command has not begun");
            std::thread::yield_now();
        }
        stop.pull(Reason::Cancelled);
        running.join().expect("no panic")
    });
    assert!(
        matches!(ended, Err(CommandError::Cancelled { .. })),
        "{ended:?}"
    );
    gone(pid(&std::fs::read_to_string(notes.path()).expect("its pid")));
}
