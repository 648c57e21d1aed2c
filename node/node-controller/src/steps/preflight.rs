//! What is looked at before anything is done.

use std::time::Duration;

use ::steps::engine::{Failure, Scene};
use ::steps::host::Command;
use jiff::Timestamp;

use super::{Finding, observe};
use crate::config::Configuration;
use crate::render::azure::decoded;
use crate::render::containerd::uses_nvidia;

/// The steps know Ubuntu and Debian.
pub(super) fn distribution(_: &Configuration, scene: &Scene<'_>) -> Finding {
    let found = observe::distribution(scene);
    if found.is_supported() {
        return Ok(format!("{} {}", found.id, found.version));
    }
    let name = match found.name.as_str() {
        "" => "a machine without /etc/os-release",
        name => name,
    };
    Err(Failure::permanent(
        format!("{name} cannot be provisioned natively: only Ubuntu and Debian can"),
        "use an Ubuntu or Debian image, or run the image's own scripts with `provision --env`",
    ))
}

/// A clock that is outside of the cluster CA's life makes every connection fail; that is said at
/// once, instead of after minutes of failing handshakes.
pub(super) fn clock(config: &Configuration, scene: &Scene<'_>) -> Finding {
    let now = scene.host.now();
    let validity = ca_validity(config);
    if let Some((from, to)) = validity.filter(|(from, to)| now < *from || now > *to) {
        return Err(Failure::permanent(
            format!(
                "the clock of this machine says {now}, but the cluster's CA is valid from {from} to {to}"
            ),
            "set the clock (`timedatectl status`, `chronyc tracking`); if it is right, the \
             configuration carries an expired CA in `kubernetes_ca_cert`",
        ));
    }
    Ok(match is_synchronised(scene) {
        true => format!("{now}, synchronised"),
        false => format!("{now}, not known to be synchronised"),
    })
}

/// What systemd's or chrony's client says; asking `timedatectl` would start a daemon.
fn is_synchronised(scene: &Scene<'_>) -> bool {
    let files = scene.host.files();
    if files.exists("/run/systemd/timesync/synchronized") {
        return true;
    }
    if !files.exists("/usr/bin/chronyc") {
        return false;
    }
    let ask = Command::new("/usr/bin/chronyc", &["-n", "tracking"]).at_most(Duration::from_secs(2));
    let answer = scene
        .run(&ask)
        .map(|answer| answer.text())
        .unwrap_or_default();
    answer
        .lines()
        .any(|line| line.starts_with("Leap status") && line.ends_with("Normal"))
}

fn ca_validity(config: &Configuration) -> Option<(Timestamp, Timestamp)> {
    let pem = decoded(&config.kubernetes_ca_cert)?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).ok()?;
    let certificate = pem.parse_x509().ok()?;
    let moment = |time: x509_parser::time::ASN1Time| Timestamp::from_second(time.timestamp()).ok();
    let validity = certificate.validity();
    Some((moment(validity.not_before)?, moment(validity.not_after)?))
}

/// Drivers are not installed here; a node that needs one says so before it takes work.
pub(super) fn gpu(config: &Configuration, scene: &Scene<'_>) -> Finding {
    const RUNTIME: &str = "/usr/bin/nvidia-container-runtime";
    if !uses_nvidia(config, &observe::machine(config, scene)) {
        return Ok("the driver is left out because of the tag SkipGpuDriverInstall".to_owned());
    }
    if scene.host.files().exists(RUNTIME) {
        return Ok(format!("{RUNTIME} is there"));
    }
    Err(Failure::permanent(
        format!(
            "the node is to run GPU work, but {RUNTIME} is not installed, and this node controller \
             does not install GPU drivers"
        ),
        "use an image that has the driver and the NVIDIA container runtime, or set \
         `gpu_config.enable_nvidia` to false",
    ))
}
