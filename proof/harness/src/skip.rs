//! What this machine lacks.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Says that the running test lacks something on this machine; `make test` collects these lines.
///
/// Written past libtest's capture, so that it shows although the test passes.
pub fn skip(what_is_missing: &str) {
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let line = format!("SKIPPED: {test}: {what_is_missing}\n");
    std::io::stderr()
        .write_all(line.as_bytes())
        .expect("stderr is open");
}

/// Whether the test may do what root may; says so if not.
pub fn is_root(what_for: &str) -> bool {
    let is_root = rustix::process::geteuid().is_root();
    if !is_root {
        skip(&format!("{what_for} needs root"));
    }
    is_root
}

/// The program that `variable` names, or `name` on `PATH`.
pub fn find_program(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(variable) {
        return Some(PathBuf::from(named));
    }
    let path: OsString = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|dir| dir.join(name))
        .find(|file| is_program(file))
}

/// The directory that `variable` names, with all these files; says what is missing if not.
pub fn directory(variable: &str, files: &[&str]) -> Option<PathBuf> {
    let Some(directory) = std::env::var_os(variable).map(PathBuf::from) else {
        skip(&format!(
            "{variable} is not set (scripts/setup --for test, make upstream, scripts/env)"
        ));
        return None;
    };
    match files.iter().find(|file| !directory.join(file).is_file()) {
        Some(missing) => {
            skip(&format!("no {missing} in {}", directory.display()));
            None
        }
        None => Some(directory),
    }
}

fn is_program(file: &Path) -> bool {
    file.metadata()
        .is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}
