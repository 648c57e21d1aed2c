//! Probes and lifecycle hooks: one handler each, with sensible numbers.

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, has, int, items, some_int, text};
use crate::validation::rules::{complain, non_negative, one_of};
use crate::validation::values;

/// The kinds of handler in the order in which the first one counts.
const HANDLERS: [&str; 5] = ["exec", "httpGet", "tcpSocket", "grpc", "sleep"];
const COUNTS: [&str; 5] = [
    "initialDelaySeconds",
    "timeoutSeconds",
    "periodSeconds",
    "successThreshold",
    "failureThreshold",
];
const WINDOWS_SIGNALS: [&str; 2] = ["SIGKILL", "SIGTERM"];
const LINUX_SIGNALS: [&str; 35] = [
    "SIGABRT",
    "SIGALRM",
    "SIGBUS",
    "SIGCHLD",
    "SIGCLD",
    "SIGCONT",
    "SIGFPE",
    "SIGHUP",
    "SIGILL",
    "SIGINT",
    "SIGIO",
    "SIGIOT",
    "SIGKILL",
    "SIGPIPE",
    "SIGPOLL",
    "SIGPROF",
    "SIGPWR",
    "SIGQUIT",
    "SIGRTMAX",
    "SIGSEGV",
    "SIGSTKFLT",
    "SIGSTOP",
    "SIGSYS",
    "SIGTERM",
    "SIGTRAP",
    "SIGTSTP",
    "SIGTTIN",
    "SIGTTOU",
    "SIGURG",
    "SIGUSR1",
    "SIGUSR2",
    "SIGVTALRM",
    "SIGWINCH",
    "SIGXCPU",
    "SIGXFSZ",
];

/// The probes of a container.
pub(crate) fn of_container(errors: &mut Errors, path: &Path<'_>, container: &Value) {
    for name in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let probe = at(container, name);
        if !probe.is_null() {
            self::probe(errors, &path.child(name), probe, name == "readinessProbe");
        }
    }
}

fn probe(errors: &mut Errors, path: &Path<'_>, probe: &Value, is_readiness: bool) {
    handler(errors, path, probe, None);
    for name in COUNTS {
        non_negative(errors, path, probe, name);
    }
    let grace = "terminationGracePeriodSeconds";
    if some_int(probe, grace).is_some_and(|seconds| seconds <= 0) {
        errors.invalid(
            &path.child(grace),
            at(probe, grace),
            "must be greater than 0",
        );
    }
    if is_readiness && has(probe, grace) {
        errors.invalid(
            &path.child(grace),
            at(probe, grace),
            "must not be set for readinessProbes",
        );
    }
    if !is_readiness && int(probe, "successThreshold") != 1 {
        let threshold = Value::from(int(probe, "successThreshold"));
        errors.invalid(&path.child("successThreshold"), &threshold, "must be 1");
    }
}

/// The hooks of a container in a pod with this grace period and operating system.
pub(crate) fn lifecycle(
    errors: &mut Errors,
    path: &Path<'_>,
    lifecycle: &Value,
    grace_period: Option<i64>,
    os: Option<&str>,
) {
    for name in ["postStart", "preStop"] {
        if has(lifecycle, name) {
            handler(errors, &path.child(name), at(lifecycle, name), grace_period);
        }
    }
    if has(lifecycle, "stopSignal") {
        stop_signal(
            errors,
            &path.child("stopSignal"),
            text(lifecycle, "stopSignal"),
            os,
        );
    }
}

fn stop_signal(errors: &mut Errors, path: &Path<'_>, signal: &str, os: Option<&str>) {
    let allowed: &[&str] = match os {
        None => {
            return errors.forbidden(
                path,
                "may not be set for containers with empty `spec.os.name`",
            );
        }
        Some("windows") => &WINDOWS_SIGNALS,
        Some("linux") if is_realtime_signal(signal) => return,
        Some("linux") => &LINUX_SIGNALS,
        Some(_) => return,
    };
    if !allowed.contains(&signal) {
        errors.not_supported(path, &signal.into(), allowed);
    }
}

fn is_realtime_signal(signal: &str) -> bool {
    let offset = |prefix, most| {
        let number: Option<u8> = signal
            .strip_prefix(prefix)
            .and_then(|rest| rest.parse().ok());
        number.is_some_and(|number| (1..=most).contains(&number))
    };
    signal == "SIGRTMIN" || offset("SIGRTMIN+", 15) || offset("SIGRTMAX-", 14)
}

fn handler(errors: &mut Errors, path: &Path<'_>, owner: &Value, grace_period: Option<i64>) {
    let mut given = HANDLERS.iter().filter(|name| has(owner, name));
    let Some(first) = given.next() else {
        return errors.required(path, "must specify a handler type");
    };
    let first_path = path.child(first);
    let action = at(owner, first);
    match *first {
        "exec" if items(action, "command").is_empty() => {
            errors.required(&first_path.child("command"), "");
        }
        "httpGet" => http_get(errors, &first_path, action),
        "tcpSocket" | "grpc" => values::port(errors, &first_path.child("port"), at(action, "port")),
        "sleep" => sleep(errors, &first_path, action, grace_period),
        _ => {}
    }
    for extra in given {
        errors.forbidden(
            &path.child(extra),
            "may not specify more than 1 handler type",
        );
    }
}

fn http_get(errors: &mut Errors, path: &Path<'_>, action: &Value) {
    if text(action, "path").is_empty() {
        errors.required(&path.child("path"), "");
    }
    values::port(errors, &path.child("port"), at(action, "port"));
    one_of(errors, path, action, "scheme", &["HTTP", "HTTPS"]);
    for header in items(action, "httpHeaders") {
        let name = text(header, "name");
        complain(
            errors,
            &path.child("httpHeaders"),
            name,
            names::http_header_name(name),
        );
    }
}

fn sleep(errors: &mut Errors, path: &Path<'_>, action: &Value, grace_period: Option<i64>) {
    let seconds = int(action, "seconds");
    let Some(grace) = grace_period else { return };
    if seconds < 0 || seconds > grace {
        let detail =
            format!("must be non-negative and less than terminationGracePeriodSeconds ({grace})");
        errors.invalid(path, &seconds.into(), &detail);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;

    fn liveness(probe: Value) -> String {
        told(|e| of_container(e, &Path::root("c"), &json!({ "livenessProbe": probe }))).join("|")
    }

    #[test]
    fn a_probe_has_one_complete_handler() {
        let http = json!({"path": "/", "port": 80, "scheme": "HTTP"});
        let cases = [
            (json!({"httpGet": http, "successThreshold": 1}), ""),
            (json!({"grpc": {"port": 80}, "successThreshold": 1}), ""),
            (
                json!({"successThreshold": 1}),
                "c.livenessProbe: Required value: must specify a handler type",
            ),
            (
                json!({"httpGet": http, "exec": {"command": ["x"]}, "successThreshold": 1}),
                "c.livenessProbe.httpGet: Forbidden: may not specify more than 1 handler type",
            ),
            (
                json!({"exec": {}, "successThreshold": 1}),
                "c.livenessProbe.exec.command: Required value",
            ),
            (
                json!({"tcpSocket": {"port": 0}, "successThreshold": 1}),
                "c.livenessProbe.tcpSocket.port: Invalid value: 0: must be between 1 and 65535, inclusive",
            ),
            (
                json!({"httpGet": {"path": "/", "port": 80, "scheme": "FTP"}, "successThreshold": 1}),
                "c.livenessProbe.httpGet.scheme: Unsupported value: \"FTP\": supported values: \"HTTP\", \"HTTPS\"",
            ),
            (
                json!({"httpGet": http, "successThreshold": 2}),
                "c.livenessProbe.successThreshold: Invalid value: 2: must be 1",
            ),
            (
                json!({"httpGet": http, "successThreshold": 1, "periodSeconds": -1}),
                "c.livenessProbe.periodSeconds: Invalid value: -1: must be greater than or equal to 0",
            ),
            (
                json!({"httpGet": http, "successThreshold": 1, "terminationGracePeriodSeconds": 0}),
                "c.livenessProbe.terminationGracePeriodSeconds: Invalid value: 0: must be greater than 0",
            ),
        ];
        for (probe, expected) in cases {
            assert_eq!(liveness(probe.clone()), expected, "{probe}");
        }
    }

    #[test]
    fn readiness_may_succeed_late_but_not_end_the_container() {
        let probe = json!({
            "exec": {"command": ["x"]}, "successThreshold": 3, "terminationGracePeriodSeconds": 5
        });
        let found =
            told(|e| of_container(e, &Path::root("c"), &json!({ "readinessProbe": probe })));
        assert_eq!(
            found,
            [
                "c.readinessProbe.terminationGracePeriodSeconds: Invalid value: 5: must not be set for readinessProbes"
            ]
        );
    }

    #[test]
    fn hooks_fit_the_grace_period_and_signals_the_system() {
        let check = |hooks: Value, os| {
            told(|e| lifecycle(e, &Path::root("l"), &hooks, Some(30), os)).join("|")
        };
        assert_eq!(
            check(json!({"preStop": {"sleep": {"seconds": 30}}}), None),
            ""
        );
        assert_eq!(
            check(json!({"preStop": {"sleep": {"seconds": 31}}}), None),
            "l.preStop.sleep: Invalid value: 31: must be non-negative and less than terminationGracePeriodSeconds (30)"
        );
        assert_eq!(
            check(json!({"stopSignal": "SIGRTMIN+3"}), Some("linux")),
            ""
        );
        assert!(check(json!({"stopSignal": "SIGNO"}), Some("linux")).contains("Unsupported"));
        assert!(check(json!({"stopSignal": "SIGTERM"}), None).contains("Forbidden"));
    }
}
