//! Bundles: everything that a bootstrap would fetch, in one file, with a list of what is in it.
//!
//! ```text
//! manifest.json             names, sizes and digests
//! runc-1.3.0-runc.amd64     as they lie in the cache, each with its digest beside it
//! images/*.tar              archives of images
//! ```

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use ::steps::engine::{Engine, Failure, Retry, Step, Stop};
use ::steps::host::RealHost;
use aws_lc_rs::digest;
use serde::{Deserialize, Serialize};

use crate::codes;
use crate::journey::{News, telling};
use crate::steps::Wish;
use crate::steps::fetch::{brought_to, everything};

/// Where fetched files lie.
pub const CACHE: &str = "/var/lib/aks-flex-node/cache";
const MANIFEST: &str = "manifest.json";

/// What is in a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Manifest {
    /// The architecture that it is for.
    pub architecture: String,
    /// Its files.
    pub files: Vec<Item>,
}

/// A file of a bundle.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// Its path in the bundle.
    pub name: String,
    /// How large it is.
    pub size: u64,
    /// Its SHA-256.
    pub sha256: String,
}

/// A digest of what is written to it.
pub struct Digest {
    context: digest::Context,
    size: u64,
}

impl Digest {
    /// Of nothing yet.
    #[expect(clippy::new_without_default, reason = "it is made to be written to")]
    pub fn new() -> Digest {
        Digest {
            context: digest::Context::new(&digest::SHA256),
            size: 0,
        }
    }

    /// As text.
    pub fn hex(self) -> String {
        let digest = self.context.finish();
        digest
            .as_ref()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect()
    }
}

impl Write for Digest {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.context.update(bytes);
        self.size += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn item(name: &str, mut content: impl Read) -> io::Result<Item> {
    let mut digest = Digest::new();
    io::copy(&mut content, &mut digest)?;
    Ok(Item {
        name: name.to_owned(),
        size: digest.size,
        sha256: digest.hex(),
    })
}

/// A bundle to be made.
pub struct Create<'a> {
    /// What a bootstrap would want.
    pub wish: &'a Wish,
    /// Where it goes.
    pub output: &'a Path,
    /// Archives of images to bring along.
    pub images: &'a [PathBuf],
    /// Hears what happens.
    pub news: &'a News<'a>,
}

impl Create<'_> {
    /// Fetches, verifies and packs.
    pub fn run(&self, stop: &Stop) -> Result<Manifest, Failure> {
        let name = self
            .output
            .file_name()
            .unwrap_or_default()
            .to_string_lossy();
        let directory = self.output.with_file_name(format!(".{name}.parts"));
        let directory = std::path::absolute(&directory).unwrap_or(directory);
        let failed = |e: io::Error| Failure::file("write", &directory, &e);
        std::fs::create_dir_all(directory.join("images")).map_err(failed)?;
        self.fetch(&directory, stop)?;
        for image in self.images {
            let target = directory
                .join("images")
                .join(image.file_name().unwrap_or_default());
            std::fs::copy(image, &target).map_err(|e| Failure::file("copy", image, &e))?;
        }
        let manifest = listed(&directory).map_err(failed)?;
        let text = serde_json::to_vec_pretty(&manifest).expect("a list has string keys only");
        std::fs::write(directory.join(MANIFEST), text).map_err(failed)?;
        pack(&directory, self.output)?;
        // A part that stays is fetched no second time.
        std::fs::remove_dir_all(&directory).map_err(failed)?;
        Ok(manifest)
    }

    fn fetch(&self, directory: &Path, stop: &Stop) -> Result<(), Failure> {
        let host = RealHost::new();
        let wish = std::sync::Arc::new(self.wish.clone());
        let steps: Vec<Step> = everything(&wish)
            .into_iter()
            .zip(["runc", "containerd", "cni", "kubelet"])
            .map(|((name, archive), step)| {
                let (wish, target) = (wish.clone(), directory.join(name).display().to_string());
                Step::changes(step, codes::INTEGRITY, move |scene| {
                    brought_to(&wish, scene, &archive, &target)
                })
                .within(Duration::from_secs(1800))
                .retrying(Retry::times(
                    6,
                    Duration::from_secs(2),
                    Duration::from_secs(600),
                ))
            })
            .collect();
        let telling = telling::Telling::new(self.news, &[]);
        let engine = Engine {
            host: &host,
            state: directory.join(".state"),
            stop: stop.clone(),
            watcher: &telling,
            workers: crate::journey::WORKERS,
            deadline: Duration::from_secs(3600),
        };
        let report = engine.run(&steps);
        let state = directory.join(".state");
        std::fs::remove_dir_all(&state).map_err(|e| Failure::file("remove", &state, &e))?;
        report
            .failure
            .map_or(Ok(()), |(_, _, failure)| Err(failure))
    }
}

/// Everything in a directory, by name.
fn listed(directory: &Path) -> io::Result<Manifest> {
    let mut files = Vec::new();
    for part in ["", "images"] {
        for entry in std::fs::read_dir(directory.join(part))? {
            let path = entry?.path();
            let name = path
                .strip_prefix(directory)
                .unwrap_or(&path)
                .display()
                .to_string();
            if path.is_file() && name != MANIFEST {
                files.push(item(&name, std::fs::File::open(&path)?)?);
            }
        }
    }
    files.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(Manifest {
        architecture: std::env::consts::ARCH.to_owned(),
        files,
    })
}

fn tar(words: &[&std::ffi::OsStr]) -> Result<Vec<u8>, Failure> {
    let output = Command::new("tar").args(words).output();
    let output =
        output.map_err(|e| Failure::permanent(format!("tar cannot be run: {e}"), "install tar"))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => {
            let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            Err(
                Failure::permanent(format!("tar: {said}"), "check the bundle and the disk")
                    .with_code(codes::INTEGRITY),
            )
        }
    }
}

fn pack(directory: &Path, output: &Path) -> Result<(), Failure> {
    let words =
        ["--sort=name", "--owner=0", "--group=0", "--mtime=@0", "-cf"].map(std::ffi::OsStr::new);
    let rest = [
        output.as_os_str(),
        "-C".as_ref(),
        directory.as_os_str(),
        ".".as_ref(),
    ];
    tar(&[&words[..], &rest[..]].concat()).map(drop)
}

/// What is in a bundle; every file of it has the digest that its list says.
pub fn show(file: &Path) -> Result<Manifest, Failure> {
    let wrong = |cause: String| {
        let remedy = "make it again with `aks-flex-node bundle create`, and copy it whole";
        Failure::permanent(format!("{}: {cause}", file.display()), remedy)
            .with_code(codes::INTEGRITY)
    };
    let extract = |name: &str| {
        let path = format!("./{name}");
        let words: [&std::ffi::OsStr; 4] = [
            "-xOf".as_ref(),
            file.as_os_str(),
            "--".as_ref(),
            path.as_ref(),
        ];
        tar(&words)
    };
    let manifest: Manifest =
        serde_json::from_slice(&extract(MANIFEST)?).map_err(|e| wrong(e.to_string()))?;
    if manifest.architecture != std::env::consts::ARCH {
        return Err(wrong(format!("it is for {}", manifest.architecture)));
    }
    for expected in &manifest.files {
        let found = item(&expected.name, extract(&expected.name)?.as_slice());
        if found.map_err(|e| wrong(e.to_string()))? != *expected {
            return Err(wrong(format!("{} is not what it should be", expected.name)));
        }
    }
    Ok(manifest)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_bundle_that_was_changed_on_its_way_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let (parts, file) = (dir.path().join("parts"), dir.path().join("bundle.tar"));
        std::fs::create_dir_all(parts.join("images")).unwrap();
        std::fs::write(parts.join("runc"), "runc runc runc").unwrap();
        std::fs::write(parts.join("images/pause.tar"), "image").unwrap();
        let manifest = listed(&parts).unwrap();
        std::fs::write(parts.join(MANIFEST), serde_json::to_vec(&manifest).unwrap()).unwrap();
        pack(&parts, &file).unwrap();
        assert_eq!(show(&file).unwrap(), manifest);
        let names: Vec<&str> = manifest
            .files
            .iter()
            .map(|item| item.name.as_str())
            .collect();
        assert_eq!(names, ["images/pause.tar", "runc"]);
        let mut bytes = std::fs::read(&file).unwrap();
        let at = bytes
            .windows(14)
            .position(|part| part == b"runc runc runc")
            .unwrap();
        bytes[at] = b'R';
        std::fs::write(&file, bytes).unwrap();
        let refused = show(&file).unwrap_err();
        assert!(
            refused.cause.contains("runc is not what it should be"),
            "{refused:?}"
        );
    }
}
