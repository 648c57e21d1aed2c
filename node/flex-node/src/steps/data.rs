//! Directories that programs of a node fill by themselves: claimed before, emptied when the node goes.

use ::steps::engine::{Change, Check, CommandChange, Scene};
use ::steps::host::Command;

use super::{Changes, Wish};
use crate::paths;

/// Path and mode. What is there already with something in it is somebody else's, and is left alone both ways.
const DIRECTORIES: &[(&str, &str)] = &[
    (paths::KUBELET_DIR, "0750"),
    ("/etc/kubernetes", "0755"),
    ("/var/lib/containerd", "0711"),
    ("/opt/containerd", "0711"),
    ("/var/lib/cni", "0755"),
    ("/etc/cni/net.d", "0755"),
    ("/var/log/pods", "0755"),
    ("/var/log/containers", "0755"),
    ("/var/lib/aks-flex-node/cache", "0700"),
];

/// Takes away what is in a directory, and the directory where it was not there before; else it gets its old mode and owner.
/// What is mounted inside goes first; nothing that is mounted is ever deleted from.
const CLEAR: &str = r#"set -eu
[ -d "$1" ] || exit 0
awk -v under="$1/" 'index($5, under) == 1 { print $5 }' /proc/self/mountinfo | sort -r | while read -r mount; do umount "$mount"; done
find "$1" -xdev -mindepth 1 -delete
if [ "$2" = keep ]; then chmod "$3" "$1" && chown "$4" "$1"; else rmdir "$1"; fi"#;

/// Claims those that are nobody's.
pub(super) fn claim(_: &Wish, scene: &Scene<'_>) -> Changes {
    let mut changes = Vec::new();
    for (path, mode) in DIRECTORIES {
        changes.extend(parents(scene, path));
        changes.extend(claimed(scene, path, mode));
    }
    Ok(changes)
}

/// A parent that is not there is a change of its own, so that it goes again.
fn parents(scene: &Scene<'_>, path: &str) -> Option<Change> {
    let parent = std::path::Path::new(path).parent()?;
    let is_there = scene.host.files().exists(parent);
    // The journal makes its own directory, and its last act is to remove it.
    (!is_there && parent != std::path::Path::new(paths::STATE))
        .then(|| Change::directory(parent, 0o755))
}

fn claimed(scene: &Scene<'_>, path: &str, mode: &str) -> Option<Change> {
    let files = scene.host.files();
    let (mut was, mut old_mode, mut owner) = ("remove", String::new(), String::new());
    if let Some(entry) = files.entry(path).ok().flatten() {
        // Claimed in an earlier run, or not ours.
        if !files.list(path).is_ok_and(|names| names.is_empty()) {
            return None;
        }
        was = "keep";
        old_mode = format!("{:o}", entry.mode);
        owner = format!("{}:{}", entry.owner.uid, entry.owner.gid);
    }
    Some(Change::Command(CommandChange {
        name: format!("claim {path}"),
        check: Check::Inputs {
            paths: Vec::new(),
            per_boot: false,
        },
        apply: Command::new("install", &["-d", "-m", mode, path]),
        undo: Some(Command::new(
            "sh",
            &["-c", CLEAR, "sh", path, was, &old_mode, &owner],
        )),
    }))
}
