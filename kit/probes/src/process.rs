//! What every program says of itself in its metrics, under the names that every client library has for it.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// How a figure of the process is had.
type Measure = fn() -> Option<u64>;

const FIGURES: [(&str, &str, Measure); 5] = [
    ("process_resident_memory_bytes", "Resident memory", || {
        Some(field("/proc/self/statm", 1)? * 4096)
    }),
    ("process_virtual_memory_bytes", "Virtual memory", || {
        Some(field("/proc/self/statm", 0)? * 4096)
    }),
    ("process_open_fds", "Open files", || {
        Some(std::fs::read_dir("/proc/self/fd").ok()?.count() as u64)
    }),
    ("process_max_fds", "Files that may be open", || {
        let limits = std::fs::read_to_string("/proc/self/limits").ok()?;
        let line = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"))?;
        line.split_whitespace().next()?.parse().ok()
    }),
    (
        "process_start_time_seconds",
        "When it was started, in seconds since 1970",
        started,
    ),
];

/// The figures of this process.
#[derive(Debug, Default)]
pub struct Process {
    figures: [Gauge; FIGURES.len()],
    cpu: Gauge<f64, AtomicU64>,
}

/// Who built this, as `kubernetes_build_info` says it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Build {
    /// Of the Kubernetes release.
    pub major: &'static str,
    /// Of the Kubernetes release.
    pub minor: &'static str,
    /// The whole version.
    pub git_version: String,
    /// What compiled it.
    pub compiler: &'static str,
    /// System and processor.
    pub platform: String,
}

impl Process {
    /// Its gauges, and what it was built of.
    pub fn register(registry: &mut Registry, build: &Build) -> Process {
        let process = Process::default();
        for ((name, help, _), gauge) in FIGURES.iter().zip(&process.figures) {
            registry.register(*name, *help, gauge.clone());
        }
        registry.register(
            "process_cpu_seconds_total",
            "CPU time used",
            process.cpu.clone(),
        );
        let info: Family<Build, Gauge> = Family::default();
        info.get_or_create(build).set(1);
        registry.register("kubernetes_build_info", "What this program is", info);
        process
    }

    /// Looks at the process.
    pub fn measure(&self) {
        for ((_, _, measure), gauge) in FIGURES.iter().zip(&self.figures) {
            if let Some(value) = measure() {
                gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
            }
        }
        // Fields 14 and 15 of stat: user and system time in ticks of 10 ms.
        let ticks = field("/proc/self/stat", 13).zip(field("/proc/self/stat", 14));
        if let Some((user, system)) = ticks {
            self.cpu.set((user + system) as f64 / 100.0);
        }
    }
}

/// When the process was started: its start in ticks of 10 ms after the machine's, and when that was.
fn started() -> Option<u64> {
    let stat = std::fs::read_to_string("/proc/stat").ok()?;
    let boot = stat.lines().find_map(|line| line.strip_prefix("btime "))?;
    Some(boot.trim().parse::<u64>().ok()? + field("/proc/self/stat", 21)? / 100)
}

fn field(path: &str, index: usize) -> Option<u64> {
    std::fs::read_to_string(path)
        .ok()?
        .split(' ')
        .nth(index)?
        .trim()
        .parse()
        .ok()
}
