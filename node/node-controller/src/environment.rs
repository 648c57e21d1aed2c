//! Env mode, for nodes that still carry the provisioning scripts: the variables those scripts read and the
//! command that starts them, with the values that upstream's parser gives them.

pub mod containerd;
pub mod corefile;
pub mod gpu;
mod scripts;
pub mod sysctl;
mod table;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::config::predicates::without_dead_settings;
use crate::config::{Configuration, encode};

pub use scripts::{Scripts, command};

/// What of the node, besides its configuration, decides values.
#[derive(Debug, Clone)]
pub struct Host {
    /// How its containerd wants to be configured.
    pub containerd: containerd::Layout,
    /// The driver images its image knows; none where it has no `components.json`.
    pub drivers: gpu::DriverImages,
}

/// A variable of the scripts' environment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// Its value.
    pub value: String,
    /// Whether nobody may print the value.
    pub is_secret: bool,
}

/// Every variable, in the order of names.
pub fn variables(config: &Configuration, host: &Host) -> Vec<Variable> {
    let config = &without_dead_settings(config);
    let fixed = table::VARIABLES.iter().map(|row| {
        let value = (row.value)(config, host);
        Variable {
            name: row.name.to_owned(),
            is_secret: row.is_secret || is_signed_url(&value),
            value,
        }
    });
    let certificates = config.custom_ca_certs.iter().enumerate();
    let certificates = certificates.map(|(index, certificate)| Variable {
        name: format!("CUSTOM_CA_CERT_{index}"),
        value: one_line(certificate),
        is_secret: false,
    });
    let mut all: Vec<_> = fixed.chain(certificates).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

/// Whether it is a URL with something to keep from others: a password or a signature.
fn is_signed_url(text: &str) -> bool {
    let rest = text.split_once("://").map(|(_, rest)| rest);
    rest.is_some_and(|rest| rest.contains(['@', '?']))
}

/// The kubelet's configuration file; empty where nothing is said of the kubelet.
pub fn kubelet_file(config: &Configuration) -> String {
    if config.kubelet_config.is_present() {
        encode::encode(
            &*config.kubelet_config.kubelet_config_file_config,
            encode::KUBELET_FILE,
        )
    } else {
        String::new()
    }
}

/// The region's name as clouds compare it: lower case, no spaces.
fn location(config: &Configuration) -> String {
    let words: String = config.cluster_config.location.split_whitespace().collect();
    words.to_lowercase()
}

fn one_line(text: &str) -> String {
    text.replace(['\n', '\r'], "")
}

fn base64(text: &str) -> String {
    STANDARD.encode(text)
}

#[cfg(test)]
mod tests;
