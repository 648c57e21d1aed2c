//! Images of our own programs: what every pod's sandbox runs, what add-ons run, and a server to try a cluster with.

use std::fs;
use std::path::{Path, PathBuf};

use crate::archive::{Archive, Settings, build};
use crate::layer::{Layer, LayerError};

/// Names under which runtimes and AKS ask for the program that holds a pod's namespaces.
pub const PAUSE_NAMES: [&str; 9] = [
    "registry.k8s.io/pause:3.6",
    "registry.k8s.io/pause:3.8",
    "registry.k8s.io/pause:3.9",
    "registry.k8s.io/pause:3.10",
    "registry.k8s.io/pause:3.10.1",
    "registry.k8s.io/pause:3.10.2",
    "mcr.microsoft.com/oss/kubernetes/pause:3.6",
    "mcr.microsoft.com/oss/kubernetes/pause:3.9",
    "mcr.microsoft.com/oss/v2/kubernetes/pause:3.10",
];
/// The demo's names; the second is what it is updated to.
pub const DEMO_NAMES: [&str; 2] = ["kyanite.local/demo:1", "kyanite.local/demo:2"];
/// What add-ons run: the name of the image of `kyanite` itself.
pub const KYANITE_NAME: &str = concat!("kyanite.local/kyanite:", env!("CARGO_PKG_VERSION"));
/// What writes rules of nftables, which the service proxy and network policies run; with its place in the image.
const NFT: [&str; 3] = ["/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft"];
/// The demo's port.
pub const DEMO_PORT: &str = "8080";
/// Nobody, as upstream's pause has it.
const NOBODY: &str = "65535:65535";

/// The program and the name of an image of ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltIn {
    /// What holds a pod's namespaces.
    Pause,
    /// A server that says which pod answers; its version is 1 or 2.
    Demo(u8),
    /// This program whole, and what it runs itself.
    Kyanite,
}

impl BuiltIn {
    /// The file name of the program, which lies beside `kyanite`.
    pub fn program(self) -> &'static str {
        match self {
            BuiltIn::Pause => "kyanite-pause",
            BuiltIn::Demo(_) => "kyanite-demo",
            BuiltIn::Kyanite => "kyanite",
        }
    }

    /// Makes the image from the program in this directory; further names may be given.
    pub fn build(self, programs: &Path, names: &[String]) -> Result<Archive, LayerError> {
        let mut layer = Layer::default();
        let path = format!("/{}", self.program().trim_start_matches("kyanite-"));
        layer.add_program(&programs.join(self.program()), &path)?;
        let mut settings = Settings {
            entrypoint: vec![path],
            user: NOBODY.to_owned(),
            working_dir: "/".to_owned(),
            ..Settings::default()
        };
        let mut all: Vec<String> = names.to_vec();
        match self {
            BuiltIn::Pause => all.extend(PAUSE_NAMES.map(str::to_owned)),
            BuiltIn::Demo(version) => {
                let name = DEMO_NAMES[usize::from(version != 1)];
                all.push(name.to_owned());
                settings.env.push(format!("VERSION={version}"));
                settings.expose(DEMO_PORT);
            }
            BuiltIn::Kyanite => {
                all.push(KYANITE_NAME.to_owned());
                // Add-ons that may do less say so themselves.
                settings.user.clear();
                if let Some(nft) = nft() {
                    layer.add_program(nft, NFT[0])?;
                }
            }
        }
        Ok(build(&all, &settings, &[layer.to_tar()]))
    }
}

/// Where this host has the program that writes rules of nftables.
pub fn nft() -> Option<&'static Path> {
    NFT.iter().map(Path::new).find(|path| path.exists())
}

/// Every image of ours, and the file that it is written to.
const ALL: [(BuiltIn, &str); 4] = [
    (BuiltIn::Pause, "pause.tar"),
    (BuiltIn::Demo(1), "demo-1.tar"),
    (BuiltIn::Demo(2), "demo-2.tar"),
    (BuiltIn::Kyanite, "kyanite.tar"),
];

/// Writes our images into a directory, made from the programs in another. A file that is whole and newer than its
/// program stays.
pub fn provide(programs: &Path, to: &Path) -> Result<Vec<PathBuf>, LayerError> {
    let written = |path: &Path| {
        let path = path.to_owned();
        move |source| LayerError::Write { path, source }
    };
    fs::create_dir_all(to).map_err(written(to))?;
    let mut files = Vec::new();
    for (which, name) in ALL {
        let file = to.join(name);
        if !is_newer(&file, &programs.join(which.program())) {
            let image = which.build(programs, &[])?;
            // Whoever is killed here leaves no half of an image under its name.
            let aside = to.join(format!("{name}.new"));
            fs::write(&aside, &image.bytes).map_err(written(&aside))?;
            fs::rename(&aside, &file).map_err(written(&file))?;
        }
        files.push(file);
    }
    Ok(files)
}

fn is_newer(file: &Path, program: &Path) -> bool {
    let changed = |path: &Path| fs::metadata(path).and_then(|m| m.modified()).ok();
    matches!((changed(file), changed(program)), (Some(made), Some(built)) if made > built)
}
