//! `/logs/`: the files under one directory, and nothing outside of it whatever links say.

use std::fs;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use http::StatusCode;
use tokio::sync::mpsc;

use super::answer::{self, Answer};

const CHUNK: usize = 64 * 1024;

enum Found {
    Directory(Vec<String>),
    File(fs::File),
}

/// Serves a file, or a page with the names in a directory.
pub(super) async fn serve(root: &Path, path: &str) -> Answer {
    let (root, path) = (root.to_owned(), path.to_owned());
    let found = tokio::task::spawn_blocking(move || find(&root, &path)).await;
    match found.unwrap_or_else(|error| Err(io::Error::other(error))) {
        Ok(Found::Directory(names)) => {
            answer::of_type("text/html; charset=utf-8", answer::whole(page(&names)))
        }
        Ok(Found::File(file)) => {
            answer::of_type("text/plain; charset=utf-8", answer::coming(sent(file)))
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            answer::text(StatusCode::FORBIDDEN, "403 Forbidden\n")
        }
        Err(_) => answer::text(StatusCode::NOT_FOUND, "404 page not found\n"),
    }
}

fn find(root: &Path, path: &str) -> io::Result<Found> {
    let root = root.canonicalize()?;
    let relative: PathBuf = path.split('/').filter(|part| !part.is_empty()).collect();
    let whole = root.join(relative).canonicalize()?;
    if !whole.starts_with(&root) {
        return Err(io::ErrorKind::NotFound.into());
    }
    let kind = fs::metadata(&whole)?;
    if kind.is_dir() {
        let entries = fs::read_dir(&whole)?.flatten();
        let mut names: Vec<String> = entries
            .map(|entry| {
                let slash = if entry.path().is_dir() { "/" } else { "" };
                format!("{}{slash}", entry.file_name().to_string_lossy())
            })
            .collect();
        names.sort();
        return Ok(Found::Directory(names));
    }
    // Pipes and devices would never end.
    match kind.is_file() {
        true => Ok(Found::File(fs::File::open(&whole)?)),
        false => Err(io::ErrorKind::NotFound.into()),
    }
}

fn sent(mut file: fs::File) -> mpsc::Receiver<Bytes> {
    let (sender, receiver) = mpsc::channel(4);
    tokio::task::spawn_blocking(move || {
        let mut buffer = vec![0; CHUNK];
        while let Ok(count) = file.read(&mut buffer)
            && count > 0
            && sender
                .blocking_send(Bytes::copy_from_slice(&buffer[..count]))
                .is_ok()
        {}
    });
    receiver
}

fn page(names: &[String]) -> String {
    let escape = |text: &str| {
        text.replace('&', "&amp;")
            .replace('<', "&lt;")
            .replace('>', "&gt;")
            .replace('"', "&#34;")
    };
    let line = |name: &String| format!("<a href=\"{0}\">{0}</a>\n", escape(name));
    let lines: String = names.iter().map(line).collect();
    format!(
        "<!doctype html>\n<meta name=\"viewport\" content=\"width=device-width\">\n<pre>\n{lines}</pre>\n"
    )
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn only_files_of_the_directory_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("log");
        fs::create_dir_all(root.join("pods/x")).unwrap();
        fs::write(root.join("pods/x/0.log"), "x").unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink(root.join("pods/x/0.log"), root.join("link")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), root.join("bad")).unwrap();
        let names = |path| match find(&root, path) {
            Ok(Found::Directory(names)) => names,
            _ => vec![],
        };
        assert_eq!(names(""), ["bad", "link", "pods/"]);
        assert_eq!(names("pods/x/"), ["0.log"]);
        assert!(matches!(find(&root, "pods/x/0.log"), Ok(Found::File(_))));
        assert!(matches!(find(&root, "link"), Ok(Found::File(_))));
        for path in ["bad", "../secret", "none", "pods/../../secret"] {
            assert!(find(&root, path).is_err(), "{path}");
        }
    }
}
