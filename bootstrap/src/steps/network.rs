//! The network of the node and of its pods.

use super::{Changes, observe};
use crate::config::{Configuration, NetworkPlugin, NetworkPolicy};
use crate::engine::{Change, Check, CommandChange, Failure, Scene};
use crate::host::Command;
use crate::render::{cni, firewall, units};

const SEARCH_DOMAIN_SCRIPT: &str = "/opt/azure/containers/setup-custom-search-domains.sh";
const PRIMARY_NIC_IP_NOT_FOUND: u8 = 173;
/// Codes of rules that cannot be put in or taken out, by table.
const RULE_CODES: [(&str, u8, u8); 2] = [("mangle", 174, 176), ("filter", 175, 177)];

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
    Ok(DIRECTORIES.into_iter().map(|path| Change::directory(path, 0o755)).collect())
}

/// Ubuntu's stub resolver is bypassed: pods inherit the file, and cannot reach the stub.
pub(super) fn resolver(_: &Configuration, scene: &Scene<'_>) -> Changes {
    const UPLINK: &str = "/run/systemd/resolve/resolv.conf";
    let ubuntu = observe::distribution(scene).is_ubuntu();
    let present = ubuntu && scene.host.files().exists(UPLINK);
    Ok(present.then(|| Change::link("/etc/resolv.conf", UPLINK)).into_iter().collect())
}

/// Modules the pod network needs, and Azure's conflist where the plugin brought one.
pub(super) fn cni(config: &Configuration, scene: &Scene<'_>) -> Changes {
    const SHIPPED: &str = "/opt/cni/bin/10-azure.conflist";
    let mut changes = vec![
        module("br_netfilter", "/proc/sys/net/bridge"),
        module("nf_conntrack", "/proc/sys/net/netfilter/nf_conntrack_max"),
        Change::file("/etc/modules-load.d/br_netfilter.conf", 0o644, "br_netfilter\n"),
        Change::file("/etc/modules-load.d/nf_conntrack.conf", 0o644, "nf_conntrack\n"),
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
    Ok(vec![Change::file(DROP_IN, 0o644, text), Change::running_unit(UNIT, &[DROP_IN])])
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
            format!("`custom_search_domain_config` needs {SEARCH_DOMAIN_SCRIPT}, which this image does not have"),
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
    let check = Check::Inputs { paths: vec![SEARCH_DOMAIN_SCRIPT.into()], per_boot: false };
    Ok(vec![Change::command(format!("join {}", wish.domain_name), check, command)])
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
        .map(|(n, nic)| Change::file(path(n), 0o600, cni::secondary_interface(n, &nic.mac, nic.ipv6)))
        .collect();
    if !changes.is_empty() {
        let check = Check::Inputs { paths: vec!["/etc/netplan".into()], per_boot: false };
        changes.push(Change::command("apply netplan", check, Command::new("netplan", &["apply"])));
    }
    Ok(changes)
}

/// The rule that keeps pods from the metadata service, now; the kubelet's unit puts it back after
/// a reboot.
pub(super) fn imds_restriction(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let wish = &config.imds_restriction_config;
    let primary = observe::machine(config, scene).addresses.into_iter().next();
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
    if !wish.enable_imds_restriction {
        return Ok(firewall::TABLES.into_iter().map(|table| without_rule(table, &primary)).collect());
    }
    let table = if wish.insert_imds_restriction_rule_to_mangle_table { "mangle" } else { "filter" };
    with_rule(scene, table, &primary)
}

/// The failing insertion is the engine's to report; which table it was decides the code.
fn with_rule(scene: &Scene<'_>, table: &str, primary: &str) -> Changes {
    let code = RULE_CODES.iter().find(|(name, ..)| *name == table).map_or(175, |row| row.1);
    let check = iptables(table, &["-C", "FORWARD"], primary);
    let listed = scene.run(&Command::new("iptables", &["-w", "-t", table, "-S", "FORWARD"]));
    listed.map_err(|failure| failure.with_code(code))?;
    Ok(vec![Change::Command(CommandChange {
        name: format!("keep pods from the metadata service ({table})"),
        check: Check::Succeeds(check),
        apply: iptables(table, &["-I", "FORWARD", "1"], primary),
        undo: Some(iptables(table, &["-D", "FORWARD"], primary)),
    })])
}

/// Without iptables there is no rule either.
fn without_rule(table: &str, primary: &str) -> Change {
    let present = iptables(table, &["-C", "FORWARD"], primary);
    let mut absent = vec!["-c".to_owned(), "! \"$@\" 2>/dev/null".to_owned(), "sh".to_owned()];
    absent.push(present.program);
    absent.extend(present.arguments);
    let absent: Vec<&str> = absent.iter().map(String::as_str).collect();
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
