//! Probes: a task for each asks at its pace; a counter decides when an answer counts.

mod ask;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use client_runtime::Severity;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, Probe};
use tokio::sync::Notify;

use crate::context::Context;
use crate::decide::{Verdict, Verdicts};
use crate::lifecycle::place;
use crate::spec::Role;

/// What a probe is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// Whether the container has started; others wait for it.
    Startup,
    /// Whether it is to be restarted.
    Liveness,
    /// Whether it is to be sent work.
    Readiness,
}

impl Kind {
    /// Every kind with the probe that a container has for it.
    pub fn of(container: &Container) -> impl Iterator<Item = (Kind, &Probe)> {
        let probes = [
            (Kind::Startup, container.startup_probe.as_ref()),
            (Kind::Liveness, container.liveness_probe.as_ref()),
            (Kind::Readiness, container.readiness_probe.as_ref()),
        ];
        probes
            .into_iter()
            .filter_map(|(kind, probe)| Some((kind, probe?)))
    }

    fn name(self) -> &'static str {
        match self {
            Kind::Startup => "Startup",
            Kind::Liveness => "Liveness",
            Kind::Readiness => "Readiness",
        }
    }

    /// What holds before the first answer.
    fn at_first(self) -> Verdict {
        match self {
            Kind::Startup => Verdict::Unknown,
            Kind::Liveness => Verdict::Success,
            Kind::Readiness => Verdict::Failure,
        }
    }
}

/// What probes need to know of their pod, and what they found out. The pod's worker and its probes share it.
#[derive(Default)]
pub struct Board {
    inner: Mutex<Inner>,
    /// The worker waits for news here.
    pub news: Arc<Notify>,
}

#[derive(Default, Clone)]
struct Inner {
    containers: std::collections::BTreeMap<String, Running>,
    pod_ip: String,
    ending: bool,
    verdicts: Verdicts,
    readiness: std::collections::BTreeMap<String, Verdict>,
}

/// A container as probes see it.
#[derive(Clone, Debug)]
pub struct Running {
    /// The runtime's id.
    pub id: String,
    /// Whether it runs.
    pub running: bool,
    /// Since when.
    pub started_at: Timestamp,
}

impl Board {
    fn lock(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.inner
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Tells the probes how the pod is.
    pub fn update(
        &self,
        containers: impl Iterator<Item = (String, Running)>,
        pod_ip: &str,
        ending: bool,
    ) {
        let mut inner = self.lock();
        inner.containers = containers.collect();
        pod_ip.clone_into(&mut inner.pod_ip);
        inner.ending = ending;
        let ids: std::collections::BTreeSet<String> =
            inner.containers.values().map(|c| c.id.clone()).collect();
        let Inner {
            verdicts,
            readiness,
            ..
        } = &mut *inner;
        for map in [&mut verdicts.liveness, &mut verdicts.startup, readiness] {
            map.retain(|id, _| ids.contains(id));
        }
    }

    /// Verdicts of liveness and start-up probes.
    pub fn verdicts(&self) -> Verdicts {
        self.lock().verdicts.clone()
    }

    /// Verdicts of readiness probes.
    pub fn readiness(&self) -> std::collections::BTreeMap<String, Verdict> {
        self.lock().readiness.clone()
    }

    /// Takes a verdict as found, as for containers that ran before this kubelet did.
    pub fn set(&self, kind: Kind, id: &str, verdict: Verdict) -> bool {
        let mut inner = self.lock();
        let map = match kind {
            Kind::Startup => &mut inner.verdicts.startup,
            Kind::Liveness => &mut inner.verdicts.liveness,
            Kind::Readiness => &mut inner.readiness,
        };
        map.insert(id.to_owned(), verdict) != Some(verdict)
    }

    fn get(&self, kind: Kind, id: &str) -> Option<Verdict> {
        let inner = self.lock();
        match kind {
            Kind::Startup => &inner.verdicts.startup,
            Kind::Liveness => &inner.verdicts.liveness,
            Kind::Readiness => &inner.readiness,
        }
        .get(id)
        .copied()
    }
}

/// Counts answers until they count.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counter {
    last: Option<bool>,
    run: i32,
}

impl Counter {
    /// The verdict that this answer makes, if it makes one.
    pub fn count(&mut self, kind: Kind, probe: &Probe, well: bool) -> Option<Verdict> {
        self.run = if self.last == Some(well) {
            self.run + 1
        } else {
            1
        };
        self.last = Some(well);
        let success = match kind {
            Kind::Readiness => probe.success_threshold.unwrap_or(1).max(1),
            _ => 1,
        };
        let (threshold, verdict) = match well {
            true => (success, Verdict::Success),
            false => (
                probe.failure_threshold.unwrap_or(3).max(1),
                Verdict::Failure,
            ),
        };
        (self.run >= threshold).then_some(verdict)
    }
}

/// Probes one container for as long as the task is let.
pub async fn watch_over(
    ctx: Arc<Context>,
    pod: Arc<Pod>,
    role: Role,
    container: Container,
    kind: Kind,
    board: Arc<Board>,
) {
    let probes = Kind::of(&container).find(|(k, _)| *k == kind);
    let Some(probe) = probes.map(|(_, probe)| probe.clone()) else {
        return;
    };
    let period = Duration::from_secs(probe.period_seconds.unwrap_or(10).max(1) as u64);
    let since_start = Timestamp::now().duration_since(ctx.started);
    if Duration::try_from(since_start).unwrap_or_default() < period {
        // Many pods that were there before are not all asked at once.
        tokio::time::sleep(period.mul_f64(rand::random::<f64>())).await;
    }
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut counter = Counter::default();
    let mut id = String::new();
    let mut held = false;
    loop {
        ticks.tick().await;
        let (found, pod_ip, ending) = {
            let inner = board.lock();
            (
                inner.containers.get(&container.name).cloned(),
                inner.pod_ip.clone(),
                inner.ending,
            )
        };
        let Some(found) = found else { continue };
        if found.id != id {
            id.clone_from(&found.id);
            counter = Counter::default();
            held = false;
            if board.get(kind, &id).is_none() && board.set(kind, &id, kind.at_first()) {
                board.news.notify_one();
            }
        }
        if !found.running {
            // A container that ended is not ready; whether it restarts is not the probes' business.
            continue;
        }
        if ending && kind != Kind::Readiness {
            return;
        }
        let age = Timestamp::now().duration_since(found.started_at).as_secs();
        let delay = i64::from(probe.initial_delay_seconds.unwrap_or(0));
        let started = board.get(Kind::Startup, &id) == Some(Verdict::Success);
        let gated = match kind {
            Kind::Startup => started,
            _ => container.startup_probe.is_some() && !started,
        };
        if held || gated || age < delay {
            continue;
        }
        let answer = ask::ask(&ctx, &container, &probe, &id, &pod_ip).await;
        let Some(answer) = answer.transpose() else {
            continue;
        };
        if let Err(text) = &answer {
            let word = kind.name();
            let message = format!("{word} probe failed: {text}");
            ctx.say_of(
                &pod,
                &place(role, &container.name),
                Severity::Warning,
                "Unhealthy",
                message,
            );
        }
        let Some(verdict) = counter.count(kind, &probe, answer.is_ok()) else {
            continue;
        };
        // Until there is another container nothing changes any more: a restart must not be counted twice.
        held = match kind {
            Kind::Startup => true,
            Kind::Liveness => verdict == Verdict::Failure,
            Kind::Readiness => false,
        };
        if board.set(kind, &id, verdict) {
            board.news.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_count_when_they_repeat_often_enough() {
        let probe = Probe {
            failure_threshold: Some(3),
            success_threshold: Some(2),
            ..Probe::default()
        };
        let mut counter = Counter::default();
        let mut feed = |well| counter.count(Kind::Readiness, &probe, well);
        assert_eq!(feed(true), None);
        assert_eq!(feed(true), Some(Verdict::Success));
        assert_eq!(feed(false), None);
        assert_eq!(feed(true), None);
        assert_eq!(feed(false), None);
        assert_eq!(feed(false), None);
        assert_eq!(feed(false), Some(Verdict::Failure));
    }

    #[test]
    fn one_success_is_enough_for_liveness() {
        let probe = Probe {
            success_threshold: Some(5),
            ..Probe::default()
        };
        assert_eq!(
            Counter::default().count(Kind::Liveness, &probe, true),
            Some(Verdict::Success)
        );
    }
}
