//! Metrics in the text format. Pure.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Arc;

use super::{ContainerUsage, PodUsage, Sample, Usage};
use crate::cri::ContainerState;
use crate::pods::KnownPod;
use crate::space::Space;
use crate::volumes::VolumeUsage;

/// Lines of one metric after another.
#[derive(Default)]
struct Page(String);

impl Page {
    fn metric(&mut self, name: &str, kind: &str, help: &str) -> Metric<'_> {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
        Metric {
            page: &mut self.0,
            name: name.to_owned(),
        }
    }
}

struct Metric<'a> {
    page: &'a mut String,
    name: String,
}

impl Metric<'_> {
    fn add(&mut self, labels: &[(&str, &str)], value: f64, time: Option<i64>) {
        let escape = |text: &str| {
            text.replace('\\', "\\\\")
                .replace('"', "\\\"")
                .replace('\n', "\\n")
        };
        let labels: Vec<String> = labels
            .iter()
            .map(|(name, value)| format!("{name}=\"{}\"", escape(value)))
            .collect();
        let labels = match labels.is_empty() {
            true => String::new(),
            false => format!("{{{}}}", labels.join(",")),
        };
        let time = time
            .map(|nanos| format!(" {}", nanos / 1_000_000))
            .unwrap_or_default();
        let _ = writeln!(self.page, "{}{labels} {value}{time}", self.name);
    }
}

fn seconds(nanos: u64) -> f64 {
    nanos as f64 / 1e9
}

/// Values of a sample by metric: name, kind, help, and where it is.
type Column = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Sample) -> Option<f64>,
);

const NODE: [Column; 3] = [
    (
        "node_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the node in core-seconds",
        |s| Some(seconds(s.cpu_nanos)),
    ),
    (
        "node_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the node in bytes",
        |s| Some(s.working_set as f64),
    ),
    (
        "node_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems",
        |s| s.swap.map(|n| n as f64),
    ),
];
const CONTAINER: [Column; 3] = [
    (
        "container_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
        |s| Some(seconds(s.cpu_nanos)),
    ),
    (
        "container_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the container in bytes",
        |s| Some(s.working_set as f64),
    ),
    (
        "container_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems",
        |s| s.swap.map(|n| n as f64),
    ),
];
const POD: [Column; 3] = [
    (
        "pod_cpu_usage_seconds_total",
        "counter",
        "[STABLE] Cumulative cpu time consumed by the pod in core-seconds",
        |s| Some(seconds(s.cpu_nanos)),
    ),
    (
        "pod_memory_working_set_bytes",
        "gauge",
        "[STABLE] Current working set of the pod in bytes",
        |s| Some(s.working_set as f64),
    ),
    (
        "pod_swap_usage_bytes",
        "gauge",
        "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems",
        |s| s.swap.map(|n| n as f64),
    ),
];

impl Usage {
    fn each(&self) -> impl Iterator<Item = (&PodUsage, &ContainerUsage)> {
        self.pods
            .iter()
            .flat_map(|pod| pod.containers.iter().map(move |c| (pod, c)))
    }

    /// `/metrics/resource`: what metrics-server reads.
    pub(in crate::server) fn resource_metrics(&self) -> String {
        let mut page = Page::default();
        for (name, kind, help, of) in CONTAINER {
            let mut metric = page.metric(name, kind, help);
            for (pod, container) in self.each() {
                let labels = [
                    ("container", container.name.as_str()),
                    ("namespace", &pod.namespace),
                    ("pod", &pod.name),
                ];
                if let Some(value) = of(&container.sample) {
                    metric.add(&labels, value, Some(container.sample.time));
                }
            }
        }
        let help = "[STABLE] Start time of the container since unix epoch in seconds";
        let mut metric = page.metric("container_start_time_seconds", "gauge", help);
        for (pod, container) in self.each() {
            let labels = [
                ("container", container.name.as_str()),
                ("namespace", &pod.namespace),
                ("pod", &pod.name),
            ];
            metric.add(&labels, container.started as f64 / 1e9, None);
        }
        for (name, kind, help, of) in NODE {
            let mut metric = page.metric(name, kind, help);
            let sample = &self.machine.sample;
            if let Some(value) = of(sample) {
                metric.add(&[], value, Some(sample.time));
            }
        }
        for (name, kind, help, of) in POD {
            let mut metric = page.metric(name, kind, help);
            for pod in &self.pods {
                let total = pod.total();
                if let Some(value) = of(&total) {
                    metric.add(
                        &[("namespace", &pod.namespace), ("pod", &pod.name)],
                        value,
                        Some(total.time),
                    );
                }
            }
        }
        let failed = f64::from(u8::from(self.failed));
        for (name, help) in [
            (
                "resource_scrape_error",
                "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise",
            ),
            (
                "scrape_error",
                "[ALPHA] 1 if there was an error while getting container metrics, 0 otherwise",
            ),
        ] {
            page.metric(name, "gauge", help).add(&[], failed, None);
        }
        page.0
    }

    /// `/metrics/cadvisor`: what dashboards read.
    pub(in crate::server) fn cadvisor(&self) -> String {
        type Of = fn(&ContainerUsage) -> f64;
        let columns: [(&str, &str, &str, Of); 11] = [
            (
                "container_cpu_usage_seconds_total",
                "counter",
                "Cumulative cpu time consumed in seconds.",
                |c| seconds(c.sample.cpu_nanos),
            ),
            (
                "container_memory_working_set_bytes",
                "gauge",
                "Current working set in bytes.",
                |c| c.sample.working_set as f64,
            ),
            (
                "container_memory_usage_bytes",
                "gauge",
                "Current memory usage in bytes, including all memory regardless of when it was accessed",
                |c| c.sample.usage as f64,
            ),
            (
                "container_memory_rss",
                "gauge",
                "Size of RSS in bytes.",
                |c| c.sample.rss as f64,
            ),
            (
                "container_memory_cache",
                "gauge",
                "Number of bytes of page cache memory.",
                |c| c.sample.usage.saturating_sub(c.sample.rss) as f64,
            ),
            (
                "container_memory_failures_total",
                "counter",
                "Cumulative count of memory allocation failures.",
                |c| c.sample.page_faults as f64,
            ),
            (
                "container_fs_usage_bytes",
                "gauge",
                "Number of bytes that are consumed by the container on this filesystem.",
                |c| c.layer_bytes as f64,
            ),
            (
                "container_fs_inodes_total",
                "gauge",
                "Number of Inodes",
                |c| c.layer_inodes as f64,
            ),
            (
                "container_spec_memory_limit_bytes",
                "gauge",
                "Memory limit for the container.",
                |c| c.memory_limit as f64,
            ),
            (
                "container_start_time_seconds",
                "gauge",
                "Start time of the container since unix epoch in seconds.",
                |c| c.started as f64 / 1e9,
            ),
            (
                "container_last_seen",
                "gauge",
                "Last time a container was seen by the exporter",
                |c| (c.sample.time / 1_000_000_000) as f64,
            ),
        ];
        let mut page = Page::default();
        for (name, kind, help, of) in columns {
            let mut metric = page.metric(name, kind, help);
            for (pod, c) in self.each() {
                let id = format!("/kubepods/pod{}/{}", pod.uid, c.id);
                let labels = [
                    ("container", c.name.as_str()),
                    ("id", &id),
                    ("image", &c.image),
                    ("name", &c.id),
                    ("namespace", &pod.namespace),
                    ("pod", &pod.name),
                ];
                metric.add(&labels, of(c), Some(c.sample.time));
            }
        }
        self.network(&mut page);
        page.metric("machine_cpu_cores", "gauge", "Number of logical CPU cores.")
            .add(&[], self.machine.cores as f64, None);
        page.metric(
            "machine_memory_bytes",
            "gauge",
            "Amount of memory installed on the machine.",
        )
        .add(&[], self.machine.memory as f64, None);
        page.0
    }

    fn network(&self, page: &mut Page) {
        type Of = fn(&super::Card) -> u64;
        let columns: [(&str, &str, Of); 4] = [
            (
                "container_network_receive_bytes_total",
                "Cumulative count of bytes received",
                |c| c.rx_bytes,
            ),
            (
                "container_network_receive_errors_total",
                "Cumulative count of errors encountered while receiving",
                |c| c.rx_errors,
            ),
            (
                "container_network_transmit_bytes_total",
                "Cumulative count of bytes transmitted",
                |c| c.tx_bytes,
            ),
            (
                "container_network_transmit_errors_total",
                "Cumulative count of errors encountered while transmitting",
                |c| c.tx_errors,
            ),
        ];
        for (name, help, of) in columns {
            let mut metric = page.metric(name, "counter", help);
            for pod in &self.pods {
                let id = format!("/kubepods/pod{}", pod.uid);
                for card in &pod.cards {
                    let labels = [
                        ("container", ""),
                        ("id", id.as_str()),
                        ("image", ""),
                        ("interface", &card.name),
                        ("name", ""),
                        ("namespace", &pod.namespace),
                        ("pod", &pod.name),
                    ];
                    metric.add(&labels, of(card) as f64, None);
                }
            }
        }
    }
}

/// Of a volume: the metric's last words, its help, and where it is.
type VolumeColumn = (&'static str, &'static str, fn(&Space) -> u64);

const VOLUME: [VolumeColumn; 6] = [
    ("capacity_bytes", "Capacity in bytes of the volume", |s| {
        s.capacity
    }),
    (
        "available_bytes",
        "Number of available bytes in the volume",
        |s| s.available,
    ),
    ("used_bytes", "Number of used bytes in the volume", |s| {
        s.used
    }),
    ("inodes", "Maximum number of inodes in the volume", |s| {
        s.inodes
    }),
    ("inodes_free", "Number of free inodes in the volume", |s| {
        s.inodes_free
    }),
    ("inodes_used", "Number of used inodes in the volume", |s| {
        s.inodes.saturating_sub(s.inodes_free)
    }),
];

/// How full claims are; a claim of several pods is told once.
pub(in crate::server) fn volume_metrics(volumes: &[VolumeUsage]) -> String {
    let claims: BTreeMap<&(String, String), &Space> = volumes
        .iter()
        .filter_map(|usage| Some((usage.claim.as_ref()?, &usage.space)))
        .collect();
    let mut page = Page::default();
    for (name, help, value) in VOLUME {
        if claims.is_empty() {
            break;
        }
        let name = format!("kubelet_volume_stats_{name}");
        let mut metric = page.metric(&name, "gauge", &format!("[ALPHA] {help}"));
        for ((namespace, claim), space) in &claims {
            let labels = [
                ("namespace", namespace.as_str()),
                ("persistentvolumeclaim", claim),
            ];
            metric.add(&labels, value(space) as f64, None);
        }
    }
    page.0
}

/// `/metrics`: what the server itself can say of the kubelet.
pub(in crate::server) fn own_metrics(node: &str, pods: &[Arc<KnownPod>]) -> String {
    let mut page = Page::default();
    let help = "[ALPHA] The node's name. The count is always 1.";
    page.metric("kubelet_node_name", "gauge", help)
        .add(&[("node", node)], 1.0, None);
    let newest = |known: &Arc<KnownPod>| -> Vec<ContainerState> {
        let all = known.containers.values().filter_map(|all| all.first());
        all.map(|c| c.state).collect()
    };
    let states: Vec<Vec<ContainerState>> = pods.iter().map(newest).collect();
    let count = |state| states.iter().flatten().filter(|s| **s == state).count() as f64;
    let running = states
        .iter()
        .filter(|s| s.contains(&ContainerState::Running))
        .count();
    let help = "[BETA] Number of pods that have a running pod sandbox";
    page.metric("kubelet_running_pods", "gauge", help)
        .add(&[], running as f64, None);
    let help = "[BETA] Number of containers currently running";
    let mut metric = page.metric("kubelet_running_containers", "gauge", help);
    for (name, state) in [
        ("created", ContainerState::Created),
        ("exited", ContainerState::Exited),
        ("running", ContainerState::Running),
    ] {
        metric.add(&[("container_state", name)], count(state), None);
    }
    let resident = std::fs::read_to_string("/proc/self/statm").ok();
    let pages = resident.and_then(|text| text.split(' ').nth(1)?.parse::<f64>().ok());
    if let Some(pages) = pages {
        let bytes = pages * rustix::param::page_size() as f64;
        page.metric(
            "process_resident_memory_bytes",
            "gauge",
            "Resident memory size in bytes.",
        )
        .add(&[], bytes, None);
    }
    page.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_told_once_however_many_pods_use_them() {
        let usage = VolumeUsage {
            volume: "v".to_owned(),
            claim: Some(("n".to_owned(), "c".to_owned())),
            space: Space {
                capacity: 10,
                used: 4,
                ..Space::default()
            },
        };
        let page = volume_metrics(&[usage.clone(), usage]);
        let line = "kubelet_volume_stats_used_bytes{namespace=\"n\",persistentvolumeclaim=\"c\"} 4";
        assert_eq!(page.matches(line).count(), 1, "{page}");
        assert_eq!(volume_metrics(&[]), "");
    }

    fn usage() -> Usage {
        let container = ContainerUsage {
            name: "c".into(),
            id: "id".into(),
            image: "i".into(),
            started: 1_800_000_000_000_000_000,
            sample: Sample {
                time: 1_800_000_000_123_000_000,
                cpu_nanos: 1_500_000_000,
                working_set: 4096,
                ..Sample::default()
            },
            layer_bytes: 0,
            layer_inodes: 0,
            log_bytes: 0,
            memory_limit: 0,
        };
        let pod = PodUsage {
            name: "p".into(),
            namespace: "n".into(),
            containers: vec![container],
            ..PodUsage::default()
        };
        Usage {
            pods: vec![pod],
            ..Usage::default()
        }
    }

    #[test]
    fn metrics_server_finds_what_it_reads() {
        let page = usage().resource_metrics();
        for line in [
            "container_cpu_usage_seconds_total{container=\"c\",namespace=\"n\",pod=\"p\"} 1.5 1800000000123",
            "container_memory_working_set_bytes{container=\"c\",namespace=\"n\",pod=\"p\"} 4096 1800000000123",
            "container_start_time_seconds{container=\"c\",namespace=\"n\",pod=\"p\"} 1800000000",
            "pod_cpu_usage_seconds_total{namespace=\"n\",pod=\"p\"} 1.5 1800000000123",
            "resource_scrape_error 0",
        ] {
            assert!(page.lines().any(|l| l == line), "{line}\n{page}");
        }
        assert!(page.contains("\nnode_cpu_usage_seconds_total "));
    }

    #[test]
    fn dashboards_find_what_they_read() {
        let page = usage().cadvisor();
        let line = "container_memory_working_set_bytes{container=\"c\",id=\"/kubepods/pod/id\",image=\"i\",name=\"id\",namespace=\"n\",pod=\"p\"} 4096 1800000000123";
        assert!(page.lines().any(|l| l == line), "{page}");
    }
}
