//! Machines to bootstrap: one with containerd from its distribution, one on which nothing is installed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::steps::engine::Stop;
use ::steps::host::{Answer, Command, Entry, Files, Finished, NetworkError, Owner, SimulatedHost};
use flex_node::config;
use flex_node::journey::{Arrival, Departure, Journey};
use flex_node::steps::Wish;
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const AGENT: &str = "/usr/local/bin/aks-flex-node";
const CA: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCkFBPT0KLS0tLS1FTkQgQ0VSVElGSUNBVEUtLS0tLQo=";

pub(crate) type Tree = BTreeMap<PathBuf, (Entry, Vec<u8>)>;

/// Paths that are not the same in two trees.
pub(crate) fn differing(one: &Tree, other: &Tree) -> Vec<String> {
    let all = one.keys().chain(other.keys());
    let wrong = all.filter(|path| one.get(*path) != other.get(*path));
    let mut wrong: Vec<String> = wrong.map(|path| path.display().to_string()).collect();
    wrong.sort();
    wrong.dedup();
    wrong
}

pub(crate) struct Machine {
    _root: TempDir,
    pub(crate) host: SimulatedHost,
}

pub(crate) fn put(files: &Files, path: &str, text: &str, mode: u32) {
    let path = Path::new(path);
    files
        .ensure_directory(path.parent().unwrap(), 0o755)
        .unwrap();
    files
        .write_new(path, text.as_bytes(), mode, Owner::ROOT)
        .unwrap();
}

/// A configuration that joins with a token, and whatever else it says.
pub(crate) fn wish(extra: Value) -> Wish {
    let mut value = json!({
        "azure": {"bootstrapToken": {"token": "abcdef.0123456789abcdef"}},
        "node": {"kubelet": {"serverURL": "https://api.example:443", "caCertData": CA}},
    });
    for (key, inner) in extra.as_object().unwrap() {
        value[key] = inner.clone();
    }
    let accepted = config::read(&value.to_string(), &|_| Err("no files".to_owned())).unwrap();
    Wish {
        config: accepted.config,
        file: "/etc/aks-flex-node/config.json".to_owned(),
        program: vec![AGENT.to_owned()],
        name: "edge".to_owned(),
        agent: None,
        bundle: None,
    }
}

impl Machine {
    /// Swap, a containerd with a configuration and a unit of its own.
    pub(crate) fn new() -> Machine {
        Machine::with(|host| host, true)
    }

    pub(crate) fn bare() -> Machine {
        Machine::with(|host| host, false)
    }

    pub(crate) fn with(
        more: impl FnOnce(SimulatedHost) -> SimulatedHost,
        has_containerd: bool,
    ) -> Machine {
        let memory = Path::new("/dev/shm");
        let root = if memory.is_dir() {
            TempDir::new_in(memory)
        } else {
            TempDir::new()
        }
        .unwrap();
        std::fs::set_permissions(
            root.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        fill(&Files::under(root.path()), has_containerd);
        let says = |text: &str| Answer::Ends(Finished::ok(text));
        let refused = NetworkError::Unreachable {
            server: "127.0.0.1:10250".to_owned(),
            cause: "connection refused".to_owned(),
        };
        let host = SimulatedHost::new(root.path())
            .serving("127.0.0.1:10250", Err(refused))
            .answering(
                "/usr/bin/containerd --version",
                says("containerd x 1.6.20~ds1"),
            )
            .answering(
                "/usr/local/bin/containerd --version",
                says("containerd x v2.0.4"),
            )
            .answering("/usr/sbin/runc --version", says("runc version 1.1.5+ds1"))
            .answering(
                "df -Pk",
                says("Filesystem 1024-blocks Used Available\n/dev/sda1 64000000 1 60000000 1% /"),
            )
            .answering("install -d -m", Answer::Does(Arc::new(make_directory)))
            .answering("sh -c 'set -eu\n[ -d", Answer::Does(Arc::new(clear)))
            .answering(
                "swapoff /swap.img",
                Answer::Does(Arc::new(|files: &Files, _: &Command| swap(files, ""))),
            )
            .answering(
                "swapon /swap.img",
                Answer::Does(Arc::new(|files: &Files, _: &Command| swap(files, SWAP))),
            )
            .answering(
                "sh -c '! grep -q",
                Answer::Does(Arc::new(|files: &Files, _: &Command| {
                    let is_on = files
                        .text("/proc/swaps")
                        .unwrap()
                        .unwrap()
                        .contains("/swap.img");
                    if is_on {
                        Finished::failed(1, "")
                    } else {
                        Finished::default()
                    }
                })),
            )
            .answering("modprobe", Answer::Does(Arc::new(module)))
            .answering(
                "sh -c 'modprobe -r",
                Answer::Does(Arc::new(|files: &Files, command: &Command| {
                    let _ = files.remove(&Path::new("/sys/module").join(&command.arguments[3]));
                    Finished::default()
                })),
            )
            .answering(
                "rm -rf",
                Answer::Does(Arc::new(|files: &Files, command: &Command| {
                    let _ = std::fs::remove_dir_all(files.locate(Path::new(&command.arguments[1])));
                    Finished::default()
                })),
            )
            .answering("sh -c 'set -eu\nmkdir -p", Answer::Does(Arc::new(unpack)));
        Machine {
            host: more(host),
            _root: root,
        }
    }

    pub(crate) fn tree(&self) -> Tree {
        let mut tree = self.host.tree().unwrap();
        tree.retain(|path, _| !path.starts_with("/run/aks-flex-node") && path != Path::new("/run"));
        tree
    }

    /// The tree without what is remembered of the run.
    pub(crate) fn node_tree(&self) -> Tree {
        let mut tree = self.tree();
        tree.retain(|path, _| !path.starts_with("/var/lib/aks-flex-node"));
        tree
    }

    pub(crate) fn journey(&self) -> Journey<'_> {
        Journey {
            host: &self.host,
            stop: Stop::new().unwrap(),
            news: &|_| {},
            workers: 1,
        }
    }

    pub(crate) fn bootstrap(&self, wish: &Wish) -> Arrival {
        self.journey().bootstrap(wish)
    }

    pub(crate) fn unbootstrap(&self) -> Departure {
        self.journey().unbootstrap(None)
    }
}

const SWAP: &str = "/swap.img file 2097148 0 -2\n";

fn fill(files: &Files, has_containerd: bool) {
    let put = |path: &str, text: &str| put(files, path, text, 0o644);
    put(
        "/etc/os-release",
        "PRETTY_NAME=\"Ubuntu 24.04\"\nID=ubuntu\n",
    );
    put(
        "/etc/fstab",
        "UUID=1 / ext4 defaults 0 1\n/swap.img none swap sw 0 0\n",
    );
    put("/etc/aks-flex-node/config.json", "{}");
    put(AGENT, "agent");
    put("/usr/local/bin/kyanite-cni", "plugin");
    put(
        "/proc/swaps",
        &format!("Filename Type Size Used Priority\n{SWAP}"),
    );
    put("/proc/self/status", "CapEff:\t000001ffffffffff\n");
    put("/proc/meminfo", "MemTotal: 8000000 kB\n");
    put("/proc/sys/kernel/hostname", "edge\n");
    put("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
    for (name, value) in flex_node::render::system::SYSCTLS {
        let old = if value == "0" { "1" } else { "0" };
        put(
            &format!("/proc/sys/{}", name.replace('.', "/")),
            &format!("{old}\n"),
        );
    }
    for path in ["/sys/module", "/var/lib", "/opt", "/var/log"] {
        files.ensure_directory(Path::new(path), 0o755).unwrap();
    }
    if has_containerd {
        put("/usr/bin/containerd", "containerd");
        put("/usr/bin/containerd-shim-runc-v2", "shim");
        put("/usr/bin/ctr", "ctr");
        put("/usr/sbin/runc", "runc");
        put("/etc/containerd/config.toml", "# somebody's\n");
        put("/lib/systemd/system/containerd.service", "[Service]\n");
    }
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    std::fs::set_permissions(
        files.locate(Path::new("/etc/aks-flex-node/config.json")),
        mode,
    )
    .unwrap();
}

fn swap(files: &Files, lines: &str) -> Finished {
    let text = format!("Filename Type Size Used Priority\n{lines}");
    match files.set(Path::new("/proc/swaps"), text.trim_end()) {
        Ok(()) => Finished::default(),
        Err(error) => Finished::failed(1, error.to_string()),
    }
}

fn module(files: &Files, command: &Command) -> Finished {
    let path = Path::new("/sys/module").join(&command.arguments[0]);
    finished(files.ensure_directory(&path, 0o755))
}

fn make_directory(files: &Files, command: &Command) -> Finished {
    let mode = u32::from_str_radix(&command.arguments[2], 8).unwrap();
    let path = Path::new(&command.arguments[3]);
    finished(
        files
            .ensure_directory(path, mode)
            .and_then(|()| files.set_attributes(path, mode, Owner::ROOT)),
    )
}

/// What the script does, without its mounts.
fn clear(files: &Files, command: &Command) -> Finished {
    let [path, keep, _, _] = &command.arguments[3..] else {
        return Finished::failed(2, "four arguments");
    };
    let place = files.locate(Path::new(path));
    if !place.exists() {
        return Finished::default();
    }
    for entry in std::fs::read_dir(&place).unwrap().flatten() {
        match entry.file_type().unwrap().is_dir() {
            true => std::fs::remove_dir_all(entry.path()).unwrap(),
            false => std::fs::remove_file(entry.path()).unwrap(),
        }
    }
    match keep.as_str() {
        "keep" => Finished::default(),
        _ => finished(std::fs::remove_dir(place)),
    }
}

fn unpack(files: &Files, command: &Command) -> Finished {
    let target = &command.arguments[4];
    for name in [
        "bin/containerd",
        "bin/containerd-shim-runc-v2",
        "bin/ctr",
        "bridge",
        "host-local",
        "loopback",
        "portmap",
    ] {
        put(files, &format!("{target}/{name}"), name, 0o755);
    }
    Finished::default()
}

fn finished(done: std::io::Result<()>) -> Finished {
    match done {
        Ok(()) => Finished::default(),
        Err(error) => Finished::failed(1, error.to_string()),
    }
}
