//! Programs: what is installed counts, by the version it says; what is missing or too old is fetched and verified.

use ::steps::engine::{Change, Content, File, Scene};
use ::steps::host::Command;

use super::fetch::{Archive, addresses, fetched, prepared};
use super::{Changes, Wish};
use crate::config::Kubelet;
use crate::machine::{self, Version};
use crate::paths;

/// Where programs go that are fetched.
pub(super) const PLACES: &[&str] = &[
    paths::KUBELET,
    "/usr/local/sbin/runc",
    "/usr/local/bin/containerd",
    "/usr/local/bin/containerd-shim-runc-v2",
    "/usr/local/bin/ctr",
];

type Preparation = fn(&Wish, &Scene<'_>) -> Changes;

/// What an upgrade fetches before it begins.
pub(super) const PREPARED: &[(&str, Preparation)] = &[
    ("fetch-kubelet", |wish, scene| {
        match &wish.config.components.kubelet {
            Kubelet::Own => Ok(Vec::new()),
            Kubelet::Upstream { version, url } => match has_kubelet(scene, version) {
                true => Ok(Vec::new()),
                false => prepared(wish, scene, &Archive::kubelet(version, url)),
            },
        }
    }),
    ("fetch-runc", |wish, scene| match has_runc(wish, scene) {
        true => Ok(Vec::new()),
        false => prepared(wish, scene, &Archive::runc(&wish.config.components.runc)),
    }),
    ("fetch-containerd", |wish, scene| {
        match has_containerd(wish, scene) {
            true => Ok(Vec::new()),
            false => prepared(
                wish,
                scene,
                &Archive::containerd(&wish.config.components.containerd),
            ),
        }
    }),
];

/// Where programs would be fetched from that are missing here.
pub(crate) fn places(wish: &Wish, scene: &Scene<'_>) -> Vec<String> {
    let components = &wish.config.components;
    let mut all = Vec::new();
    if !has_runc(wish, scene) {
        all.extend(addresses(wish, &Archive::runc(&components.runc)));
    }
    if !has_containerd(wish, scene) {
        all.extend(addresses(
            wish,
            &Archive::containerd(&components.containerd),
        ));
    }
    if let Kubelet::Upstream { version, url } = &components.kubelet
        && !has_kubelet(scene, version)
    {
        all.extend(addresses(wish, &Archive::kubelet(version, url)));
    }
    all
}

/// This program, where an upgrade chose another file for it.
pub(super) fn own(wish: &Wish, _: &Scene<'_>) -> Changes {
    let agent = wish.agent.iter();
    Ok(agent
        .map(|agent| {
            Change::File(File::new(
                &wish.program[0],
                0o755,
                Content::CopyOf(agent.into()),
            ))
        })
        .collect())
}

/// A file that is to be this program says its version, whatever it is called.
pub(super) fn runs(scene: &Scene<'_>, file: &str, program: &str) -> super::Finding {
    let is_own_name = program.ends_with("aks-flex-node");
    let words: &[&str] = if is_own_name && file.ends_with("aks-flex-node") {
        &["version"]
    } else {
        &["flex-node", "version"]
    };
    let answer = scene.run(&Command::new(file, words))?;
    match answer.success() && answer.text().contains("AKS Flex Node") {
        true => Ok(format!("{file} runs here")),
        false => Err(::steps::engine::Failure::permanent(
            format!("{file} is not this program: {}", answer.last_words()),
            "name a file that is a build of it for this machine",
        )),
    }
}

/// runc, from its own release.
pub(super) fn runc(wish: &Wish, scene: &Scene<'_>) -> Changes {
    match has_runc(wish, scene) {
        true => Ok(Vec::new()),
        false => fetched(wish, scene, &Archive::runc(&wish.config.components.runc)),
    }
}

fn has_runc(wish: &Wish, scene: &Scene<'_>) -> bool {
    let components = &wish.config.components;
    is_new_enough(scene, "runc", &components.runc, &components.chosen)
}

/// containerd, its shim and `ctr`.
pub(super) fn containerd(wish: &Wish, scene: &Scene<'_>) -> Changes {
    match has_containerd(wish, scene) {
        true => Ok(Vec::new()),
        false => fetched(
            wish,
            scene,
            &Archive::containerd(&wish.config.components.containerd),
        ),
    }
}

fn has_containerd(wish: &Wish, scene: &Scene<'_>) -> bool {
    let components = &wish.config.components;
    // A run that was killed may have brought some of them.
    let beside = ["containerd-shim-runc-v2", "ctr"];
    let is_whole = beside
        .iter()
        .all(|name| machine::find_program(scene, name).is_some());
    is_whole
        && is_new_enough(
            scene,
            "containerd",
            &components.containerd,
            &components.chosen,
        )
}

/// What is installed counts; an upgrade asks for one version and no other.
fn is_new_enough(scene: &Scene<'_>, program: &str, wanted: &str, chosen: &[&str]) -> bool {
    let found = machine::installed(scene, program).map(|(_, version)| version);
    let fits = |found: Version| match Version::parse(wanted) {
        None => true,
        Some(wanted) if chosen.contains(&program) => found == wanted,
        Some(wanted) => found >= wanted,
    };
    found.is_some_and(fits)
}

/// Plugins of the pod network: any that can make one. Those of this program lie beside it.
pub(super) fn cni(wish: &Wish, scene: &Scene<'_>) -> Changes {
    let files = scene.host.files();
    let at = |name: &str| format!("{}/{name}", paths::CNI_BIN);
    let has = |names: &[&str]| names.iter().all(|name| files.exists(at(name)));
    if has(&["kyanite-cni", "loopback"]) || has(&["bridge", "host-local", "loopback", "portmap"]) {
        return Ok(Vec::new());
    }
    let beside = std::path::Path::new(&wish.program[0]).with_file_name("kyanite-cni");
    if files.exists(&beside) {
        let names = ["kyanite-cni", "loopback"];
        return Ok(names
            .map(|name| Change::File(File::new(at(name), 0o755, Content::CopyOf(beside.clone()))))
            .to_vec());
    }
    fetched(wish, scene, &Archive::cni(&wish.config.components.cni))
}

/// The kubelet. Ours is this program under that name.
pub(super) fn kubelet(wish: &Wish, scene: &Scene<'_>) -> Changes {
    match &wish.config.components.kubelet {
        Kubelet::Own => Ok(vec![Change::link(paths::KUBELET, &wish.program[0])]),
        Kubelet::Upstream { version, url } => match has_kubelet(scene, version) {
            true => Ok(Vec::new()),
            false => fetched(wish, scene, &Archive::kubelet(version, url)),
        },
    }
}

fn has_kubelet(scene: &Scene<'_>, version: &str) -> bool {
    scene.host.files().exists(paths::KUBELET)
        && says(scene, paths::KUBELET) == Version::parse(version)
}

/// What a program at a path says of its version.
fn says(scene: &Scene<'_>, path: &str) -> Option<Version> {
    let answer = scene.run(&Command::new(path, &["--version"])).ok()?;
    Version::find(&answer.text())
}
