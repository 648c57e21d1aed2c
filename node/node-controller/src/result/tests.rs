#![allow(clippy::unwrap_used, reason = "tests")]

use ::steps::engine::Failure;
use jiff::tz::TimeZone;

use super::*;

fn step(name: &str, outcome: Outcome, failure: Option<(u8, Failure)>) -> StepReport {
    StepReport {
        name: name.to_owned(),
        outcome,
        start: Duration::ZERO,
        duration: Duration::from_millis(12),
        attempts: 1,
        note: String::new(),
        failure,
    }
}

fn status(report: &Report, transcript: &str) -> CseStatus {
    let boot = BootTimes {
        kernel: "Tue 2024-11-12 17:23:33 UTC".to_owned(),
        kubelet: "Tue 2024-11-12 17:24:20 UTC".to_owned(),
        ..BootTimes::default()
    };
    let start: jiff::Timestamp = "2024-11-05T17:24:06Z".parse().unwrap();
    CseStatus::new(&Ending {
        report,
        transcript,
        boot: &boot,
        start: start.to_zoned(TimeZone::UTC),
        duration: Duration::from_millis(18_700),
    })
}

#[test]
fn success_has_every_key_as_a_string_and_in_upstreams_case() {
    let report = Report {
        steps: vec![step("directories", Outcome::Changed, None)],
        ..Report::default()
    };
    let expected = r#"{"ExitCode":"0","Output":"said\n","Error":"","ExecDuration":"18","KernelStartTime":"Tue 2024-11-12 17:23:33 UTC","CloudInitLocalStartTime":"","CloudInitStartTime":"","CloudFinalStartTime":"","NetworkdStartTime":"","CSEStartTime":"Tue Nov  5 17:24:06 UTC 2024","GuestAgentStartTime":"","SystemdSummary":"","BootDatapoints":{"KernelStartTime":"Tue 2024-11-12 17:23:33 UTC","CSEStartTime":"Tue Nov  5 17:24:06 UTC 2024","GuestAgentStartTime":"","KubeletStartTime":"Tue 2024-11-12 17:24:20 UTC"},"Steps":[{"Name":"directories","Outcome":"Changed","Duration":"12ms"}]}"#;
    assert_eq!(status(&report, "said\n").json(), expected);
}

#[test]
fn a_failure_says_step_cause_and_remedy() {
    let failure = Failure::new("no answer", "check the route");
    let report = Report {
        steps: vec![step(
            "api-server",
            Outcome::Failed,
            Some((51, failure.clone())),
        )],
        failure: Some((Some("api-server".to_owned()), 51, failure)),
        duration: Duration::ZERO,
    };
    let status = status(&report, "");
    assert_eq!(status.exit_code, "51");
    assert_eq!(status.error, "api-server: no answer; hint: check the route");
    assert_eq!(status.steps[0].cause, "no answer");
}

#[test]
fn the_result_fits_the_extensions_status_and_keeps_what_failed() {
    let failure = Failure::new("é".repeat(2000), "r".repeat(2000));
    let mut steps: Vec<_> = (0..60)
        .map(|n| step(&format!("step-number-{n}"), Outcome::Unchanged, None))
        .collect();
    steps.push(step("broken", Outcome::Failed, Some((4, failure.clone()))));
    let report = Report {
        steps,
        failure: Some((Some("broken".to_owned()), 4, failure)),
        duration: Duration::ZERO,
    };
    for transcript in ["", "\"\n\u{1}", "long\n"] {
        let status = status(&report, &transcript.repeat(2000));
        assert!(status.json().len() <= ROOM, "{} bytes", status.json().len());
        assert!(status.steps.iter().any(|s| s.name == "broken"));
    }
    let roomy = Report {
        steps: report.steps[..20].to_vec(),
        ..Report::default()
    };
    let status = status(&roomy, &"long\n".repeat(2000));
    assert_eq!(status.steps.len(), 20);
    assert!(status.output.len() > 1000 && status.json().len() <= ROOM);
}
