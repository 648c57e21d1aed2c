//! The command line as upstream's kubelet takes it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::text::is_truth;
use super::{Error, Settings, label_is_allowed, read};

/// Flags that are not fields of the configuration file.
const OWN: [&str; 14] = [
    "config",
    "config-dir",
    "kubeconfig",
    "bootstrap-kubeconfig",
    "cert-dir",
    "root-dir",
    "hostname-override",
    "node-ip",
    "node-labels",
    "cloud-provider",
    "image-credential-provider-config",
    "image-credential-provider-bin-dir",
    "v",
    "volume-plugin-dir",
];

/// Reads the command line and the files it names. `hostname` is the machine's.
pub fn settings(words: &[String], hostname: &str) -> Result<Settings, Error> {
    let (mut own, mut fields) = (BTreeMap::new(), Vec::new());
    for (name, value) in pairs(words)? {
        match OWN.contains(&name.as_str()) {
            true => drop(own.insert(name, value)),
            false => fields.push((name, value)),
        }
    }
    let path = |name: &str| {
        own.get(name)
            .filter(|text| !text.is_empty())
            .map(PathBuf::from)
    };
    let config = read(
        path("config").as_deref(),
        path("config-dir").as_deref(),
        &fields,
    )?;
    let node_name = own.get("hostname-override").filter(|n| !n.is_empty());
    let root_dir = path("root-dir").unwrap_or_else(|| "/var/lib/kubelet".into());
    Ok(Settings {
        config,
        kubeconfig: path("kubeconfig"),
        bootstrap_kubeconfig: path("bootstrap-kubeconfig"),
        cert_dir: path("cert-dir").unwrap_or_else(|| root_dir.join("pki")),
        root_dir,
        node_name: node_name
            .map_or(hostname, String::as_str)
            .trim()
            .to_lowercase(),
        node_ips: list(own.get("node-ip")),
        node_labels: labels(own.get("node-labels"))?,
        external_cloud: own
            .get("cloud-provider")
            .is_some_and(|name| name == "external"),
        credential_provider: path("image-credential-provider-config")
            .zip(path("image-credential-provider-bin-dir")),
    })
}

fn list(text: Option<&String>) -> Vec<String> {
    let parts = text.map(String::as_str).unwrap_or_default().split(',');
    parts
        .map(str::trim)
        .filter(|part| !part.is_empty())
        .map(str::to_owned)
        .collect()
}

fn labels(text: Option<&String>) -> Result<BTreeMap<String, String>, Error> {
    let mut labels = BTreeMap::new();
    for part in list(text) {
        let (key, value) = part.split_once('=').unwrap_or((&part, ""));
        if !label_is_allowed(key) {
            return Err(Error::Flag {
                flag: "node-labels".to_owned(),
                value: part.clone(),
                cause: "a node may not give itself labels of kubernetes.io and k8s.io but the few that are its own"
                    .to_owned(),
            });
        }
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(labels)
}

/// `--name=value`, `--name value`, or `--name` alone where that is true or false.
fn pairs(words: &[String]) -> Result<Vec<(String, String)>, Error> {
    let mut pairs = Vec::new();
    let mut words = words.iter().peekable();
    while let Some(word) = words.next() {
        // systemd leaves empty words where variables are empty.
        if word.is_empty() {
            continue;
        }
        let Some(flag) = word.strip_prefix("--").or_else(|| word.strip_prefix('-')) else {
            return Err(Error::Flag {
                flag: String::new(),
                value: word.clone(),
                cause: "a flag begins with --".to_owned(),
            });
        };
        let (name, value) = match flag.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None if is_truth(flag) => (flag, "true".to_owned()),
            None => {
                let value = words.next_if(|next| !next.starts_with("--"));
                (flag, value.cloned().unwrap_or_else(|| "true".to_owned()))
            }
        };
        pairs.push((name.to_owned(), value));
    }
    Ok(pairs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Settings, Error> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        settings(&words, "Machine")
    }

    #[test]
    fn the_line_of_a_systemd_unit_is_read() {
        let settings = parsed(
            "--enable-server --node-labels=agentpool=a,kubernetes.azure.com/mode=user --v=2  \
             --volume-plugin-dir=/etc/kubernetes/volumeplugins --kubeconfig /var/lib/kubelet/kubeconfig \
             --bootstrap-kubeconfig=/b --container-runtime-endpoint=unix:///run/containerd/containerd.sock \
             --node-ip=10.0.0.4 --pod-infra-container-image=x --max-pods=30 --cloud-provider=external",
        )
        .expect("settings");
        assert_eq!(settings.node_name, "machine");
        assert_eq!(settings.node_ips, ["10.0.0.4"]);
        assert_eq!(settings.node_labels.len(), 2);
        assert_eq!(settings.config.max_pods, 30);
        assert!(settings.external_cloud);
        assert_eq!(settings.cert_dir, PathBuf::from("/var/lib/kubelet/pki"));
    }

    #[test]
    fn a_node_may_not_take_others_labels() {
        let error = parsed("--node-labels=node-role.kubernetes.io/master=").expect_err("refused");
        assert!(error.to_string().contains("--node-labels="), "{error}");
    }
}
