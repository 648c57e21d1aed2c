//! Kernel settings: what was asked for, and what every node gets.

use std::collections::BTreeMap;

use crate::config::SysctlConfig;

/// A port range that goes past this port needs it reserved.
const RESERVED_PORT: i64 = 65330;

type Setting = (&'static str, fn(&SysctlConfig) -> Option<String>);

macro_rules! settings {
    ($($key:literal: $field:ident $(= $default:literal)?;)*) => {
        &[$(($key, |config| setting!(config.$field $(, $default)?))),*]
    };
}

macro_rules! setting {
    ($value:expr, $default:literal) => {
        Some($value.unwrap_or($default).to_string())
    };
    ($value:expr) => {
        $value.map(|value| value.to_string())
    };
}

/// Each setting, the field it follows, and the default where there is one.
const SETTINGS: &[Setting] = settings! {
    "fs.aio-max-nr": fs_aio_max_nr;
    "fs.file-max": fs_file_max;
    "fs.inotify.max_user_watches": fs_inotify_max_user_watches;
    "fs.nr_open": fs_nr_open;
    "kernel.threads-max": kernel_threads_max;
    "net.core.netdev_max_backlog": net_core_netdev_max_backlog;
    "net.core.optmem_max": net_core_optmem_max;
    "net.core.rmem_default": net_core_rmem_default;
    "net.core.rmem_max": net_core_rmem_max;
    "net.core.somaxconn": net_core_somaxconn = 16384;
    "net.core.wmem_default": net_core_wmem_default;
    "net.core.wmem_max": net_core_wmem_max;
    "net.ipv4.neigh.default.gc_thresh1": net_ipv4_neigh_default_gc_thresh1 = 4096;
    "net.ipv4.neigh.default.gc_thresh2": net_ipv4_neigh_default_gc_thresh2 = 8192;
    "net.ipv4.neigh.default.gc_thresh3": net_ipv4_neigh_default_gc_thresh3 = 16384;
    "net.ipv4.tcp_fin_timeout": net_ipv4_tcp_fin_timeout;
    "net.ipv4.tcp_keepalive_intvl": net_ipv4_tcpkeepalive_intvl;
    "net.ipv4.tcp_keepalive_probes": net_ipv4_tcp_keepalive_probes;
    "net.ipv4.tcp_keepalive_time": net_ipv4_tcp_keepalive_time;
    "net.ipv4.tcp_max_syn_backlog": net_ipv4_tcp_max_syn_backlog = 16384;
    "net.ipv4.tcp_max_tw_buckets": net_ipv4_tcp_max_tw_buckets;
    "net.netfilter.nf_conntrack_buckets": net_netfilter_nf_conntrack_buckets;
    "net.netfilter.nf_conntrack_max": net_netfilter_nf_conntrack_max;
    "vm.max_map_count": vm_max_map_count;
    "vm.swappiness": vm_swappiness;
    "vm.vfs_cache_pressure": vm_vfs_cache_pressure;
};

/// What every node gets and nobody can change.
const ALWAYS: &[(&str, &str)] = &[
    ("net.core.message_burst", "80"),
    ("net.core.message_cost", "40"),
    ("net.ipv4.tcp_retries2", "8"),
];

/// Every setting with its value, by name.
pub fn settings(config: &SysctlConfig) -> BTreeMap<&'static str, String> {
    let always = ALWAYS.iter().map(|&(key, value)| (key, value.to_owned()));
    let asked = SETTINGS
        .iter()
        .filter_map(|(key, value)| Some((*key, value(config)?)));
    let mut settings: BTreeMap<_, _> = always.chain(asked).collect();
    if let Some(reuse) = config.net_ipv4_tcp_tw_reuse {
        settings.insert("net.ipv4.tcp_tw_reuse", i32::from(reuse).to_string());
    }
    let range = config
        .net_ipv4_ip_local_port_range
        .as_deref()
        .unwrap_or_default();
    if !range.is_empty() {
        settings.insert("net.ipv4.ip_local_port_range", range.to_owned());
        if port_range(range).is_some_and(|(_, end)| end > RESERVED_PORT) {
            settings.insert(
                "net.ipv4.ip_local_reserved_ports",
                RESERVED_PORT.to_string(),
            );
        }
    }
    settings
}

/// The settings as a file of `/etc/sysctl.d`.
pub fn file(config: &SysctlConfig) -> String {
    let lines = settings(config).into_iter();
    lines
        .map(|(key, value)| format!("{key}={value}\n"))
        .collect()
}

/// The two ends of a port range `low high`, where it is one.
pub fn port_range(text: &str) -> Option<(i64, i64)> {
    let (start, end) = text.split_once(' ')?;
    let (start, end): (i64, i64) = (start.parse().ok()?, end.parse().ok()?);
    (start > 0 && start < end).then_some((start, end))
}
