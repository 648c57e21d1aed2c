//! logind, by systemd's own programs: `systemd-inhibit` holds the machine back, `busctl` tells of its shutdown.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

const MANAGER: [&str; 3] = [
    "org.freedesktop.login1",
    "/org/freedesktop/login1",
    "org.freedesktop.login1.Manager",
];
const MATCH: &str =
    "type='signal',interface='org.freedesktop.login1.Manager',member='PrepareForShutdown'";
/// Upstream's file; logind reads it when it is told to.
const DROP_IN: &str = "/etc/systemd/logind.conf.d/99-kubelet.conf";

/// The machine's shutdown.
pub(super) struct Logind {
    time: Duration,
    /// While it lives the machine waits.
    lock: Option<Child>,
    signals: Option<(Child, Lines<BufReader<ChildStdout>>)>,
}

impl Logind {
    /// A shutdown waits so long.
    pub(super) fn new(time: Duration) -> Self {
        Self {
            time,
            lock: None,
            signals: None,
        }
    }

    /// Waits for the next shutdown, or that it is called off.
    pub(super) async fn next(&mut self) -> Result<bool, String> {
        if self.signals.is_none() {
            self.allow_time().await?;
            self.signals = Some(listen()?);
            self.lock = Some(inhibit()?);
            tracing::info!("the machine's shutdown waits for pods");
        }
        loop {
            let Some((_, lines)) = &mut self.signals else {
                return Err("nobody listens".to_owned());
            };
            match lines.next_line().await {
                Ok(Some(line)) => {
                    let Some(begins) = parse(&line) else { continue };
                    if !begins && self.lock.is_none() {
                        self.lock = Some(inhibit()?);
                    }
                    return Ok(begins);
                }
                _ => {
                    self.signals = None;
                    self.lock = None;
                    return Err("busctl has ended".to_owned());
                }
            }
        }
    }

    /// Lets the machine go down.
    pub(super) fn release(&mut self) {
        // It is killed with its value.
        self.lock = None;
    }

    /// Has logind wait long enough.
    async fn allow_time(&self) -> Result<(), String> {
        if longest_delay().await? >= self.time {
            return Ok(());
        }
        let text = format!(
            "# Written by the kubelet: shutdownGracePeriod needs it.\n[Login]\nInhibitDelayMaxSec={}\n",
            self.time.as_secs()
        );
        let wrong = |error: std::io::Error| format!("{DROP_IN}: {error}");
        if let Some(directory) = std::path::Path::new(DROP_IN).parent() {
            std::fs::create_dir_all(directory).map_err(wrong)?;
        }
        std::fs::write(DROP_IN, text).map_err(wrong)?;
        let reload = ["kill", "--signal=SIGHUP", "systemd-logind.service"];
        run("systemctl", &reload).await?;
        for _ in 0..20 {
            if longest_delay().await? >= self.time {
                return Ok(());
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        Err(format!(
            "logind does not wait {} seconds; hint: InhibitDelayMaxSec in another file below /etc/systemd/logind.conf.d",
            self.time.as_secs()
        ))
    }
}

async fn longest_delay() -> Result<Duration, String> {
    let words = ["--system", "get-property"].iter().chain(&MANAGER);
    let words: Vec<&str> = words.copied().chain(["InhibitDelayMaxUSec"]).collect();
    let said = run("busctl", &words).await?;
    let number = said.split_whitespace().nth(1).and_then(|n| n.parse().ok());
    number
        .map(Duration::from_micros)
        .ok_or_else(|| format!("busctl says {said:?} where a time was asked for"))
}

fn inhibit() -> Result<Child, String> {
    let words = [
        "--what=shutdown",
        "--mode=delay",
        "--who=kubelet",
        "--why=Kubelet needs time to handle node shutdown",
        // Ends with us, because it reads from us.
        "cat",
    ];
    let child = Command::new("systemd-inhibit")
        .args(words)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .spawn();
    child.map_err(|error| format!("systemd-inhibit: {error}"))
}

fn listen() -> Result<(Child, Lines<BufReader<ChildStdout>>), String> {
    let mut child = Command::new("busctl")
        .args(["--system", "--json=short", "--match", MATCH, "monitor"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| format!("busctl: {error}"))?;
    let output = child.stdout.take().ok_or("busctl has no output")?;
    Ok((child, BufReader::new(output).lines()))
}

async fn run(program: &str, words: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(words).output().await;
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!(
            "{program} {}: {}",
            words.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        )),
    }
}

/// What a line of `busctl monitor` says: a shutdown begins, or is called off; others say nothing.
fn parse(line: &str) -> Option<bool> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_it = message["member"] == "PrepareForShutdown" && message["type"] == "signal";
    message["payload"]["data"][0].as_bool().filter(|_| is_it)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_read_as_busctl_prints_them() {
        let line = |member: &str, data: &str| {
            format!(
                r#"{{"type":"signal","endian":"l","flags":1,"version":1,"cookie":33,"sender":":1.3","path":"/org/freedesktop/login1","interface":"org.freedesktop.login1.Manager","member":"{member}","payload":{{"type":"b","data":[{data}]}}}}"#
            )
        };
        for (text, wanted) in [
            (line("PrepareForShutdown", "true"), Some(true)),
            (line("PrepareForShutdown", "false"), Some(false)),
            (line("PrepareForSleep", "true"), None),
            ("Monitoring bus message stream.".to_owned(), None),
        ] {
            assert_eq!(parse(&text), wanted, "{text}");
        }
    }
}
