//! containerd's configuration, in the layout of 1.x and of 2.x, and where it looks for images.

use super::credential_provider::MICROSOFT_REGISTRY;
use crate::config::Configuration;
use crate::config::predicates::{is_kubenet_bridge, is_nvidia_node};
use crate::machine::Machine;
use crate::version::at_least;

/// The configuration itself.
pub const CONFIG_FILE: &str = "/etc/containerd/config.toml";
/// The template of kubenet's CNI configuration; containerd fills in the node's pod ranges.
pub const KUBENET_TEMPLATE: &str = "/etc/containerd/kubenet_template.conf";
/// A template that came with the pod network's own plugin; containerd fills in the node's pod ranges as well.
pub const SHIPPED_TEMPLATE: &str = "/opt/cni/bin/10-overlay.conflist.template";
/// Where mirrors of registries are described.
pub const REGISTRY_HOSTS: &str = "/etc/containerd/certs.d";
/// Where drop-ins of `containerd.service` lie.
pub const DROP_INS: &str = "/etc/systemd/system/containerd.service.d";

/// Where the two generations keep the same settings.
struct Layout {
    images: &'static str,
    runtime: &'static str,
    /// 2.x, where images and runtime are plugins of their own.
    split: bool,
}

const FIRST: Layout = Layout {
    images: r#"plugins."io.containerd.grpc.v1.cri""#,
    runtime: r#"plugins."io.containerd.grpc.v1.cri""#,
    split: false,
};
const SECOND: Layout = Layout {
    images: r#"plugins."io.containerd.cri.v1.images""#,
    runtime: r#"plugins."io.containerd.cri.v1.runtime""#,
    split: true,
};

/// A table of the file: its name and its lines. Each is written once, whoever adds to it.
#[derive(Default)]
struct Tables(Vec<(String, Vec<String>)>);

impl Tables {
    fn add(&mut self, table: impl Into<String>, lines: &[String]) {
        let table = table.into();
        match self.0.iter_mut().find(|(name, _)| *name == table) {
            Some((_, present)) => present.extend_from_slice(lines),
            None => self.0.push((table, lines.to_vec())),
        }
    }
}

impl std::fmt::Display for Tables {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (name, lines) in &self.0 {
            writeln!(f, "[{name}]")?;
            for line in lines {
                writeln!(f, "  {line}")?;
            }
        }
        Ok(())
    }
}

/// `config.toml`.
pub fn config_file(config: &Configuration, machine: &Machine) -> String {
    let layout = if machine.has_containerd_2() {
        &SECOND
    } else {
        &FIRST
    };
    let mut tables = Tables::default();
    if config.is_kata {
        erofs(&mut tables);
    }
    images(config, layout, &mut tables);
    runtimes(config, machine, layout, &mut tables);
    cni(config, machine, layout, &mut tables);
    tables.add("metrics", &[text("address", "0.0.0.0:10257")]);
    proxies(config, &mut tables);
    format!("{}{tables}", head(config, machine))
}

/// A negative score for containerd itself, where the machine can give one: elsewhere containerd
/// would not start.
fn head(config: &Configuration, machine: &Machine) -> String {
    let mut head = "version = 2\n".to_owned();
    if machine.lowers_oom_scores {
        head += "oom_score = -999\n";
    }
    let data = &config.kubelet_config.container_data_dir;
    if !data.is_empty() {
        head += &(text("root", data) + "\n");
    }
    head
}

fn images(config: &Configuration, layout: &Layout, tables: &mut Tables) {
    let sandbox = &config.kube_binary_config.pod_infra_container_image_url;
    let plugin = layout.images;
    if layout.split {
        tables.add(plugin, &snapshotter(config));
        if !sandbox.is_empty() {
            tables.add(
                format!("{plugin}.pinned_images"),
                &[text("sandbox", sandbox)],
            );
        }
    } else {
        if !sandbox.is_empty() {
            tables.add(plugin, &[text("sandbox_image", sandbox)]);
        }
        tables.add(plugin, &["enable_cdi = true".to_owned()]);
    }
    if at_least(&config.kubernetes_version, [1, 22, 0]) {
        tables.add(
            format!("{plugin}.registry"),
            &[text("config_path", REGISTRY_HOSTS)],
        );
    }
    let client = r#"X-Meta-Source-Client = ["azure/aks"]"#.to_owned();
    tables.add(format!("{plugin}.registry.headers"), &[client]);
}

/// Images that start before they are pulled need a snapshotter of their own.
fn snapshotter(config: &Configuration) -> Vec<String> {
    let annotations = "disable_snapshot_annotations = false".to_owned();
    match (config.enable_artifact_streaming, config.is_kata) {
        (true, _) => vec![text("snapshotter", "overlaybd"), annotations],
        (false, true) => vec![text("snapshotter", "overlayfs"), annotations],
        (false, false) => Vec::new(),
    }
}

/// Whether containers go through NVIDIA's runtime: asked for, and no tag keeps the driver off.
pub fn uses_nvidia(config: &Configuration, machine: &Machine) -> bool {
    is_nvidia_node(config) && !machine.is_tagged("SkipGpuDriverInstall")
}

fn runtimes(config: &Configuration, machine: &Machine, layout: &Layout, tables: &mut Tables) {
    let plugin = layout.runtime;
    if !machine.lowers_oom_scores {
        tables.add(plugin, &["restrict_oom_score_adj = true".to_owned()]);
    }
    let (name, binary) = match uses_nvidia(config, machine) {
        true => (
            "nvidia-container-runtime",
            "/usr/bin/nvidia-container-runtime",
        ),
        false => ("runc", machine.runc.as_deref().unwrap_or("/usr/bin/runc")),
    };
    let containerd = format!("{plugin}.containerd");
    if !layout.split {
        tables.add(&containerd, &snapshotter(config));
    }
    tables.add(&containerd, &[text("default_runtime_name", name)]);
    let systemd = layout.split || config.needs_cgroupv2 == Some(true);
    for (runtime, systemd) in [(name, systemd), ("untrusted", false)] {
        let table = format!("{containerd}.runtimes.{runtime}");
        tables.add(&table, &[text("runtime_type", "io.containerd.runc.v2")]);
        let mut options = vec![text("BinaryName", binary)];
        if systemd {
            options.push("SystemdCgroup = true".to_owned());
        }
        tables.add(format!("{table}.options"), &options);
    }
    if config.is_kata {
        kata(layout, &containerd, tables);
    }
}

/// Runtimes that give each pod a virtual machine of its own.
fn kata(layout: &Layout, containerd: &str, tables: &mut Tables) {
    let devices = || "privileged_without_host_devices = true".to_owned();
    let kind = |kind: &str| text("runtime_type", kind);
    let snapshots = |name: &str| text("snapshotter", name);
    let table = |name: &str| format!("{containerd}.runtimes.{name}");
    let options = |name: &str| format!("{containerd}.runtimes.{name}.options");
    let settings = |path: &str| text("ConfigPath", path);

    tables.add(
        table("kata"),
        &[kind("io.containerd.kata.v2"), snapshots("overlayfs")],
    );
    if layout.split {
        tables.add(table("kata"), &[devices()]);
        let path = "/usr/share/defaults/kata-containers/configuration.toml";
        tables.add(options("kata"), &[settings(path)]);
    } else {
        tables.add(table("katacli"), &[kind("io.containerd.runc.v1")]);
        let binary = text("BinaryName", "/usr/bin/kata-runtime");
        tables.add(
            options("katacli"),
            &[binary, "SystemdCgroup = false".to_owned()],
        );
    }
    let preview = [kind("io.containerd.kata.v2"), devices(), snapshots("erofs")];
    tables.add(table("kata-preview"), &preview);
    let path = "/usr/share/defaults/kata-containers/configuration-clh-preview.toml";
    tables.add(options("kata-preview"), &[settings(path)]);
    let annotations = r#"pod_annotations = ["io.katacontainers.*"]"#.to_owned();
    let confidential = [
        kind("io.containerd.kata-cc.v2"),
        snapshots("tardev"),
        devices(),
        annotations,
    ];
    tables.add(table("kata-cc"), &confidential);
    let path =
        "/opt/confidential-containers/share/defaults/kata-containers/configuration-clh-snp.toml";
    tables.add(options("kata-cc"), &[settings(path)]);
}

fn erofs(tables: &mut Tables) {
    let lines = |lines: &[&str]| {
        lines
            .iter()
            .map(|&line| line.to_owned())
            .collect::<Vec<_>>()
    };
    tables.add(
        r#"plugins."io.containerd.snapshotter.v1.erofs""#,
        &lines(&[
            r#"default_size = "10G""#,
            "enable_fsverity = false",
            "ovl_mount_options = []",
        ]),
    );
    tables.add(
        r#"plugins."io.containerd.service.v1.diff-service""#,
        &lines(&[r#"default = ["erofs", "walking"]"#]),
    );
    tables.add(
        r#"plugins."io.containerd.differ.v1.erofs""#,
        &lines(&[
            r#"mkfs_options = ["-T0", "--mkfs-time", "--sort=none"]"#,
            "enable_tar_index = false",
        ]),
    );
}

/// The directories are AKS's, whatever the distribution compiled in.
fn cni(config: &Configuration, machine: &Machine, layout: &Layout, tables: &mut Tables) {
    let mut lines = vec![
        text("bin_dir", "/opt/cni/bin"),
        text("conf_dir", "/etc/cni/net.d"),
    ];
    if is_kubenet_bridge(config) {
        lines.push(text("conf_template", KUBENET_TEMPLATE));
    } else if machine.has_network_template {
        lines.push(text("conf_template", SHIPPED_TEMPLATE));
    }
    tables.add(format!("{}.cni", layout.runtime), &lines);
}

fn proxies(config: &Configuration, tables: &mut Tables) {
    let plugins = [
        (
            config.enable_artifact_streaming,
            "overlaybd",
            "/run/overlaybd-snapshotter/overlaybd.sock",
        ),
        (
            config.is_kata,
            "tardev",
            "/run/containerd/tardev-snapshotter.sock",
        ),
    ];
    for (_, name, socket) in plugins.into_iter().filter(|(wanted, ..)| *wanted) {
        let lines = [text("type", "snapshot"), text("address", socket)];
        tables.add(format!("proxy_plugins.{name}"), &lines);
    }
}

/// The mirror the node pulls Microsoft's images from, if any: the file and its text.
pub fn mirror(config: &Configuration) -> Option<(String, String)> {
    let server = &config.bootstrap_profile_container_registry_server;
    let path = |host: &str| format!("{REGISTRY_HOSTS}/{host}/hosts.toml");
    if !server.is_empty() {
        let (host, repository) = server.split_once('/').unwrap_or((server, ""));
        let url = format!("https://{host}/v2/{repository}");
        let text = format!(
            "[host.\"{}\"]\n  capabilities = [\"pull\", \"resolve\"]\n  override_path = true\n",
            url.trim_end_matches('/')
        );
        return Some((path(MICROSOFT_REGISTRY), text));
    }
    if super::azure::cloud(config) != "AzureChinaCloud" {
        return None;
    }
    // The old name of the Chinese mirror, which old image references still carry.
    let text = "[host.\"https://mcr.azure.cn\"]\n  capabilities = [\"pull\", \"resolve\"]\n\
                [host.\"https://mcr.azure.cn\".header]\n    X-Forwarded-For = [\"mcr.azk8s.cn\"]\n";
    Some((path("mcr.azk8s.cn"), text.to_owned()))
}

/// The drop-in every node gets. Forwarding is accepted because other programs (Docker) set the
/// policy to drop; a machine without iptables has no such policy. containerd 2 no longer asks for
/// its file limit itself.
pub const EXEC_START: &str =
    "[Service]\nExecStartPost=-/sbin/iptables -P FORWARD ACCEPT\nLimitNOFILE=1048576\n";

/// Limits of containerd and what it starts, where the configuration has some.
pub fn ulimits(config: &Configuration) -> Option<String> {
    let limits = &config.custom_linux_os_config.ulimit_config;
    let rows = [
        ("LimitMEMLOCK", &limits.max_locked_memory),
        ("LimitNOFILE", &limits.no_file),
    ];
    let lines = rows
        .into_iter()
        .filter_map(|(name, value)| value.as_ref().map(|value| format!("{name}={value}\n")));
    limits
        .is_present()
        .then(|| format!("[Service]\n{}", lines.collect::<String>()))
}

fn text(key: &str, value: &str) -> String {
    format!("{key} = {}", serde_json::Value::from(value))
}

#[cfg(test)]
mod tests;
