//! The network of the node and of its pods.

use super::{Changes, observe};
use crate::config::{Configuration, NetworkPlugin, NetworkPolicy};
use crate::engine::{Change, Check, CommandChange, Failure, Scene};
use crate::host::Command;
use crate::render::{cni, firewall, units};

const SEARCH_DOMAIN_SCRIPT: &str = "/opt/azure/containers/setup-custom-search-domains.sh";
const PRIMARY_NIC_IP_NOT_FOUND: u8 = 173;
const INSERT_INTO_MANGLE: u8 = 174;
const INSERT_INTO_FILTER: u8 = 175;

/// Directories that others than us write to.
pub(super) fn directories(_: &Configuration, _: &Scene<'_>) -> Changes {
    const DIRECTORIES: [&str; 11] = [
        "/etc/cni/net.d",
        "/etc/containerd",
        "/etc/kubernetes/certs",
        "/etc/kubernetes/manifests",
        "/etc/kubernetes/volumeplugins",
        "/etc/systemd/system/kubelet.service.d",
        "/opt/azure/containers",
        "/opt/bin",
        "/opt/cni/bin",
        "/var/lib/cni",
        "/var/lib/kubelet",
    ];
    Ok(DIRECTORIES
        .into_iter()
        .map(|path| Change::directory(path, 0o755))
        .collect())
}

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

/// The rule that keeps pods from the metadata service, now; the kubelet's unit puts it back after
/// a reboot.
pub(super) fn imds_restriction(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let wish = &config.imds_restriction_config;
    let primary = observe::machine_with_addresses(config, scene)
        .addresses
        .into_iter()
        .next();
    let Some(primary) = primary else {
        if !wish.enable_imds_restriction || scene.planning {
            return Ok(Vec::new());
        }
        return Err(Failure::new(
            "the restriction of the metadata service spares the machine's own address, which is not known",
            "check that the machine has a default route (`ip route`)",
        )
        .with_code(PRIMARY_NIC_IP_NOT_FOUND));
    };
    let iptables = observe::has_program(scene, "iptables");
    if !wish.enable_imds_restriction {
        let tables = firewall::TABLES.into_iter().filter(|_| iptables);
        return Ok(tables.map(|table| without_rule(table, &primary)).collect());
    }
    let mangle = wish.insert_imds_restriction_rule_to_mangle_table;
    if iptables {
        return Ok(vec![with_rule(
            if mangle { "mangle" } else { "filter" },
            &primary,
        )]);
    }
    if !observe::has_program(scene, "nft") && !scene.planning {
        let code = if mangle {
            INSERT_INTO_MANGLE
        } else {
            INSERT_INTO_FILTER
        };
        return Err(Failure::permanent(
            "pods cannot be kept from the metadata service: neither iptables nor nft is installed",
            "install iptables, or set `imds_restriction_config.enable_imds_restriction` to false",
        )
        .with_code(code));
    }
    Ok(vec![with_nft_rule(&primary, mangle)])
}

fn with_rule(table: &str, primary: &str) -> Change {
    Change::Command(CommandChange {
        name: format!("keep pods from the metadata service ({table})"),
        check: Check::Succeeds(iptables(table, &["-C", "FORWARD"], primary)),
        apply: iptables(table, &["-I", "FORWARD", "1"], primary),
        undo: Some(iptables(table, &["-D", "FORWARD"], primary)),
    })
}

fn with_nft_rule(primary: &str, mangle: bool) -> Change {
    let table = firewall::NFT_TABLE;
    let rules = firewall::imds_rules(primary, mangle);
    let present = "nft list table ip \"$1\" 2>/dev/null | grep -q \"saddr != $2 \"";
    Change::Command(CommandChange {
        name: "keep pods from the metadata service (nft)".to_owned(),
        check: Check::Succeeds(Command::new("sh", &["-c", present, "sh", table, primary])),
        apply: Command::new("nft", &["-f", "-"]).reading(rules),
        undo: Some(Command::new("nft", &["delete", "table", "ip", table])),
    })
}

fn without_rule(table: &str, primary: &str) -> Change {
    let present = iptables(table, &["-C", "FORWARD"], primary);
    let mut absent = vec!["-c", "! \"$@\" 2>/dev/null", "sh", "iptables"];
    absent.extend(present.arguments.iter().map(String::as_str));
    Change::command(
        format!("let pods reach the metadata service ({table})"),
        Check::Succeeds(Command::new("sh", &absent)),
        iptables(table, &["-D", "FORWARD"], primary),
    )
}

fn iptables(table: &str, verb: &[&str], primary: &str) -> Command {
    let rule = firewall::imds_rule(primary);
    let mut arguments = vec!["-w", "-t", table];
    arguments.extend(verb);
    arguments.extend(rule.iter().map(String::as_str));
    Command::new("iptables", &arguments)
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
    changes.push(Change::Unit(crate::engine::Unit {
        name: UNIT.to_owned(),
        enabled: Some(true),
        goal: crate::engine::Goal::Ran,
        inputs: vec![SCRIPT.into()],
        no_block: true,
    }));
    Ok(changes)
}
