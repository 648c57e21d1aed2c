//! What keeps a node in shape after it has joined. Units that the image does not have are left
//! out.

use ::steps::engine::{Change, Scene};

use super::{Changes, observe};
use crate::config::Configuration;

fn running_if_present(scene: &Scene<'_>, units: &[&str]) -> Vec<Change> {
    let present = units.iter().filter(|unit| observe::has_unit(scene, unit));
    present
        .map(|unit| Change::running_unit(*unit, &[]))
        .collect()
}

/// The node exporter, where the image says it is to be used.
pub(super) fn node_exporter(_: &Configuration, scene: &Scene<'_>) -> Changes {
    if !scene
        .host
        .files()
        .exists("/etc/node-exporter.d/skip_vhd_node_exporter")
    {
        return Ok(Vec::new());
    }
    Ok(running_if_present(
        scene,
        &["node-exporter.service", "node-exporter-restart.path"],
    ))
}

/// Timers of AKS images.
pub(super) fn timers(_: &Configuration, scene: &Scene<'_>) -> Changes {
    Ok(running_if_present(
        scene,
        &["snapshot-update.timer", "aks-log-collector.timer"],
    ))
}

/// Security updates as the distribution makes them.
pub(super) fn unattended_upgrades(_: &Configuration, scene: &Scene<'_>) -> Changes {
    const SERVICES: [&str; 2] = ["apt-daily.service", "apt-daily-upgrade.service"];
    const PERIODIC: &str =
        "APT::Periodic::Update-Package-Lists \"1\";\nAPT::Periodic::Unattended-Upgrade \"1\";\n";
    let mut changes = vec![Change::file(
        "/etc/apt/apt.conf.d/99periodic",
        0o644,
        PERIODIC,
    )];
    let masked = SERVICES
        .into_iter()
        .filter(|unit| observe::is_masked(scene, unit));
    changes.extend(masked.map(|unit| Change::absent(format!("/etc/systemd/system/{unit}"))));
    changes.extend(running_if_present(
        scene,
        &["apt-daily.timer", "apt-daily-upgrade.timer"],
    ));
    Ok(changes)
}
