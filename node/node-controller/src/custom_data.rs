//! What a client puts on a machine so that it becomes a node: custom data that carries the configuration, and
//! the command that waits for the result. Upstream's `nodeconfigutils`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

use crate::config::{Configuration, encode};

/// The command of the custom script extension: waits and prints the result.
pub const CSE_COMMAND: &str = "/opt/azure/containers/aks-node-controller provision-wait";

/// Where the node finds its configuration.
pub const CONFIG_PATH: &str = "/opt/azure/containers/aks-node-controller-config.json";

/// Where the launcher finds its environment.
pub const FEATURES_PATH: &str = "/opt/azure/containers/enabled_features.sh";

/// What the service takes of custom data, in characters of base64.
pub const LARGEST: usize = 87_380;

/// How the machine reads custom data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// cloud-init runs a boothook that writes the configuration and starts the node controller at once.
    Boothook,
    /// cloud-init writes the configuration; the node controller's unit starts after it.
    WriteFiles,
    /// Ignition writes the configuration: Flatcar and Azure Container Linux.
    Ignition,
}

/// Custom data that the service would not take.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the custom data has {size} characters and at most {LARGEST} are taken; take out what is large \
     (CA certificates, local DNS overrides) or send it another way"
)]
pub struct TooLarge {
    /// Its size in characters of base64.
    pub size: usize,
}

/// The custom data for `config`, in base64. The same configuration gives the same text.
pub fn custom_data(config: &Configuration, form: Form) -> Result<String, TooLarge> {
    let json = marshal(config);
    let features = features(config);
    let text = match form {
        Form::Boothook => multipart(&boothook(&json, &features)),
        Form::WriteFiles => write_files(&json, &features),
        Form::Ignition => ignition(&json),
    };
    let encoded = STANDARD.encode(text);
    match encoded.len() {
        size if size > LARGEST => Err(TooLarge { size }),
        _ => Ok(encoded),
    }
}

/// The configuration as the node reads it; secrets included.
pub fn marshal(config: &Configuration) -> String {
    encode::encode(config, encode::NODE_CONFIG)
}

/// The lines of the features file: what the launcher can take of `enabled_features`, by name.
fn features(config: &Configuration) -> String {
    let usable = config.enabled_features.iter();
    let usable = usable.filter(|(key, value)| is_usable_feature(key, value));
    usable
        .map(|(key, value)| format!("{key}={value}\n"))
        .collect()
}

/// Whether the launcher can take it: a shell variable's name and a value of one line.
pub(crate) fn is_usable_feature(key: &str, value: &str) -> bool {
    let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let starts = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts && key.bytes().all(is_name) && !value.contains(['\n', '\r'])
}

/// The script that cloud-init runs first of all. Files are private from the start, not from a chmod on.
fn boothook(json: &str, features: &str) -> String {
    let config = STANDARD.encode(json);
    let features = match features {
        "" => String::new(),
        lines => format!("cat >{FEATURES_PATH} <<'END'\n{lines}END\nchmod 0600 {FEATURES_PATH}\n"),
    };
    format!(
        r#"#cloud-boothook
#!/bin/bash
set -euo pipefail
say() {{ logger -t aks-boothook "$1 $(date -Ins)"; }}
say "writing the node configuration"
mkdir -p {CONTAINERS} /var/log/azure
if [ -f {CONTAINERS}/provision_preload.sh ]; then
	nohup /bin/bash {CONTAINERS}/provision_preload.sh >/dev/null 2>&1 &
fi
umask 077
base64 -d >{CONFIG_PATH} <<'END'
{config}
END
chmod 0600 {CONFIG_PATH}
{features}umask 022
say "starting the node controller"
if [ -f {CONTAINERS}/aks-node-controller-launcher.sh ]; then
	nohup /bin/bash {CONTAINERS}/aks-node-controller-launcher.sh >/var/log/azure/aks-node-controller.output 2>&1 &
else
	systemctl start --no-block aks-node-controller.service
fi
"#
    )
}

const CONTAINERS: &str = "/opt/azure/containers";

const CLOUD_CONFIG: &str =
    "#cloud-config\nruncmd:\n- echo \"node controller, cloud-init done at $(date)\"\n";

/// Two parts: the boothook, and a cloud-config that says when cloud-init was done. The boundary follows from the
/// content, so that nothing changes by chance.
fn multipart(boothook: &str) -> String {
    let digest = Sha256::digest(boothook);
    let hex: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let boundary = &hex[..60];
    let head = format!(
        "MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary=\"{boundary}\"\r\n\r\n"
    );
    let part = |kind: &str, body: &str| {
        format!(
            "--{boundary}\r\nContent-Transfer-Encoding: 7bit\r\nContent-Type: {kind}\r\nMime-Version: 1.0\r\n\r\n{body}\r\n"
        )
    };
    let boothook = part("text/cloud-boothook", boothook);
    let cloud_config = part("text/cloud-config", CLOUD_CONFIG);
    format!("{head}{boothook}{cloud_config}--{boundary}--\r\n")
}

/// The older form. Upstream gave the file mode 0755, which lets everybody read the token.
fn write_files(json: &str, features: &str) -> String {
    let file = |path: &str, content: &str| {
        let content = STANDARD.encode(content);
        format!(
            "- path: {path}\n  permissions: \"0600\"\n  owner: root\n  content: !!binary |\n   {content}\n"
        )
    };
    let config = file(CONFIG_PATH, json);
    let features = match features {
        "" => String::new(),
        lines => file(FEATURES_PATH, lines),
    };
    format!("#cloud-config\nwrite_files:\n{config}{features}")
}

fn ignition(json: &str) -> String {
    let source = format!("data:;base64,{}", STANDARD.encode(json));
    let file =
        serde_json::json!({"path": CONFIG_PATH, "mode": 0o600, "contents": {"source": source}});
    let document =
        serde_json::json!({"ignition": {"version": "3.4.0"}, "storage": {"files": [file]}});
    document.to_string()
}

#[cfg(test)]
mod tests;
