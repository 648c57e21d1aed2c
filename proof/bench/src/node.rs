//! The node controller, on a machine that is only files: a whole provision step by step, and one more on top of it.
//! Commands and the network are simulated, so this is the controller's own time, with the disk's.

use std::io::Read as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::section::{Section, with_unit};

/// What was measured; times in milliseconds.
pub(crate) struct Node {
    validate: f64,
    provision: f64,
    again: f64,
    /// Of the first provision, in MiB.
    memory: f64,
    /// Steps of the first provision that took any time, with how long.
    steps: Vec<(String, u64)>,
}

/// How often `validate` and the second provision are run; the fastest counts.
const RUNS: usize = 5;

/// Steps that are named in the result.
const SHOWN: usize = 6;

/// What of a Debian node the steps look for.
const IMAGE: &[(&str, &str)] = &[
    ("etc/os-release", "ID=debian\nVERSION_ID=\"12\"\n"),
    (
        "etc/shadow",
        "root:*:20000:0:99999:7:::\nazureuser:!:20000:0:99999:7:::\n",
    ),
    ("usr/bin/containerd", ""),
    ("usr/sbin/runc", ""),
    ("usr/sbin/nft", ""),
    ("lib/systemd/system/containerd.service", "[Service]\n"),
    ("opt/bin/kubelet-1.34.8", ""),
    ("opt/bin/kubectl-1.34.8", ""),
    ("opt/cni/bin/bridge", ""),
    ("opt/cni/bin/host-local", ""),
    ("opt/cni/bin/loopback", ""),
    ("proc/self/status", "CapEff:\t000001ffffffffff\n"),
];

/// Settings of the kernel that a plain node wants changed.
const SETTINGS: &str = "kernel/panic kernel/panic_on_oops kernel/keys/root_maxbytes kernel/keys/root_maxkeys vm/overcommit_memory \
    vm/panic_on_oom net/bridge/bridge-nf-call-iptables net/core/message_burst net/core/message_cost net/core/somaxconn \
    net/ipv4/conf/all/forwarding net/ipv4/ip_forward net/ipv4/neigh/default/gc_thresh1 net/ipv4/neigh/default/gc_thresh2 \
    net/ipv4/neigh/default/gc_thresh3 net/ipv4/tcp_max_syn_backlog net/ipv4/tcp_retries2 net/ipv6/conf/all/forwarding \
    net/netfilter/nf_conntrack_max kernel/hostname";

/// Provisions a machine under `dir`, which should be on a disk.
pub(crate) fn measure(kyanite: &Path, dir: &Path) -> Result<Node> {
    let place = tempfile::tempdir_in(dir)?;
    let root = place.path().join("root");
    for (path, text) in IMAGE {
        put(&root.join(path), text)?;
    }
    for name in SETTINGS.split_whitespace() {
        put(&root.join("proc/sys").join(name), "0\n")?;
    }
    let config = place.path().join("config.json");
    put(&config, &configuration().to_string())?;
    let run = |words: &[&str], argument: &Path, on_root: bool| -> Result<Run> {
        let mut command = Command::new(kyanite);
        command.arg("node-controller").args(words).arg(argument);
        if on_root {
            command.arg("--root").arg(&root);
        }
        observed(command).with_context(|| format!("`node-controller {}`", words.join(" ")))
    };
    let provision = || run(&["provision", "--provision-config"], &config, true);
    let first = provision()?;
    let status = run(&["status", "-o"], Path::new("json"), true)?.said;
    let fastest = |again: &dyn Fn() -> Result<Duration>| -> Result<Duration> {
        let times: Result<Vec<_>> = (0..RUNS).map(|_| again()).collect();
        Ok(times?.into_iter().min().unwrap_or_default())
    };
    Ok(Node {
        provision: millis(first.took),
        memory: first.memory as f64 / 1024.0,
        steps: steps(&serde_json::from_slice(&status)?),
        again: millis(fastest(&|| Ok(provision()?.took))?),
        validate: millis(fastest(&|| Ok(run(&["validate"], &config, false)?.took))?),
    })
}

/// A run of the program.
struct Run {
    took: Duration,
    /// The most that was resident, in KiB, as far as one can see from outside.
    memory: u64,
    said: Vec<u8>,
}

#[expect(
    clippy::disallowed_methods,
    reason = "looks at a process from time to time"
)]
fn observed(mut command: Command) -> Result<Run> {
    let begin = Instant::now();
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()?;
    let mut memory = 0;
    let status = loop {
        memory = memory.max(high_water(child.id()));
        match child.try_wait()? {
            Some(status) => break status,
            None => std::thread::sleep(Duration::from_millis(1)),
        }
    };
    let took = begin.elapsed();
    ensure!(status.success(), "{status}");
    let mut said = Vec::new();
    if let Some(mut out) = child.stdout.take() {
        out.read_to_end(&mut said)?;
    }
    Ok(Run { took, memory, said })
}

fn high_water(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap_or(0)
}

fn steps(status: &Value) -> Vec<(String, u64)> {
    let steps = status["steps"].as_array().into_iter().flatten();
    let mut steps: Vec<_> = steps
        .filter_map(|s| Some((s["name"].as_str()?.to_owned(), s["milliseconds"].as_u64()?)))
        .filter(|(_, millis)| *millis > 0)
        .collect();
    steps.sort_by_key(|(_, millis)| std::cmp::Reverse(*millis));
    steps
}

fn put(path: &Path, text: &str) -> Result<()> {
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    Ok(std::fs::write(path, text)?)
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

fn configuration() -> Value {
    // "MA==" as a certificate: nobody looks inside.
    let ca = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
    json!({
        "version": "v1",
        "kubernetes_version": "1.34.8",
        "kubernetes_ca_cert": ca,
        "is_vhd": false,
        "api_server_config": {"api_server_name": "api.example.net"},
        "auth_config": {"subscription_id": "subscription"},
        "cluster_config": {
            "resource_group": "group",
            "location": "westeurope",
            "use_instance_metadata": false,
            "cluster_network_config": {"vnet_name": "net", "route_table": "routes"},
        },
        "bootstrapping_config": {"tls_bootstrapping_token": "abcdef.0123456789abcdef"},
    })
}

impl Node {
    /// The table of the node controller.
    pub(crate) fn section(&self) -> Section {
        let header = ["node controller", "ours", "goal", ""].map(str::to_owned);
        let mut lines = vec![header.to_vec()];
        for (name, value, unit, goal) in [
            ("provision", self.provision, "ms", 300.0),
            ("  again, with nothing to do", self.again, "ms", 100.0),
            ("  resident at most", self.memory, "MiB", 15.0),
            ("validate", self.validate, "ms", 10.0),
        ] {
            let verdict = if value < goal { "met" } else { "missed" };
            let goal = format!("< {goal} {unit}");
            lines.push(vec![
                name.into(),
                with_unit(value, unit),
                goal,
                verdict.into(),
            ]);
        }
        Section {
            key: "nodeController",
            lines,
            method: vec![self.method()],
            bars: Vec::new(),
            json: self.json(),
        }
    }

    fn method(&self) -> String {
        let steps = self.steps.iter().take(SHOWN);
        let steps: Vec<String> = steps
            .map(|(name, millis)| format!("{name} {millis} ms"))
            .collect();
        format!(
            "Node controller: a whole provision of a root directory with the packages there, files on the disk and synced, commands and \
             network simulated: its own time. The fastest of {RUNS} second runs and validations. Its longest steps: {}.",
            steps.join(", ")
        )
    }

    fn json(&self) -> Value {
        let steps: serde_json::Map<_, _> = self
            .steps
            .iter()
            .map(|(name, millis)| (name.clone(), json!(millis)))
            .collect();
        json!({"provisionMillis": self.provision, "againMillis": self.again, "validateMillis": self.validate,
            "provisionMiB": self.memory, "stepMillis": steps})
    }
}
