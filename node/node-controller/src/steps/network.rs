//! The network of the node and of its pods.

use ::steps::engine::{Change, Check, Failure, Goal, Scene, Unit};
use ::steps::host::Command;

use super::{Changes, observe};
use crate::config::{Configuration, NetworkPlugin, NetworkPolicy};
use crate::render::{cni, units};

const SEARCH_DOMAIN_SCRIPT: &str = "/opt/azure/containers/setup-custom-search-domains.sh";

/// Ubuntu's stub resolver is bypassed: pods inherit the file, and cannot reach the stub.
pub(super) fn resolver(_: &Configuration, scene: &Scene<'_>) -> Changes {
    const UPLINK: &str = "/run/systemd/resolve/resolv.conf";
    let ubuntu = observe::distribution(scene).is_ubuntu();
    let present = ubuntu && scene.host.files().exists(UPLINK);
    Ok(present
        .then(|| Change::link("/etc/resolv.conf", UPLINK))
        .into_iter()
        .collect())
}

/// Modules the pod network needs, and Azure's conflist where the plugin brought one.
pub(super) fn cni(config: &Configuration, scene: &Scene<'_>) -> Changes {
    const SHIPPED: &str = "/opt/cni/bin/10-azure.conflist";
    let mut changes = vec![
        module("br_netfilter", "/proc/sys/net/bridge"),
        module("nf_conntrack", "/proc/sys/net/netfilter/nf_conntrack_max"),
        Change::file(
            "/etc/modules-load.d/br_netfilter.conf",
            0o644,
            "br_netfilter\n",
        ),
        Change::file(
            "/etc/modules-load.d/nf_conntrack.conf",
            0o644,
            "nf_conntrack\n",
        ),
    ];
    if config.network_config.network_plugin == NetworkPlugin::Azure {
        let calico = config.network_config.network_policy == NetworkPolicy::Calico;
        changes.extend(observe::read_text(scene, SHIPPED).map(|shipped| {
            let text = cni::azure_conflist(&shipped, calico);
            Change::file("/etc/cni/net.d/10-azure.conflist", 0o600, text)
        }));
    }
    Ok(changes)
}

/// A kernel module, known by something that only exists with it.
fn module(name: &str, sign: &str) -> Change {
    let load = Command::new("modprobe", &[name]);
    Change::command(format!("load {name}"), Check::Exists(sign.into()), load)
}

/// IPv6 beside IPv4.
pub(super) fn dual_stack(_: &Configuration, scene: &Scene<'_>) -> Changes {
    let mut changes = vec![module("ip6_tables", "/proc/net/ip6_tables_names")];
    if observe::has_unit(scene, "dhcpv6.service") {
        changes.push(Change::running_unit("dhcpv6.service", &[]));
    }
    Ok(changes)
}

/// The reconciler of a private cluster's name in the hosts file, which the image brings.
pub(super) fn private_hosts(config: &Configuration, scene: &Scene<'_>) -> Changes {
    const UNIT: &str = "reconcile-private-hosts.service";
    const DROP_IN: &str = "/etc/systemd/system/reconcile-private-hosts.service.d/10-fqdn.conf";
    if !observe::has_unit(scene, UNIT) {
        return Err(Failure::permanent(
            format!("`enable_hosts_config_agent` needs {UNIT}, which this image does not have"),
            "use an image that has it, or link the private DNS zone and set the field to false",
        ));
    }
    let name = &config.api_server_config.api_server_name;
    let text = format!("[Service]\nEnvironment=\"KUBE_API_SERVER_NAME={name}\"\n");
    Ok(vec![
        Change::file(DROP_IN, 0o644, text),
        Change::running_unit(UNIT, &[DROP_IN]),
    ])
}

/// Whether the machine joins a domain.
pub(super) fn has_search_domain(config: &Configuration) -> bool {
    let wish = &config.custom_search_domain_config;
    !wish.domain_name.is_empty() && !wish.realm_user.is_empty() && !wish.realm_password.is_empty()
}

/// Joins it with the image's script. The password goes through a pipe: an environment shows in
/// the journal, arguments show in the process list.
pub(super) fn search_domain(config: &Configuration, scene: &Scene<'_>) -> Changes {
    if !scene.host.files().exists(SEARCH_DOMAIN_SCRIPT) {
        return Err(Failure::permanent(
            format!(
                "`custom_search_domain_config` needs {SEARCH_DOMAIN_SCRIPT}, which this image does not have"
            ),
            "use an image that has it, or leave `custom_search_domain_config` out",
        ));
    }
    let wish = &config.custom_search_domain_config;
    let script = "IFS= read -r CUSTOM_SEARCH_REALM_PASSWORD; export CUSTOM_SEARCH_REALM_PASSWORD; \
                  exec /bin/bash \"$1\"";
    let command = Command::new("sh", &["-c", script, "sh", SEARCH_DOMAIN_SCRIPT])
        .with_variable("CUSTOM_SEARCH_DOMAIN_NAME", &wish.domain_name)
        .with_variable("CUSTOM_SEARCH_REALM_USER", &wish.realm_user)
        .reading(format!("{}\n", wish.realm_password.reveal()))
        .at_most(scene.remaining());
    let check = Check::Inputs {
        paths: vec![SEARCH_DOMAIN_SCRIPT.into()],
        per_boot: false,
    };
    Ok(vec![Change::command(
        format!("join {}", wish.domain_name),
        check,
        command,
    )])
}

/// Interfaces after the first, by the addresses the metadata service knows them by.
pub(super) fn secondary_interfaces(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let Some(metadata) = observe::metadata(config, scene) else {
        let planned = scene.planning.then(Vec::new);
        return planned.ok_or_else(|| {
            Failure::permanent(
                "secondary interfaces are known only to the instance metadata service, which was not asked",
                "set `cluster_config.use_instance_metadata`, or `network_config.standard_secondary_nic_count` to 0",
            )
        });
    };
    let path = |n: usize| format!("/etc/netplan/60-secondary-nic-{n}.yaml");
    let mut changes: Vec<Change> = metadata
        .secondary
        .iter()
        .enumerate()
        .map(|(n, nic)| (n + 1, nic))
        .map(|(n, nic)| {
            Change::file(
                path(n),
                0o600,
                cni::secondary_interface(n, &nic.mac, nic.ipv6),
            )
        })
        .collect();
    if !changes.is_empty() {
        let check = Check::Inputs {
            paths: vec!["/etc/netplan".into()],
            per_boot: false,
        };
        changes.push(Change::command(
            "apply netplan",
            check,
            Command::new("netplan", &["apply"]),
        ));
    }
    Ok(changes)
}

/// kubenet's bridge is promiscuous and hears its own pods twice.
pub(super) fn no_duplicates(_: &Configuration, scene: &Scene<'_>) -> Changes {
    const UNIT: &str = "ensure-no-dup.service";
    const SCRIPT: &str = "/opt/azure/containers/ensure-no-dup.sh";
    let mut changes = Vec::new();
    if let Some(unit) = observe::own_unit(scene, UNIT, units::no_duplicates()) {
        changes.push(Change::file(SCRIPT, 0o755, units::NO_DUPLICATES_SCRIPT));
        changes.push(unit);
    }
    changes.push(Change::Unit(Unit {
        name: UNIT.to_owned(),
        enabled: Some(true),
        goal: Goal::Ran,
        inputs: vec![SCRIPT.into()],
        no_block: true,
    }));
    Ok(changes)
}
