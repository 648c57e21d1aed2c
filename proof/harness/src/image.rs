//! A container image of one program: busybox.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use sha2::{Digest as _, Sha256};

/// What is to be in it. Without links the program lies in the root; else in `/bin`, as do they. It sleeps, as the
/// sandbox of a pod does.
#[derive(Debug, Clone, Copy)]
pub struct Image<'a> {
    /// The name runtimes will know it by.
    pub name: &'a str,
    /// Names of the program's parts, in `/bin`.
    pub links: &'a [&'a str],
}

impl Image<'_> {
    /// Makes an archive as `docker save` makes them, in this directory.
    pub fn archive(&self, dir: &Path, busybox: &Path) -> PathBuf {
        let tree = dir.join("image");
        let root = tree.join("root");
        fs::create_dir_all(root.join("tmp")).expect("a directory");
        let entrypoint = self.fill(&root, busybox);
        tar(&root, &tree.join("layer.tar"), &["."]);
        let layer = Sha256::digest(fs::read(tree.join("layer.tar")).expect("a layer"));
        let layer: String = layer.iter().map(|b| format!("{b:02x}")).collect();
        let architecture = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        };
        let config = json!({
            "architecture": architecture, "os": "linux",
            "config": {"Entrypoint": entrypoint, "Env": ["PATH=/bin"]},
            "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer}")]},
        });
        let manifest =
            json!([{"Config": "config.json", "RepoTags": [self.name], "Layers": ["layer.tar"]}]);
        fs::write(tree.join("config.json"), config.to_string()).expect("a configuration");
        fs::write(tree.join("manifest.json"), manifest.to_string()).expect("a manifest");
        let archive = dir.join("image.tar");
        let parts = ["manifest.json", "config.json", "layer.tar"];
        tar(&tree, &archive, &parts);
        archive
    }

    // What the image runs.
    fn fill(&self, root: &Path, busybox: &Path) -> Vec<&'static str> {
        if self.links.is_empty() {
            fs::copy(busybox, root.join("busybox")).expect("busybox");
            return vec!["/busybox", "sleep", "100000"];
        }
        fs::create_dir(root.join("bin")).expect("a directory");
        fs::copy(busybox, root.join("bin/busybox")).expect("busybox");
        for link in self.links {
            symlink("busybox", root.join("bin").join(link)).expect("a link");
        }
        vec!["/bin/busybox", "sleep", "100000"]
    }
}

fn tar(from: &Path, to: &Path, files: &[&str]) {
    let mut command = Command::new("tar");
    command.args(["--create", "--file"]).arg(to);
    command.arg("--directory").arg(from).args(files);
    assert!(command.status().expect("tar runs").success());
}
