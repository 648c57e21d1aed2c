//! containerd: its configuration, its start, and whether it answers.

use ::steps::engine::{Change, Check, Failure, Goal, Scene, Unit};
use ::steps::host::Command;

use super::{Changes, Finding, observe};
use crate::config::Configuration;
use crate::render::{containerd, units};

const UNIT: &str = "containerd.service";

/// Limits of containerd and of what it starts.
pub(super) fn ulimits(config: &Configuration, _: &Scene<'_>) -> Changes {
    let path = format!("{}/set_ulimits.conf", containerd::DROP_INS);
    Ok(containerd::ulimits(config)
        .map(|text| Change::file(path, 0o600, text))
        .into_iter()
        .collect())
}

/// Everything containerd reads when it starts.
pub(super) fn configuration(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let machine = observe::machine_with_containerd(config, scene);
    let drop_in = |name: &str| format!("{}/{name}", containerd::DROP_INS);
    let mut changes = vec![
        Change::file(drop_in("exec_start.conf"), 0o644, containerd::EXEC_START),
        Change::file(
            containerd::CONFIG_FILE,
            0o644,
            containerd::config_file(config, &machine),
        ),
        Change::file(
            containerd::KUBENET_TEMPLATE,
            0o644,
            crate::render::cni::KUBENET_TEMPLATE,
        ),
    ];
    changes.extend(containerd::mirror(config).map(|(path, text)| Change::file(path, 0o644, text)));
    changes.extend(observe::own_unit(scene, UNIT, units::containerd()));
    Ok(changes)
}

/// Starts it, and starts it again when what it reads has changed.
pub(super) fn start(_: &Configuration, _: &Scene<'_>) -> Changes {
    let inputs = [
        containerd::CONFIG_FILE,
        containerd::DROP_INS,
        containerd::KUBENET_TEMPLATE,
    ];
    Ok(vec![Change::Unit(Unit {
        name: UNIT.to_owned(),
        enabled: Some(true),
        goal: Goal::Running,
        inputs: inputs.into_iter().map(Into::into).collect(),
        no_block: true,
    })])
}

/// A socket that exists is not yet an answer.
pub(super) fn ready(_: &Configuration, scene: &Scene<'_>) -> Finding {
    let ask = Command::new("ctr", &["--connect-timeout", "5s", "version"]);
    let answer = scene.run(&ask)?;
    if answer.success() {
        return Ok("containerd answers on its socket".to_owned());
    }
    let state = unit_state(scene, UNIT);
    let failure = Failure::new(
        format!(
            "containerd does not answer ({state}): {}",
            answer.last_words()
        ),
        "see `journalctl -u containerd` and check /etc/containerd/config.toml with `containerd config dump`",
    );
    Err(if state == "failed" {
        Failure {
            permanent: true,
            ..failure
        }
    } else {
        failure
    })
}

/// A unit's active state, as systemd says it.
pub(super) fn unit_state(scene: &Scene<'_>, unit: &str) -> String {
    let answer = scene.run(&Command::new(
        "systemctl",
        &["show", "-p", "ActiveState", unit],
    ));
    let text = answer.map(|answer| answer.text()).unwrap_or_default();
    let state = text
        .lines()
        .find_map(|line| line.strip_prefix("ActiveState="));
    state.unwrap_or("in an unknown state").to_owned()
}

/// Images that start before they are pulled.
pub(super) fn artifact_streaming(_: &Configuration, scene: &Scene<'_>) -> Changes {
    const SETUP: &str = "/opt/acr/tools/mirror/setup.sh";
    const OLD_SETUP: &str = "/opt/acr/bin/acr-config";
    let services = [
        "acr-mirror.service",
        "overlaybd-tcmu.service",
        "overlaybd-snapshotter.service",
    ];
    if let Some(missing) = services
        .into_iter()
        .find(|unit| !observe::has_unit(scene, unit))
    {
        return Err(Failure::permanent(
            format!("artifact streaming needs {missing}, which this image does not have"),
            "use an image with the acr-mirror package, or set `enable_artifact_streaming` to false",
        ));
    }
    let mut changes: Vec<Change> = services
        .into_iter()
        .map(|unit| Change::running_unit(unit, &[]))
        .collect();
    let (program, command) = match scene.host.files().exists(SETUP) {
        true => (SETUP, Command::new(SETUP, &["aks"])),
        false => (
            OLD_SETUP,
            Command::new(OLD_SETUP, &["--enable-containerd", "azurecr.io"]),
        ),
    };
    let check = Check::Inputs {
        paths: vec![program.into()],
        per_boot: false,
    };
    changes.push(Change::command(
        "set up the mirror for artifact streaming",
        check,
        command,
    ));
    Ok(changes)
}
