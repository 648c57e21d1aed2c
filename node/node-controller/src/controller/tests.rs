//! Whole runs of the controller on simulated hosts, with steps of our own.

#![allow(clippy::unwrap_used, reason = "tests")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::steps::engine::{Change, Failure, Step, Stop};
use ::steps::host::{Fault, Host, SimulatedHost};
use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::config::Configuration;

struct Machine {
    root: TempDir,
    host: SimulatedHost,
    config: PathBuf,
}

fn machine(config: &str) -> Machine {
    let root = TempDir::new().unwrap();
    let host = SimulatedHost::new(root.path().join("root"));
    host.files()
        .ensure_directory(Path::new("/etc"), 0o755)
        .unwrap();
    let path = root.path().join("config.json");
    std::fs::write(&path, config).unwrap();
    Machine {
        root,
        host,
        config: path,
    }
}

impl Machine {
    fn provision(&self, steps: &StepsFor<'_>) -> Ended {
        let log = Log::new(&self.host, std::io::sink());
        Provision {
            host: &self.host,
            config: self.config.clone(),
            steps,
            stop: Stop::new().unwrap(),
            log: &log,
        }
        .run()
    }

    fn result(&self, path: &str) -> Value {
        serde_json::from_slice(&self.host.files().read(path).unwrap()).unwrap()
    }

    fn wait(&self) -> Waited {
        let patience = Patience {
            deadline: Duration::from_secs(5),
            grace: Duration::ZERO,
        };
        wait(&self.host, patience)
    }

    fn events(&self) -> Vec<Value> {
        let files = self.host.files();
        let names = files.list(paths::EVENTS).unwrap();
        let read = |name: &String| {
            let text = files.read(Path::new(paths::EVENTS).join(name)).unwrap();
            serde_json::from_slice(&text).unwrap()
        };
        names.iter().map(read).collect()
    }
}

fn one_file(_: &Configuration) -> Vec<Step> {
    vec![Step::changes("motd", 1, |_| {
        Ok(vec![Change::file("/etc/motd", 0o644, "hello\n")])
    })]
}

fn fails(_: &Configuration) -> Vec<Step> {
    vec![Step::probe("outbound", 50, |_| {
        Err(Failure::permanent(
            "no answer from the registry",
            "open the firewall",
        ))
    })]
}

#[test]
fn a_run_leaves_result_sentinel_log_and_events() {
    let machine = machine(r#"{"version":"v1","unheardOf":1}"#);
    assert_eq!(
        machine.provision(&one_file),
        Ended {
            exit: 0,
            failure: None
        }
    );
    let result = machine.result(paths::RESULT);
    assert_eq!(result["ExitCode"], "0");
    assert_eq!(result["Steps"][0]["Outcome"], "Changed");
    let files = machine.host.files();
    assert_eq!(
        files
            .entry(paths::COMPLETE)
            .unwrap()
            .map(|e| (e.mode, e.size)),
        Some((0o600, 0))
    );
    assert_eq!(
        files.entry(paths::RESULT).unwrap().map(|e| e.mode),
        Some(0o600)
    );
    let log = files.text(paths::LOG).unwrap().unwrap();
    let lines: Vec<Value> = log
        .lines()
        .map(|l| serde_json::from_str(l).unwrap())
        .collect();
    assert!(
        lines
            .iter()
            .any(|l| l["level"] == "WARN" && l["msg"].as_str().unwrap().contains("unheardOf"))
    );
    assert_eq!(
        lines.last().unwrap()["msg"],
        "aks-node-controller finished successfully."
    );
    let tasks: Vec<_> = machine
        .events()
        .iter()
        .map(|e| e["TaskName"].as_str().unwrap().to_owned())
        .collect();
    let expected = [
        "AKS.AKSNodeController.Provision",
        "AKS.CSE.motd",
        "AKS.AKSNodeController.Provision",
        "AKS.CSE.cse_start",
    ];
    assert_eq!(tasks, expected);
    let waited = machine.wait();
    assert_eq!(waited.failure, None);
    assert_eq!(serde_json::from_str::<Value>(&waited.json).unwrap(), result);
}

#[test]
fn events_have_the_guest_agents_shape() {
    let machine = machine(r#"{"version":"v1"}"#);
    machine.provision(&fails);
    for event in machine.events() {
        let keys: Vec<_> = event.as_object().unwrap().keys().cloned().collect();
        let expected = [
            "EventLevel",
            "EventPid",
            "EventTid",
            "Message",
            "OperationId",
            "TaskName",
            "Timestamp",
            "Version",
        ];
        assert_eq!(keys, expected);
        assert!(event.as_object().unwrap().values().all(Value::is_string));
        let time = event["Timestamp"].as_str().unwrap();
        jiff::civil::DateTime::strptime("%Y-%m-%d %H:%M:%S%.f", time).unwrap();
        assert_eq!(time.len(), "2026-09-21 14:13:20.000".len(), "{time}");
    }
    let failed = &machine.events()[1];
    assert_eq!(
        (&failed["TaskName"], &failed["EventLevel"]),
        (&"AKS.CSE.outbound".into(), &"Error".into())
    );
}

#[test]
fn a_failed_step_is_the_exit_code_and_a_later_success_replaces_it() {
    let machine = machine(r#"{"version":"v1"}"#);
    let ended = machine.provision(&fails);
    assert_eq!(ended.exit, 50);
    assert_eq!(ended.failure.unwrap().remedy, "open the firewall");
    let result = machine.result(paths::RESULT);
    assert_eq!(result["ExitCode"], "50");
    assert_eq!(
        result["Error"],
        "outbound: no answer from the registry; hint: open the firewall"
    );
    assert!(
        machine
            .wait()
            .failure
            .unwrap()
            .starts_with("provision failed: exitCode=50 error=outbound: no answer")
    );
    assert_eq!(machine.provision(&one_file).exit, 0);
    assert_eq!(machine.wait().failure, None);
}

#[test]
fn what_cannot_begin_is_240_in_the_result_and_1_as_exit_code() {
    let table = [
        (r#"{"version":"v2"}"#, "unsupported version: v2"),
        (
            r#"{"version":"v1","kubernetes_version":3}"#,
            "kubernetes_version",
        ),
        ("", "cannot be read"),
    ];
    for (config, cause) in table {
        let machine = machine(config);
        // A result of an earlier, happier run must not survive.
        machine
            .host
            .files()
            .ensure_directory(Path::new("/var/log/azure/aks"), 0o755)
            .unwrap();
        machine
            .host
            .files()
            .replace(Path::new(paths::RESULT), br#"{"ExitCode":"0"}"#, 0o600)
            .unwrap();
        let ended = machine.provision(&one_file);
        assert_eq!(ended.exit, 1, "{config}");
        let result = machine.result(paths::RESULT);
        assert_eq!(result["ExitCode"], "240", "{config}");
        assert!(
            result["Error"].as_str().unwrap().contains(cause),
            "{result}"
        );
    }
    let mut machine = machine("{}");
    machine.config = machine.root.path().join("nowhere.json");
    machine.provision(&one_file);
    let error = machine.result(paths::RESULT)["Error"].to_string();
    assert!(
        error.contains("open provision file") && error.contains("nowhere.json"),
        "{error}"
    );
}

#[test]
fn a_second_run_leaves_the_files_of_the_node_alone() {
    use std::os::unix::fs::MetadataExt as _;
    let machine = machine(r#"{"version":"v1"}"#);
    machine.provision(&one_file);
    let look = || {
        let m = std::fs::metadata(machine.host.files().locate(Path::new("/etc/motd"))).unwrap();
        (m.ino(), m.mtime_nsec(), m.ctime_nsec())
    };
    let before = look();
    machine.provision(&one_file);
    assert_eq!(look(), before);
    assert_eq!(
        machine.result(paths::RESULT)["Steps"][0]["Outcome"],
        "Unchanged"
    );
}

#[test]
fn without_a_disk_the_result_is_in_memory_and_is_found_there() {
    for fault in [Fault::ReadOnly, Fault::NoSpaceFrom(1)] {
        let machine = machine(r#"{"version":"v1"}"#);
        for path in ["/run", "/opt/azure/containers"] {
            machine
                .host
                .files()
                .ensure_directory(Path::new(path), 0o755)
                .unwrap();
        }
        machine
            .host
            .files()
            .replace(Path::new(paths::COMPLETE), b"", 0o600)
            .unwrap();
        machine.host.fault(fault);
        assert_eq!(machine.provision(&one_file).exit, 1, "{fault:?}");
        let result = machine.result(paths::VOLATILE_RESULT);
        assert_eq!(result["ExitCode"], "1", "{fault:?}");
        assert!(
            result["Error"].as_str().unwrap().contains("hint: the "),
            "{result}"
        );
        assert!(
            machine.wait().failure.unwrap().contains("exitCode=1"),
            "{fault:?}"
        );
    }
}

#[test]
fn waiting_ends_with_the_deadline_or_when_the_run_has_died() {
    let machine = machine(r#"{"version":"v1"}"#);
    let patience = Patience {
        deadline: Duration::from_millis(20),
        grace: Duration::ZERO,
    };
    let failure = wait(&machine.host, patience).failure.unwrap();
    assert!(
        failure.starts_with("context deadline exceeded waiting for provision complete: "),
        "{failure}"
    );
    let begun = br#"{"Run":{"time":"2026-09-21T14:13:20Z","pid":1,"config":"f","steps":[]}}"#;
    let line = [begun.as_slice(), b"\n"].concat();
    let files = machine.host.files();
    files
        .replace(Path::new(paths::PROGRESS), &line, 0o644)
        .unwrap();
    let failure = machine.wait().failure.unwrap();
    assert!(failure.contains("has died without a result"), "{failure}");
}

#[test]
fn a_waiter_wakes_when_the_run_under_way_ends_and_not_before() {
    let machine = machine(r#"{"version":"v1"}"#);
    machine.provision(&fails);
    // The sentinel of the failed run is there; while another run is under way it means nothing.
    let held = super::lock::take(machine.host.files()).unwrap().unwrap();
    assert_eq!(machine.provision(&one_file).exit, 1);
    let patience = Patience {
        deadline: Duration::from_millis(50),
        grace: Duration::ZERO,
    };
    assert!(
        wait(&machine.host, patience)
            .failure
            .unwrap()
            .starts_with("context deadline exceeded")
    );
    drop(held);
    std::thread::scope(|scope| {
        machine
            .host
            .files()
            .remove(Path::new(paths::COMPLETE))
            .unwrap();
        machine
            .host
            .files()
            .remove(Path::new(paths::PROGRESS))
            .unwrap();
        let waiter = scope.spawn(|| machine.wait());
        machine.provision(&one_file);
        assert_eq!(waiter.join().unwrap().failure, None);
    });
}

#[test]
fn the_first_stage_of_a_bake_leaves_its_own_marker() {
    let config = r#"{"version":"v1","pre_provision_only":true}"#;
    let machine = machine(config);
    machine.provision(&one_file);
    let files = machine.host.files();
    assert!(files.exists(paths::BASE_PREP_COMPLETE) && !files.exists(paths::COMPLETE));
    // Without its configuration this is the second stage: the marker comes with the image.
    let patience = Patience {
        deadline: Duration::from_millis(20),
        grace: Duration::from_secs(9),
    };
    assert!(wait(&machine.host, patience).failure.is_some());
    files
        .replace(Path::new(paths::CONFIG), config.as_bytes(), 0o600)
        .unwrap();
    assert_eq!(machine.wait().failure, None);
}

#[test]
fn progress_can_be_read_at_any_time() {
    let machine = machine(r#"{"version":"v1"}"#);
    assert_eq!(Progress::read(&machine.host).unwrap(), None);
    machine.provision(&fails);
    let progress = Progress::read(&machine.host).unwrap().unwrap();
    assert_eq!(
        (progress.state, progress.code),
        (RunState::Failed, Some(50))
    );
    assert_eq!(progress.steps[0].state, StepState::Failed);
}

#[test]
fn deadlines_that_make_no_sense_become_a_quarter_of_an_hour() {
    let of = |cse_timeout| {
        run_deadline(&Configuration {
            cse_timeout,
            ..Configuration::default()
        })
        .as_secs()
    };
    assert_eq!([None, Some(0), Some(-1), Some(21_601)].map(of), [900; 4]);
    assert_eq!([Some(1), Some(21_600)].map(of), [1, 21_600]);
}

#[test]
fn a_run_can_be_followed_to_its_end() {
    let machine = machine(r#"{"version":"v1"}"#);
    let (seen, wait_until_seen) = std::sync::mpsc::sync_channel::<()>(1);
    let wait_until_seen = std::sync::Arc::new(std::sync::Mutex::new(wait_until_seen));
    let steps = |_: &Configuration| {
        let wait_until_seen = std::sync::Arc::clone(&wait_until_seen);
        vec![Step::probe("waits", 1, move |_| {
            let receiver = wait_until_seen.lock().unwrap();
            let seen = receiver.recv_timeout(Duration::from_secs(20));
            seen.map(|()| "seen".to_owned())
                .map_err(|_| Failure::new("nobody follows", ""))
        })]
    };
    std::thread::scope(|scope| {
        let run = scope.spawn(|| machine.provision(&steps));
        let mut states = Vec::new();
        let last = loop {
            let followed = Progress::follow(&machine.host, |progress| {
                let state = progress.steps.first().map(|s| s.state);
                if state == Some(StepState::Running) {
                    let _ = seen.try_send(());
                }
                states.push(state);
            });
            // The run may not have begun yet.
            if let Ok(Some(progress)) = followed {
                break progress;
            }
        };
        assert_eq!(last.state, RunState::Succeeded);
        assert!(states.contains(&Some(StepState::Running)), "{states:?}");
        assert_eq!(run.join().unwrap().exit, 0);
    });
}
