//! Lays files down in the machine's root, from inside it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, chown, symlink};
use std::path::Path;

use crate::custom_data::WrittenFile;
use crate::guest::{Laid, accounts};
use crate::{Error, File, User};

/// Lays down a file or link, whatever was there.
pub(super) fn down(laid: &Laid) -> Result<(), Error> {
    match laid {
        Laid::File(wanted) => file(wanted),
        Laid::Link(path, to) => {
            make_way(path)?;
            symlink(to, path).map_err(Error::file("link", path))
        }
    }
}

/// Lays down a file; a link in its place is replaced, not followed.
pub(super) fn file(wanted: &File) -> Result<(), Error> {
    make_way(&wanted.path)?;
    write(&wanted.path, wanted.mode, &wanted.content, false)
}

/// Lays down a file of the custom data as cloud-init writes them: links are followed, text may be appended.
pub(super) fn written(wanted: &WrittenFile) -> Result<(), Error> {
    let path = &wanted.path;
    make_parent(path)?;
    write(path, wanted.mode, &wanted.content, wanted.append)?;
    let (user, group) = match &wanted.owner {
        None => (0, 0),
        Some((user, group)) => (
            number(user, "/etc/passwd").map_err(Error::file("find the owner of", path))?,
            number(group, "/etc/group").map_err(Error::file("find the group of", path))?,
        ),
    };
    chown(path, Some(user), Some(group)).map_err(Error::file("change the owner of", path))
}

/// Gives somebody an account with a home, keys that let in, and `sudo`; one who has an account keeps it.
pub(super) fn user(user: &User) -> Result<(), Error> {
    let read = |path: &str| {
        let path = Path::new(path);
        fs::read_to_string(path).map_err(Error::file("read", path))
    };
    let account = accounts::account(&read("/etc/passwd")?, &read("/etc/group")?, &user.name);
    for (path, line) in &account.lines {
        write(Path::new(path), mode_of(path), line.as_bytes(), true)?;
    }
    let own = |path: &Path, mode: u32| {
        chown(path, Some(account.user), Some(account.group))
            .and_then(|()| fs::set_permissions(path, fs::Permissions::from_mode(mode)))
            .map_err(Error::file("give to its owner", path))
    };
    let keys = account.home.join(".ssh/authorized_keys");
    make_parent(&keys)?;
    let text: String = user
        .keys
        .iter()
        .map(|key| format!("{}\n", key.trim()))
        .collect();
    write(&keys, 0o600, text.as_bytes(), true)?;
    own(&account.home, 0o755)?;
    own(&account.home.join(".ssh"), 0o700)?;
    own(&keys, 0o600)?;
    let (rule, sudoers) = (accounts::sudo(&user.name), Path::new(accounts::SUDOERS));
    make_parent(sudoers)?;
    write(sudoers, 0o440, rule.as_bytes(), true)
}

// Passwords are nobody's business, not even where there are none.
fn mode_of(path: &str) -> u32 {
    if path == accounts::SHADOW {
        0o640
    } else {
        0o644
    }
}

fn make_parent(path: &Path) -> Result<(), Error> {
    match path.parent() {
        Some(parent) => fs::create_dir_all(parent).map_err(Error::file("make", parent)),
        None => Ok(()),
    }
}

fn make_way(path: &Path) -> Result<(), Error> {
    make_parent(path)?;
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(Error::file("replace", path)(error))
        }
        _ => Ok(()),
    }
}

fn write(path: &Path, mode: u32, content: &[u8], append: bool) -> Result<(), Error> {
    let write = || {
        let mut file = fs::OpenOptions::new()
            .create(true)
            .write(true)
            .append(append)
            .truncate(!append)
            .mode(mode)
            .open(path)?;
        file.set_permissions(fs::Permissions::from_mode(mode))?;
        file.write_all(content)
    };
    write().map_err(Error::file("write", path))
}

// The number of a user or group by the machine's own tables.
fn number(name: &str, table: &str) -> std::io::Result<u32> {
    if let Ok(number) = name.parse() {
        return Ok(number);
    }
    let text = fs::read_to_string(table)?;
    let mut rows = text.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let row = rows.find(|row| row[0] == name);
    row.and_then(|row| row.get(2)?.parse().ok())
        .ok_or_else(|| std::io::Error::other(format!("`{name}` is not in {table}")))
}
