//! The kubelet: what it reads, its start, and whether it is well.

use std::time::Duration;

use ::steps::engine::{Change, Failure, Goal, Scene, Unit};
use ::steps::host::{Command, Request};

use super::containerd::unit_state;
use super::{Changes, Finding, observe};
use crate::config::{Configuration, KubeletDisk};
use crate::render::{
    containerd, credential_provider, drop_ins, firewall, kubeconfig, kubelet, tls_bootstrap, units,
};
use crate::validate::entries::is_one_line;

const UNIT: &str = "kubelet.service";
const BINARY: &str = "/opt/bin/kubelet";

/// Its environment, drop-ins, kubeconfig, scripts and unit.
pub(super) fn files(config: &Configuration, scene: &Scene<'_>) -> Changes {
    check_lines(config)?;
    let machine = observe::machine_with_addresses(config, scene);
    let mut changes = vec![
        Change::file(
            kubelet::DEFAULT_FILE,
            0o600,
            kubelet::default_file(config, &machine),
        ),
        Change::file(
            firewall::WIRESERVER_PATH,
            0o755,
            firewall::WIRESERVER_SCRIPT,
        ),
        Change::file(firewall::IMDS_PATH, 0o755, firewall::imds_script()),
    ];
    changes.extend(
        drop_ins::drop_ins(config, &machine)
            .into_iter()
            .map(|drop_in| {
                let path = format!("{}/{}", drop_ins::DIRECTORY, drop_in.name);
                match drop_in.text {
                    Some(text) => Change::file(path, drop_in.mode, text),
                    None => Change::absent(path),
                }
            }),
    );
    changes.extend(kubeconfigs(config));
    changes.extend(observe::own_unit(scene, UNIT, units::kubelet()));
    if config.kubelet_config.kubelet_disk_type == KubeletDisk::TempDisk {
        changes.extend(temporary_disk(scene));
    }
    Ok(changes)
}

/// Flags and labels become lines of an environment file: a line break in one of them would add settings nobody judged.
fn check_lines(config: &Configuration) -> Result<(), Failure> {
    let kubelet = &config.kubelet_config;
    let mut entries = (kubelet.kubelet_flags.iter()).chain(&kubelet.kubelet_node_labels);
    match entries.find(|(key, value)| !is_one_line(key) || !is_one_line(value)) {
        None => Ok(()),
        Some((key, _)) => Err(Failure::permanent(
            format!("`kubelet_config` has {key:?} with a line break or another control character"),
            "take it out: flags and labels are one line each",
        )),
    }
}

/// The token's kubeconfig, or the certificate's. Both are the kubelet's alone: upstream's are
/// world-readable, token and all.
fn kubeconfigs(config: &Configuration) -> Option<Change> {
    if let Some(token) = kubeconfig::token(config) {
        let text = kubeconfig::with_token(config, token);
        return Some(Change::secret_file(kubeconfig::BOOTSTRAP_KUBECONFIG, text));
    }
    // The client of secure TLS bootstrapping writes its own.
    let text = || {
        Change::file(
            kubeconfig::KUBECONFIG,
            0o600,
            kubeconfig::with_certificate(config),
        )
    };
    (!tls_bootstrap::enabled(config)).then(text)
}

/// The unit that puts the kubelet's data onto the temporary disk, unless the image has it.
fn temporary_disk(scene: &Scene<'_>) -> Vec<Change> {
    const SCRIPT: &str = "/opt/azure/containers/bind-mount.sh";
    let Some(unit) = observe::own_unit(scene, "bind-mount.service", units::bind_mount()) else {
        return Vec::new();
    };
    vec![Change::file(SCRIPT, 0o755, units::BIND_MOUNT_SCRIPT), unit]
}

/// Whether cgroups are set aside for Kubernetes or for the system.
pub(super) fn reserves_cgroups(config: &Configuration) -> bool {
    let (kube, system) = kubelet::reserved_cgroups(config);
    !kube.is_empty() || !system.is_empty()
}

/// The slice that memory is reserved for. Anything but AKS's own names would make the kubelet
/// fail later and say less.
pub(super) fn cgroup_hierarchy(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let (kube, system) = kubelet::reserved_cgroups(config);
    for (field, value, known) in [
        ("kubeReservedCgroup", &kube, kubelet::RESERVED_SLICE),
        ("systemReservedCgroup", &system, "system.slice"),
    ] {
        if !["", known].contains(&value.trim_start_matches('/')) {
            return Err(Failure::permanent(
                format!("{field} is `{value}`, but only `/{known}` is supported"),
                format!("set {field} to `/{known}`, or leave it out"),
            ));
        }
    }
    if !observe::machine(config, scene).unified_cgroups {
        return Err(Failure::permanent(
            "reserved cgroups need cgroup2, and this machine's /sys/fs/cgroup is not cgroup2's alone",
            "boot with `systemd.unified_cgroup_hierarchy=1`, or leave kubeReservedCgroup and systemReservedCgroup out",
        ));
    }
    if !kubelet::reserved_slice(config) {
        return Ok(Vec::new());
    }
    let slice = format!("{}/{}", units::DIRECTORY, kubelet::RESERVED_SLICE);
    let drop_in = format!("{}/10-kubereserved-slice.conf", containerd::DROP_INS);
    Ok(vec![
        Change::file(slice, 0o644, units::reserved_slice()),
        Change::file(drop_in, 0o644, units::in_reserved_slice()),
        Change::running_unit(kubelet::RESERVED_SLICE, &[]),
    ])
}

/// What the kubelet hands to the credential provider.
pub(super) fn credential_provider(config: &Configuration, _: &Scene<'_>) -> Changes {
    let text = credential_provider::config_file(config);
    Ok(vec![Change::file(
        credential_provider::CONFIG_FILE,
        0o644,
        text,
    )])
}

/// Starts it, and starts it again when what it reads has changed.
pub(super) fn start(_: &Configuration, scene: &Scene<'_>) -> Changes {
    if !scene.planning && !scene.host.files().exists(BINARY) {
        return Err(Failure::permanent(
            format!("{BINARY} is not there"),
            "give a `kube_binary_config.kube_binary_url`, or use an image with the kubelet",
        ));
    }
    let inputs = [
        kubelet::DEFAULT_FILE,
        kubelet::CONFIG_FILE,
        drop_ins::DIRECTORY,
        kubeconfig::BOOTSTRAP_KUBECONFIG,
        kubeconfig::CA_FILE,
        credential_provider::CONFIG_FILE,
        "/etc/systemd/system/kubelet.service",
    ];
    Ok(vec![Change::Unit(Unit {
        name: UNIT.to_owned(),
        enabled: Some(true),
        goal: Goal::Running,
        inputs: inputs.into_iter().map(Into::into).collect(),
        no_block: true,
    })])
}

/// Whether systemd looked at the unit's conditions and did not start it. A unit that nobody has tried to start says
/// the same of its conditions, but not since when.
fn was_skipped(scene: &Scene<'_>) -> bool {
    const PROPERTIES: &str = "--property=ConditionResult,ConditionTimestampMonotonic";
    let answer = scene.run(&Command::new("systemctl", &["show", PROPERTIES, UNIT]));
    let text = answer.map(|answer| answer.text()).unwrap_or_default();
    is_skip(&text)
}

fn is_skip(properties: &str) -> bool {
    let value = |key: &str| {
        let mut lines = properties.lines();
        lines.find_map(|line| line.strip_prefix(key)?.strip_prefix('='))
    };
    value("ConditionResult") == Some("no")
        && value("ConditionTimestampMonotonic").is_some_and(|at| at != "0" && !at.is_empty())
}

/// Asks the kubelet itself; if it does not answer, systemd and its log say why.
pub(super) fn healthy(config: &Configuration, scene: &Scene<'_>) -> Finding {
    let port = config.kubelet_config.kubelet_flags.get("--healthz-port");
    let url = format!(
        "http://127.0.0.1:{}/healthz",
        port.map_or("10248", String::as_str)
    );
    let request = Request::get(url).at_most(scene.remaining().min(Duration::from_secs(5)));
    let mut body = Vec::new();
    let problem = match scene.host.http(&request, &mut body, scene.stop) {
        Ok(response) if response.status == 200 => {
            return Ok("the kubelet says it is well".to_owned());
        }
        Ok(response) => format!(
            "says {}: {}",
            response.status,
            String::from_utf8_lossy(&body).trim()
        ),
        Err(error) => error.to_string(),
    };
    let state = unit_state(scene, UNIT);
    if state == "inactive" && was_skipped(scene) {
        return Err(Failure::permanent(
            "systemd has skipped the kubelet: a condition of its unit is not met",
            "`systemctl status kubelet` names the condition",
        ));
    }
    let log = Command::new(
        "journalctl",
        &["-u", UNIT, "-n", "1", "-o", "cat", "--no-pager"],
    );
    let last = scene
        .run(&log)
        .map(|answer| answer.last_words())
        .unwrap_or_default();
    let failure = Failure::new(
        format!("the kubelet ({state}) is not well: {problem}; its last words: {last}"),
        "see `journalctl -u kubelet` for what it waits for: mostly its configuration, the \
         container runtime, or its first certificate",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_unit_counts_as_skipped_once_systemd_has_looked_at_its_conditions() {
        let cases = [
            (
                "ConditionResult=no\nConditionTimestampMonotonic=123\n",
                true,
            ),
            ("ConditionResult=no\nConditionTimestampMonotonic=0\n", false),
            (
                "ConditionResult=yes\nConditionTimestampMonotonic=123\n",
                false,
            ),
            ("ActiveState=inactive\n", false),
            ("", false),
        ];
        for (text, expected) in cases {
            assert_eq!(is_skip(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_line_break_in_a_flag_or_label_is_refused() {
        let mut config = Configuration::default();
        assert!(check_lines(&config).is_ok());
        let flags = &mut config.kubelet_config.kubelet_flags;
        flags.insert("--v".to_owned(), "2\nLD_PRELOAD=/tmp/x.so".to_owned());
        let refused = check_lines(&config).expect_err("a second line");
        assert!(refused.permanent && refused.cause.contains("--v"));
    }
}
