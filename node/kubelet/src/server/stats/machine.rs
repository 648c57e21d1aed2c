//! What the machine uses, from `/proc` and the cgroup that the node is in.

use std::fs;
use std::path::Path;

use jiff::Timestamp;

use super::{Card, Sample};
pub(super) use crate::space::Space;

/// The machine at one moment.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Machine {
    pub(super) sample: Sample,
    pub(super) cores: usize,
    pub(super) memory: u64,
    pub(super) started: Timestamp,
    pub(super) files: Space,
    pub(super) cards: Vec<Card>,
    pub(super) most_processes: u64,
    pub(super) processes: u64,
}

impl Machine {
    /// Looks at everything; what this machine does not have is zero.
    pub(super) fn read(root: &Path) -> Machine {
        let now = Timestamp::now();
        let text = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let memory = Memory::parse(&text("/proc/meminfo"));
        let stat = text("/proc/stat");
        let used = memory.total.saturating_sub(memory.free);
        let working_set = used.saturating_sub(memory.inactive_file);
        Machine {
            sample: Sample {
                time: i64::try_from(now.as_nanosecond()).unwrap_or_default(),
                cpu_nanos: cgroup_cpu().unwrap_or_else(|| cpu_nanos(&stat)),
                usage: used,
                working_set,
                rss: memory.anonymous,
                available: Some(memory.total.saturating_sub(working_set)),
                swap: Some(memory.swap_used),
                ..Sample::default()
            },
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory: memory.total,
            started: boot_time(&stat),
            files: Space::of(root).unwrap_or_default(),
            cards: cards(&text("/proc/net/dev")),
            most_processes: text("/proc/sys/kernel/pid_max")
                .trim()
                .parse()
                .unwrap_or_default(),
            processes: processes(&text("/proc/loadavg")),
        }
    }
}

// A node may itself be in a cgroup, with other nodes beside it.
fn cgroup_cpu() -> Option<u64> {
    let v1 = fs::read_to_string("/sys/fs/cgroup/cpuacct/cpuacct.usage");
    if let Ok(text) = v1 {
        return text.trim().parse().ok();
    }
    let v2 = fs::read_to_string("/sys/fs/cgroup/cpu.stat").ok()?;
    let line = v2
        .lines()
        .find_map(|line| line.strip_prefix("usage_usec "))?;
    line.trim().parse::<u64>().ok().map(|micros| micros * 1_000)
}

// Hundredths of a second: user, nice, system, then idle and waiting, then interrupts and stolen time.
fn cpu_nanos(stat: &str) -> u64 {
    let line = stat.lines().find_map(|line| line.strip_prefix("cpu "));
    let numbers: Vec<u64> = line
        .unwrap_or_default()
        .split_whitespace()
        .map(|word| word.parse().unwrap_or_default())
        .collect();
    let busy = [0, 1, 2, 5, 6, 7].iter().filter_map(|n| numbers.get(*n));
    busy.sum::<u64>() * 10_000_000
}

fn boot_time(stat: &str) -> Timestamp {
    let line = stat.lines().find_map(|line| line.strip_prefix("btime "));
    let seconds = line.and_then(|text| text.trim().parse().ok());
    seconds
        .and_then(|seconds| Timestamp::from_second(seconds).ok())
        .unwrap_or_default()
}

// `0.1 0.2 0.3 running/all last`.
fn processes(loadavg: &str) -> u64 {
    let field = loadavg.split(' ').nth(3).unwrap_or_default();
    let all = field.split_once('/').map(|(_, all)| all);
    all.and_then(|all| all.parse().ok()).unwrap_or_default()
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Memory {
    total: u64,
    free: u64,
    inactive_file: u64,
    anonymous: u64,
    swap_used: u64,
}

impl Memory {
    fn parse(meminfo: &str) -> Memory {
        let of = |name: &str| {
            let line = meminfo
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
            let number = line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
            number.unwrap_or_default() * 1024
        };
        Memory {
            total: of("MemTotal"),
            free: of("MemFree"),
            inactive_file: of("Inactive(file)"),
            anonymous: of("AnonPages"),
            swap_used: of("SwapTotal").saturating_sub(of("SwapFree")),
        }
    }
}

fn cards(text: &str) -> Vec<Card> {
    let line = |line: &str| {
        let (name, rest) = line.split_once(':')?;
        let numbers: Vec<u64> = rest
            .split_whitespace()
            .map(|word| word.parse().unwrap_or_default())
            .collect();
        let at = |n: usize| numbers.get(n).copied().unwrap_or_default();
        Some(Card {
            name: name.trim().to_owned(),
            rx_bytes: at(0),
            rx_errors: at(2),
            tx_bytes: at(8),
            tx_errors: at(10),
        })
    };
    text.lines()
        .filter_map(line)
        .filter(|card| card.name != "lo")
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_is_read() {
        assert_eq!(
            cpu_nanos("cpu  10 1 2 99 99 3 4 5 0 0\ncpu0 1\n"),
            25 * 10_000_000
        );
        assert_eq!(processes("0.5 0.4 0.3 2/345 6789\n"), 345);
        assert_eq!(
            boot_time("x 1\nbtime 1800000000\n").as_second(),
            1_800_000_000
        );
        let memory = Memory::parse(
            "MemTotal:  100 kB\nMemFree: 40 kB\nInactive(file):  5 kB\nSwapTotal: 9 kB\nSwapFree: 4 kB\n",
        );
        assert_eq!(
            (memory.total, memory.free, memory.swap_used),
            (102_400, 40_960, 5_120)
        );
        let text =
            "Inter-| Receive\n face |bytes\n  lo: 1 2\n eth0: 10 1 2 0 0 0 0 0 20 1 3 0 0 0 0 0\n";
        let found = cards(text);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (
                found[0].rx_bytes,
                found[0].rx_errors,
                found[0].tx_bytes,
                found[0].tx_errors
            ),
            (10, 2, 20, 3)
        );
    }
}
