//! When the machine and its services started, as systemd tells it.

use std::time::Duration;

use ::steps::engine::Stop;
use ::steps::host::{Command, Host};

/// Moments as systemd prints them; empty where it knows none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names say it")]
pub struct BootTimes {
    pub kernel: String,
    pub cloud_init_local: String,
    pub cloud_init: String,
    pub cloud_final: String,
    pub networkd: String,
    pub guest_agent: String,
    pub kubelet: String,
    /// What systemd-analyze says.
    pub summary: String,
}

/// The units whose start is asked for.
const UNITS: [&str; 6] = [
    "cloud-init-local.service",
    "cloud-init.service",
    "cloud-final.service",
    "systemd-networkd.service",
    "walinuxagent.service",
    "kubelet.service",
];

impl BootTimes {
    /// Asks systemd: two questions about times and one for its summary, side by side. Who does not answer soon is left out.
    pub fn ask(host: &dyn Host, stop: &Stop) -> BootTimes {
        let ask = |program: &str, words: &[&str]| {
            let command = Command::new(program, words).at_most(Duration::from_secs(5));
            host.run(&command, stop)
                .ok()
                .filter(|f| f.success())
                .map(|f| f.text())
                .unwrap_or_default()
        };
        let mut question = vec!["show", "--property=Id,ExecMainStartTimestamp"];
        question.extend(UNITS);
        let (kernel, units, summary) = std::thread::scope(|scope| {
            let units = scope.spawn(|| ask("systemctl", &question));
            let summary = scope.spawn(|| ask("systemd-analyze", &[]));
            let kernel = ask("systemctl", &["show", "--property=KernelTimestamp"]);
            (
                kernel,
                units.join().unwrap_or_default(),
                summary.join().unwrap_or_default(),
            )
        });
        let start = |unit: &str| start_of(&units, unit);
        BootTimes {
            kernel: value(&kernel, "KernelTimestamp"),
            cloud_init_local: start(UNITS[0]),
            cloud_init: start(UNITS[1]),
            cloud_final: start(UNITS[2]),
            networkd: start(UNITS[3]),
            guest_agent: start(UNITS[4]),
            kubelet: start(UNITS[5]),
            summary,
        }
    }
}

fn value(block: &str, key: &str) -> String {
    let found = block
        .lines()
        .find_map(|l| l.strip_prefix(key)?.strip_prefix('='));
    found.unwrap_or_default().to_owned()
}

/// systemctl separates units by an empty line.
fn start_of(text: &str, unit: &str) -> String {
    let block = text.split("\n\n").find(|b| value(b, "Id") == unit);
    block
        .map(|b| value(b, "ExecMainStartTimestamp"))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_unit_has_its_block() {
        let text = "Id=a.service\nExecMainStartTimestamp=Tue 2024-11-12 17:23:33 UTC\n\nExecMainStartTimestamp=\nId=b.service";
        assert_eq!(start_of(text, "a.service"), "Tue 2024-11-12 17:23:33 UTC");
        assert_eq!(start_of(text, "b.service"), "");
        assert_eq!(start_of(text, "c.service"), "");
    }
}
