//! This machine: what it has and what it runs.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::config::KubeletConfiguration;

/// What this machine has.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    /// Processors.
    pub cpus: i64,
    /// Bytes of memory.
    pub memory: i64,
    /// Bytes of the file system that the kubelet's data is on.
    pub storage: i64,
    /// Identifiers as the kernel and the system have them.
    pub machine_id: String,
    /// The firmware's.
    pub system_uuid: String,
    /// This boot's.
    pub boot_id: String,
    /// The kernel.
    pub kernel: String,
    /// The distribution.
    pub os_image: String,
    /// The host's name.
    pub hostname: String,
    /// Whether processes may be made safer from the memory killer than this one.
    pub may_lower_oom_score: bool,
    /// This process' own score.
    pub own_oom_score: i64,
    /// Huge pages by size.
    pub huge_pages: BTreeMap<String, i64>,
}

impl Machine {
    /// Reads it; `root` is the kubelet's directory.
    pub fn read(root: &Path) -> Self {
        let text = |path: &str| {
            fs::read_to_string(path)
                .unwrap_or_default()
                .trim()
                .to_owned()
        };
        let uname = rustix::system::uname();
        let lossy = |c: &std::ffi::CStr| c.to_string_lossy().into_owned();
        let status = text("/proc/self/status");
        let capabilities =
            field(&status, "CapEff:").and_then(|hex| u64::from_str_radix(hex, 16).ok());
        Self {
            cpus: std::thread::available_parallelism().map_or(1, |n| n.get() as i64),
            memory: field(&text("/proc/meminfo"), "MemTotal:")
                .and_then(|kib| kib.parse::<i64>().ok())
                .map_or(0, |kib| kib * 1024),
            storage: rustix::fs::statvfs(root).map_or(0, |s| (s.f_blocks * s.f_frsize) as i64),
            machine_id: text("/etc/machine-id"),
            system_uuid: Some(text("/sys/class/dmi/id/product_uuid"))
                .filter(|id| !id.is_empty())
                .unwrap_or_else(|| text("/etc/machine-id")),
            boot_id: text("/proc/sys/kernel/random/boot_id"),
            kernel: lossy(uname.release()),
            os_image: pretty_name(&text("/etc/os-release")),
            hostname: lossy(uname.nodename()).trim().to_lowercase(),
            may_lower_oom_score: capabilities.is_some_and(|set| set & (1 << 24) != 0),
            own_oom_score: text("/proc/self/oom_score_adj").parse().unwrap_or(0),
            huge_pages: huge_pages(),
        }
    }

    /// The lowest score that containers can be given.
    pub fn least_oom_score(&self) -> i64 {
        match self.may_lower_oom_score {
            true => -1000,
            false => self.own_oom_score,
        }
    }

    /// What there is, by resource: CPUs in thousandths, bytes, pieces.
    pub fn capacity(&self, config: &KubeletConfiguration) -> BTreeMap<String, i64> {
        let per_core = i64::from(config.pods_per_core);
        let most = i64::from(config.max_pods);
        let pods = if per_core > 0 {
            most.min(self.cpus * per_core)
        } else {
            most
        };
        let mut capacity = BTreeMap::from([
            ("cpu".to_owned(), self.cpus * 1000),
            ("memory".to_owned(), self.memory),
            ("ephemeral-storage".to_owned(), self.storage),
            ("pods".to_owned(), pods),
        ]);
        capacity.extend(self.huge_pages.clone());
        capacity
    }

    /// What is not kept for the system and for Kubernetes.
    pub fn unreserved(&self, config: &KubeletConfiguration) -> BTreeMap<String, i64> {
        let mut left = self.capacity(config);
        for (name, amount) in &mut left {
            for reserved in [&config.kube_reserved, &config.system_reserved] {
                *amount -= reserved.get(name).map_or(0, |text| parse(name, text));
            }
        }
        left
    }

    /// What pods may ask for: what is not reserved, without what is kept against eviction.
    pub fn allocatable(&self, config: &KubeletConfiguration) -> BTreeMap<String, i64> {
        let (capacity, mut left) = (self.capacity(config), self.unreserved(config));
        let pages: i64 = self.huge_pages.values().sum();
        for (name, amount) in &mut left {
            let signal = match name.as_str() {
                "memory" => "memory.available",
                "ephemeral-storage" => "nodefs.available",
                _ => "",
            };
            let threshold = config.eviction_hard.get(signal);
            *amount -= threshold.map_or(0, |text| part_of(capacity[name], name, text));
            if name == "memory" {
                *amount -= pages;
            }
            *amount = (*amount).max(0);
        }
        left
    }
}

fn parse(name: &str, text: &str) -> i64 {
    let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned());
    match name {
        "cpu" => crate::resources::milli(&quantity),
        _ => crate::resources::whole(&quantity),
    }
}

/// A threshold: a quantity or a percentage of what there is.
pub fn part_of(whole: i64, name: &str, text: &str) -> i64 {
    match text.strip_suffix('%') {
        Some(percent) => {
            let percent: f64 = percent.parse().unwrap_or(0.0);
            (whole as f64 * percent / 100.0) as i64
        }
        None => parse(name, text),
    }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()
}

fn pretty_name(os_release: &str) -> String {
    let name = os_release
        .lines()
        .find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.unwrap_or("Linux").trim_matches('"').to_owned()
}

fn huge_pages() -> BTreeMap<String, i64> {
    let sizes = fs::read_dir("/sys/kernel/mm/hugepages")
        .into_iter()
        .flatten()
        .flatten();
    let size = |entry: fs::DirEntry| {
        let name = entry.file_name().into_string().ok()?;
        let kib: i64 = name
            .strip_prefix("hugepages-")?
            .strip_suffix("kB")?
            .parse()
            .ok()?;
        let count = fs::read_to_string(entry.path().join("nr_hugepages")).ok()?;
        let count: i64 = count.trim().parse().ok()?;
        let unit = if kib % (1 << 20) == 0 {
            format!("{}Gi", kib >> 20)
        } else {
            format!("{}Mi", kib >> 10)
        };
        Some((format!("hugepages-{unit}"), kib * 1024 * count))
    };
    sizes.filter_map(size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn allocatable_is_capacity_without_what_is_reserved() {
        let machine = Machine {
            cpus: 2,
            memory: 8 << 30,
            storage: 100 << 30,
            ..Machine::default()
        };
        let map = |pairs: [(&str, &str); 2]| {
            let owned = pairs.map(|(key, value)| (key.to_owned(), value.to_owned()));
            BTreeMap::from(owned)
        };
        let config = KubeletConfiguration {
            kube_reserved: map([("cpu", "100m"), ("memory", "1Gi")]),
            eviction_hard: map([("memory.available", "100Mi"), ("nodefs.available", "10%")]),
            ..KubeletConfiguration::default()
        };
        let left = machine.allocatable(&config);
        assert_eq!(left["cpu"], 1900);
        assert_eq!(left["memory"], (7 << 30) - (100 << 20));
        assert_eq!(left["ephemeral-storage"], 90 << 30);
        assert_eq!(left["pods"], 110);
    }
}
