//! The kubelet's own configuration file: the producer's fields in the contract's order. The node
//! adds no defaults: the producer sends the final form.

use super::kubelet::{Serving, serving, tolerates_cgroup_v1};
use crate::config::Configuration;
use crate::config::encode::{KUBELET_FILE, encode};
use crate::machine::Machine;

/// Three lifetimes have names in the contract that no kubelet knows.
const SPELLINGS: [(&str, &str); 3] = [
    ("\"cacheTtl\":", "\"cacheTTL\":"),
    ("\"cacheAuthorizedTtl\":", "\"cacheAuthorizedTTL\":"),
    ("\"cacheUnauthorizedTtl\":", "\"cacheUnauthorizedTTL\":"),
];

/// The `KubeletConfiguration` of this node.
pub fn config_file(config: &Configuration, machine: &Machine) -> String {
    let mut file = config.kubelet_config.kubelet_config_file_config.clone();
    let mut refusals = Vec::new();
    match serving(config, machine) {
        Serving::Rotated => {
            file.tls_cert_file.clear();
            file.tls_private_key_file.clear();
        }
        Serving::ForcedSelfSigned => {
            file.server_tls_bootstrap = false;
            refusals.push("serverTLSBootstrap");
        }
        Serving::SelfSigned => {}
    }
    if tolerates_cgroup_v1(config, machine) {
        refusals.push("failCgroupV1");
    }
    let mut text = encode(&*file, KUBELET_FILE);
    for (sent, known) in SPELLINGS {
        text = text.replace(sent, known);
    }
    for name in refusals {
        text = with_refusal(&text, name);
    }
    text + "\n"
}

/// The contract leaves out what is false; said aloud, it goes first.
fn with_refusal(object: &str, name: &str) -> String {
    let rest = object.trim_start_matches('{');
    let rest = if rest == "}" {
        "\n}".to_owned()
    } else {
        format!(",{rest}")
    };
    format!("{{\n    \"{name}\": false{rest}")
}
