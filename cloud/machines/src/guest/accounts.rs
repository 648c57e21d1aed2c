//! Accounts in the tables of a Unix system. Pure.

use std::path::PathBuf;

/// Where passwords are.
pub(crate) const SHADOW: &str = "/etc/shadow";
/// Where cloud-init lets its users do everything.
pub(crate) const SUDOERS: &str = "/etc/sudoers.d/90-cloud-init-users";

/// The first number of a person.
const FIRST: u32 = 1000;

/// An account, and the lines to be added for it; none for one that is there.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) home: PathBuf,
    pub(crate) lines: Vec<(&'static str, String)>,
}

/// The account of somebody, by `/etc/passwd` and `/etc/group` as they are.
pub(crate) fn account(passwd: &str, group: &str, name: &str) -> Account {
    let rows = |table: &'_ str| -> Vec<Vec<String>> {
        let row = |line: &str| line.split(':').map(str::to_owned).collect();
        table.lines().map(row).collect()
    };
    let (users, groups) = (rows(passwd), rows(group));
    let number = |row: &[String], at: usize| row.get(at).and_then(|n| n.parse::<u32>().ok());
    if let Some(known) = users.iter().find(|row| row[0] == name) {
        return Account {
            user: number(known, 2).unwrap_or(0),
            group: number(known, 3).unwrap_or(0),
            home: known.get(5).map(PathBuf::from).unwrap_or_default(),
            lines: Vec::new(),
        };
    }
    let taken = |id: u32| {
        users
            .iter()
            .chain(&groups)
            .any(|row| number(row, 2) == Some(id))
    };
    let id = (FIRST..).find(|id| !taken(*id)).unwrap_or(FIRST);
    let home = format!("/home/{name}");
    let mut lines = vec![
        (
            "/etc/passwd",
            format!("{name}:x:{id}:{id}::{home}:/bin/bash\n"),
        ),
        (SHADOW, format!("{name}:!:19000:0:99999:7:::\n")),
    ];
    let own = groups
        .iter()
        .find(|row| row[0] == name)
        .and_then(|row| number(row, 2));
    if own.is_none() {
        lines.push(("/etc/group", format!("{name}:x:{id}:\n")));
    }
    Account {
        user: id,
        group: own.unwrap_or(id),
        home: home.into(),
        lines,
    }
}

/// What lets somebody do everything.
pub(crate) fn sudo(name: &str) -> String {
    format!("{name} ALL=(ALL) NOPASSWD:ALL\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\nann:x:1000:1000::/home/ann:/bin/sh\n";
    const GROUP: &str = "root:x:0:\nann:x:1000:\nmen:x:1001:\n";

    #[test]
    fn a_new_account_has_the_first_free_number() {
        let bob = account(PASSWD, GROUP, "bob");
        assert_eq!((bob.user, bob.group), (1002, 1002));
        let passwd = (
            "/etc/passwd",
            "bob:x:1002:1002::/home/bob:/bin/bash\n".to_owned(),
        );
        assert_eq!(bob.lines[0], passwd);
        assert_eq!(bob.lines[2], ("/etc/group", "bob:x:1002:\n".to_owned()));
    }

    #[test]
    fn whoever_has_an_account_keeps_it() {
        let ann = account(PASSWD, GROUP, "ann");
        assert_eq!((ann.user, ann.home), (1000, PathBuf::from("/home/ann")));
        assert_eq!(ann.lines, []);
        let men = account(PASSWD, GROUP, "men");
        assert_eq!((men.user, men.group, men.lines.len()), (1002, 1001, 2));
    }
}
