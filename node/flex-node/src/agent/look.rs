//! Looks at the node, and puts what was seen into upstream's words.

use std::time::Duration;

use ::steps::engine::Stop;
use ::steps::host::{Command, Host, Request};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::decide::{Decision, Observation, Readiness};
use super::{AskCluster, AskGoal, stamp};
use crate::checks::scene;
use crate::cluster::Seen;
use crate::config::Join;
use crate::journey::{Journey, WORKERS};
use crate::machine;
use crate::paths;
use crate::steps::Wish;

pub(super) struct Looking<'a> {
    pub(super) host: &'a dyn Host,
    pub(super) stop: &'a Stop,
    pub(super) wish: &'a Wish,
    pub(super) ask_cluster: &'a AskCluster<'a>,
    pub(super) ask_goal: &'a AskGoal<'a>,
}

impl Looking<'_> {
    pub(super) fn look(&self, compares: bool) -> Observation {
        let answers = Command::new("ctr", &["--connect-timeout", "5s", "version"])
            .at_most(Duration::from_secs(10));
        let readiness = match (self.ask_cluster)() {
            Ok(Seen::Ready) => Readiness::Ready,
            Ok(Seen::NotReady(_)) => Readiness::NotReady,
            Ok(Seen::Absent) => Readiness::Absent,
            Err(_) => Readiness::Unknown,
        };
        Observation {
            containerd_runs: self.succeeds(&is_active("containerd.service")),
            containerd_answers: self.succeeds(&answers),
            kubelet_runs: self.succeeds(&is_active("kubelet.service")),
            kubelet_is_well: self.kubelet_is_well(),
            readiness,
            drift: if compares { self.drift() } else { Vec::new() },
            identity: compares.then(|| self.identity()).flatten(),
            free: compares.then(|| self.free()).flatten(),
            goal: compares.then(|| self.goal()).flatten(),
        }
    }

    fn succeeds(&self, command: &Command) -> bool {
        let finished = self.host.run(command, self.stop);
        finished.is_ok_and(|finished| finished.success())
    }

    fn kubelet_is_well(&self) -> bool {
        let request =
            Request::get("http://127.0.0.1:10248/healthz").at_most(Duration::from_secs(5));
        let answer = self.host.http(&request, &mut Vec::new(), self.stop);
        answer.is_ok_and(|answer| answer.status == 200)
    }

    /// Whether the identity gives tokens, where the machine serves it itself.
    fn identity(&self) -> Option<bool> {
        let serves = self.host.files().exists(paths::HIMDS_UNIT);
        let words = ["token", "--config", &self.wish.file, "--check"];
        let ask = self.wish.own(&words).at_most(Duration::from_secs(30));
        serves.then(|| self.succeeds(&ask))
    }

    fn free(&self) -> Option<u64> {
        let finished = self
            .host
            .run(&Command::new("df", &["-Pk", "/var/lib"]), self.stop);
        let text = finished.ok()?.text();
        let kilobytes = text.lines().nth(1)?.split_whitespace().nth(3)?;
        Some(kilobytes.parse::<u64>().ok()? * 1024)
    }

    /// The version that the cluster's Machine resource names, unless it runs.
    fn goal(&self) -> Option<String> {
        let goal = (self.ask_goal)()?;
        let scene = scene(self.host, self.stop);
        let (_, runs) = machine::installed(&scene, "kubelet")?;
        (machine::Version::parse(&goal)? != runs).then_some(goal)
    }

    /// What a plan would change, units aside: those are looked at every time.
    fn drift(&self) -> Vec<String> {
        let journey = Journey {
            host: self.host,
            stop: self.stop.clone(),
            news: &|_| {},
            workers: WORKERS,
        };
        let Ok(plan) = journey.plan(self.wish) else {
            return Vec::new();
        };
        let changes = plan.steps.iter().flat_map(|step| &step.changes);
        let files = changes.filter(|change| change.subject.starts_with('/'));
        files.map(|change| change.subject.clone()).collect()
    }

    /// `status.json`: upstream's fields, and what was decided.
    pub(super) fn status(&self, seen: &Observation, decision: &Decision, now: Timestamp) -> Value {
        let scene = scene(self.host, self.stop);
        let version = |program: &str| {
            let found = machine::installed(&scene, program);
            found.map_or("unknown".to_owned(), |(_, version)| version.to_string())
        };
        let arc = match &self.wish.config.join {
            Join::Arc(arc) => {
                json!({"registered": true, "machineName": arc.machine, "location": arc.location,
                "resourceGroup": arc.group})
            }
            _ => json!({"registered": false, "connected": false}),
        };
        let ready = match seen.readiness {
            Readiness::Ready => "Ready",
            Readiness::NotReady | Readiness::Absent => "NotReady",
            Readiness::Unknown => "Unknown",
        };
        json!({
            "kubeletVersion": version("kubelet"), "runcVersion": version("runc"), "containerdVersion": version("containerd"),
            "kubeletRunning": seen.kubelet_runs, "kubeletReady": ready, "containerdRunning": seen.containerd_runs,
            "arcStatus": arc, "lastUpdated": stamp(now), "lastUpdatedBy": "StatusCollectionLoop",
            "agentVersion": env!("CARGO_PKG_VERSION"), "nodeName": self.wish.name,
            "identity": seen.identity, "freeBytes": seen.free, "goal": seen.goal,
            "drift": seen.drift, "decision": format!("{decision:?}"), "statusFile": paths::STATUS,
        })
    }
}

fn is_active(unit: &str) -> Command {
    Command::new("systemctl", &["is-active", "--quiet", unit])
}
