//! Kernel settings of a node.

use std::collections::BTreeMap;

use crate::config::{Configuration, SysctlConfig};
pub use crate::environment::sysctl::settings;

/// The file that keeps them over a reboot.
pub const FILE: &str = "/etc/sysctl.d/999-sysctl-aks.conf";
/// The file with what pods need to be forwarded.
pub const FORWARDING_FILE: &str = "/etc/sysctl.d/99-force-bridge-forward.conf";
/// The file with what the kubelet insists on when it protects kernel defaults.
pub const PROTECTED_FILE: &str = "/etc/sysctl.d/60-kubelet-protected.conf";

/// What pods need to be forwarded and filtered.
pub const FORWARDING: [(&str, &str); 4] = [
    ("net.ipv4.ip_forward", "1"),
    ("net.ipv4.conf.all.forwarding", "1"),
    ("net.ipv6.conf.all.forwarding", "1"),
    ("net.bridge.bridge-nf-call-iptables", "1"),
];

/// What a kubelet with `protectKernelDefaults` finds, or does not start. AKS images bring these.
pub const PROTECTED: [(&str, &str); 6] = [
    ("kernel.keys.root_maxbytes", "25000000"),
    ("kernel.keys.root_maxkeys", "1000000"),
    ("kernel.panic", "10"),
    ("kernel.panic_on_oops", "1"),
    ("vm.overcommit_memory", "1"),
    ("vm.panic_on_oom", "0"),
];

/// What the configuration asks for beyond what every node gets.
pub fn asked(config: &Configuration) -> BTreeMap<&'static str, String> {
    let default = settings(&SysctlConfig::default());
    let mut asked = settings(&config.custom_linux_os_config.sysctl_config);
    asked.retain(|name, value| default.get(name) != Some(value));
    asked
}

/// The text of a file of settings.
pub fn file(settings: &[(&str, &str)]) -> String {
    settings
        .iter()
        .map(|(name, value)| format!("{name}={value}\n"))
        .collect()
}
