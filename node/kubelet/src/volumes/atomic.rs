//! Files that change all at once under running readers, as upstream's AtomicWriter does it.
//!
//! The files are in a directory with a time in its name, `..data` is a link to it, and the names that pods see are links
//! into `..data`. A change writes a new directory and moves the link: a reader sees the old files or the new ones.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, Permissions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown, symlink};
use std::path::{Path, PathBuf};

use super::payload::Payload;

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// Makes the files of a directory those of the payload; says whether anything was written.
///
/// `stamp` names the new directory. `finish` sees the files before readers do: it gives them their group.
pub(super) fn write(
    target: &Path,
    payload: &Payload,
    stamp: &str,
    finish: impl FnOnce() -> io::Result<()>,
) -> io::Result<bool> {
    let old = current(target)?;
    if let Some(old) = &old
        && is_same(old, payload)
    {
        // A crash may have come between the files and their links.
        link_names(target, payload)?;
        return Ok(false);
    }
    let fresh = target.join(stamp);
    make_directory(&fresh)?;
    let written = write_files(&fresh, payload)
        .and_then(|()| finish())
        .and_then(|()| link_names(target, payload))
        .and_then(|()| swap(target, stamp));
    if let Err(error) = written {
        let _ = super::removal::remove_tree(&fresh);
        return Err(error);
    }
    remove_names(target, payload)?;
    sweep(target, stamp)?;
    Ok(true)
}

/// The name of a new directory: a time to the second and something that makes it unique.
pub(super) fn stamp(now: jiff::Timestamp, chance: u32) -> String {
    format!("..{}.{chance}", now.strftime("%Y_%m_%d_%H_%M_%S"))
}

fn current(target: &Path) -> io::Result<Option<PathBuf>> {
    match fs::read_link(target.join(DATA)) {
        Ok(name) => Ok(Some(target.join(name)).filter(|dir| dir.is_dir())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn is_same(old: &Path, payload: &Payload) -> bool {
    let Ok(found) = files_under(old) else {
        return false;
    };
    let wanted: BTreeSet<&str> = payload.keys().map(String::as_str).collect();
    found.iter().map(String::as_str).collect::<BTreeSet<_>>() == wanted
        && payload
            .iter()
            .all(|(path, file)| fs::read(old.join(path)).is_ok_and(|content| content == file.data))
}

fn files_under(root: &Path) -> io::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut rest = vec![String::new()];
    while let Some(directory) = rest.pop() {
        for entry in fs::read_dir(root.join(&directory))? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            let path = match directory.is_empty() {
                true => name.into_owned(),
                false => format!("{directory}/{name}"),
            };
            match entry.file_type()?.is_dir() {
                true => rest.push(path),
                false => found.push(path),
            }
        }
    }
    Ok(found)
}

fn make_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o755).recursive(true).create(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o755))
}

fn write_files(fresh: &Path, payload: &Payload) -> io::Result<()> {
    for (path, file) in payload {
        let whole = fresh.join(path);
        if let Some(parent) = whole.parent().filter(|parent| *parent != fresh) {
            make_directory(parent)?;
        }
        fs::write(&whole, &file.data)?;
        fs::set_permissions(&whole, Permissions::from_mode(file.mode))?;
        if let Some(owner) = file.owner {
            chown(&whole, Some(owner), None)?;
        }
    }
    Ok(())
}

fn first_names(payload: &Payload) -> BTreeSet<&str> {
    let first = |path: &'_ String| path.split('/').next().map(str::len).unwrap_or_default();
    payload.keys().map(|path| &path[..first(path)]).collect()
}

fn link_names(target: &Path, payload: &Payload) -> io::Result<()> {
    for name in first_names(payload) {
        match symlink(Path::new(DATA).join(name), target.join(name)) {
            Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
    }
    Ok(())
}

fn swap(target: &Path, stamp: &str) -> io::Result<()> {
    let new = target.join(NEW_DATA);
    match fs::remove_file(&new) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    symlink(stamp, &new)?;
    fs::rename(&new, target.join(DATA))
}

// Names of files that are gone. Other things may be here as well: mount points inside the volume stay.
fn remove_names(target: &Path, payload: &Payload) -> io::Result<()> {
    let wanted = first_names(payload);
    for entry in fs::read_dir(target)? {
        let entry = entry?;
        let name = entry.file_name();
        let ours = fs::read_link(entry.path()).is_ok_and(|to| to == Path::new(DATA).join(&name));
        if ours && !name.to_str().is_some_and(|name| wanted.contains(name)) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

// The directory from before, and those of writes that did not come to their end.
fn sweep(target: &Path, stamp: &str) -> io::Result<()> {
    for entry in fs::read_dir(target)? {
        let entry = entry?;
        let name = entry.file_name();
        let dated = name
            .to_str()
            .is_some_and(|n| n.starts_with("..2") && n != stamp);
        if dated && entry.file_type()?.is_dir() {
            super::removal::remove_tree(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::sync::atomic::{AtomicBool, Ordering};

    use super::super::payload::File;
    use super::*;

    fn payload(files: &[(&str, &str)]) -> Payload {
        let file = |text: &str| File {
            data: text.into(),
            mode: 0o640,
            owner: None,
        };
        let files = files.iter();
        files
            .map(|(path, text)| ((*path).to_owned(), file(text)))
            .collect()
    }

    fn put(dir: &Path, files: &[(&str, &str)], n: u32) -> bool {
        let stamp = stamp(jiff::Timestamp::UNIX_EPOCH, n).replace("..1970", "..2026");
        write(dir, &payload(files), &stamp, || Ok(())).unwrap()
    }

    fn visible(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(dir)
            .unwrap()
            .map(|e| e.unwrap().file_name().into_string().unwrap())
            .filter(|name| !name.starts_with(".."))
            .collect();
        names.sort();
        names
    }

    #[test]
    fn files_appear_change_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert!(put(dir, &[("a", "1"), ("d/e", "2"), ("d/f", "3")], 1));
        assert_eq!(visible(dir), ["a", "d"]);
        assert_eq!(fs::read_to_string(dir.join("d/e")).unwrap(), "2");
        let mode = fs::metadata(dir.join("a")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert!(put(dir, &[("a", "new"), ("b", "4")], 2));
        assert_eq!(visible(dir), ["a", "b"]);
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "new");
        // One dated directory and the link to it.
        let hidden = fs::read_dir(dir).unwrap().count() - visible(dir).len();
        assert_eq!(hidden, 2);
        assert!(put(dir, &[], 3));
        assert!(visible(dir).is_empty());
    }

    #[test]
    fn nothing_is_written_when_nothing_changed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        assert!(put(dir, &[("a", "1")], 1));
        let before = fs::read_link(dir.join(DATA)).unwrap();
        assert!(!put(dir, &[("a", "1")], 2));
        assert_eq!(fs::read_link(dir.join(DATA)).unwrap(), before);
        fs::remove_file(dir.join("a")).unwrap();
        assert!(!put(dir, &[("a", "1")], 3));
        assert_eq!(visible(dir), ["a"], "a lost link comes back");
    }

    #[test]
    fn what_a_crash_left_is_swept() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        fs::create_dir(dir.join("..2020_01_01_00_00_00.7")).unwrap();
        symlink("nowhere", dir.join(NEW_DATA)).unwrap();
        symlink("..2020_01_01_00_00_00.8", dir.join(DATA)).unwrap();
        assert!(put(dir, &[("a", "1")], 1));
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
        assert_eq!(fs::read_dir(dir).unwrap().count(), 3);
    }

    #[test]
    fn a_failure_leaves_the_old_files() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        put(dir, &[("a", "1")], 1);
        let failed = write(dir, &payload(&[("a", "2")]), "..2026_x", || {
            Err(io::Error::other("no"))
        });
        assert!(failed.is_err());
        assert_eq!(fs::read_to_string(dir.join("a")).unwrap(), "1");
        assert_eq!(fs::read_dir(dir).unwrap().count(), 3);
    }

    #[test]
    fn readers_never_see_a_mixture() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        put(dir, &[("a", "0"), ("b", "0")], 0);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..200 {
                    let text = n.to_string();
                    put(dir, &[("a", &text), ("b", &text)], n);
                }
                done.store(true, Ordering::Release);
            });
            while !done.load(Ordering::Acquire) {
                // A reader that holds the directory sees one version of it, or that it is gone.
                let data = dir.join(fs::read_link(dir.join(DATA)).unwrap());
                let a = fs::read_to_string(data.join("a"));
                let b = fs::read_to_string(data.join("b"));
                if let (Ok(a), Ok(b)) = (a, b) {
                    assert_eq!(a, b);
                }
            }
        });
    }
}
