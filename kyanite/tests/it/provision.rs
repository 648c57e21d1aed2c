//! The node controller's commands as others call them: by name, with its exit codes, files and clean output.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

/// A machine that is only files, and a program that is called `aks-node-controller`.
struct Machine {
    directory: TempDir,
}

/// What of a Debian node image the steps look for.
const IMAGE: &[(&str, &str)] = &[
    (
        "/etc/os-release",
        "PRETTY_NAME=\"Debian GNU/Linux 12\"\nID=debian\nVERSION_ID=\"12\"\n",
    ),
    (
        "/etc/shadow",
        "root:*:20000:0:99999:7:::\nazureuser:!:20000:0:99999:7:::\n",
    ),
    ("/usr/bin/containerd", "containerd"),
    ("/usr/sbin/runc", "runc"),
    ("/usr/sbin/nft", "nft"),
    ("/lib/systemd/system/containerd.service", "[Service]\n"),
    ("/opt/bin/kubelet-1.34.8", "kubelet"),
    ("/opt/bin/kubectl-1.34.8", "kubectl"),
    ("/opt/cni/bin/bridge", "bridge"),
    ("/opt/cni/bin/host-local", "host-local"),
    ("/opt/cni/bin/loopback", "loopback"),
    ("/proc/self/status", "CapEff:\t000001ffffffffff\n"),
    ("/run/keep", ""),
    ("/var/keep", ""),
];

/// Settings of the kernel that a plain configuration asks for.
const SYSCTLS: &str = "kernel.hostname kernel.panic kernel.panic_on_oops kernel.keys.root_maxbytes kernel.keys.root_maxkeys vm.overcommit_memory vm.panic_on_oom \
    net.bridge.bridge-nf-call-iptables net.core.message_burst net.core.message_cost net.core.somaxconn net.ipv4.conf.all.forwarding net.ipv4.ip_forward \
    net.ipv4.neigh.default.gc_thresh1 net.ipv4.neigh.default.gc_thresh2 net.ipv4.neigh.default.gc_thresh3 net.ipv4.tcp_max_syn_backlog net.ipv4.tcp_retries2 \
    net.ipv6.conf.all.forwarding net.netfilter.nf_conntrack_max";

impl Machine {
    fn new() -> Machine {
        let machine = Machine {
            directory: TempDir::new().unwrap(),
        };
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_kyanite"), machine.program()).unwrap();
        for (path, text) in IMAGE {
            machine.put(path, text);
        }
        for name in SYSCTLS.split_whitespace() {
            machine.put(&format!("/proc/sys/{}", name.replace('.', "/")), "0\n");
        }
        machine
    }

    fn program(&self) -> PathBuf {
        self.directory.path().join("aks-node-controller")
    }

    fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root().join(path.trim_start_matches('/'))
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.path(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A configuration file beside the machine.
    fn config(&self, json: &Value) -> PathBuf {
        let path = self.directory.path().join("config.json");
        std::fs::write(&path, json.to_string()).unwrap();
        path
    }

    fn run(&self, arguments: &[&str]) -> Output {
        Command::new(self.program())
            .args(arguments)
            .output()
            .unwrap()
    }

    fn on(&self, arguments: &[&str]) -> Output {
        let root = self.root();
        let mut all = arguments.to_vec();
        all.extend(["--root", root.to_str().unwrap()]);
        self.run(&all)
    }

    fn provision(&self, config: &Path) -> Output {
        self.on(&["provision", "--provision-config", config.to_str().unwrap()])
    }

    /// The result as those who wait see it, and their exit code.
    fn waited(&self) -> (Value, Option<i32>) {
        let output = self.on(&["provision-wait", "--timeout", "20"]);
        let text = String::from_utf8(output.stdout).unwrap();
        assert_eq!(text.lines().count(), 1, "nothing but the result: {text}");
        (serde_json::from_str(&text).unwrap(), output.status.code())
    }
}

fn errors(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A node off Azure.
fn plain() -> Value {
    let ca = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";
    serde_json::json!({
        "version": "v1",
        "kubernetes_version": "1.34.8",
        "kubernetes_ca_cert": ca,
        "is_vhd": false,
        "api_server_config": {"api_server_name": "api.example.net"},
        "cluster_config": {"use_instance_metadata": false},
        "bootstrapping_config": {"tls_bootstrapping_token": "abcdef.0123456789abcdef"},
    })
}

#[test]
fn a_machine_becomes_a_node_once_and_can_be_taken_back() {
    let machine = Machine::new();
    let config = machine.config(&plain());
    let listing = || {
        let list = Command::new("find")
            .arg(machine.root())
            .args(["-printf", "%P %m %l\n"])
            .output()
            .unwrap();
        let text = String::from_utf8(list.stdout).unwrap();
        let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
        lines.retain(|l| {
            !["var/log", "run/", "opt/azure", "var/lib"]
                .iter()
                .any(|p| l.starts_with(p))
        });
        lines.sort();
        lines
    };
    let pristine = listing();
    let first = machine.provision(&config);
    assert_eq!(first.status.code(), Some(0), "{}", errors(&first));
    let (result, code) = machine.waited();
    assert_eq!((result["ExitCode"].as_str(), code), (Some("0"), Some(0)));
    let token =
        std::fs::read_to_string(machine.path("/var/lib/kubelet/bootstrap-kubeconfig")).unwrap();
    assert!(token.contains("abcdef.0123456789abcdef"));
    assert!(
        !errors(&first).contains("0123456789abcdef"),
        "the token is in the log"
    );

    let config = config.to_str().unwrap();
    let plan: Value =
        serde_json::from_slice(&machine.on(&["plan", config, "-o", "json"]).stdout).unwrap();
    let changes = plan["steps"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|s| s["changes"].as_array().is_some_and(|c| !c.is_empty()));
    // The simulated machine forgets its units from one process to the next.
    let beyond: Vec<_> = changes
        .filter(|s| {
            s["changes"][0]["subject"]
                .as_str()
                .is_some_and(|w| w.starts_with('/'))
        })
        .collect();
    assert!(beyond.is_empty(), "{beyond:?}");

    let undone = machine.on(&["undo"]);
    assert_eq!(undone.status.code(), Some(0), "{}", errors(&undone));
    assert_eq!(listing(), pristine);
    assert!(
        !machine
            .path("/opt/azure/containers/provision.complete")
            .exists()
    );
}

#[test]
fn a_configuration_that_cannot_be_used_fails_fast_with_a_result() {
    let machine = Machine::new();
    machine.provision(&machine.config(&plain()));
    let output = machine.provision(&machine.config(&serde_json::json!({"version": "v7"})));
    assert_eq!(output.status.code(), Some(1));
    let (result, code) = machine.waited();
    assert_eq!((result["ExitCode"].as_str(), code), (Some("240"), Some(1)));
    assert!(
        result["Error"]
            .as_str()
            .unwrap()
            .starts_with("unsupported version: v7")
    );
    let status = machine.on(&["status"]);
    assert_eq!(status.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&status.stdout).contains("explain 240"));
}

#[test]
fn the_exit_code_is_that_of_the_step_that_failed() {
    let machine = Machine::new();
    machine.put("/etc/os-release", "ID=plan9\n");
    let output = machine.provision(&machine.config(&plain()));
    assert_eq!(output.status.code(), Some(240));
    let log =
        std::fs::read_to_string(machine.path("/var/log/azure/aks-node-controller.log")).unwrap();
    assert!(errors(&output).ends_with(&log), "standard error is the log");
    let last: Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(
        (&last["level"], &last["msg"]),
        (&"ERROR".into(), &"aks-node-controller failed".into())
    );
    assert!(log.starts_with("{\"time\":\""), "{log}");
}

#[test]
fn wrong_usage_is_1_and_says_nothing_on_standard_output() {
    let machine = Machine::new();
    for (arguments, words) in [
        (
            &["provision"][..],
            "--provision-config or --nbc-cmd is required",
        ),
        (&[], "Usage"),
        (&["fly"], "fly"),
    ] {
        let output = machine.run(arguments);
        assert_eq!(
            (output.status.code(), output.stdout.len()),
            (Some(1), 0),
            "{arguments:?}"
        );
        assert!(
            errors(&output).contains(words),
            "{arguments:?}: {}",
            errors(&output)
        );
    }
    for arguments in [
        &["version"][..],
        &["check-hotfix", "--what", "ever"],
        &["download-hotfix"],
    ] {
        assert_eq!(
            machine.run(arguments).status.code(),
            Some(0),
            "{arguments:?}"
        );
    }
}

#[test]
fn a_script_of_the_service_is_run_and_its_code_passed_on() {
    let machine = Machine::new();
    let script = machine.directory.path().join("nbc.sh");
    std::fs::write(&script, "echo out; exit 51\n").unwrap();
    let arguments = ["provision", "--nbc-cmd", script.to_str().unwrap()];
    let dry = machine.on(&[&arguments[..], &["--dry-run"]].concat());
    assert_eq!((dry.status.code(), dry.stdout.len()), (Some(0), 0));
    let output = machine.on(&arguments);
    assert_eq!(
        (output.status.code(), output.stdout.as_slice()),
        (Some(51), b"out\n".as_slice())
    );
    assert_eq!(machine.waited().0["ExitCode"], "51");
}

#[test]
fn being_told_to_end_stops_the_children_and_leaves_a_result() {
    let machine = Machine::new();
    let script = machine.directory.path().join("nbc.sh");
    let notes = machine.directory.path().join("pid");
    std::fs::write(
        &script,
        format!(
            "echo $$ > {}.new; mv {0}.new {0}; sleep 60 & sleep 60\n",
            notes.display()
        ),
    )
    .unwrap();
    let mut child = Command::new(machine.program())
        .args(["provision", "--nbc-cmd"])
        .arg(&script)
        .arg("--root")
        .arg(machine.root())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(30);
    while !notes.exists() {
        assert!(Instant::now() < deadline, "the script has not begun");
        std::thread::yield_now();
    }
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&child),
        rustix::process::Signal::TERM,
    )
    .unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(255));
    assert_eq!(machine.waited().0["ExitCode"], "255");
    let group = std::fs::read_to_string(notes)
        .unwrap()
        .trim()
        .parse()
        .unwrap();
    let group = rustix::process::Pid::from_raw(group).unwrap();
    while rustix::process::test_kill_process_group(group).is_ok() {
        assert!(Instant::now() < deadline, "its children live on");
        std::thread::yield_now();
    }
}
