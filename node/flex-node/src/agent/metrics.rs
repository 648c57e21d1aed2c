//! What the agent tells Prometheus: a page of text, made at each look, given to whoever asks on this machine.
//!
//! One thread and no more: a page every few seconds is all that is asked of it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use super::decide::{Decision, History, Observation, Readiness};

/// A request's head is no longer than this.
const HEAD: usize = 8192;

/// What is told.
#[derive(Debug, Default, Clone)]
pub struct Metrics(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    looks: u64,
    deeds: BTreeMap<&'static str, u64>,
    free: Option<u64>,
    drift: usize,
    page: String,
}

fn deed(decision: &Decision) -> &'static str {
    match decision {
        Decision::Well => "none",
        Decision::Wait(_) => "wait",
        Decision::Restart(..) => "restart",
        Decision::Converge(_) => "converge",
        Decision::Upgrade(..) => "upgrade",
        Decision::AskSomebody(_) => "ask_somebody",
    }
}

impl Metrics {
    /// What was seen and decided.
    pub fn looked(
        &self,
        seen: &Observation,
        decision: &Decision,
        history: &History,
        now: Timestamp,
    ) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.looks += 1;
        *state.deeds.entry(deed(decision)).or_default() += 1;
        // Looked at now and then: what was seen last counts.
        state.free = seen.free.or(state.free);
        state.drift = seen.drift.len();
        state.page = page(&state, seen, history, now);
    }

    /// The page.
    pub fn text(&self) -> String {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.page.clone()
    }

    /// Answers until the process ends.
    pub fn serve(&self, listener: TcpListener) {
        let metrics = self.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                // A client that goes away is none of our business.
                let _ = metrics.answer(stream);
            }
        });
    }

    fn answer(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.set_write_timeout(Some(Duration::from_secs(2)))?;
        let (mut head, mut part) = (Vec::new(), [0; 1024]);
        while !head.windows(4).any(|end| end == b"\r\n\r\n") && head.len() < HEAD {
            match stream.read(&mut part)? {
                0 => break,
                count => head.extend_from_slice(&part[..count]),
            }
        }
        let is_known = head.starts_with(b"GET /metrics") || head.starts_with(b"GET /healthz");
        let (status, body) = match is_known {
            true => ("200 OK", self.text()),
            false => ("404 Not Found", String::new()),
        };
        let length = body.len();
        write!(
            stream,
            "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )
    }
}

fn page(state: &State, seen: &Observation, history: &History, now: Timestamp) -> String {
    let mut page = String::new();
    let mut tell = |name: &str, kind: &str, help: &str, rows: &[(String, u64)]| {
        // Writing to a text does not fail.
        let _ = writeln!(
            page,
            "# HELP aks_flex_node_{name} {help}\n# TYPE aks_flex_node_{name} {kind}"
        );
        for (labels, value) in rows {
            let _ = writeln!(page, "aks_flex_node_{name}{labels} {value}");
        }
    };
    let one = |value: u64| vec![(String::new(), value)];
    let labelled = |label: &str, word: &str, value: u64| (format!("{{{label}=\"{word}\"}}"), value);
    tell(
        "info",
        "gauge",
        "The agent.",
        &[labelled("version", env!("CARGO_PKG_VERSION"), 1)],
    );
    let components = [
        (
            "containerd",
            seen.containerd_runs && seen.containerd_answers,
        ),
        ("kubelet", seen.kubelet_runs && seen.kubelet_is_well),
        ("identity", seen.identity != Some(false)),
    ];
    let rows = components.map(|(name, is_up)| labelled("component", name, is_up.into()));
    tell(
        "component_up",
        "gauge",
        "Whether a part of the node is well.",
        &rows,
    );
    let ready = u64::from(seen.readiness == Readiness::Ready);
    tell(
        "ready",
        "gauge",
        "Whether the cluster says that the node is Ready.",
        &one(ready),
    );
    tell(
        "drifted",
        "gauge",
        "How many things differ from what they should be.",
        &one(state.drift as u64),
    );
    tell(
        "looks_total",
        "counter",
        "How often the node was looked at.",
        &one(state.looks),
    );
    let deeds: Vec<_> = state
        .deeds
        .iter()
        .map(|(deed, count)| labelled("action", deed, *count))
        .collect();
    tell("decisions_total", "counter", "What was decided.", &deeds);
    tell(
        "remediation_budget",
        "gauge",
        "How many more times something is tried.",
        &one(history.budget().into()),
    );
    if let Some(free) = state.free {
        tell(
            "disk_free_bytes",
            "gauge",
            "What is free for images and logs.",
            &one(free),
        );
    }
    tell(
        "last_look_timestamp_seconds",
        "gauge",
        "When the node was looked at.",
        &one(now.as_second().unsigned_abs()),
    );
    page
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn seen(readiness: Readiness) -> Observation {
        Observation {
            containerd_runs: true,
            containerd_answers: true,
            kubelet_runs: false,
            kubelet_is_well: false,
            readiness,
            drift: vec!["/etc/default/kubelet".into()],
            identity: None,
            free: Some(4096),
            goal: None,
        }
    }

    #[test]
    fn whoever_asks_hears_what_was_seen_and_done() {
        let metrics = Metrics::default();
        let now = Timestamp::from_second(1_790_000_000).unwrap();
        let decision = Decision::Restart("kubelet.service", String::new());
        metrics.looked(
            &seen(Readiness::NotReady),
            &decision,
            &History::default(),
            now,
        );
        let later = Observation {
            free: None,
            ..seen(Readiness::Ready)
        };
        metrics.looked(&later, &Decision::Well, &History::default(), now);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        metrics.serve(listener);
        let mut stream = TcpStream::connect(address).unwrap();
        stream
            .write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
            .unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        for line in [
            "aks_flex_node_component_up{component=\"kubelet\"} 0",
            "aks_flex_node_ready 1",
            "aks_flex_node_looks_total 2",
            "aks_flex_node_decisions_total{action=\"restart\"} 1",
            "aks_flex_node_disk_free_bytes 4096",
            "aks_flex_node_remediation_budget 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}: {text}");
        }
    }
}
