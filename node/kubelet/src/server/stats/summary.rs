//! `/stats/summary`. Pure.

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::machine::Space;
use super::{Card, ContainerUsage, PodUsage, Sample, Usage};
use crate::volumes::VolumeUsage;

impl Usage {
    /// The whole summary, or CPU and memory alone.
    pub(in crate::server) fn summary(&self, brief: bool) -> Value {
        let machine = &self.machine;
        let mut node = Map::new();
        node.insert("nodeName".into(), json!(self.node));
        node.insert("startTime".into(), json!(machine.started.to_string()));
        node.extend(cpu_and_memory(&machine.sample));
        if !brief {
            let now = time(machine.sample.time);
            node.insert("network".into(), network(&now, &machine.cards));
            node.insert("fs".into(), space(&now, &machine.files, None));
            let images = self.images.unwrap_or(machine.files);
            let images = space(&now, &images, Some(self.image_bytes));
            node.insert(
                "runtime".into(),
                json!({"imageFs": images, "containerFs": images}),
            );
            node.insert(
                "rlimit".into(),
                json!({"time": now, "maxpid": machine.most_processes, "curproc": machine.processes}),
            );
        }
        let pods: Vec<Value> = self.pods.iter().map(|pod| self.pod(pod, brief)).collect();
        json!({"node": node, "pods": pods})
    }

    fn pod(&self, pod: &PodUsage, brief: bool) -> Value {
        let containers = pod.containers.iter().map(|c| self.container(c, brief));
        let total = pod.total();
        let mut out = Map::new();
        out.insert(
            "podRef".into(),
            json!({"name": pod.name, "namespace": pod.namespace, "uid": pod.uid}),
        );
        if let Some(started) = pod.started {
            out.insert("startTime".into(), json!(started.to_string()));
        }
        out.insert("containers".into(), containers.collect());
        out.extend(cpu_and_memory(&total));
        if !brief {
            let now = time(total.time);
            if !pod.cards.is_empty() {
                out.insert("network".into(), network(&now, &pod.cards));
            }
            let used = pod
                .containers
                .iter()
                .map(|c| c.layer_bytes + c.log_bytes)
                .sum();
            let files = space(&now, &self.machine.files, Some(used));
            out.insert("ephemeral-storage".into(), files);
            if !pod.volumes.is_empty() {
                let volumes = pod.volumes.iter().map(|v| volume(&now, v));
                out.insert("volume".into(), volumes.collect());
            }
            if let Some(count) = pod.processes {
                out.insert("process_stats".into(), json!({"process_count": count}));
            }
        }
        Value::Object(out)
    }

    fn container(&self, container: &ContainerUsage, brief: bool) -> Value {
        let mut out = Map::new();
        out.insert("name".into(), json!(container.name));
        out.insert("startTime".into(), json!(time(container.started)));
        out.extend(cpu_and_memory(&container.sample));
        if !brief {
            let now = time(container.sample.time);
            let images = self.images.unwrap_or(self.machine.files);
            let mut rootfs = space(&now, &images, Some(container.layer_bytes));
            rootfs["inodesUsed"] = json!(container.layer_inodes);
            out.insert("rootfs".into(), rootfs);
            let logs = space(&now, &self.machine.files, Some(container.log_bytes));
            out.insert("logs".into(), logs);
        }
        Value::Object(out)
    }
}

fn time(nanos: i64) -> String {
    let seconds = Timestamp::from_second(nanos.div_euclid(1_000_000_000));
    seconds.unwrap_or_default().to_string()
}

fn cpu_and_memory(sample: &Sample) -> Map<String, Value> {
    let now = time(sample.time);
    let mut cpu = json!({"time": now, "usageCoreNanoSeconds": sample.cpu_nanos});
    if let Some(cores) = sample.nano_cores {
        cpu["usageNanoCores"] = json!(cores);
    }
    let mut memory = json!({"time": now, "usageBytes": sample.usage, "workingSetBytes": sample.working_set,
        "rssBytes": sample.rss, "pageFaults": sample.page_faults, "majorPageFaults": sample.major_page_faults});
    if let Some(available) = sample.available {
        memory["availableBytes"] = json!(available);
    }
    let mut out = Map::new();
    out.insert("cpu".into(), cpu);
    out.insert("memory".into(), memory);
    if let Some(swap) = sample.swap {
        out.insert("swap".into(), json!({"time": now, "swapUsageBytes": swap}));
    }
    out
}

fn space(now: &str, space: &Space, used: Option<u64>) -> Value {
    json!({"time": now, "availableBytes": space.available, "capacityBytes": space.capacity,
        "usedBytes": used.unwrap_or(space.used), "inodesFree": space.inodes_free, "inodes": space.inodes,
        "inodesUsed": space.inodes - space.inodes_free})
}

fn volume(now: &str, usage: &VolumeUsage) -> Value {
    let mut out = space(now, &usage.space, None);
    out["name"] = json!(usage.volume);
    if let Some((namespace, name)) = &usage.claim {
        out["pvcRef"] = json!({"namespace": namespace, "name": name});
    }
    out
}

fn network(now: &str, cards: &[Card]) -> Value {
    let card = |card: &Card| {
        json!({"name": card.name, "rxBytes": card.rx_bytes, "rxErrors": card.rx_errors,
            "txBytes": card.tx_bytes, "txErrors": card.tx_errors})
    };
    let mut out = cards.first().map(card).unwrap_or_else(|| json!({}));
    out["time"] = json!(now);
    out["interfaces"] = cards.iter().map(card).collect();
    out
}
