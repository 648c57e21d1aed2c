//! Installation: the kernel, swap, containerd.

use ::steps::engine::{Change, Check, CommandChange, Failure, Goal, Scene, Unit};
use ::steps::host::Command;

use super::{Changes, Finding, Wish};
use crate::checks;
use crate::machine::{self, Version};
use crate::paths;
use crate::render::{containerd as render, system};

/// Nothing of others is in the way, and the machine can be a node.
pub(super) fn fit(wish: &Wish, scene: &Scene<'_>) -> Finding {
    let findings = checks::machine(wish, scene);
    let fatal: Vec<_> = findings.iter().filter(|f| f.is_fatal()).collect();
    match fatal.first() {
        None => Ok(format!("{} checks passed", findings.len())),
        Some(first) => {
            let all: Vec<&str> = fatal.iter().map(|f| f.what.as_str()).collect();
            Err(Failure::permanent(all.join("; "), first.remedy.clone()))
        }
    }
}

/// Modules and settings, now and after a reboot. A container has its host's modules.
pub(super) fn kernel(_: &Wish, scene: &Scene<'_>) -> Changes {
    let machine = machine::look(scene);
    let files = scene.host.files();
    let mut changes = vec![
        Change::file(paths::MODULES, 0o644, system::modules_file()),
        Change::file(paths::SYSCTL, 0o644, system::sysctl_file()),
    ];
    if !machine.is_container {
        changes.extend(system::MODULES.map(|name| {
            let loaded = format!("/sys/module/{name}");
            Change::Command(CommandChange {
                name: format!("load module {name}"),
                check: Check::Exists(loaded.into()),
                apply: Command::new("modprobe", &[name]),
                // In use by somebody else by then: it stays, and does no harm.
                undo: Some(Command::new(
                    "sh",
                    &["-c", "modprobe -r \"$1\" || true", "sh", name],
                )),
            })
        }));
    }
    let there = system::SYSCTLS.iter().filter(|(name, _)| {
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        files.exists(path) || (!machine.is_container && name.starts_with("net.bridge"))
    });
    changes.extend(there.map(|(name, value)| Change::sysctl(name, *value)));
    // Planned on a machine whose bridge module is not loaded yet, they cannot be compared.
    if scene.planning {
        changes.retain(|change| match change {
            Change::Setting { path, .. } => files.exists(path),
            _ => true,
        });
    }
    Ok(changes)
}

/// Off now and after a reboot: upstream leaves it on, and its kubelet refuses to start. Swap of a container is its host's.
pub(super) fn swap(_: &Wish, scene: &Scene<'_>) -> Changes {
    if machine::look(scene).is_container {
        return Ok(Vec::new());
    }
    let mut changes = Vec::new();
    for swap in system::swaps(&machine::text(scene, "/proc/swaps")) {
        let off = Command::new("sh", &["-c", "! grep -q \"^$1 \" /proc/swaps", "sh", &swap]);
        changes.push(Change::Command(CommandChange {
            name: format!("swap off {swap}"),
            check: Check::Succeeds(off),
            apply: Command::new("swapoff", &[&swap]),
            undo: Some(Command::new("swapon", &[&swap])),
        }));
    }
    let fstab = scene.host.files().text("/etc/fstab").ok().flatten();
    if let Some(text) = fstab.as_deref().and_then(system::without_swap) {
        changes.push(Change::file("/etc/fstab", 0o644, text));
    }
    Ok(changes)
}

/// What containerd reads, and its unit where nobody brought one.
pub(super) fn containerd(wish: &Wish, scene: &Scene<'_>) -> Changes {
    let machine = machine::look(scene);
    let (program, version) = match machine::installed(scene, "containerd") {
        Some(found) => found,
        None if scene.planning => ("/usr/local/bin/containerd".to_owned(), Version([2, 0, 0])),
        None => return Err(missing("containerd")),
    };
    let runc = match machine::find_program(scene, "runc") {
        Some(path) => path,
        None if scene.planning => "/usr/local/sbin/runc".to_owned(),
        None => return Err(missing("runc")),
    };
    let facts = render::Facts {
        machine: &machine,
        version,
        runc: &runc,
    };
    let own = scene
        .host
        .files()
        .exists(format!("{}/kyanite-cni", paths::CNI_BIN));
    let mut changes = vec![
        Change::file(
            paths::CONTAINERD_CONFIG,
            0o644,
            render::config_file(&wish.config.components, &facts),
        ),
        Change::file(paths::CNI_TEMPLATE, 0o644, render::network_template(own)),
    ];
    match machine::find_unit(scene, "containerd.service") {
        Some(path) if machine::is_foreign_unit(scene, "containerd.service") => {
            // A unit of a package starts the package's program, which may be the one that was too old.
            if !machine::text(scene, &path).contains(&format!("ExecStart={program}")) {
                let text = render::drop_in(&program);
                changes.push(Change::file(paths::CONTAINERD_DROP_IN, 0o644, text));
            }
        }
        _ => changes.push(Change::file(
            paths::CONTAINERD_UNIT,
            0o644,
            render::unit(&program),
        )),
    }
    Ok(changes)
}

fn missing(program: &str) -> Failure {
    Failure::permanent(
        format!("{program} is not installed"),
        format!("install it (`apt-get install {program}`) and run again"),
    )
}

/// Starts it, and again when what it reads has changed.
pub(super) fn start_containerd(wish: &Wish, _: &Scene<'_>) -> Changes {
    let mut inputs = vec![
        paths::CONTAINERD_CONFIG,
        paths::CNI_TEMPLATE,
        paths::CONTAINERD_UNIT,
        paths::CONTAINERD_DROP_IN,
    ];
    if wish.config.components.chosen.contains(&"containerd") {
        inputs.push("/usr/local/bin/containerd");
    }
    Ok(vec![Change::Unit(Unit {
        name: "containerd.service".to_owned(),
        enabled: Some(true),
        goal: Goal::Running,
        inputs: inputs.into_iter().map(Into::into).collect(),
        no_block: true,
    })])
}

/// A socket that exists is not yet an answer.
pub(super) fn containerd_ready(_: &Wish, scene: &Scene<'_>) -> Finding {
    let answer = scene.run(&Command::new(
        "ctr",
        &["--connect-timeout", "5s", "version"],
    ))?;
    match answer.success() {
        true => Ok("containerd answers".to_owned()),
        false => Err(Failure::new(
            format!("containerd does not answer: {}", answer.last_words()),
            "see `journalctl -u containerd`, and check its configuration with `containerd config dump`",
        )),
    }
}

/// The images that came with a bundle.
pub(super) fn images(_: &Wish, scene: &Scene<'_>) -> Changes {
    let directory = format!("{}/images", crate::bundle::CACHE);
    let names = scene.host.files().list(&directory).unwrap_or_default();
    let load = |name: &String| {
        let file = format!("{directory}/{name}");
        let words = ["--namespace", "k8s.io", "images", "import", &file];
        let check = Check::Inputs {
            paths: vec![file.clone().into()],
            per_boot: false,
        };
        Change::command(format!("load {name}"), check, Command::new("ctr", &words))
    };
    Ok(names.iter().map(load).collect())
}
