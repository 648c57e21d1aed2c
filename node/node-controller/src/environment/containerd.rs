//! containerd's `config.toml`.

use crate::config::Configuration;
use crate::config::predicates::{is_kubenet_bridge, is_nvidia_node};
use crate::version;

/// How containerd lays out its configuration: its CRI plugin is one before 2.0 and two since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// containerd 1.
    V1,
    /// containerd 2.
    V2,
}

impl Layout {
    /// The layout for what `containerd --version` printed; the old one where that says nothing.
    pub fn of(printed: &str) -> Layout {
        let word = printed.split_whitespace().nth(2).unwrap_or_default();
        let word = word.strip_prefix('v').unwrap_or(word);
        let release = match word.find('-') {
            Some(dash) if dash > 0 => &word[..dash],
            _ => word,
        };
        let digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let parts: Vec<_> = release.split('.').collect();
        let is_release = parts.len() == 3 && parts.into_iter().all(digits);
        if is_release && version::at_least(release, [2, 0, 0]) {
            Layout::V2
        } else {
            Layout::V1
        }
    }

    fn images(self) -> &'static str {
        match self {
            Layout::V1 => CRI,
            Layout::V2 => "io.containerd.cri.v1.images",
        }
    }

    fn runtime(self) -> &'static str {
        match self {
            Layout::V1 => CRI,
            Layout::V2 => "io.containerd.cri.v1.runtime",
        }
    }
}

const CRI: &str = "io.containerd.grpc.v1.cri";

/// Lines of TOML, indented by two spaces a level as the file has always been.
struct Toml(String);

impl Toml {
    fn line(&mut self, level: usize, text: &str) {
        self.0.push('\n');
        self.0.extend(std::iter::repeat_n(' ', level * 2));
        self.0.push_str(text);
    }

    fn lines(&mut self, level: usize, lines: &[&str]) {
        for line in lines {
            self.line(level, line);
        }
    }

    /// A string, escaped; JSON's escapes are TOML's.
    fn text(&mut self, level: usize, key: &str, value: &str) {
        self.line(
            level,
            &format!("{key} = {}", serde_json::Value::from(value)),
        );
    }

    /// The head of a table under a plugin.
    fn plugin(&mut self, level: usize, plugin: &str, rest: &str) {
        self.line(level, &format!("[plugins.\"{plugin}\"{rest}]"));
    }
}

/// The configuration. `gpu` is the file for a node whose driver is there; without it runc runs everything.
///
/// Where upstream writes a table twice (kata with artifact streaming), which no TOML reader takes, it stands once.
pub fn config(config: &Configuration, layout: Layout, gpu: bool) -> String {
    let mut toml = Toml("version = 2".into());
    toml.line(0, "oom_score = -999");
    if !config.kubelet_config.container_data_dir.is_empty() {
        toml.text(0, "root", &config.kubelet_config.container_data_dir);
    }
    if config.is_kata {
        erofs(&mut toml);
    }
    match layout {
        Layout::V1 => {
            cri_v1(&mut toml, config, gpu);
            kubenet(&mut toml, config, layout);
            registry(&mut toml, config, layout);
        }
        Layout::V2 => {
            images_v2(&mut toml, config);
            registry(&mut toml, config, layout);
            toml.plugin(0, layout.runtime(), ".containerd");
            runtimes(&mut toml, config, layout, gpu);
            kubenet(&mut toml, config, layout);
        }
    }
    toml.lines(0, &["[metrics]", "  address = \"0.0.0.0:10257\""]);
    proxies(&mut toml, config, layout, gpu);
    toml.0.push('\n');
    toml.0
}

fn erofs(toml: &mut Toml) {
    toml.plugin(0, "io.containerd.snapshotter.v1.erofs", "");
    toml.text(1, "default_size", "10G");
    toml.lines(1, &["enable_fsverity = false", "ovl_mount_options = []"]);
    toml.0.push('\n');
    toml.plugin(0, "io.containerd.service.v1.diff-service", "");
    toml.line(1, "default = [\"erofs\", \"walking\"]");
    toml.0.push('\n');
    toml.plugin(0, "io.containerd.differ.v1.erofs", "");
    toml.line(
        1,
        "mkfs_options = [\"-T0\", \"--mkfs-time\", \"--sort=none\"]",
    );
    toml.line(1, "enable_tar_index = false");
}

fn cri_v1(toml: &mut Toml, config: &Configuration, gpu: bool) {
    toml.plugin(0, CRI, "");
    toml.text(
        1,
        "sandbox_image",
        &config.kube_binary_config.pod_infra_container_image_url,
    );
    if gpu {
        toml.line(1, "enable_cdi = true");
    }
    toml.plugin(1, CRI, ".containerd");
    if config.enable_artifact_streaming {
        toml.lines(2, STREAMING);
    } else if config.is_kata {
        toml.line(2, "disable_snapshot_annotations = false");
        toml.text(2, "snapshotter", "overlayfs");
    }
    runtimes(toml, config, Layout::V1, gpu);
}

const STREAMING: &[&str] = &[
    "snapshotter = \"overlaybd\"",
    "disable_snapshot_annotations = false",
];

fn images_v2(toml: &mut Toml, config: &Configuration) {
    let plugin = Layout::V2.images();
    toml.plugin(0, plugin, "");
    if config.enable_artifact_streaming {
        toml.lines(1, STREAMING);
    }
    toml.plugin(1, plugin, ".pinned_images");
    toml.text(
        2,
        "sandbox",
        &config.kube_binary_config.pod_infra_container_image_url,
    );
}

fn runtimes(toml: &mut Toml, config: &Configuration, layout: Layout, gpu: bool) {
    let name = if gpu && is_nvidia_node(config) {
        "nvidia-container-runtime"
    } else {
        "runc"
    };
    let systemd = layout == Layout::V2 || config.needs_cgroupv2.unwrap_or_default();
    toml.text(2, "default_runtime_name", name);
    for (runtime, systemd) in [(name, systemd), ("untrusted", false)] {
        let table = format!(".containerd.runtimes.{runtime}");
        toml.plugin(2, layout.runtime(), &table);
        toml.text(3, "runtime_type", "io.containerd.runc.v2");
        toml.plugin(2, layout.runtime(), &format!("{table}.options"));
        toml.text(3, "BinaryName", &format!("/usr/bin/{name}"));
        if systemd {
            toml.line(3, "SystemdCgroup = true");
        }
    }
}

fn kubenet(toml: &mut Toml, config: &Configuration, layout: Layout) {
    if is_kubenet_bridge(config) {
        toml.plugin(1, layout.runtime(), ".cni");
        toml.text(2, "bin_dir", "/opt/cni/bin");
        toml.text(2, "conf_dir", "/etc/cni/net.d");
        toml.text(2, "conf_template", "/etc/containerd/kubenet_template.conf");
    }
}

fn registry(toml: &mut Toml, config: &Configuration, layout: Layout) {
    if version::at_least(&config.kubernetes_version, [1, 22, 0]) {
        toml.plugin(1, layout.images(), ".registry");
        toml.text(2, "config_path", "/etc/containerd/certs.d");
    }
    toml.plugin(1, layout.images(), ".registry.headers");
    toml.line(2, "X-Meta-Source-Client = [\"azure/aks\"]");
}

fn proxies(toml: &mut Toml, config: &Configuration, layout: Layout, gpu: bool) {
    if config.enable_artifact_streaming {
        toml.line(0, "[proxy_plugins]");
        snapshotter(
            toml,
            "overlaybd",
            "/run/overlaybd-snapshotter/overlaybd.sock",
        );
    }
    if !config.is_kata {
        return;
    }
    kata(toml, layout);
    if !config.enable_artifact_streaming {
        toml.line(0, "[proxy_plugins]");
    }
    snapshotter(toml, "tardev", "/run/containerd/tardev-snapshotter.sock");
    if layout == Layout::V1 || gpu {
        kata_cc(toml);
    }
}

fn snapshotter(toml: &mut Toml, name: &str, socket: &str) {
    toml.line(1, &format!("[proxy_plugins.{name}]"));
    toml.text(2, "type", "snapshot");
    toml.text(2, "address", socket);
}

/// The runtimes of kata. They stand under containerd 1's plugin in either layout, as upstream has it.
fn kata(toml: &mut Toml, layout: Layout) {
    let runtime = |name: &str| format!(".containerd.runtimes.{name}");
    toml.plugin(0, CRI, &runtime("kata"));
    toml.text(1, "runtime_type", "io.containerd.kata.v2");
    match layout {
        Layout::V1 => {
            toml.text(1, "snapshotter", "overlayfs");
            toml.plugin(0, CRI, &runtime("katacli"));
            toml.text(1, "runtime_type", "io.containerd.runc.v1");
            toml.plugin(0, CRI, &runtime("katacli.options"));
            toml.lines(1, KATACLI);
        }
        Layout::V2 => {
            toml.line(1, "privileged_without_host_devices = true");
            toml.text(1, "snapshotter", "overlayfs");
            kata_options(
                toml,
                "kata",
                "/usr/share/defaults/kata-containers/configuration.toml",
            );
        }
    }
    toml.plugin(0, CRI, &runtime("kata-preview"));
    toml.text(1, "runtime_type", "io.containerd.kata.v2");
    toml.line(1, "privileged_without_host_devices = true");
    toml.text(1, "snapshotter", "erofs");
    let preview = "/usr/share/defaults/kata-containers/configuration-clh-preview.toml";
    kata_options(toml, "kata-preview", preview);
}

const KATACLI: &[&str] = &[
    "NoPivotRoot = false",
    "NoNewKeyring = false",
    "ShimCgroup = \"\"",
    "IoUid = 0",
    "IoGid = 0",
    "BinaryName = \"/usr/bin/kata-runtime\"",
    "Root = \"\"",
    "CriuPath = \"\"",
    "SystemdCgroup = false",
];

fn kata_cc(toml: &mut Toml) {
    toml.plugin(0, CRI, ".containerd.runtimes.kata-cc");
    toml.text(1, "snapshotter", "tardev");
    toml.text(1, "runtime_type", "io.containerd.kata-cc.v2");
    toml.line(1, "privileged_without_host_devices = true");
    toml.line(1, "pod_annotations = [\"io.katacontainers.*\"]");
    let file =
        "/opt/confidential-containers/share/defaults/kata-containers/configuration-clh-snp.toml";
    kata_options(toml, "kata-cc", file);
}

fn kata_options(toml: &mut Toml, runtime: &str, file: &str) {
    toml.plugin(1, CRI, &format!(".containerd.runtimes.{runtime}.options"));
    toml.text(2, "ConfigPath", file);
}
