//! What the node has left, and what its pods use.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use super::{Candidate, Observation};
use crate::context::Context;
use crate::cri;
use crate::seen;
use crate::spec;

/// Every signal that can be read here.
pub(super) async fn all(ctx: &Context) -> BTreeMap<&'static str, Observation> {
    let mut found = BTreeMap::new();
    if let Some(available) = memory_available() {
        found.insert(
            "memory.available",
            Observation {
                available,
                capacity: ctx.machine.memory,
            },
        );
    }
    file_system(
        &ctx.settings.root_dir,
        ["nodefs.available", "nodefs.inodesFree"],
        &mut found,
    );
    let images = ctx
        .runtime
        .image_fs_info(cri::ImageFsInfoRequest {})
        .await
        .unwrap_or_default();
    let place = images
        .image_filesystems
        .first()
        .and_then(|f| f.fs_id.clone());
    if let Some(place) = place {
        file_system(
            Path::new(&place.mountpoint),
            ["imagefs.available", "imagefs.inodesFree"],
            &mut found,
        );
    }
    if let Some((used, most)) = processes() {
        found.insert(
            "pid.available",
            Observation {
                available: most - used,
                capacity: most,
            },
        );
    }
    found
}

fn memory_available() -> Option<i64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: i64 = line.split_whitespace().next()?.parse().ok()?;
    Some(kib * 1024)
}

fn file_system(
    path: &Path,
    names: [&'static str; 2],
    found: &mut BTreeMap<&'static str, Observation>,
) {
    let Ok(stat) = rustix::fs::statvfs(path) else {
        return;
    };
    let bytes = |blocks: u64| (blocks * stat.f_frsize) as i64;
    found.insert(
        names[0],
        Observation {
            available: bytes(stat.f_bavail),
            capacity: bytes(stat.f_blocks),
        },
    );
    // Some file systems do not count.
    if stat.f_files > 0 {
        let (available, capacity) = (stat.f_favail as i64, stat.f_files as i64);
        found.insert(
            names[1],
            Observation {
                available,
                capacity,
            },
        );
    }
}

fn processes() -> Option<(i64, i64)> {
    let load = fs::read_to_string("/proc/loadavg").ok()?;
    let used: i64 = load
        .split_whitespace()
        .nth(3)?
        .split('/')
        .nth(1)?
        .parse()
        .ok()?;
    let most: i64 = fs::read_to_string("/proc/sys/kernel/pid_max")
        .ok()?
        .trim()
        .parse()
        .ok()?;
    Some((used, most))
}

/// The pods that run, with what their containers use.
pub(super) async fn candidates(ctx: &Context, resource: &str) -> Vec<Candidate> {
    let request = cri::ListContainerStatsRequest::default();
    let stats = ctx
        .runtime
        .list_container_stats(request)
        .await
        .unwrap_or_default()
        .stats;
    let mut used: BTreeMap<String, Vec<(String, i64)>> = BTreeMap::new();
    for stat in stats {
        let amount = match resource {
            "memory" => stat.memory.and_then(|m| m.working_set_bytes),
            _ => stat.writable_layer.and_then(|l| l.used_bytes),
        };
        let Some(attributes) = stat.attributes else {
            continue;
        };
        let label = |key: &str| attributes.labels.get(key).cloned().unwrap_or_default();
        let amount = amount.map_or(0, |a| a.value as i64);
        used.entry(label(seen::POD_UID))
            .or_default()
            .push((label(seen::CONTAINER_NAME), amount));
    }
    let over = |pod: &k8s_openapi::api::core::v1::Pod| {
        matches!(
            pod.status.as_ref().and_then(|s| s.phase.as_deref()),
            Some("Failed" | "Succeeded")
        )
    };
    let pods = ctx
        .pods
        .all()
        .into_iter()
        .map(|known| known.pod.clone())
        .filter(|pod| !over(pod));
    let candidate = |pod: std::sync::Arc<k8s_openapi::api::core::v1::Pod>| Candidate {
        containers: used.remove(spec::uid(&pod)).unwrap_or_default(),
        pod,
    };
    pods.map(candidate).collect()
}
