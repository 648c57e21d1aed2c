//! The node controller, on a machine that is only files: a whole provision step by step, and one more on top of it.
//! Commands and the network are simulated, so this is the controller's own time, with the disk's.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use serde_json::{Value, json};

/// What was measured. Milliseconds.
pub(crate) struct Node {
    validate: f64,
    provision: f64,
    again: f64,
    /// Steps of the first provision that took any time, with how long.
    steps: Vec<(String, u64)>,
}

/// How often `validate` and the second provision are run; the fastest counts.
const RUNS: usize = 5;

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
    let run = |words: &[&str], argument: &Path, on_root: bool| -> Result<(Duration, Vec<u8>)> {
        let mut command = Command::new(kyanite);
        command.arg("node-controller").args(words).arg(argument);
        if on_root {
            command.arg("--root").arg(&root);
        }
        let begin = Instant::now();
        let output = command.stderr(Stdio::null()).output()?;
        let took = begin.elapsed();
        let status = output.status;
        ensure!(
            status.success(),
            "`node-controller {}`: {status}",
            words.join(" ")
        );
        Ok((took, output.stdout))
    };
    let provision = || run(&["provision", "--provision-config"], &config, true);
    let (first, _) = provision()?;
    let (_, status) = run(&["status", "-o"], Path::new("json"), true)?;
    let fastest = |again: &dyn Fn() -> Result<Duration>| -> Result<Duration> {
        let times: Result<Vec<_>> = (0..RUNS).map(|_| again()).collect();
        Ok(times?.into_iter().min().unwrap_or_default())
    };
    Ok(Node {
        provision: millis(first),
        steps: steps(&serde_json::from_slice(&status)?),
        again: millis(fastest(&|| Ok(provision()?.0))?),
        validate: millis(fastest(&|| Ok(run(&["validate"], &config, false)?.0))?),
    })
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
    /// For people.
    pub(crate) fn text(&self) -> String {
        let goal = |took: f64, goal: f64| if took < goal { "met" } else { "missed" };
        let mut text = format!(
            "node controller\n  provision {:.0} ms (goal 300: {}), again {:.0} ms (goal 100: {}), validate {:.1} ms (goal 10: {})",
            self.provision,
            goal(self.provision, 300.0),
            self.again,
            goal(self.again, 100.0),
            self.validate,
            goal(self.validate, 10.0),
        );
        for (name, millis) in &self.steps {
            text += &format!("\n    {name} {millis} ms");
        }
        text
    }

    /// For machines.
    pub(crate) fn json(&self) -> Value {
        let steps: serde_json::Map<_, _> = self
            .steps
            .iter()
            .map(|(name, millis)| (name.clone(), json!(millis)))
            .collect();
        json!({"provisionMillis": self.provision, "againMillis": self.again, "validateMillis": self.validate, "stepMillis": steps})
    }
}
