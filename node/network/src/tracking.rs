//! How many connections the kernel tracks and for how long: upstream's settings under `conntrack`, as far as somebody
//! says anything. What nobody asks for stays as the machine has it.

use std::path::Path;
use std::time::Duration;

const DIRECTORY: &str = "/proc/sys/net/netfilter";

/// What was asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tracking {
    /// Connections for each processor; none or 0 leaves the limit alone.
    pub max_per_core: Option<u32>,
    /// The least limit there is with that.
    pub min: Option<u32>,
    /// How long an open TCP connection may be silent.
    pub tcp_established: Option<Duration>,
    /// How long one may wait for its end.
    pub tcp_close_wait: Option<Duration>,
}

/// What upstream takes as the least where nothing is said of it.
const LEAST: u32 = 131_072;

impl Tracking {
    /// The kernel's settings that follow, by name. Pure.
    fn settings(&self, cores: u32) -> Vec<(&'static str, u64)> {
        let per_core = self.max_per_core.filter(|count| *count > 0);
        let least = self.min.unwrap_or(LEAST);
        let limit = per_core.map(|count| count.saturating_mul(cores).max(least));
        let seconds = |time: Option<Duration>| time.map(|t| t.as_secs()).filter(|s| *s > 0);
        let all = [
            ("nf_conntrack_max", limit.map(u64::from)),
            (
                "nf_conntrack_tcp_timeout_established",
                seconds(self.tcp_established),
            ),
            (
                "nf_conntrack_tcp_timeout_close_wait",
                seconds(self.tcp_close_wait),
            ),
        ];
        let said = all.into_iter();
        said.filter_map(|(name, value)| Some((name, value?)))
            .collect()
    }

    /// Tells the kernel. The limit is the whole machine's: in a namespace of its own nobody may change it.
    pub(crate) fn apply(&self) {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        for (name, value) in self.settings(u32::try_from(cores).unwrap_or(u32::MAX)) {
            let path = Path::new(DIRECTORY).join(name);
            if let Err(error) = std::fs::write(&path, value.to_string()) {
                tracing::warn!(path = %path.display(), value, %error, "the kernel does not take a setting");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_set_and_nothing_else() {
        assert_eq!(Tracking::default().settings(8), []);
        let said = Tracking {
            max_per_core: Some(40_000),
            tcp_established: Some(Duration::from_secs(3600)),
            tcp_close_wait: Some(Duration::ZERO),
            ..Tracking::default()
        };
        let expected = [
            ("nf_conntrack_max", 320_000),
            ("nf_conntrack_tcp_timeout_established", 3600),
        ];
        assert_eq!(said.settings(8), expected);
        assert_eq!(said.settings(1)[0].1, u64::from(LEAST));
        let none = Tracking {
            max_per_core: Some(0),
            min: Some(5),
            ..Tracking::default()
        };
        assert_eq!(none.settings(8), [], "as AKS has it");
    }
}
