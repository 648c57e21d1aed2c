//! The file system of an image, put together from programs, files and directories.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use crate::program::{self, ProgramError};
use crate::tar::{Entry, Kind, write};

/// Why a layer cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// A file or directory could not be read.
    #[error("cannot read `{}`", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// An image could not be written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A program lacks what it needs.
    #[error(transparent)]
    Program(#[from] ProgramError),
}

impl LayerError {
    fn read(path: &Path) -> impl FnOnce(io::Error) -> LayerError {
        let path = path.to_owned();
        move |source| LayerError::Read { path, source }
    }
}

/// Files by their path in the image.
#[derive(Debug, Clone, Default)]
pub struct Layer(BTreeMap<String, (u32, Kind)>);

impl Layer {
    /// Adds a program at a path, with the libraries and the loader that it needs.
    pub fn add_program(&mut self, file: &Path, at: &str) -> Result<(), LayerError> {
        let content = fs::read(file).map_err(LayerError::read(file))?;
        let found = program::dependencies(file, &content, |path| fs::read(path).ok())?;
        self.add(at, 0o755, Kind::File(content));
        for (path, library) in found {
            self.add(&path, 0o755, Kind::File(library));
        }
        Ok(())
    }

    /// Adds a file.
    pub fn add_file(&mut self, at: &str, mode: u32, content: impl Into<Vec<u8>>) {
        self.add(at, mode, Kind::File(content.into()));
    }

    /// Adds an empty directory.
    pub fn add_directory(&mut self, at: &str, mode: u32) {
        self.add(at, mode, Kind::Directory);
    }

    /// Adds a link that names its target.
    pub fn add_link(&mut self, at: &str, to: &str) {
        self.add(at, 0o777, Kind::Symlink(to.to_owned()));
    }

    /// Gives what is at a path other permissions.
    pub fn set_mode(&mut self, at: &str, mode: u32) {
        if let Some(entry) = self.0.get_mut(at.trim_matches('/')) {
            entry.0 = mode;
        }
    }

    /// Adds what is in a directory; sockets, pipes and devices are left out.
    pub fn add_tree(&mut self, directory: &Path, at: &str) -> Result<(), LayerError> {
        for item in fs::read_dir(directory).map_err(LayerError::read(directory))? {
            let item = item.map_err(LayerError::read(directory))?;
            let path = item.path();
            let target = format!(
                "{}/{}",
                at.trim_end_matches('/'),
                item.file_name().to_string_lossy()
            );
            let metadata = item.metadata().map_err(LayerError::read(&path))?;
            let mode = metadata.permissions().mode();
            if metadata.is_dir() {
                self.add(&target, mode, Kind::Directory);
                self.add_tree(&path, &target)?;
            } else if metadata.is_symlink() {
                let to = fs::read_link(&path).map_err(LayerError::read(&path))?;
                let to = to.to_string_lossy().into_owned();
                self.add(&target, mode, Kind::Symlink(to));
            } else if metadata.is_file() {
                let content = fs::read(&path).map_err(LayerError::read(&path))?;
                self.add(&target, mode, Kind::File(content));
            }
        }
        Ok(())
    }

    fn add(&mut self, at: &str, mode: u32, kind: Kind) {
        let path = at.trim_matches('/').to_owned();
        let mut parent = path.as_str();
        while let Some((above, _)) = parent.rsplit_once('/') {
            let directory = || (0o755, Kind::Directory);
            self.0.entry(above.to_owned()).or_insert_with(directory);
            parent = above;
        }
        self.0.insert(path, (mode & 0o7777, kind));
    }

    /// The archive of the layer.
    pub fn to_tar(&self) -> Vec<u8> {
        let entry = |(path, (mode, kind)): (&String, &(u32, Kind))| Entry {
            path: path.clone(),
            mode: *mode,
            kind: kind.clone(),
        };
        let entries: Vec<Entry> = self.0.iter().map(entry).collect();
        write(&entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tar::read;

    #[test]
    fn directories_come_before_what_is_in_them() {
        let mut layer = Layer::default();
        layer.add_file("/etc/deep/file", 0o600, "x");
        let paths: Vec<String> = read(&layer.to_tar()).into_iter().map(|e| e.path).collect();
        assert_eq!(paths, ["etc", "etc/deep", "etc/deep/file"]);
    }

    #[test]
    fn a_tree_keeps_modes_and_links() {
        let directory = tempfile::tempdir().expect("a directory");
        fs::create_dir(directory.path().join("bin")).expect("a directory");
        fs::write(directory.path().join("bin/run"), "#!").expect("a file");
        let mode = fs::Permissions::from_mode(0o750);
        fs::set_permissions(directory.path().join("bin/run"), mode).expect("a mode");
        std::os::unix::fs::symlink("run", directory.path().join("bin/link")).expect("a link");
        let mut layer = Layer::default();
        layer.add_tree(directory.path(), "/opt").expect("a tree");
        let found = read(&layer.to_tar());
        let of = |path: &str| found.iter().find(|entry| entry.path == path).cloned();
        assert_eq!(of("opt/bin/run").map(|e| e.mode), Some(0o750));
        assert_eq!(
            of("opt/bin/link").map(|e| e.kind),
            Some(Kind::Symlink("run".to_owned()))
        );
    }

    #[test]
    fn a_program_comes_with_its_libraries() {
        let mut layer = Layer::default();
        let own = std::env::current_exe().expect("this test");
        layer.add_program(&own, "/test").expect("a program");
        let paths: Vec<String> = read(&layer.to_tar()).into_iter().map(|e| e.path).collect();
        assert!(paths.contains(&"test".to_owned()));
        let elf = program::Program::read(&fs::read(own).expect("a program")).expect("ELF");
        for library in elf.needed {
            assert!(
                paths.iter().any(|p| p.ends_with(&library)),
                "{library}: {paths:?}"
            );
        }
    }
}
