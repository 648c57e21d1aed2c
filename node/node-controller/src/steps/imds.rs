//! Keeps pods from the instance metadata service, where the configuration says so.

use ::steps::engine::{Change, Check, CommandChange, Failure, Scene};
use ::steps::host::Command;

use super::{Changes, observe};
use crate::codes::PRIMARY_NIC_IP_NOT_FOUND;
use crate::config::Configuration;
use crate::render::firewall;

/// Whether the rule stands in the mangle table.
pub(super) fn restricts_in_mangle(config: &Configuration) -> bool {
    let wish = &config.imds_restriction_config;
    wish.enable_imds_restriction && wish.insert_imds_restriction_rule_to_mangle_table
}

/// Whether the rule stands in the filter table.
pub(super) fn restricts_in_filter(config: &Configuration) -> bool {
    config.imds_restriction_config.enable_imds_restriction && !restricts_in_mangle(config)
}

/// The rule that keeps pods from the metadata service, now; the kubelet's unit puts it back after
/// a reboot.
pub(super) fn restriction(config: &Configuration, scene: &Scene<'_>) -> Changes {
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
        let table = if mangle { "mangle" } else { "filter" };
        return Ok(vec![with_rule(table, &primary)]);
    }
    if !observe::has_program(scene, "nft") && !scene.planning {
        return Err(Failure::permanent(
            "pods cannot be kept from the metadata service: neither iptables nor nft is installed",
            "install iptables, or set `imds_restriction_config.enable_imds_restriction` to false",
        ));
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
