//! A machine that goes down: its pods end in order, each with its reason, and the machine waits for them. logind's side
//! is played by scripts in the place of systemd's programs; what those print is what systemd's print.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use harness::eventually;
use serde_json::json;

use crate::place::Place;
use crate::{READY, expect, pod, shell};

const BUSCTL: &str = r#"#!/bin/sh
case "$*" in
*InhibitDelayMaxUSec*) echo "t 60000000" ;;
*"member='PrepareForShutdown'"*monitor)
    while [ ! -e DIR/now ]; do kill -0 $PPID || exit; sleep 0.1; done
    echo '{"type":"signal","endian":"l","flags":1,"version":1,"cookie":33,"sender":":1.3","path":"/org/freedesktop/login1","interface":"org.freedesktop.login1.Manager","member":"PrepareForShutdown","payload":{"type":"b","data":[true]}}'
    while kill -0 $PPID; do sleep 0.1; done ;;
*) exit 1 ;;
esac
"#;

const INHIBIT: &str = r#"#!/bin/sh
echo "$$ $1 $2 $3 $4" > DIR/held
exec "$5"
"#;

fn programs(dir: &Path) {
    fs::create_dir_all(dir).expect("a directory");
    for (name, text) in [("busctl", BUSCTL), ("systemd-inhibit", INHIBIT)] {
        let path = dir.join(name);
        let text = text.replace("DIR", &dir.display().to_string());
        fs::write(&path, text).expect("a script");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("permissions");
    }
}

#[test]
fn a_machine_that_goes_down_waits_until_its_pods_have_ended_in_order() {
    let Some(mut place) = Place::open() else {
        return;
    };
    let dir = place.root().with_file_name("systemd");
    programs(&dir);
    place.put_first(&dir);
    place
        .configure(json!({"shutdownGracePeriod": "40s", "shutdownGracePeriodCriticalPods": "20s"}));
    place.start_kubelet();
    let slow = "trap '/busybox sleep 3; exit 0' TERM; while :; do /busybox sleep 1; done";
    place.create(&pod(
        "slow",
        json!({"terminationGracePeriodSeconds": 15, "containers": shell(slow)}),
    ));
    place.create(&pod(
        "critical",
        json!({"priorityClassName": "system-node-critical"}),
    ));
    expect(&place, "slow", READY, "True");
    expect(&place, "critical", READY, "True");
    let held = fs::read_to_string(dir.join("held")).expect("the machine is held back");
    let (pid, words) = held.trim().split_once(' ').expect("a process");
    assert_eq!(
        words,
        "--what=shutdown --mode=delay --who=kubelet --why=Kubelet needs time to handle node shutdown"
    );
    let process = Path::new("/proc").join(pid);
    assert!(process.exists());
    fs::write(dir.join("now"), "").expect("a file");
    let message = "Pod was terminated in response to imminent node shutdown.";
    for name in ["slow", "critical"] {
        expect(&place, name, "{.status.phase}", "Failed");
        expect(&place, name, "{.status.reason}", "Terminated");
        expect(&place, name, "{.status.message}", message);
        let disrupted =
            "{.status.conditions[?(@.type==\"DisruptionTarget\")]['status','reason','message']}";
        expect(
            &place,
            name,
            disrupted,
            &format!("True TerminationByKubelet {message}"),
        );
    }
    let ended = |name: &str| {
        let path = "-ojsonpath={.status.containerStatuses[0].state.terminated.finishedAt}";
        place
            .kubectl(&["get", "pod", name, path])
            .expect("it has ended")
    };
    assert!(
        ended("slow") <= ended("critical"),
        "{} {}",
        ended("slow"),
        ended("critical")
    );
    eventually("the machine may go down", || match process.exists() {
        false => Ok(()),
        true => Err("it is held back"),
    });
    eventually("the node says why it is not ready", || {
        let path =
            "-ojsonpath={.status.conditions[?(@.type==\"Ready\")]['status','reason','message']}";
        let found = place.kubectl(&["get", "node", "node1", path])?;
        if found.starts_with("False KubeletNotReady ") && found.contains("node is shutting down") {
            Ok(())
        } else {
            Err(found)
        }
    });
    place.create(&pod("late", json!({})));
    expect(&place, "late", "{.status.reason}", "NodeShutdown");
    let refused = "Pod was rejected: Pod was rejected as the node is shutting down.";
    expect(&place, "late", "{.status.message}", refused);
}
