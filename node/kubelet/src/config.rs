//! The kubelet's settings: its configuration file (`kubelet.config.k8s.io/v1beta1`), then what flags say.

mod file;
mod flags;
mod text;

pub use file::{Authentication, Authorization, CrashLoopBackOff, KubeletConfiguration};
pub use flags::settings;
pub use text::{GoDuration, parse_duration};

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// Why settings are of no use.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file cannot be read or understood.
    #[error("`{path}` cannot be used as the kubelet's configuration: {cause}")]
    File {
        /// Which file.
        path: PathBuf,
        /// Why not.
        cause: String,
    },
    /// A flag has a value that means nothing.
    #[error("--{flag}={value} cannot be used: {cause}")]
    Flag {
        /// Which flag.
        flag: String,
        /// Its value.
        value: String,
        /// Why not.
        cause: String,
    },
}

/// What only flags say.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The configuration file with defaults and flags.
    pub config: KubeletConfiguration,
    /// How to reach the API server.
    pub kubeconfig: Option<PathBuf>,
    /// How to get the first certificate.
    pub bootstrap_kubeconfig: Option<PathBuf>,
    /// Where certificates are kept.
    pub cert_dir: PathBuf,
    /// Where pods, plugins and state are kept.
    pub root_dir: PathBuf,
    /// The node's name.
    pub node_name: String,
    /// The node's addresses, if they were given.
    pub node_ips: Vec<String>,
    /// Labels to register with.
    pub node_labels: BTreeMap<String, String>,
    /// Whether another program looks after what the cloud knows of this node.
    pub external_cloud: bool,
    /// What finds credentials for image registries, and where the programs are.
    pub credential_provider: Option<(PathBuf, PathBuf)>,
}

/// Reads the file (defaults where there is none) and lays the flags over it. A flag is a field of the file by
/// another name, so each is put where the field is.
pub fn read(
    path: Option<&Path>,
    flags: &[(String, String)],
) -> Result<KubeletConfiguration, Error> {
    let mut value = serde_json::json!({});
    if let Some(path) = path {
        let wrong = |cause: String| Error::File {
            path: path.to_owned(),
            cause,
        };
        let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
        value = serde_saphyr::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    } else {
        legacy_defaults(&mut value);
    }
    // AKS-like files set only one of the two, and a report at every update would be too many.
    for (name, text) in flags {
        text::put_flag(&mut value, name, text)?;
    }
    let mut config: KubeletConfiguration =
        serde_json::from_value(value).map_err(|e| Error::File {
            path: path.unwrap_or(Path::new("(flags)")).to_owned(),
            cause: e.to_string(),
        })?;
    config.fill_eviction();
    Ok(config)
}

/// What a kubelet without a file did before there were files.
fn legacy_defaults(value: &mut serde_json::Value) {
    *value = serde_json::json!({
        "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
        "authorization": {"mode": "AlwaysAllow"},
    });
}

/// Whether a label may be set by its node.
pub fn label_is_allowed(key: &str) -> bool {
    const ALLOWED: [&str; 11] = [
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "node.kubernetes.io/instance-type",
        "beta.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    ];
    let Some((domain, _)) = key.split_once('/') else {
        return true;
    };
    let within = |suffix: &str| domain == suffix || domain.ends_with(&format!(".{suffix}"));
    let reserved = within("kubernetes.io") || within("k8s.io");
    let prefixes = ["kubelet.kubernetes.io", "node.kubernetes.io"];
    !reserved || ALLOWED.contains(&key) || prefixes.iter().any(|p| within(p))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_file_the_old_defaults_hold_and_flags_win() {
        let flags = [
            ("max-pods".to_owned(), "30".to_owned()),
            ("cgroup-driver".to_owned(), "systemd".to_owned()),
            (
                "eviction-hard".to_owned(),
                "memory.available<750Mi,nodefs.available<10%".to_owned(),
            ),
            ("cluster-dns".to_owned(), "10.0.0.10".to_owned()),
        ];
        let config = read(None, &flags).expect("flags are good");
        assert!(config.authentication.anonymous.enabled);
        assert_eq!(config.max_pods, 30);
        assert_eq!(config.cgroup_driver, "systemd");
        assert_eq!(config.eviction_hard["memory.available"], "750Mi");
        assert_eq!(config.cluster_dns, ["10.0.0.10"]);
    }

    #[test]
    fn labels_of_kubernetes_domains_are_few() {
        for (key, allowed) in [
            ("agentpool", true),
            ("kubernetes.azure.com/mode", true),
            ("node.kubernetes.io/x", true),
            ("kubernetes.io/role", false),
            ("node-role.kubernetes.io/master", false),
            ("kubernetes.io/hostname", true),
        ] {
            assert_eq!(label_is_allowed(key), allowed, "{key}");
        }
    }
}
