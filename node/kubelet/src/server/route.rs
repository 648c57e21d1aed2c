//! What a path asks for, and which subresources of the node allow it. Pure (`pkg/kubelet/server/{server,auth}.go`).

use http::Method;

/// A container, as paths name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) namespace: String,
    pub(super) pod: String,
    pub(super) uid: Option<String>,
    /// Empty for port-forward.
    pub(super) container: String,
}

/// Streams that a client changes protocols for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Exec,
    Attach,
    PortForward,
}

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Route {
    Healthz(Option<String>),
    Pods,
    RunningPods,
    Summary,
    Metrics,
    Slis,
    Cadvisor,
    ResourceMetrics,
    ProbeMetrics,
    SystemLogs(String),
    Configz,
    ContainerLogs(Target),
    Stream(Stream, Target),
    Run(Target),
    Checkpoint(Target),
}

/// Why a request has no route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Lost {
    NotFound,
    Method,
}

const READ: &[Method] = &[Method::GET];
const READ_OR_POST: &[Method] = &[Method::GET, Method::POST];
const POST: &[Method] = &[Method::POST];

impl Route {
    /// Finds what a request asks for.
    pub(super) fn find(method: &Method, path: &str) -> Result<Route, Lost> {
        let (route, methods) = parse(path).ok_or(Lost::NotFound)?;
        // HEAD is a GET without its answer.
        let asked = match *method {
            Method::HEAD => &Method::GET,
            _ => method,
        };
        match methods.contains(asked) {
            true => Ok(route),
            false => Err(Lost::Method),
        }
    }

    /// Whether the read-only port has it.
    pub(super) fn is_open(&self) -> bool {
        matches!(
            self,
            Route::Healthz(_)
                | Route::Pods
                | Route::Summary
                | Route::Metrics
                | Route::Slis
                | Route::Cadvisor
                | Route::ResourceMetrics
                | Route::ProbeMetrics
        )
    }

    /// Whether `enableDebuggingHandlers: false` closes it.
    pub(super) fn is_debugging(&self) -> bool {
        matches!(
            self,
            Route::RunningPods
                | Route::SystemLogs(_)
                | Route::ContainerLogs(_)
                | Route::Stream(..)
                | Route::Run(_)
        )
    }
}

fn parse(path: &str) -> Option<(Route, &'static [Method])> {
    let path = path.strip_prefix('/')?;
    let (head, rest) = path.split_once('/').unwrap_or((path, ""));
    let parts: Vec<&str> = rest.split('/').filter(|part| !part.is_empty()).collect();
    let target = || container(&parts);
    Some(match (head, parts.as_slice()) {
        ("healthz", []) => (Route::Healthz(None), READ),
        ("healthz", [check]) => (Route::Healthz(Some((*check).into())), READ),
        ("pods", []) => (Route::Pods, READ),
        ("runningpods", []) => (Route::RunningPods, READ),
        ("stats", ["summary"]) => (Route::Summary, READ_OR_POST),
        ("metrics", []) => (Route::Metrics, READ),
        ("metrics", ["slis"]) => (Route::Slis, READ),
        ("metrics", ["cadvisor"]) => (Route::Cadvisor, READ),
        ("metrics", ["resource"]) => (Route::ResourceMetrics, READ),
        ("metrics", ["probes"]) => (Route::ProbeMetrics, READ),
        ("logs", _) => (Route::SystemLogs(rest.into()), READ),
        ("configz", []) => (Route::Configz, READ),
        ("containerLogs", [_, _, _]) => (Route::ContainerLogs(target()?), READ),
        ("exec", _) => (Route::Stream(Stream::Exec, target()?), READ_OR_POST),
        ("attach", _) => (Route::Stream(Stream::Attach, target()?), READ_OR_POST),
        ("portForward", _) => (
            Route::Stream(Stream::PortForward, pod(&parts)?),
            READ_OR_POST,
        ),
        ("run", _) => (Route::Run(target()?), POST),
        ("checkpoint", [_, _, _]) => (Route::Checkpoint(target()?), POST),
        _ => return None,
    })
}

fn container(parts: &[&str]) -> Option<Target> {
    let (pod_parts, container) = parts.split_at(parts.len().checked_sub(1)?);
    let target = pod(pod_parts)?;
    Some(Target {
        container: container[0].into(),
        ..target
    })
}

fn pod(parts: &[&str]) -> Option<Target> {
    let (namespace, pod, uid) = match parts {
        [namespace, pod] => (namespace, pod, None),
        [namespace, pod, uid] => (namespace, pod, Some((*uid).to_owned())),
        _ => return None,
    };
    Some(Target {
        namespace: (*namespace).into(),
        pod: (*pod).into(),
        uid,
        container: String::new(),
    })
}

/// The verb of a method.
pub(super) fn verb(method: &Method) -> &'static str {
    match *method {
        Method::POST => "create",
        Method::PUT => "update",
        Method::PATCH => "patch",
        Method::DELETE => "delete",
        _ => "get",
    }
}

/// Any of these allows a request, tried in this order.
pub(super) fn subresources(path: &str) -> &'static [&'static str] {
    let under = |prefix: &str| {
        path.strip_prefix(prefix)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let table: [(&str, &[&str]); 8] = [
        ("/stats", &["stats"]),
        ("/metrics", &["metrics"]),
        ("/logs", &["log"]),
        ("/checkpoint", &["checkpoint"]),
        ("/pods", &["pods", "proxy"]),
        ("/runningpods", &["pods", "proxy"]),
        ("/healthz", &["healthz", "proxy"]),
        ("/configz", &["configz", "proxy"]),
    ];
    let row = table.iter().find(|(prefix, _)| under(prefix));
    row.map_or(&["proxy"], |(_, subresources)| subresources)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn target(uid: Option<&str>, container: &str) -> Target {
        Target {
            namespace: "n".into(),
            pod: "p".into(),
            uid: uid.map(str::to_owned),
            container: container.into(),
        }
    }

    #[test]
    fn paths_lead_to_what_they_ask_for() {
        let exec = |uid| Route::Stream(Stream::Exec, target(uid, "c"));
        let forward = |uid| Route::Stream(Stream::PortForward, target(uid, ""));
        for (method, path, wanted) in [
            ("GET", "/healthz", Ok(Route::Healthz(None))),
            (
                "GET",
                "/healthz/syncloop",
                Ok(Route::Healthz(Some("syncloop".into()))),
            ),
            ("HEAD", "/pods", Ok(Route::Pods)),
            ("POST", "/pods", Err(Lost::Method)),
            ("GET", "/runningpods/", Ok(Route::RunningPods)),
            ("POST", "/stats/summary", Ok(Route::Summary)),
            ("GET", "/metrics/cadvisor", Ok(Route::Cadvisor)),
            ("GET", "/logs/", Ok(Route::SystemLogs(String::new()))),
            ("GET", "/logs/a/b", Ok(Route::SystemLogs("a/b".into()))),
            (
                "GET",
                "/containerLogs/n/p/c",
                Ok(Route::ContainerLogs(target(None, "c"))),
            ),
            ("GET", "/containerLogs/n/p", Err(Lost::NotFound)),
            ("POST", "/exec/n/p/c", Ok(exec(None))),
            ("GET", "/exec/n/p/u/c", Ok(exec(Some("u")))),
            ("GET", "/exec/n/p", Err(Lost::NotFound)),
            ("DELETE", "/exec/n/p/c", Err(Lost::Method)),
            ("POST", "/portForward/n/p", Ok(forward(None))),
            ("POST", "/portForward/n/p/u", Ok(forward(Some("u")))),
            ("POST", "/run/n/p/c", Ok(Route::Run(target(None, "c")))),
            ("GET", "/", Err(Lost::NotFound)),
            ("GET", "/metricsx", Err(Lost::NotFound)),
        ] {
            let method = Method::from_bytes(method.as_bytes()).unwrap();
            assert_eq!(Route::find(&method, path), wanted, "{method} {path}");
        }
    }

    #[test]
    fn subresources_are_as_fine_as_upstreams() {
        for (path, wanted) in [
            ("/stats/summary", vec!["stats"]),
            ("/metrics", vec!["metrics"]),
            ("/metrics/resource", vec!["metrics"]),
            ("/metricsx", vec!["proxy"]),
            ("/logs/syslog", vec!["log"]),
            ("/pods", vec!["pods", "proxy"]),
            ("/runningpods/", vec!["pods", "proxy"]),
            ("/healthz/ping", vec!["healthz", "proxy"]),
            ("/configz", vec!["configz", "proxy"]),
            ("/exec/a/b/c", vec!["proxy"]),
            ("/containerLogs/a/b/c", vec!["proxy"]),
        ] {
            assert_eq!(subresources(path), wanted, "{path}");
        }
    }
}
