//! containerd's configuration, in the layout of 1.x and of 2.x, its unit, and the pod network's template.

use crate::config::Components;
use crate::machine::{MARK, Machine, Version};
use crate::paths;

/// What the file depends on.
pub struct Facts<'a> {
    /// The machine.
    pub machine: &'a Machine,
    /// containerd itself.
    pub version: Version,
    /// Where runc is.
    pub runc: &'a str,
}

/// `config.toml`.
pub fn config_file(components: &Components, facts: &Facts<'_>) -> String {
    let second = facts.version >= Version([2, 0, 0]);
    let (images, runtime) = match second {
        true => (
            r#"plugins."io.containerd.cri.v1.images""#,
            r#"plugins."io.containerd.cri.v1.runtime""#,
        ),
        false => (
            r#"plugins."io.containerd.grpc.v1.cri""#,
            r#"plugins."io.containerd.grpc.v1.cri""#,
        ),
    };
    let pause = quoted(&components.pause_image);
    let mut text = match second {
        true => "version = 3\n".to_owned(),
        false => "version = 2\n".to_owned(),
    };
    if facts.machine.lowers_oom_scores {
        text += "oom_score = -999\n";
    }
    text += &format!(
        "[metrics]\n  address = {}\n",
        quoted(&components.metrics_address)
    );
    text += &match second {
        true => format!("[{images}.pinned_images]\n  sandbox = {pause}\n[{runtime}]\n"),
        false => format!("[{images}]\n  sandbox_image = {pause}\n"),
    };
    if !facts.machine.lowers_oom_scores {
        text += "  restrict_oom_score_adj = true\n";
    }
    text += &format!(
        "[{images}.registry]\n  config_path = \"/etc/containerd/certs.d\"\n\
         [{runtime}.cni]\n  bin_dir = \"{}\"\n  conf_dir = \"/etc/cni/net.d\"\n  conf_template = \"{}\"\n\
         [{runtime}.containerd]\n  default_runtime_name = \"runc\"\n\
         [{runtime}.containerd.runtimes.runc]\n  runtime_type = \"io.containerd.runc.v2\"\n\
         [{runtime}.containerd.runtimes.runc.options]\n  BinaryName = {}\n  SystemdCgroup = {}\n",
        paths::CNI_BIN,
        paths::CNI_TEMPLATE,
        quoted(facts.runc),
        facts.machine.unified_cgroups,
    );
    text
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// A drop-in for a package's unit: another program, the same service.
pub fn drop_in(program: &str) -> String {
    format!("{MARK}\n[Service]\nExecStart=\nExecStart={program}\n")
}

/// The unit, where nobody brought one.
pub fn unit(program: &str) -> String {
    format!(
        "{MARK}\n\
         [Unit]\nDescription=containerd container runtime\nAfter=network.target local-fs.target\n\n\
         [Service]\nType=notify\nExecStartPre=-/sbin/modprobe overlay\nExecStart={program}\n\
         Delegate=yes\nKillMode=process\nRestart=always\nRestartSec=5\n\
         LimitNPROC=infinity\nLimitCORE=infinity\nLimitNOFILE=infinity\nTasksMax=infinity\nOOMScoreAdjust=-999\n\n\
         [Install]\nWantedBy=multi-user.target\n"
    )
}

/// The pod network: containerd makes it of this once the kubelet tells it the node's own range, so that no two nodes give
/// out the same addresses. `own` where our plugin is there, else kubenet's bridge with upstream's plugins.
pub fn network_template(own: bool) -> String {
    if own {
        return cni::template::Network::default().template();
    }
    r#"{
  "cniVersion": "0.3.1",
  "name": "kubenet",
  "plugins": [
    {"type": "bridge", "bridge": "cbr0", "isGateway": true, "ipMasq": true, "promiscMode": true, "hairpinMode": false,
     "ipam": {"type": "host-local",
       "ranges": [{{range $i, $range := .PodCIDRRanges}}{{if $i}}, {{end}}[{"subnet": "{{$range}}"}]{{end}}],
       "routes": [{{range $i, $route := .Routes}}{{if $i}}, {{end}}{"dst": "{{$route}}"}{{end}}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
"#
    .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn components() -> Components {
        Components {
            kubelet: crate::config::Kubelet::Own,
            containerd: "1.6.0".into(),
            runc: "1.1.0".into(),
            cni: "1.5.1".into(),
            pause_image: "pause:1".into(),
            metrics_address: "127.0.0.1:1".into(),
            chosen: Vec::new(),
            mirrors: Default::default(),
        }
    }

    #[test]
    fn each_generation_gets_its_layout() {
        let machine = Machine {
            unified_cgroups: true,
            lowers_oom_scores: true,
            ..Machine::default()
        };
        let text = |version| {
            let facts = Facts {
                machine: &machine,
                version: Version(version),
                runc: "/usr/sbin/runc",
            };
            config_file(&components(), &facts)
        };
        let (first, second) = (text([1, 7, 20]), text([2, 1, 0]));
        assert!(first.starts_with("version = 2\n") && second.starts_with("version = 3\n"));
        assert!(first.contains("sandbox_image = \"pause:1\""), "{first}");
        assert!(
            second.contains(".pinned_images]\n  sandbox = \"pause:1\""),
            "{second}"
        );
        for text in [&first, &second] {
            assert!(
                text.contains("SystemdCgroup = true")
                    && text.contains("BinaryName = \"/usr/sbin/runc\"")
            );
            assert!(text.contains("oom_score = -999") && !text.contains("restrict_oom_score_adj"));
        }
    }

    #[test]
    fn a_machine_that_cannot_lower_scores_is_not_asked_to() {
        let machine = Machine::default();
        let facts = Facts {
            machine: &machine,
            version: Version([1, 6, 20]),
            runc: "/usr/bin/runc",
        };
        let text = config_file(&components(), &facts);
        assert!(
            text.contains("sandbox_image = \"pause:1\"\n  restrict_oom_score_adj = true\n"),
            "{text}"
        );
        assert!(text.contains("SystemdCgroup = false"));
    }
}
