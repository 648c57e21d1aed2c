//! Kernel settings of a node.

use std::collections::BTreeMap;

use crate::config::Configuration;

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

/// On every node, whatever the configuration says.
const ALWAYS: [(&str, &str); 3] = [
    ("net.core.message_burst", "80"),
    ("net.core.message_cost", "40"),
    ("net.ipv4.tcp_retries2", "8"),
];

/// Unless the configuration says otherwise.
const DEFAULTS: [(&str, &str); 5] = [
    ("net.core.somaxconn", "16384"),
    ("net.ipv4.neigh.default.gc_thresh1", "4096"),
    ("net.ipv4.neigh.default.gc_thresh2", "8192"),
    ("net.ipv4.neigh.default.gc_thresh3", "16384"),
    ("net.ipv4.tcp_max_syn_backlog", "16384"),
];

/// The port of Azure's health probe inside nodes, which no outgoing connection may take.
const PROBE_PORT: u32 = 65330;

/// The settings in the order of their names.
pub fn settings(config: &Configuration) -> BTreeMap<&'static str, String> {
    let mut settings: BTreeMap<&str, String> =
        DEFAULTS.map(|(name, value)| (name, value.to_owned())).into();
    settings.extend(asked(config));
    settings.extend(ALWAYS.map(|(name, value)| (name, value.to_owned())));
    settings
}

/// The text of a file of settings.
pub fn file<'a>(settings: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    settings.into_iter().map(|(name, value)| format!("{name}={value}\n")).collect()
}

/// What the configuration asks for itself.
pub fn asked(config: &Configuration) -> BTreeMap<&'static str, String> {
    let wish = &config.custom_linux_os_config.sysctl_config;
    let numbers = [
        ("net.core.somaxconn", wish.net_core_somaxconn),
        ("net.core.netdev_max_backlog", wish.net_core_netdev_max_backlog),
        ("net.core.rmem_default", wish.net_core_rmem_default),
        ("net.core.rmem_max", wish.net_core_rmem_max),
        ("net.core.wmem_default", wish.net_core_wmem_default),
        ("net.core.wmem_max", wish.net_core_wmem_max),
        ("net.core.optmem_max", wish.net_core_optmem_max),
        ("net.ipv4.tcp_max_syn_backlog", wish.net_ipv4_tcp_max_syn_backlog),
        ("net.ipv4.tcp_max_tw_buckets", wish.net_ipv4_tcp_max_tw_buckets),
        ("net.ipv4.tcp_fin_timeout", wish.net_ipv4_tcp_fin_timeout),
        ("net.ipv4.tcp_keepalive_time", wish.net_ipv4_tcp_keepalive_time),
        ("net.ipv4.tcp_keepalive_probes", wish.net_ipv4_tcp_keepalive_probes),
        ("net.ipv4.tcp_keepalive_intvl", wish.net_ipv4_tcpkeepalive_intvl),
        ("net.ipv4.tcp_tw_reuse", wish.net_ipv4_tcp_tw_reuse.map(i32::from)),
        ("net.ipv4.neigh.default.gc_thresh1", wish.net_ipv4_neigh_default_gc_thresh1),
        ("net.ipv4.neigh.default.gc_thresh2", wish.net_ipv4_neigh_default_gc_thresh2),
        ("net.ipv4.neigh.default.gc_thresh3", wish.net_ipv4_neigh_default_gc_thresh3),
        ("net.netfilter.nf_conntrack_max", wish.net_netfilter_nf_conntrack_max),
        ("net.netfilter.nf_conntrack_buckets", wish.net_netfilter_nf_conntrack_buckets),
        ("fs.inotify.max_user_watches", wish.fs_inotify_max_user_watches),
        ("fs.file-max", wish.fs_file_max),
        ("fs.aio-max-nr", wish.fs_aio_max_nr),
        ("fs.nr_open", wish.fs_nr_open),
        ("kernel.threads-max", wish.kernel_threads_max),
        ("vm.max_map_count", wish.vm_max_map_count),
        ("vm.swappiness", wish.vm_swappiness),
        ("vm.vfs_cache_pressure", wish.vm_vfs_cache_pressure),
    ];
    let given = numbers.into_iter().filter_map(|(name, value)| Some((name, value?.to_string())));
    let mut asked: BTreeMap<&str, String> = given.collect();
    if let Some(range) = &wish.net_ipv4_ip_local_port_range {
        asked.insert("net.ipv4.ip_local_port_range", range.clone());
        if covers_probe_port(range) {
            asked.insert("net.ipv4.ip_local_reserved_ports", PROBE_PORT.to_string());
        }
    }
    asked
}

fn covers_probe_port(range: &str) -> bool {
    let ends: Vec<u32> = range.split_whitespace().filter_map(|end| end.parse().ok()).collect();
    matches!(ends[..], [low, high] if 0 < low && low < high && high > PROBE_PORT)
}

#[cfg(test)]
mod tests;
