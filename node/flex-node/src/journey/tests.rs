#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use ::steps::engine::{Outcome, StepReport};

fn step(name: &str, start: u64, duration: u64) -> StepReport {
    StepReport {
        name: name.to_owned(),
        outcome: Outcome::Changed,
        start: Duration::from_millis(start),
        duration: Duration::from_millis(duration),
        attempts: 1,
        note: String::new(),
        failure: None,
    }
}

#[test]
fn phases_last_from_their_first_step_to_their_last() {
    let arrival = Arrival {
        report: Report {
            steps: vec![
                step("check-machine", 0, 10),
                step("start-containerd", 20, 100),
                step("configure-kubelet", 50, 5),
                step("node-ready", 200, 300),
            ],
            failure: None,
            duration: Duration::from_millis(500),
        },
        failure: None,
        code: 0,
    };
    let times = arrival.phases();
    assert_eq!(
        times,
        [
            (Phase::Installation, Duration::from_millis(120)),
            (Phase::Activation, Duration::from_millis(450)),
        ]
    );
    let value = arrival.value();
    assert_eq!(value["step_count"], 4);
    assert_eq!(value["step_results"][0]["step_name"], "check-machine");
    assert_eq!(value["phases"][1]["milliseconds"], 450);
}
