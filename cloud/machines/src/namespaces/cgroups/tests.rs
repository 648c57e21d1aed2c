#![allow(clippy::unwrap_used, reason = "tests")]

use super::*;

fn one(names: &[&str]) -> Version {
    Version::One(names.iter().map(|&n| n.to_owned()).collect())
}

#[test]
fn both_versions_side_by_side() {
    let table = "\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:4 - cgroup cgroup rw,cpu,cpuacct
40 31 0:37 / /sys/fs/cgroup/systemd rw shared:5 master:1 - cgroup cgroup rw,xattr,release_agent=/x,name=systemd
41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
42 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
43 27 0:29 / /somewhere/else rw,relatime - cgroup cgroup rw,cpu
";
    let found = hierarchies(table);
    let expected = [
        ("cpu,cpuacct", one(&["cpu", "cpuacct"])),
        ("systemd", one(&["name=systemd"])),
        ("unified", Version::Two),
    ]
    .map(|(name, version)| Hierarchy {
        mount: Path::new(MOUNT).join(name),
        version,
    });
    assert_eq!(found, expected);
}

#[test]
fn version_two_alone() {
    let table = "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate";
    let expected = Hierarchy {
        mount: PathBuf::from(MOUNT),
        version: Version::Two,
    };
    assert_eq!(hierarchies(table), [expected]);
}

#[test]
fn a_group_that_is_not_there_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let hierarchy = Hierarchy {
        mount: dir.path().to_owned(),
        version: Version::Two,
    };
    fs::create_dir_all(hierarchy.group("m").join("init.scope")).unwrap();
    remove(std::slice::from_ref(&hierarchy), "m").unwrap();
    assert!(!hierarchy.group("m").exists());
    assert!(
        !dir.path().join(PARENT).exists(),
        "the empty parent goes too"
    );
    remove(&[hierarchy], "m").unwrap();
}
