//! What the node and its containers use, gathered when somebody asks.
//!
//! Containers are measured by the runtime, which knows their cgroups; the machine is read from `/proc` and its cgroup.

mod machine;
mod prometheus;
mod summary;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;

use super::{Reports, Settings};
use crate::cri::{self, ContainerState, Runtime, UInt64Value};
use crate::pods::{KnownPod, Pods};
use crate::volumes::VolumeUsage;

pub(super) use prometheus::{own_metrics, volume_metrics};

/// A rate is taken over at least this time.
const SHORTEST_RATE_NANOS: i64 = 5_000_000_000;

/// CPU and memory at one moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sample {
    /// Nanoseconds since 1970.
    time: i64,
    cpu_nanos: u64,
    nano_cores: Option<u64>,
    usage: u64,
    working_set: u64,
    rss: u64,
    available: Option<u64>,
    page_faults: u64,
    major_page_faults: u64,
    swap: Option<u64>,
}

/// One container.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ContainerUsage {
    name: String,
    id: String,
    image: String,
    /// Nanoseconds since 1970.
    started: i64,
    sample: Sample,
    layer_bytes: u64,
    layer_inodes: u64,
    log_bytes: u64,
    memory_limit: u64,
}

/// One network card of a pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct Card {
    name: String,
    rx_bytes: u64,
    rx_errors: u64,
    tx_bytes: u64,
    tx_errors: u64,
}

/// One pod.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
struct PodUsage {
    name: String,
    namespace: String,
    uid: String,
    /// As the API has it.
    started: Option<Timestamp>,
    containers: Vec<ContainerUsage>,
    cards: Vec<Card>,
    processes: Option<u64>,
    volumes: Vec<VolumeUsage>,
}

impl PodUsage {
    fn total(&self) -> Sample {
        let mut total = Sample::default();
        for ContainerUsage { sample, .. } in &self.containers {
            total.time = total.time.max(sample.time);
            total.cpu_nanos += sample.cpu_nanos;
            total.nano_cores = match (total.nano_cores, sample.nano_cores) {
                (None, None) => None,
                (a, b) => Some(a.unwrap_or_default() + b.unwrap_or_default()),
            };
            total.usage += sample.usage;
            total.working_set += sample.working_set;
            total.rss += sample.rss;
            total.page_faults += sample.page_faults;
            total.major_page_faults += sample.major_page_faults;
            if let Some(swap) = sample.swap {
                total.swap = Some(total.swap.unwrap_or_default() + swap);
            }
        }
        total
    }
}

/// Everything at one moment.
#[derive(Debug, Clone, PartialEq, Default)]
pub(super) struct Usage {
    node: String,
    machine: machine::Machine,
    images: Option<machine::Space>,
    image_bytes: u64,
    pods: Vec<PodUsage>,
    /// Whether the runtime could not be asked.
    failed: bool,
}

impl Usage {
    /// Adds how full the volumes of pods are.
    pub(super) async fn add_volumes(&mut self, reports: &dyn Reports) {
        for pod in &mut self.pods {
            pod.volumes = reports.volumes(&pod.uid).await;
        }
    }
}

/// Measures, and remembers what was measured before for rates.
pub(super) struct Stats {
    node: String,
    root: PathBuf,
    before: Mutex<HashMap<String, Sample>>,
}

impl Stats {
    pub(super) fn new(settings: &Settings) -> Stats {
        Stats {
            node: settings.node.clone(),
            root: settings.root.clone(),
            before: Mutex::default(),
        }
    }

    /// Measures everything.
    pub(super) async fn gather(&self, runtime: &dyn Runtime, pods: &Pods) -> Usage {
        let (containers, sandboxes, images) = tokio::join!(
            runtime.list_container_stats(cri::ListContainerStatsRequest::default()),
            runtime.list_pod_sandbox_stats(cri::ListPodSandboxStatsRequest::default()),
            runtime.image_fs_info(cri::ImageFsInfoRequest::default()),
        );
        let failed = containers.is_err();
        let containers = containers.map(|answer| answer.stats).unwrap_or_default();
        let by_id: HashMap<String, cri::ContainerStats> = containers
            .into_iter()
            .filter_map(|stats| Some((stats.attributes.as_ref()?.id.clone(), stats)))
            .collect();
        // Runtimes that are old do not know sandboxes' usage.
        let sandboxes = sandboxes.map(|answer| answer.stats).unwrap_or_default();
        let sandboxes: HashMap<String, cri::LinuxPodSandboxStats> = sandboxes
            .into_iter()
            .filter_map(|stats| Some((stats.attributes?.id, stats.linux?)))
            .collect();
        let images = images
            .ok()
            .and_then(|answer| answer.image_filesystems.into_iter().next());
        let place = images
            .as_ref()
            .and_then(|fs| Some(fs.fs_id.as_ref()?.mountpoint.clone()));
        let mut usage = Usage {
            node: self.node.clone(),
            machine: machine::Machine::read(&self.root),
            images: place.and_then(|place| machine::Space::of(place.as_ref())),
            image_bytes: value(images.and_then(|fs| fs.used_bytes)),
            pods: pods
                .all()
                .iter()
                .filter_map(|known| pod(known, &by_id, &sandboxes))
                .collect(),
            failed,
        };
        self.rates(&mut usage);
        usage
    }

    // A rate over the time since it was last measured, or over a longer one if that is short.
    fn rates(&self, usage: &mut Usage) {
        let mut before = self.before.lock().unwrap_or_else(PoisonError::into_inner);
        let mut kept = HashMap::new();
        let containers = usage.pods.iter_mut().flat_map(|pod| &mut pod.containers);
        let all = containers.map(|c| (c.id.clone(), &mut c.sample));
        for (id, sample) in all.chain([(String::new(), &mut usage.machine.sample)]) {
            let old = before.get(&id).copied();
            sample.nano_cores = old.and_then(|old| rate(&old, sample)).or(sample.nano_cores);
            let too_soon = old.is_some_and(|old| sample.time - old.time < SHORTEST_RATE_NANOS);
            let keep = match (too_soon, old) {
                (true, Some(old)) => old,
                _ => *sample,
            };
            kept.insert(id, keep);
        }
        *before = kept;
    }
}

fn rate(old: &Sample, new: &Sample) -> Option<u64> {
    let time = u128::try_from(new.time - old.time)
        .ok()
        .filter(|time| *time > 0)?;
    let used = new.cpu_nanos.checked_sub(old.cpu_nanos)?;
    u64::try_from(u128::from(used) * 1_000_000_000 / time).ok()
}

fn value(number: Option<UInt64Value>) -> u64 {
    number.map(|number| number.value).unwrap_or_default()
}

fn pod(
    known: &Arc<KnownPod>,
    by_id: &HashMap<String, cri::ContainerStats>,
    sandboxes: &HashMap<String, cri::LinuxPodSandboxStats>,
) -> Option<PodUsage> {
    let running = known.containers.iter().filter_map(|(name, all)| {
        let newest = all.first().filter(|c| c.state == ContainerState::Running)?;
        Some((name, newest, by_id.get(&newest.id)?))
    });
    let spec = known.pod.spec.as_ref();
    let containers: Vec<ContainerUsage> = running
        .map(|(name, container, stats)| {
            let own = spec.and_then(|spec| {
                let all = spec
                    .containers
                    .iter()
                    .chain(spec.init_containers.iter().flatten());
                all.into_iter().find(|c| c.name == *name)
            });
            let limit = own.and_then(|c| c.resources.as_ref()?.limits.as_ref()?.get("memory"));
            let limit = limit.and_then(|q| q.0.parse::<kube_kit::quantity::Quantity>().ok());
            let layer = stats.writable_layer.clone().unwrap_or_default();
            ContainerUsage {
                name: name.clone(),
                id: container.id.clone(),
                image: own.and_then(|c| c.image.clone()).unwrap_or_default(),
                started: container.created_at,
                sample: sample(stats),
                layer_bytes: value(layer.used_bytes),
                layer_inodes: value(layer.inodes_used),
                log_bytes: std::fs::metadata(&container.log_path).map_or(0, |log| log.len()),
                memory_limit: limit
                    .and_then(|q| u64::try_from(q.value()).ok())
                    .unwrap_or_default(),
            }
        })
        .collect();
    if containers.is_empty() {
        return None;
    }
    let sandbox = known.sandbox_id.as_ref().and_then(|id| sandboxes.get(id));
    let meta = &known.pod.metadata;
    let started = known
        .pod
        .status
        .as_ref()
        .and_then(|status| status.start_time.as_ref());
    Some(PodUsage {
        name: meta.name.clone().unwrap_or_default(),
        namespace: meta.namespace.clone().unwrap_or_default(),
        uid: meta.uid.clone().unwrap_or_default(),
        started: started.map(|time| time.0),
        containers,
        cards: sandbox
            .and_then(|s| s.network.as_ref())
            .map(cards)
            .unwrap_or_default(),
        volumes: Vec::new(),
        processes: sandbox
            .and_then(|s| s.process.as_ref()?.process_count.clone())
            .map(|count| count.value),
    })
}

fn cards(network: &cri::NetworkUsage) -> Vec<Card> {
    let all = network.default_interface.iter().chain(&network.interfaces);
    all.map(|card| Card {
        name: card.name.clone(),
        rx_bytes: value(card.rx_bytes.clone()),
        rx_errors: value(card.rx_errors.clone()),
        tx_bytes: value(card.tx_bytes.clone()),
        tx_errors: value(card.tx_errors.clone()),
    })
    .collect()
}

fn sample(stats: &cri::ContainerStats) -> Sample {
    let cpu = stats.cpu.clone().unwrap_or_default();
    let memory = stats.memory.clone().unwrap_or_default();
    Sample {
        time: cpu.timestamp.max(memory.timestamp),
        cpu_nanos: value(cpu.usage_core_nano_seconds),
        nano_cores: cpu.usage_nano_cores.map(|n| n.value),
        usage: value(memory.usage_bytes),
        working_set: value(memory.working_set_bytes),
        rss: value(memory.rss_bytes),
        available: memory.available_bytes.map(|n| n.value),
        page_faults: value(memory.page_faults),
        major_page_faults: value(memory.major_page_faults),
        swap: stats
            .swap
            .clone()
            .and_then(|swap| swap.swap_usage_bytes)
            .map(|n| n.value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_are_used_time_over_passed_time() {
        let at = |time, cpu_nanos| Sample {
            time,
            cpu_nanos,
            ..Sample::default()
        };
        assert_eq!(
            rate(&at(0, 0), &at(2_000_000_000, 1_000_000_000)),
            Some(500_000_000)
        );
        assert_eq!(rate(&at(5, 0), &at(5, 1)), None);
        assert_eq!(
            rate(&at(0, 10), &at(5, 1)),
            None,
            "a container that began anew"
        );
    }
}
