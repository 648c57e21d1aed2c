//! hostPath: what must be on the node at a path, and what is made there (`pkg/volume/hostpath`).

use std::fs::{self, FileType, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt, OpenOptionsExt as _};
use std::path::Path;

/// Why a path of the host is not what a pod says it is.
#[derive(Debug, thiserror::Error)]
pub(super) enum Mismatch {
    /// Something else is there, or nothing.
    #[error("hostPath type check failed: {path} is not a {wanted}")]
    Kind {
        /// The path.
        path: String,
        /// What the pod wants.
        wanted: &'static str,
    },
    /// A type that does not exist; the API server lets none through.
    #[error("{0} is an invalid volume type")]
    Type(String),
    /// What was to be made could not be.
    #[error("{0}")]
    Make(#[from] io::Error),
    /// `..` in a path.
    #[error("must not contain '..'")]
    Backsteps,
}

type Check = fn(&FileType) -> bool;

/// Types, what is there by upstream's name, and how that is seen.
const CHECKS: [(&str, &str, Check); 7] = [
    ("DirectoryOrCreate", "directory", FileType::is_dir),
    ("Directory", "directory", FileType::is_dir),
    ("FileOrCreate", "file", FileType::is_file),
    ("File", "file", FileType::is_file),
    ("Socket", "socket file", FileTypeExt::is_socket),
    (
        "CharDevice",
        "character device",
        FileTypeExt::is_char_device,
    ),
    ("BlockDevice", "block device", FileTypeExt::is_block_device),
];

/// Checks a path, and makes what a type with `OrCreate` asks for.
pub(super) fn check(path: &str, wanted: &str) -> Result<(), Mismatch> {
    if path.split('/').any(|part| part == "..") {
        return Err(Mismatch::Backsteps);
    }
    if wanted.is_empty() {
        return Ok(());
    }
    let row = CHECKS.iter().find(|(kind, ..)| *kind == wanted);
    let (kind, name, is_it) = row.ok_or_else(|| Mismatch::Type(wanted.into()))?;
    if !Path::new(path).exists() {
        make(Path::new(path), kind)?;
    }
    match fs::metadata(path) {
        Ok(found) if is_it(&found.file_type()) => Ok(()),
        _ => Err(Mismatch::Kind {
            path: path.into(),
            wanted: name,
        }),
    }
}

fn make(path: &Path, kind: &str) -> io::Result<()> {
    match kind {
        "DirectoryOrCreate" => fs::DirBuilder::new()
            .mode(0o755)
            .recursive(true)
            .create(path),
        "FileOrCreate" => {
            let mut new = OpenOptions::new();
            new.create(true).append(true).mode(0o644);
            new.open(path).map(|_| ())
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn types_are_checked_and_made_as_upstream_does() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name).to_str().unwrap().to_owned();
        fs::write(at("file"), "").unwrap();
        fs::create_dir(at("dir")).unwrap();
        let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        std::os::unix::fs::symlink(at("dir"), at("link")).unwrap();
        let failed = |name: &str, what: &str| {
            Some(format!(
                "hostPath type check failed: {} is not a {what}",
                at(name)
            ))
        };
        for (name, kind, wanted) in [
            ("anything", "", None),
            ("file", "File", None),
            ("file", "FileOrCreate", None),
            ("dir", "Directory", None),
            ("link", "Directory", None),
            ("socket", "Socket", None),
            ("file", "Directory", failed("file", "directory")),
            ("dir", "File", failed("dir", "file")),
            ("file", "DirectoryOrCreate", failed("file", "directory")),
            ("none", "Directory", failed("none", "directory")),
            ("none", "File", failed("none", "file")),
            ("file", "Socket", failed("file", "socket file")),
            ("file", "CharDevice", failed("file", "character device")),
            ("file", "BlockDevice", failed("file", "block device")),
            ("new/deep", "DirectoryOrCreate", None),
            ("new/file", "FileOrCreate", None),
        ] {
            let told = check(&at(name), kind).err().map(|e| e.to_string());
            assert_eq!(told, wanted, "{name} {kind}");
        }
        assert!(check("/dev/null", "CharDevice").is_ok());
        assert!(check(&at("missing/file"), "FileOrCreate").is_err());
        assert!(check("/a/../b", "").is_err());
    }
}
