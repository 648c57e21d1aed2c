//! Machines to provision: an AKS image with containerd 1, one with containerd 2, a bare Debian.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ::steps::engine::{Engine, Event, Report, Stop, Watcher};
use ::steps::host::{Answer, Command, Files, Finished, Owner, SimulatedHost, UnitRecord};
use node_controller::config::{self, Configuration};
use node_controller::steps::steps;
use tempfile::TempDir;

/// Where the engine keeps its journal.
pub(crate) const STATE: &str = "/var/lib/node-controller";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Image {
    /// Ubuntu 22.04, containerd 1.7, cgroup2.
    Aks22,
    /// Ubuntu 24.04, containerd 2.1, cgroup2.
    Aks24,
    /// Debian 12 with its own containerd 1.6, cgroup v1, in a machine that cannot lower OOM scores.
    Debian,
    /// Debian 12 on which nothing is installed.
    Bare,
}

/// A machine before anything was done to it.
pub(crate) struct Machine {
    pub(crate) root: TempDir,
    pub(crate) host: SimulatedHost,
}

const METADATA: &str = r#"{"compute": {"tagsList": [TAGS]}, "network": {"interface": [
  {"macAddress": "7CED8D8A4DCE",
   "ipv4": {"ipAddress": [{"privateIpAddress": "10.224.0.4"}]}, "ipv6": {"ipAddress": []}},
  {"macAddress": "7CED8D8A4DCF", "ipv4": {"ipAddress": [{"privateIpAddress": "10.225.0.4"}]},
   "ipv6": {"ipAddress": [{"privateIpAddress": "fd00::4"}]}}]}}"#;

const SHADOW: &str = "root:*:20000:0:99999:7:::\nazureuser:!:20000:1:90:7:30::\n";

const SYSCTLS: [(&str, &str); 34] = [
    ("fs/aio-max-nr", "65536"),
    ("fs/file-max", "9223372036854775807"),
    ("fs/inotify/max_user_watches", "65536"),
    ("fs/nr_open", "1048576"),
    ("kernel/hostname", "aks-pool1-1234-vmss000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/panic", "0"),
    ("kernel/panic_on_oops", "0"),
    ("kernel/threads-max", "30000"),
    ("net/bridge/bridge-nf-call-iptables", "0"),
    ("net/core/message_burst", "10"),
    ("net/core/message_cost", "5"),
    ("net/core/netdev_max_backlog", "1000"),
    ("net/core/optmem_max", "131072"),
    ("net/core/rmem_default", "212992"),
    ("net/core/rmem_max", "212992"),
    ("net/core/somaxconn", "4096"),
    ("net/core/wmem_default", "212992"),
    ("net/core/wmem_max", "212992"),
    ("net/ipv4/conf/all/forwarding", "0"),
    ("net/ipv4/ip_forward", "0"),
    ("net/ipv4/ip_local_port_range", "32768\t60999"),
    ("net/ipv4/ip_local_reserved_ports", ""),
    ("net/ipv4/neigh/default/gc_thresh1", "128"),
    ("net/ipv4/neigh/default/gc_thresh2", "512"),
    ("net/ipv4/neigh/default/gc_thresh3", "1024"),
    ("net/ipv4/tcp_max_syn_backlog", "512"),
    ("net/ipv4/tcp_retries2", "15"),
    ("net/ipv4/tcp_tw_reuse", "2"),
    ("net/ipv6/conf/all/forwarding", "0"),
    ("net/netfilter/nf_conntrack_max", "65536"),
    ("vm/overcommit_memory", "0"),
    ("vm/panic_on_oom", "0"),
];

/// Units an AKS image brings.
const AKS_UNITS: [&str; 12] = [
    "acr-mirror.service",
    "aks-localdns-hosts-setup.timer",
    "dhcpv6.service",
    "kubelet.service",
    "localdns-exporter.socket",
    "localdns.service",
    "overlaybd-snapshotter.service",
    "overlaybd-tcmu.service",
    "reconcile-private-hosts.service",
    "secure-tls-bootstrap.service",
    "snapshot-update.timer",
    "bind-mount.service",
];

impl Image {
    /// A fresh machine. `tags` are those of the virtual machine.
    pub(crate) fn machine(self, tags: &str) -> Machine {
        // Syncing to a busy disk is most of the time otherwise.
        let memory = Path::new("/dev/shm");
        let root = if memory.is_dir() {
            TempDir::new_in(memory)
        } else {
            TempDir::new()
        }
        .unwrap();
        let files = Files::under(root.path());
        self.fill(&|path: &str, text: &str| put(&files, path, text, 0o644));
        if self == Image::Aks24 {
            let disk = Path::new("/dev/disk/azure");
            files.ensure_directory(disk, 0o755).unwrap();
            files
                .make_link(&disk.join("resource-part1"), Path::new("../../sdb1"))
                .unwrap();
        }
        if self.is_aks() {
            let mask = Path::new("/etc/systemd/system/apt-daily.service");
            files.make_link(mask, Path::new("/dev/null")).unwrap();
        }
        std::fs::set_permissions(
            root.path(),
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )
        .unwrap();
        let host = self.host(root.path(), tags);
        Machine { root, host }
    }

    fn is_aks(self) -> bool {
        matches!(self, Image::Aks22 | Image::Aks24)
    }

    fn fill(self, put: &dyn Fn(&str, &str)) {
        let (id, version, name) = match self {
            Image::Aks22 => ("ubuntu", "22.04", "Ubuntu 22.04.5 LTS"),
            Image::Aks24 => ("ubuntu", "24.04", "Ubuntu 24.04.2 LTS"),
            _ => ("debian", "12", "Debian GNU/Linux 12 (bookworm)"),
        };
        put(
            "/etc/os-release",
            &format!("PRETTY_NAME=\"{name}\"\nID={id}\nVERSION_ID=\"{version}\"\n"),
        );
        put("/etc/shadow", SHADOW);
        put("/etc/fstab", "UUID=1 / ext4 defaults 0 1\n");
        put("/etc/environment", "PATH=\"/usr/local/sbin:/usr/bin\"\n");
        put(
            "/etc/ssh/sshd_config",
            "Port 22\nMatch User a\n  PubkeyAuthentication yes\n",
        );
        put("/etc/resolv.conf", "nameserver 10.0.0.53\n");
        put("/lib/systemd/system/ssh.service", "[Service]\n");
        put("/usr/sbin/nft", "nft");
        for (name, value) in SYSCTLS {
            put(&format!("/proc/sys/{name}"), &format!("{value}\n"));
        }
        put(
            "/sys/kernel/mm/transparent_hugepage/enabled",
            "always [madvise] never\n",
        );
        put(
            "/sys/kernel/mm/transparent_hugepage/defrag",
            "always defer [madvise] never\n",
        );
        if self != Image::Bare {
            put("/usr/bin/containerd", "containerd");
            put("/lib/systemd/system/containerd.service", "[Service]\n");
            put("/opt/bin/kubelet-1.34.8", "kubelet 1.34.8");
            put("/opt/bin/kubectl-1.34.8", "kubectl 1.34.8");
        }
        if self == Image::Debian {
            put("/usr/sbin/runc", "runc");
            for path in CNI_PLUGINS {
                put(path, path);
            }
            put("/opt/offline/kubernetes-node.tar.gz", "archive");
        }
        if !self.is_aks() {
            put("/proc/self/status", "CapEff:\t000001fffeffffff\n");
            return;
        }
        put("/usr/bin/runc", "runc");
        put(
            "/usr/bin/nvidia-container-runtime",
            "nvidia-container-runtime",
        );
        put("/usr/sbin/iptables", "iptables");
        put("/opt/offline/runc.deb", "runc");
        put("/lib/systemd/system/apt-daily.timer", "[Timer]\n");
        put("/lib/systemd/system/apt-daily-upgrade.timer", "[Timer]\n");
        put("/sys/fs/cgroup/cgroup.controllers", "cpu memory\n");
        put("/proc/self/status", "CapEff:\t000001ffffffffff\n");
        put(
            "/run/systemd/resolve/resolv.conf",
            "nameserver 168.63.129.16\n",
        );
        put("/etc/update-motd.d/00-header", "#!/bin/sh\n");
        put("/opt/azure/vhd-install.complete", "");
        put(
            "/opt/azure/containers/localdns/localdns.sh",
            "#!/bin/bash\n",
        );
        put(
            "/opt/azure/containers/setup-custom-search-domains.sh",
            "#!/bin/bash\n",
        );
        put("/opt/bin/aks-secure-tls-bootstrap-client", "client");
        put(
            "/opt/cni/bin/10-azure.conflist",
            "{\"plugins\":[{\"mode\":\"bridge\"}]}\n",
        );
        for plugin in ["bridge", "host-local", "loopback"] {
            put(&format!("/opt/cni/bin/{plugin}"), plugin);
        }
        for unit in AKS_UNITS {
            put(&format!("/etc/systemd/system/{unit}"), "[Service]\n");
        }
    }

    fn host(self, root: &Path, tags: &str) -> SimulatedHost {
        let containerd = match self {
            Image::Aks22 => "containerd github.com/containerd/containerd v1.7.27 05044ec",
            Image::Aks24 => "containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b7",
            _ => "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1",
        };
        let says = |text: &str| Answer::Ends(Finished::ok(text));
        let fails = || Answer::Ends(Finished::failed(1, ""));
        let document = METADATA.replace("TAGS", tags).into_bytes();
        let host = SimulatedHost::new(root)
            .at("2027-01-01T00:00:00Z".parse().unwrap())
            .answering("containerd --version", says(containerd))
            .answering(
                "ip -4 -o route get",
                says("192.0.2.1 via 10.224.0.1 dev eth0 src 10.224.0.4 uid 0"),
            )
            .answering(
                "ip -6 -o route get",
                says("2001:db8::1 via fe80::1 dev eth0 src fd00::4 metric 1024"),
            )
            .answering(
                "readlink -f /dev/disk/azure/resource-part1",
                says("/dev/sdb1"),
            )
            .answering("findmnt -nr -o target -S /dev/sdb1", says("/mnt"))
            .answering(
                "df -Pk",
                says("Filesystem 1024-blocks Used Available\n/dev/sda1 64000000 1 60000000 1% /"),
            )
            .answering("iptables -w -t filter -C", fails())
            .answering("iptables -w -t mangle -C", fails())
            .answering("false", fails())
            .answering("sh -c 'nft list", fails())
            .answering("grep -q '^/", fails())
            .with_unit(
                "ssh.service",
                UnitRecord {
                    enabled: true,
                    active: true,
                    ..UnitRecord::default()
                },
            )
            .serving(
                "http://169.254.169.254/metadata/instance",
                Ok((200, document)),
            )
            .serving("https://downloads.example/", Ok((200, b"archive".to_vec())))
            .serving(
                "https://downloads.example/plain.tar.gz.sha256",
                Ok((404, Vec::new())),
            );
        // The commands that make programs and files appear.
        host.answering(APT, Answer::Does(Arc::new(install)))
            .answering(
                "sh -c 'for package in",
                Answer::Does(Arc::new(is_installed)),
            )
            .answering(
                "sh -c 'set -eu\ndraft=$2",
                Answer::Does(Arc::new(|files: &Files, _: &Command| {
                    put(files, "/opt/cni/bin/azure-vnet", "azure-vnet", 0o755);
                    Finished::default()
                })),
            )
            .answering(
                "modprobe ip6_tables",
                Answer::Does(Arc::new(|files: &Files, _: &Command| {
                    put(files, "/proc/net/ip6_tables_names", "", 0o444);
                    Finished::default()
                })),
            )
            .answering(
                "rm -f",
                Answer::Does(Arc::new(|files: &Files, command: &Command| {
                    command.arguments[1..]
                        .iter()
                        .for_each(|path| files.remove(path.as_ref()).unwrap());
                    Finished::default()
                })),
            )
            .answering("/opt/bin/kubelet --version", says("Kubernetes v1.34.8"))
            .answering(
                "sh -c 'set -eu\nrm -f \"$1.draft\"\nfallocate",
                makes_argument(3),
            )
            .answering("sh -c 'set -eu\nIFS= read -r url", makes_argument(3))
            .answering("sh -c 'set -eu\narchive=$1", Answer::Does(Arc::new(unpack)))
    }
}

/// How the line of an installation by apt begins.
const APT: &str = "sh -c 'set -eu\nexport DEBIAN_FRONTEND=noninteractive";

/// What Debian's package of them brings, of those that anybody asks for.
const CNI_PLUGINS: [&str; 7] = [
    "/usr/lib/cni/portmap",
    "/usr/lib/cni/bandwidth",
    "/usr/lib/cni/firewall",
    "/usr/lib/cni/tuning",
    "/usr/lib/cni/host-local",
    "/usr/lib/cni/loopback",
    "/usr/lib/cni/bridge",
];

/// What a package brings.
fn programs(package: &str) -> &'static [&'static str] {
    match package {
        "containerd" => &[
            "/usr/bin/containerd",
            "/lib/systemd/system/containerd.service",
        ][..],
        "runc" => &["/usr/sbin/runc"],
        "containernetworking-plugins" => &CNI_PLUGINS,
        "kubelet=1.34.8*" => &["/usr/bin/kubelet"],
        "kubectl=1.34.8*" => &["/usr/bin/kubectl"],
        _ => &[],
    }
}

fn install(files: &Files, command: &Command) -> Finished {
    let paths = command.arguments[3..]
        .iter()
        .flat_map(|package| programs(package));
    paths.for_each(|path| put(files, path, path, 0o755));
    Finished::default()
}

fn is_installed(files: &Files, command: &Command) -> Finished {
    let mut packages = command.arguments[3..].iter();
    match packages.all(|package| programs(package).iter().all(|path| files.exists(path))) {
        true => Finished::default(),
        false => Finished::failed(1, ""),
    }
}

/// A script that makes the file its n-th argument names.
fn makes_argument(n: usize) -> Answer {
    Answer::Does(Arc::new(move |files: &Files, command: &Command| {
        put(files, &command.arguments[n], "made", 0o600);
        Finished::default()
    }))
}

fn unpack(files: &Files, command: &Command) -> Finished {
    let [archive, directory, suffix, names @ ..] = &command.arguments[3..] else {
        return Finished::failed(2, "too few arguments");
    };
    if !files.exists(archive) {
        return Finished::failed(1, format!("{archive} is missing"));
    }
    for name in names {
        put(files, &format!("{directory}/{name}{suffix}"), name, 0o755);
    }
    Finished::default()
}

pub(crate) fn put(files: &Files, path: &str, text: &str, mode: u32) {
    let path = PathBuf::from(path);
    files
        .ensure_directory(path.parent().unwrap(), 0o755)
        .unwrap();
    files
        .write_new(&path, text.as_bytes(), mode, Owner::ROOT)
        .unwrap();
}

struct Deaf;

impl Watcher for Deaf {
    fn event(&self, _: &Event<'_>) {}
}

/// An engine over a machine, one step at a time so that commands come in one order.
pub(crate) fn engine(host: &SimulatedHost) -> Engine<'_> {
    Engine {
        host,
        state: STATE.into(),
        stop: Stop::new().unwrap(),
        watcher: &Deaf,
        workers: 1,
        deadline: Duration::from_secs(900),
    }
}

/// Provisions a machine.
pub(crate) fn provision(machine: &Machine, config: &Configuration) -> Report {
    engine(&machine.host).run(&steps(config))
}

/// A configuration from its JSON.
pub(crate) fn configuration(json: &serde_json::Value) -> Configuration {
    let accepted = config::read(json.to_string().as_bytes()).unwrap();
    assert_eq!(
        accepted.notices,
        [],
        "a case must not say what nobody understands"
    );
    accepted.configuration
}
