//! containerd as a service of a machine, and a container in it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use machines::{Bind, Driver as _, File, PowerOff, Spec};
use sha2::{Digest as _, Sha256};

use crate::host::{Host, skip};

/// The name of the image; its one program is busybox.
const IMAGE: &str = "machines.test/busybox:1";

// As in containerd's own unit, without what needs a right that not every root has.
const UNIT: &str = "[Unit]
Description=containerd
[Service]
Type=notify
Delegate=yes
KillMode=process
Environment=PATH=/opt/containerd:/usr/sbin:/usr/bin:/sbin:/bin
ExecStart=/opt/containerd/containerd
";

#[test]
fn containerd_runs_under_systemd_and_a_container_in_it() {
    let Some(host) = Host::new() else { return };
    let Some(programs) = std::env::var_os("CONTAINERD_BIN").map(PathBuf::from) else {
        return skip(
            "no containerd: CONTAINERD_BIN is not set (scripts/setup --for test, scripts/env)",
        );
    };
    let image = image(host.path(), &programs.join("busybox"));
    host.boot(&Spec {
        name: "containers".to_owned(),
        files: vec![File::new("/etc/systemd/system/containerd.service", UNIT)],
        binds: vec![
            Bind {
                source: programs,
                target: "/opt/containerd".into(),
            },
            Bind {
                source: image,
                target: "/opt/image.tar".into(),
            },
        ],
        units: vec!["containerd.service".to_owned()],
        ..Spec::default()
    });
    let ctr = |line: &str| {
        host.must(
            "containers",
            &format!("PATH=/opt/containerd:$PATH ctr {line}"),
        )
    };
    ctr("images import /opt/image.tar");
    assert_eq!(
        ctr(&format!(
            "run --rm {IMAGE} once /busybox echo from a container"
        )),
        "from a container\n"
    );
    ctr(&format!("run --detach {IMAGE} long /busybox sleep 100000"));
    let tasks = ctr("tasks list");
    assert!(tasks.contains("RUNNING"), "{tasks}");
    let snapshots = host.must(
        "containers",
        "findmnt --noheadings --output FSTYPE --list | grep -c overlay",
    );
    assert_ne!(
        snapshots, "1\n",
        "the container's root is an overlay on a plain directory"
    );
    host.driver
        .power_off("containers", PowerOff::Plug)
        .expect("it dies");
    assert_eq!(
        host.remains(),
        Vec::<String>::new(),
        "containers die with their machine"
    );
}

// An archive as `docker save` makes them, with busybox in its only layer.
fn image(dir: &Path, busybox: &Path) -> PathBuf {
    let tree = dir.join("image");
    fs::create_dir(&tree).expect("a directory");
    fs::copy(busybox, tree.join("busybox")).expect("busybox");
    tar(&tree, "layer.tar", &["busybox"]);
    let layer = Sha256::digest(fs::read(tree.join("layer.tar")).expect("a layer"));
    let layer: String = layer.iter().map(|b| format!("{b:02x}")).collect();
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    let config = format!(
        r#"{{"architecture":"{architecture}","os":"linux","config":{{}},"rootfs":{{"type":"layers","diff_ids":["sha256:{layer}"]}}}}"#
    );
    let manifest =
        format!(r#"[{{"Config":"config.json","RepoTags":["{IMAGE}"],"Layers":["layer.tar"]}}]"#);
    fs::write(tree.join("config.json"), config).expect("a configuration");
    fs::write(tree.join("manifest.json"), manifest).expect("a manifest");
    tar(
        &tree,
        "image.tar",
        &["manifest.json", "config.json", "layer.tar"],
    );
    tree.join("image.tar")
}

fn tar(dir: &Path, to: &str, files: &[&str]) {
    let mut tar = Command::new("tar");
    tar.current_dir(dir)
        .args(["--create", "--file", to])
        .args(files);
    assert!(tar.status().expect("tar runs").success());
}
