//! What a server's processes cost, from the kernel's books, and what the machine is like.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// Processes measured as one.
pub(crate) struct Processes(pub(crate) Vec<u32>);

/// What some operations took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Cost {
    pub(crate) operations: u32,
    pub(crate) wall: Duration,
    /// Of the server, in user and kernel mode.
    pub(crate) cpu: Duration,
}

impl Cost {
    pub(crate) fn per_second(&self) -> f64 {
        f64::from(self.operations) / self.wall.as_secs_f64()
    }

    pub(crate) fn wall_millis(&self) -> f64 {
        self.wall.as_secs_f64() * 1e3 / f64::from(self.operations)
    }

    pub(crate) fn cpu_millis(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e3 / f64::from(self.operations)
    }
}

impl std::ops::Add for Cost {
    type Output = Cost;

    fn add(self, other: Cost) -> Cost {
        Cost {
            operations: self.operations + other.operations,
            wall: self.wall + other.wall,
            cpu: self.cpu + other.cpu,
        }
    }
}

impl Processes {
    /// The cost of a piece of work that does so many operations.
    pub(crate) async fn cost<T>(
        &self,
        operations: u32,
        work: impl Future<Output = Result<T>>,
    ) -> Result<(Cost, T)> {
        let (cpu, start) = (self.cpu()?, Instant::now());
        let outcome = work.await?;
        let cost = Cost {
            operations,
            wall: start.elapsed(),
            cpu: self.cpu()? - cpu,
        };
        Ok((cost, outcome))
    }

    /// Bytes in memory now: VmRSS.
    pub(crate) fn resident(&self) -> Result<u64> {
        self.0.iter().map(|pid| resident(*pid)).sum()
    }

    fn cpu(&self) -> Result<Duration> {
        self.0.iter().map(|pid| cpu(*pid)).sum()
    }
}

fn resident(pid: u32) -> Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .context("the server has ended before its time")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib = line.and_then(|l| l.trim().strip_suffix(" kB"));
    Ok(kib.context("no VmRSS")?.trim().parse::<u64>()? * 1024)
}

fn cpu(pid: u32) -> Result<Duration> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))
        .context("the server has ended before its time")?;
    let ticks = ticks(&stat).context("an unknown form of /proc/<pid>/stat")?;
    let per_second = rustix::param::clock_ticks_per_second();
    Ok(Duration::from_micros(ticks * 1_000_000 / per_second))
}

// Fields 14 and 15, counted after the name, which may hold spaces and parentheses itself.
fn ticks(stat: &str) -> Option<u64> {
    let (_, fields) = stat.rsplit_once(") ")?;
    let mut fields = fields.split(' ').skip(11);
    let user: u64 = fields.next()?.parse().ok()?;
    let kernel: u64 = fields.next()?.parse().ok()?;
    Some(user + kernel)
}

/// Where the numbers come from.
#[derive(Debug, serde::Serialize)]
pub(crate) struct Machine {
    pub(crate) cores: usize,
    pub(crate) processor: String,
    pub(crate) kernel: String,
    pub(crate) filesystem: String,
    /// Median of appending 4 KiB and fdatasync.
    pub(crate) sync_micros: u128,
    /// How much of the processors others used before the run: much of it spoils the wall times.
    pub(crate) busy: f64,
}

impl Machine {
    /// Looks at this machine and the directory that the servers write to.
    pub(crate) async fn look(dir: &Path) -> Result<Machine> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        let model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name"));
        Ok(Machine {
            cores: std::thread::available_parallelism()?.get(),
            processor: model.map_or("unknown processor", trim_colon).to_owned(),
            kernel: fs::read_to_string("/proc/sys/kernel/osrelease")?
                .trim()
                .to_owned(),
            filesystem: filesystem(dir)?,
            sync_micros: sync_time(dir)?.as_micros(),
            busy: busy().await?,
        })
    }
}

fn trim_colon(value: &str) -> &str {
    value.trim_start_matches([' ', '\t', ':'])
}

fn filesystem(dir: &Path) -> Result<String> {
    let dir = dir.canonicalize()?;
    let mounts = fs::read_to_string("/proc/mounts")?;
    let holding = mounts
        .lines()
        .filter_map(|line| {
            let mut fields = line.split(' ').skip(1);
            Some((fields.next()?, fields.next()?))
        })
        .filter(|(point, _)| dir.starts_with(point))
        .max_by_key(|(point, _)| point.len());
    Ok(holding.map_or("unknown", |(_, kind)| kind).to_owned())
}

// Over one second, before anything of ours runs.
async fn busy() -> Result<f64> {
    let (before, start) = (idle_time()?, Instant::now());
    tokio::time::sleep(Duration::from_secs(1)).await;
    let cores = std::thread::available_parallelism()?.get();
    let whole = start.elapsed().as_secs_f64() * cores as f64;
    let idle = (idle_time()? - before).as_secs_f64();
    Ok((1.0 - idle / whole).clamp(0.0, 1.0))
}

// Seconds of all cores with nothing to do: the second field.
fn idle_time() -> Result<Duration> {
    let uptime = fs::read_to_string("/proc/uptime")?;
    let idle = uptime.split_whitespace().nth(1).context("no idle time")?;
    Ok(Duration::from_secs_f64(idle.parse()?))
}

fn sync_time(dir: &Path) -> Result<Duration> {
    let mut file = tempfile::tempfile_in(dir)?;
    let mut times = Vec::new();
    for _ in 0..50 {
        let start = Instant::now();
        file.write_all(&[7; 4096])?;
        file.sync_data()?;
        times.push(start.elapsed());
    }
    Ok(median(times))
}

/// The middle one of an odd number of times; the later of the middle two otherwise.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times[times.len() / 2]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_after_any_name() {
        let stat = "12 (a) b (c)) S 1 2 3 4 5 6 7 8 9 10 40 2 0 0 20 0";
        assert_eq!(ticks(stat), Some(42));
    }

    #[test]
    fn this_process_has_memory_and_used_time() {
        let this = Processes(vec![std::process::id()]);
        assert!(this.resident().expect("our own status") > 1 << 19);
        this.cpu().expect("our own stat");
    }
}
