//! A container image of one program.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sha2::{Digest as _, Sha256};

/// The name of the image; its one program is busybox.
pub(crate) const IMAGE: &str = "machines.test/busybox:1";

/// An archive as `docker save` makes them, with busybox in its only layer. It sleeps, as the sandbox of a pod does.
pub(crate) fn archive(dir: &Path, busybox: &Path) -> PathBuf {
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
        r#"{{"architecture":"{architecture}","os":"linux","config":{{"Entrypoint":["/busybox","sleep","100000"]}},"rootfs":{{"type":"layers","diff_ids":["sha256:{layer}"]}}}}"#
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
