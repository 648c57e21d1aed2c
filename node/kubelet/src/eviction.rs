//! When the node runs short: conditions are set, and pods are evicted one by one, by upstream's order and words.

mod observe;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube_kit::duration::go;
use tokio::sync::mpsc;

use crate::context::Context;
use crate::machine::part_of;
use crate::resources;
use crate::spec;
use crate::status::Ending;

const EVERY: Duration = Duration::from_secs(10);

/// A pod to stop: its UID, what is said of it, and its seconds.
pub type Kill = (String, Ending, i64);

/// What a signal says: how much is there, of how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// What is left.
    pub available: i64,
    /// What there is in all.
    pub capacity: i64,
}

/// A limit that must not be passed.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    /// `memory.available` and the like.
    pub signal: String,
    /// A quantity or a percentage.
    pub value: String,
    /// How long it may be passed; nothing for a hard one.
    pub grace: Option<Duration>,
}

impl Threshold {
    /// The least that must be left.
    fn least(&self, observation: Observation) -> i64 {
        part_of(observation.capacity, resource(&self.signal), &self.value)
    }

    fn is_passed(&self, observations: &BTreeMap<&'static str, Observation>) -> bool {
        let found = observations.get(self.signal.as_str());
        found.is_some_and(|o| o.available < self.least(*o))
    }
}

fn resource(signal: &str) -> &'static str {
    match signal.split('.').next().unwrap_or_default() {
        "memory" => "memory",
        "pid" => "pids",
        _ => "ephemeral-storage",
    }
}

/// The condition of the node that a signal is about.
fn condition(signal: &str) -> &'static str {
    match resource(signal) {
        "memory" => "MemoryPressure",
        "pids" => "PIDPressure",
        _ => "DiskPressure",
    }
}

/// The conditions that hold, since when they were last seen.
#[derive(Default)]
pub struct Pressure(Mutex<BTreeMap<&'static str, Timestamp>>);

impl Pressure {
    /// Whether a condition holds.
    pub fn holds(&self, condition: &str) -> bool {
        self.lock().contains_key(condition)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<&'static str, Timestamp>> {
        self.0
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Notes what was seen now; what was not seen for so long goes.
    fn note(&self, seen: impl Iterator<Item = &'static str>, now: Timestamp, stays: Duration) {
        let mut held = self.lock();
        held.extend(seen.map(|condition| (condition, now)));
        held.retain(|_, at| {
            Duration::try_from(now.duration_since(*at)).unwrap_or_default() < stays
        });
    }
}

/// All thresholds of a configuration.
pub fn thresholds(config: &crate::config::KubeletConfiguration) -> Vec<Threshold> {
    let hard = config
        .eviction_hard
        .iter()
        .map(|(signal, value)| (signal, value, None));
    let soft = config.eviction_soft.iter().map(|(signal, value)| {
        let grace = config.eviction_soft_grace_period.get(signal);
        (
            signal,
            value,
            grace.and_then(|text| go::parse_unsigned(text).ok()),
        )
    });
    let all = hard.chain(soft);
    all.map(|(signal, value, grace)| Threshold {
        signal: signal.clone(),
        value: value.clone(),
        grace,
    })
    .collect()
}

/// A pod that could go, with what it uses of the resource.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// The pod.
    pub pod: Arc<Pod>,
    /// Its containers' use.
    pub containers: Vec<(String, i64)>,
}

impl Candidate {
    fn usage(&self) -> i64 {
        self.containers.iter().map(|(_, used)| used).sum()
    }
}

/// Who goes first: who uses more than asked for, then the less important, then who exceeds most. Critical pods stay.
pub fn rank(mut candidates: Vec<Candidate>, resource: &str) -> Vec<Candidate> {
    candidates.retain(|c| {
        let critical = spec::spec(&c.pod).priority.unwrap_or(0) >= 2_000_000_000;
        !critical && !crate::statics::is_static(&c.pod)
    });
    candidates.sort_by_key(|c| {
        let over = c.usage() - resources::pod_request(&c.pod, resource);
        (
            over <= 0,
            spec::spec(&c.pod).priority.unwrap_or(0),
            std::cmp::Reverse(over),
        )
    });
    candidates
}

/// What is said of a pod that is evicted.
pub fn ending(candidate: &Candidate, threshold: &Threshold, observation: Observation) -> Ending {
    let resource = resource(&threshold.signal);
    let least = threshold.least(observation);
    let mut message = format!(
        "The node was low on resource: {resource}. Threshold quantity: {}, available: {}. ",
        quantity(least),
        quantity(observation.available)
    );
    for (name, used) in &candidate.containers {
        let container = spec::containers(&candidate.pod).find(|(_, c)| c.name == *name);
        let request = container.map_or(0, |(_, c)| resources::request(c, resource));
        if *used > request {
            message += &format!(
                "Container {name} was using {}, request is {}, has larger consumption of {resource}. ",
                quantity(*used),
                quantity(request)
            );
        }
    }
    Ending {
        reason: "Evicted".to_owned(),
        message,
        disruption: true,
    }
}

fn quantity(bytes: i64) -> String {
    match bytes {
        0 => "0".to_owned(),
        _ if bytes % (1 << 20) == 0 => format!("{}Mi", bytes >> 20),
        _ if bytes % 1024 == 0 => format!("{}Ki", bytes >> 10),
        _ => bytes.to_string(),
    }
}

/// Looks after the node for ever.
pub async fn keep(ctx: Arc<Context>, kills: mpsc::Sender<Kill>) {
    let thresholds = thresholds(&ctx.settings.config);
    let mut since: BTreeMap<(String, bool), Timestamp> = BTreeMap::new();
    loop {
        tokio::time::sleep(EVERY).await;
        let now = Timestamp::now();
        let observations = observe::all(&ctx).await;
        let passed: Vec<&Threshold> = thresholds
            .iter()
            .filter(|t| t.is_passed(&observations))
            .collect();
        let key = |t: &Threshold| (t.signal.clone(), t.grace.is_some());
        since.retain(|known, _| passed.iter().any(|t| key(t) == *known));
        for threshold in &passed {
            since.entry(key(threshold)).or_insert(now);
        }
        let long_enough = |t: &&&Threshold| {
            let age = since
                .get(&key(t))
                .map(|at| now.duration_since(*at))
                .unwrap_or_default();
            Duration::try_from(age).unwrap_or_default() >= t.grace.unwrap_or_default()
        };
        let mut due: Vec<&Threshold> = passed.iter().filter(long_enough).copied().collect();
        let stays = ctx.settings.config.eviction_pressure_transition_period.0;
        ctx.pressure
            .note(due.iter().map(|t| condition(&t.signal)), now, stays);
        due.sort_by_key(|t| (resource(&t.signal) != "memory", t.grace.is_some()));
        if let Some(threshold) = due.first() {
            evict_one(&ctx, threshold, &observations, &kills).await;
        }
    }
}

async fn evict_one(
    ctx: &Context,
    threshold: &Threshold,
    observations: &BTreeMap<&'static str, Observation>,
    kills: &mpsc::Sender<Kill>,
) {
    let Some(observation) = observations.get(threshold.signal.as_str()) else {
        return;
    };
    let resource = resource(&threshold.signal);
    let text = format!("Attempting to reclaim {resource}");
    crate::node::say(
        ctx,
        client_runtime::Severity::Warning,
        "EvictionThresholdMet",
        &text,
    );
    let candidates = observe::candidates(ctx, resource).await;
    let Some(first) = rank(candidates, resource).into_iter().next() else {
        return;
    };
    let ending = ending(&first, threshold, *observation);
    ctx.say(
        &first.pod,
        client_runtime::Severity::Warning,
        "Evicted",
        ending.message.clone(),
    );
    let most = i64::from(ctx.settings.config.eviction_max_pod_grace_period);
    let seconds = match threshold.grace {
        None => 1,
        Some(_) => crate::lifecycle::grace(&first.pod).min(most.max(1)),
    };
    let _ = kills.try_send((spec::uid(&first.pod).to_owned(), ending, seconds));
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn candidate(name: &str, priority: i32, request: &str, used: i64) -> Candidate {
        let pod = serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": {"priority": priority,
            "containers": [{"name": "c", "resources": {"requests": {"memory": request}}}]}}),
        )
        .expect("a pod");
        Candidate {
            pod: Arc::new(pod),
            containers: vec![("c".to_owned(), used)],
        }
    }

    #[test]
    fn who_uses_more_than_asked_for_goes_first() {
        let all = vec![
            candidate("modest", 0, "100Mi", 50 << 20),
            candidate("important", 100, "10Mi", 900 << 20),
            candidate("greedy", 0, "10Mi", 500 << 20),
            candidate("greedier", 0, "10Mi", 600 << 20),
            candidate("critical", 2_000_000_000, "0", 900 << 20),
        ];
        let order: Vec<String> = rank(all, "memory")
            .iter()
            .map(|c| spec::name(&c.pod).to_owned())
            .collect();
        assert_eq!(order, ["greedier", "greedy", "important", "modest"]);
    }

    #[test]
    fn the_message_is_upstreams() {
        let threshold = Threshold {
            signal: "memory.available".into(),
            value: "100Mi".into(),
            grace: None,
        };
        let observation = Observation {
            available: 50 << 20,
            capacity: 1 << 30,
        };
        let observations = BTreeMap::from([("memory.available", observation)]);
        assert!(threshold.is_passed(&observations));
        let ending = ending(&candidate("p", 0, "0", 120 << 20), &threshold, observation);
        assert_eq!(
            ending.message,
            "The node was low on resource: memory. Threshold quantity: 100Mi, available: 50Mi. \
             Container c was using 120Mi, request is 0, has larger consumption of memory. "
        );
    }

    #[test]
    fn a_condition_stays_for_a_while() {
        let at = |second| Timestamp::from_second(second).expect("a time");
        let pressure = Pressure::default();
        let stays = Duration::from_secs(300);
        pressure.note(["MemoryPressure"].into_iter(), at(0), stays);
        pressure.note([].into_iter(), at(299), stays);
        assert!(pressure.holds("MemoryPressure"));
        pressure.note([].into_iter(), at(301), stays);
        assert!(!pressure.holds("MemoryPressure"));
    }
}
