//! The kubelet's settings: its configuration file (`kubelet.config.k8s.io/v1beta1`), then what flags say.

mod file;
mod flags;
mod known;
mod text;

pub use file::{Authentication, Authorization, CrashLoopBackOff, KubeletConfiguration};
pub use flags::settings;
pub use text::GoDuration;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::Value;

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

/// Reads the file (defaults where there is none), lays over it what a directory adds and then the flags. A flag is a
/// field of the file by another name, so each is put where the field is.
pub fn read(
    path: Option<&Path>,
    directory: Option<&Path>,
    flags: &[(String, String)],
) -> Result<KubeletConfiguration, Error> {
    let mut value = serde_json::json!({});
    match path {
        Some(path) => value = parse(path)?,
        None => legacy_defaults(&mut value),
    }
    for path in drop_ins(directory)? {
        merge(&mut value, parse(&path)?);
        // Whose field is wrong is known only here.
        checked(value.clone(), &path)?;
    }
    for (name, text) in flags {
        text::put_flag(&mut value, name, text)?;
    }
    let place = path.unwrap_or(Path::new("(flags)"));
    let mut config = checked(value, place)?;
    crate::shutdown::check(&config).map_err(|cause| Error::File {
        path: place.to_owned(),
        cause,
    })?;
    config.fill_eviction();
    config.fill_frequencies();
    Ok(config)
}

fn parse(path: &Path) -> Result<Value, Error> {
    let wrong = |cause: String| Error::File {
        path: path.to_owned(),
        cause,
    };
    let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    let value: Value = serde_saphyr::from_str(&text).map_err(|e| wrong(e.to_string()))?;
    known::check(&value).map_err(wrong)?;
    let unheeded = unheeded(&value);
    if !unheeded.is_empty() {
        tracing::warn!(path = %path.display(), fields = unheeded.join(", "), "fields have no effect on this kubelet");
    }
    Ok(value)
}

/// Fields that upstream's kubelet would heed and this one does not: whoever set them should know.
fn unheeded(value: &Value) -> Vec<String> {
    let heeded = serde_json::to_value(KubeletConfiguration::default()).unwrap_or_default();
    let names = value
        .as_object()
        .into_iter()
        .flat_map(|fields| fields.keys());
    let type_of = ["apiVersion", "kind"];
    names
        .filter(|name| !type_of.contains(&name.as_str()) && heeded.get(name.as_str()).is_none())
        .cloned()
        .collect()
}

fn checked(value: Value, path: &Path) -> Result<KubeletConfiguration, Error> {
    serde_json::from_value(value).map_err(|e| Error::File {
        path: path.to_owned(),
        cause: e.to_string(),
    })
}

/// The files of a drop-in directory: those that end in `.conf`, also in directories below, by name.
fn drop_ins(directory: Option<&Path>) -> Result<Vec<PathBuf>, Error> {
    let Some(directory) = directory else {
        return Ok(Vec::new());
    };
    let wrong = |cause: std::io::Error| Error::File {
        path: directory.to_owned(),
        cause: cause.to_string(),
    };
    let entries = std::fs::read_dir(directory).map_err(wrong)?;
    let mut entries = entries.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let mut found = Vec::new();
    for path in entries.into_iter().map(|entry| entry.path()) {
        if path.is_dir() {
            found.extend(drop_ins(Some(&path))?);
        } else if path.extension().is_some_and(|ending| ending == "conf") {
            found.push(path);
        }
    }
    Ok(found)
}

/// Upstream's rule for drop-ins is a JSON merge patch (RFC 7396): maps are merged, everything else is replaced.
fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (name, value) in from {
                match value {
                    Value::Null => drop(into.remove(&name)),
                    value => merge(into.entry(name).or_insert(Value::Null), value),
                }
            }
        }
        (into, from) => *into = from,
    }
}

/// What a kubelet without a file did before there were files.
fn legacy_defaults(value: &mut Value) {
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
    fn a_directory_adds_to_the_file_by_name_and_flags_win() {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: &str| {
            let path = directory.path().join(name);
            std::fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            std::fs::write(&path, text).expect("a file");
            path
        };
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let file = write(
            "config.yaml",
            &format!(
                "{head}maxPods: 10\nclusterDNS: [10.0.0.1, 10.0.0.2]\nkubeReserved: {{cpu: 100m, memory: 1Gi}}\n"
            ),
        );
        write("d/20.conf", &format!("{head}maxPods: 30\n"));
        write(
            "d/10.conf",
            &format!("{head}maxPods: 20\nclusterDNS: [10.0.0.3]\nkubeReserved: {{cpu: 200m}}\n"),
        );
        write("d/30.conf/a.conf", &format!("{head}registerNode: false\n"));
        write("d/40.yaml", "not: [looked at");
        let drop_ins = directory.path().join("d");
        let config = read(Some(&file), Some(&drop_ins), &[]).expect("good files");
        assert_eq!(config.max_pods, 30);
        assert_eq!(config.cluster_dns, ["10.0.0.3"]);
        assert_eq!(config.kube_reserved["cpu"], "200m");
        assert_eq!(config.kube_reserved["memory"], "1Gi");
        assert!(!config.register_node);
        let flags = [("max-pods".to_owned(), "40".to_owned())];
        let config = read(Some(&file), Some(&drop_ins), &flags).expect("good files");
        assert_eq!(config.max_pods, 40);
        let wrong = write("d/50.conf", &format!("{head}maxPods: many\n"));
        let error = read(Some(&file), Some(&drop_ins), &[]).expect_err("no number");
        assert!(
            error.to_string().contains(&wrong.display().to_string()),
            "{error}"
        );
    }

    #[test]
    fn a_field_that_nobody_knows_or_that_is_said_twice_is_an_error_with_its_place() {
        let directory = tempfile::tempdir().expect("a directory");
        let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
        let drop_ins = directory.path().join("d");
        std::fs::create_dir(&drop_ins).expect("a directory");
        let (file, drop_in) = (directory.path().join("k.yaml"), drop_ins.join("10.conf"));
        let cases = [
            (
                "maxPods: 3\n",
                "authentication: {x509: {caFile: /x}}\n",
                &drop_in,
                "authentication.x509.caFile",
            ),
            ("evictionhard: {}\n", "", &file, "evictionhard"),
            ("maxPods: 3\nport: 1\nmaxPods: 4\n", "", &file, "maxPods"),
            (
                "authorization: {mode: Webhook, mode: AlwaysAllow}\n",
                "",
                &file,
                "mode",
            ),
        ];
        for (in_file, in_drop_in, at, field) in cases {
            std::fs::write(&file, format!("{head}{in_file}")).expect("a file");
            std::fs::write(&drop_in, format!("{head}{in_drop_in}")).expect("a file");
            let error = read(Some(&file), Some(&drop_ins), &[]).expect_err(field);
            let text = error.to_string();
            assert!(
                text.contains(&at.display().to_string()) && text.contains(field),
                "{text}"
            );
        }
    }

    #[test]
    fn fields_without_effect_are_named() {
        let value = serde_json::json!({"kind": "x", "maxPods": 3, "cpuManagerPolicy": "static", "logging": {}});
        assert_eq!(unheeded(&value), ["cpuManagerPolicy", "logging"]);
    }

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
        let config = read(None, None, &flags).expect("flags are good");
        assert!(config.authentication.anonymous.enabled);
        assert_eq!(config.max_pods, 30);
        assert_eq!(config.cgroup_driver, "systemd");
        assert_eq!(config.eviction_hard["memory.available"], "750Mi");
        assert_eq!(config.cluster_dns, ["10.0.0.10"]);
    }

    #[test]
    fn who_looks_more_often_reports_more_often_unless_told_otherwise() {
        let report = |file: &str, frequency: &str| {
            let directory = tempfile::tempdir().expect("a directory");
            let path = directory.path().join("kubelet.yaml");
            let head = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";
            std::fs::write(&path, format!("{head}{file}")).expect("a file");
            let flag = (
                "node-status-update-frequency".to_owned(),
                frequency.to_owned(),
            );
            let config = read(Some(&path), None, &[flag]).expect("it can be read");
            config.node_status_report_frequency.0.as_secs()
        };
        assert_eq!(report("", "10s"), 300);
        assert_eq!(report("", "2s"), 2);
        assert_eq!(report("nodeStatusReportFrequency: 1m", "2s"), 60);
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
