//! The DNS server on the node. Its program and unit come with the image; images without them go
//! without, as upstream has it.

use ::steps::engine::{Change, Scene};

use super::{Changes, observe};
use crate::config::Configuration;
use crate::render::localdns;

const UNIT: &str = "localdns.service";
const PROGRAM: &str = "/opt/azure/containers/localdns/localdns.sh";
const TIMER: &str = "aks-localdns-hosts-setup.timer";

/// Its files, and its start where the image has it.
pub(super) fn service(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let hosts = localdns::uses_hosts(config);
    let mut changes = vec![
        Change::file(localdns::COREFILE, 0o644, localdns::corefile(config, hosts)),
        Change::file(localdns::ENVIRONMENT, 0o644, localdns::environment(config)),
        Change::file(localdns::SLICE, 0o644, localdns::slice(config)),
    ];
    // The timer fills it in: what is there is kept.
    if hosts && !scene.host.files().exists(localdns::HOSTS) {
        changes.push(Change::file(localdns::HOSTS, 0o644, ""));
    }
    if hosts && observe::has_unit(scene, TIMER) {
        changes.extend(timer_interval(config));
        changes.push(Change::running_unit(TIMER, &[]));
    }
    if observe::has_unit(scene, UNIT) && scene.host.files().exists(PROGRAM) {
        let inputs = [localdns::COREFILE, localdns::ENVIRONMENT, localdns::SLICE];
        changes.push(Change::running_unit(UNIT, &inputs));
    } else {
        tracing::warn!(
            "this image has no local DNS: its files are written, but nothing is started"
        );
    }
    Ok(changes)
}

/// How often names are resolved anew: no more than every five seconds.
fn timer_interval(config: &Configuration) -> Option<Change> {
    let asked = config
        .local_dns_profile
        .hosts_plugin_refresh_interval_in_seconds?;
    let seconds = Some(asked).filter(|seconds| *seconds > 0)?.max(5);
    let path = format!("/etc/systemd/system/{TIMER}.d/10-refresh-interval.conf");
    let text = format!("[Timer]\nOnUnitActiveSec={seconds}s\nAccuracySec=1s\n");
    Some(Change::file(path, 0o644, text))
}
