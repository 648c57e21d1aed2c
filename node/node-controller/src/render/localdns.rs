//! The DNS server on the node: its Corefile, its environment and its limits.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use crate::config::Configuration;
pub use crate::environment::corefile::corefile;

/// The Corefile in use.
pub const COREFILE: &str = "/opt/azure/containers/localdns/localdns.corefile";
/// What the unit reads: both Corefiles, so that it can choose at each start.
pub const ENVIRONMENT: &str = "/etc/localdns/environment";
/// Names that must resolve whatever happens, filled in by a timer.
pub const HOSTS: &str = "/etc/localdns/hosts";
/// The unit's slice.
pub const SLICE: &str = "/etc/systemd/system/localdns.slice";

/// Whether names come from the hosts file first.
pub fn uses_hosts(config: &Configuration) -> bool {
    let profile = &config.local_dns_profile;
    profile.enable_local_dns && profile.enable_hosts_plugin
}

/// The unit's environment; the first key is the one old images know.
pub fn environment(config: &Configuration) -> String {
    let base = STANDARD.encode(corefile(config, false));
    let hosts = STANDARD.encode(corefile(config, true));
    let names: Vec<&str> = config
        .local_dns_profile
        .critical_fqdns
        .iter()
        .map(|name| name.trim())
        .collect();
    format!(
        "LOCALDNS_BASE64_ENCODED_COREFILE={base}\nLOCALDNS_COREFILE_BASE={base}\n\
         LOCALDNS_COREFILE_WITH_HOSTS={hosts}\nSHOULD_ENABLE_HOSTS_PLUGIN={}\n\
         LOCALDNS_CRITICAL_FQDNS={}\n",
        uses_hosts(config),
        names.join(",")
    )
}

/// The unit's slice with its limits.
pub fn slice(config: &Configuration) -> String {
    let profile = &config.local_dns_profile;
    let memory = profile.memory_limit_in_mb.unwrap_or(128);
    let cores = f64::from(profile.cpu_limit_in_milli_cores.unwrap_or(2000)) / 10.0;
    format!(
        "[Unit]\nDescription=localdns Slice\nDefaultDependencies=no\nBefore=slices.target\n\
         Requires=system.slice\nAfter=system.slice\n[Slice]\nMemoryMax={memory}M\nCPUQuota={cores:.1}%\n"
    )
}
