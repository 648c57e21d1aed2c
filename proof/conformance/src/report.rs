//! What the suite's runner says in its JSON report. (Its JUnit report says the same, less exactly.)

use serde::{Deserialize, Serialize};

/// How a spec ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The spec's name without the suite's tag.
    pub(crate) spec: String,
    pub(crate) passed: bool,
    pub(crate) seconds: f64,
    /// The first line of the failure.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) failure: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Suite {
    #[serde(default)]
    special_suite_failure_reasons: Option<Vec<String>>,
    spec_reports: Option<Vec<SpecReport>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpecReport {
    container_hierarchy_texts: Option<Vec<String>>,
    #[serde(default)]
    leaf_node_type: String,
    #[serde(default)]
    leaf_node_text: String,
    state: String,
    /// Nanoseconds.
    run_time: f64,
    failure: Option<Failure>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Failure {
    #[serde(default)]
    message: String,
    #[serde(default)]
    forwarded_panic: String,
}

/// A whole report.
#[derive(Debug, PartialEq)]
pub(crate) struct Report {
    pub(crate) outcomes: Vec<Outcome>,
    /// Why the suite as a whole failed: its set-up, a time limit, an interruption.
    pub(crate) troubles: Vec<String>,
}

/// How the failure of a spec begins that was running when the suite's time was over.
pub(crate) const CUT_OFF: &str = "A suite timeout occurred";
const TAG: &str = " [Conformance]";
const LONGEST_LINE: usize = 240;

/// Reads a report; specs that were not run do not appear.
pub(crate) fn read(json: &[u8]) -> serde_json::Result<Report> {
    let suites: Vec<Suite> = serde_json::from_slice(json)?;
    let mut report = Report {
        outcomes: Vec::new(),
        troubles: Vec::new(),
    };
    for suite in suites {
        report
            .troubles
            .extend(suite.special_suite_failure_reasons.into_iter().flatten());
        for spec in suite.spec_reports.into_iter().flatten() {
            take(&mut report, spec);
        }
    }
    Ok(report)
}

fn take(report: &mut Report, spec: SpecReport) {
    let failed = is_failure(&spec.state);
    if spec.leaf_node_type != "It" {
        if failed {
            let why = format!(
                "{}: {}",
                spec.leaf_node_type,
                telling_line(spec.failure.as_ref())
            );
            report.troubles.push(why);
        }
        return;
    }
    if !failed && spec.state != "passed" {
        return;
    }
    let failure = match failed {
        true => telling_line(spec.failure.as_ref()),
        false => String::new(),
    };
    report.outcomes.push(Outcome {
        spec: full_name(spec.container_hierarchy_texts, spec.leaf_node_text),
        passed: !failed,
        seconds: spec.run_time / 1e9,
        failure,
    });
}

// An interrupted spec says nothing about the server, so it counts as not run.
fn is_failure(state: &str) -> bool {
    matches!(state, "failed" | "panicked" | "aborted" | "timedout")
}

fn full_name(containers: Option<Vec<String>>, leaf: String) -> String {
    let mut parts = containers.unwrap_or_default();
    parts.push(leaf);
    parts.retain(|part| !part.is_empty());
    parts.join(" ").replace(TAG, "")
}

// The first line, with the next when the first only announces it.
fn telling_line(failure: Option<&Failure>) -> String {
    let Some(failure) = failure else {
        return "no reason was given".into();
    };
    let text = match failure.forwarded_panic.as_str() {
        "" => failure.message.clone(),
        panic => format!("{}: {panic}", failure.message),
    };
    let mut told = String::new();
    for line in text.lines().map(str::trim).filter(|line| !line.is_empty()) {
        if !told.is_empty() {
            told.push(' ');
        }
        told.push_str(line);
        if !told.ends_with([':', '{', ',']) {
            break;
        }
    }
    told.chars().take(LONGEST_LINE).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use serde_json::{Value, json};

    use super::*;

    fn report_of(specs: Value) -> Report {
        let suite =
            json!([{"SuitePath": "x", "SpecialSuiteFailureReasons": null, "SpecReports": specs}]);
        read(suite.to_string().as_bytes()).unwrap()
    }

    fn spec(kind: &str, state: &str, failure: Option<&str>) -> Value {
        json!({"ContainerHierarchyTexts": ["[sig-node] Lease"], "LeafNodeType": kind,
            "LeafNodeText": "lease API should be available [Conformance]", "State": state,
            "RunTime": 1_500_000_000_u64, "Failure": failure.map(|m| json!({"Message": m}))})
    }

    #[test]
    fn a_spec_that_passed_has_its_plain_name_and_time() {
        let report = report_of(json!([
            spec("It", "passed", None),
            spec("It", "skipped", None)
        ]));
        let expected = Outcome {
            spec: "[sig-node] Lease lease API should be available".into(),
            passed: true,
            seconds: 1.5,
            failure: String::new(),
        };
        assert_eq!(report.outcomes, [expected]);
        assert_eq!(report.troubles, [""; 0]);
    }

    #[test]
    fn a_failure_is_told_by_its_first_line() {
        let cases = [
            (
                "failed to create: not found\nmore",
                "failed to create: not found",
            ),
            (
                "Unexpected error:\n    <*errors.StatusError>:\n  nope\nx",
                "Unexpected error: <*errors.StatusError>: nope",
            ),
            ("", ""),
        ];
        for (message, line) in cases {
            let report = report_of(json!([spec("It", "failed", Some(message))]));
            assert!(!report.outcomes[0].passed);
            assert_eq!(report.outcomes[0].failure, line);
        }
    }

    #[test]
    fn an_interrupted_spec_was_not_run_and_a_broken_set_up_is_a_trouble() {
        let broken = spec(
            "SynchronizedBeforeSuite",
            "failed",
            Some("no node is ready"),
        );
        let report = report_of(json!([spec("It", "interrupted", None), broken]));
        assert_eq!(report.outcomes, []);
        assert_eq!(
            report.troubles,
            ["SynchronizedBeforeSuite: no node is ready"]
        );
    }
}
