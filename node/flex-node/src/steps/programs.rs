//! Programs: what is installed counts, by the version it says; what is missing or too old is fetched and verified.

use ::steps::engine::{Change, Content, File, Scene};
use ::steps::host::Command;

use super::fetch::{Archive, fetched};
use super::{Changes, Wish};
use crate::config::Kubelet;
use crate::machine::{self, Version};
use crate::paths;

/// runc, from its own release.
pub(super) fn runc(wish: &Wish, scene: &Scene<'_>) -> Changes {
    let wanted = &wish.config.components.runc;
    if is_new_enough(scene, "runc", wanted) {
        return Ok(Vec::new());
    }
    fetched(wish, scene, &Archive::runc(wanted))
}

/// containerd, its shim and `ctr`.
pub(super) fn containerd(wish: &Wish, scene: &Scene<'_>) -> Changes {
    let wanted = &wish.config.components.containerd;
    // A run that was killed may have brought some of them.
    let beside = ["containerd-shim-runc-v2", "ctr"];
    let is_whole = beside
        .iter()
        .all(|name| machine::find_program(scene, name).is_some());
    if is_whole && is_new_enough(scene, "containerd", wanted) {
        return Ok(Vec::new());
    }
    fetched(wish, scene, &Archive::containerd(wanted))
}

fn is_new_enough(scene: &Scene<'_>, program: &str, wanted: &str) -> bool {
    let found = machine::installed(scene, program).map(|(_, version)| version);
    found.is_some_and(|found| Version::parse(wanted).is_none_or(|wanted| found >= wanted))
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
        Kubelet::Upstream { version, url } => {
            let is_there = scene.host.files().exists(paths::KUBELET)
                && says(scene, paths::KUBELET) == Version::parse(version);
            match is_there {
                true => Ok(Vec::new()),
                false => fetched(wish, scene, &Archive::kubelet(version, url)),
            }
        }
    }
}

/// What a program at a path says of its version.
fn says(scene: &Scene<'_>, path: &str) -> Option<Version> {
    let answer = scene.run(&Command::new(path, &["--version"])).ok()?;
    Version::find(&answer.text())
}
