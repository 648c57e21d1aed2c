//! The whole tree of files after a provision, next to a golden one.
//!
//! The first case is written out in full, the base cases of other images as their difference to it,
//! every other case as its difference to the base of its image. `KYANITE_BLESS=1 cargo test -p node-controller --test provision` writes them anew:
//! read the difference before you commit it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use ::steps::engine::Outcome;
use node_controller::steps::steps;

use crate::cases::{CASES, Case};
use crate::machines::{Image, Machine, STATE, engine, provision};

/// What is at each path: its mode (or that it is a link) and its lines.
type Tree = BTreeMap<String, (String, Vec<String>)>;

#[test]
fn every_configuration_makes_the_tree_it_should() {
    let mut wrong = Vec::new();
    let bases: Vec<(Image, Tree)> = CASES
        .iter()
        .filter(|case| case.is_base())
        .map(|case| (case.image, case.result()))
        .collect();
    for case in CASES {
        let got = case.outcome(&bases);
        let path = golden(case.name);
        if std::env::var_os("KYANITE_BLESS").is_some() {
            std::fs::write(&path, &got).unwrap();
        }
        if std::fs::read_to_string(&path).unwrap_or_default() != got {
            wrong.push(case.name);
        }
    }
    assert!(
        wrong.is_empty(),
        "not as their golden trees: {wrong:?}; see the header of trees.rs"
    );
}

#[test]
fn a_second_provision_finds_nothing_to_do() {
    for case in CASES {
        let machine = case.machine();
        let steps = steps(&case.configuration());
        let first = engine(&machine.host).run(&steps);
        assert_eq!(first.code(), 0, "{}: {:?}", case.name, first.failure);
        let before = tree(&machine);
        let second = engine(&machine.host).run(&steps);
        let changed = second
            .steps
            .iter()
            .filter(|s| s.outcome == Outcome::Changed);
        let changed: Vec<&str> = changed
            .map(|s| s.name.as_str())
            .filter(|s| !case.repeats(s))
            .collect();
        assert_eq!(changed, Vec::<&str>::new(), "{}", case.name);
        assert_eq!(tree(&machine), before, "{}", case.name);
    }
}

#[test]
fn undoing_a_provision_leaves_the_machine_as_it_was() {
    for case in CASES {
        let machine = case.machine();
        let before = tree(&machine);
        provision(&machine, &case.configuration());
        engine(&machine.host).undo();
        let after = tree(&machine);
        // What commands made is theirs to take away.
        let made: Vec<&String> = after
            .keys()
            .filter(|path| !before.contains_key(*path))
            .collect();
        // A kernel would show its choices again; the simulation shows what was written.
        let kept =
            |path: &&String| path.starts_with("/sys/") || after.get(*path) == before.get(*path);
        let lost: Vec<&String> = before.keys().filter(|path| !kept(path)).collect();
        assert_eq!(lost, Vec::<&String>::new(), "{}", case.name);
        assert!(
            made.iter().all(|path| case.made_by_commands(path)),
            "{}: {made:?}",
            case.name
        );
    }
}

impl Case {
    /// A machine on which nothing has happened yet.
    pub(crate) fn machine(&self) -> Machine {
        self.image.machine(self.tags)
    }

    /// Commands that the simulation does not take to heart, so that they come again.
    fn repeats(&self, step: &str) -> bool {
        [
            "configureAdminUser",
            "ensureKubelet.ensureIMDSRestriction",
            "configureSwapFile",
        ]
        .contains(&step)
    }

    fn made_by_commands(&self, path: &str) -> bool {
        let places = [
            "/usr/bin",
            "/usr/sbin",
            "/usr/lib",
            "/opt/bin",
            "/opt/cni/bin",
            "/lib/systemd",
            "/proc/net",
            "/mnt",
            "/swapfile",
        ];
        STATE.starts_with(path) || places.iter().any(|place| path.starts_with(place))
    }

    fn outcome(&self, bases: &[(Image, Tree)]) -> String {
        let (_, base) = bases
            .iter()
            .find(|(image, _)| *image == self.image)
            .unwrap();
        match self.is_base() {
            true if self.image == bases[0].0 => full(base),
            true => difference(&bases[0].1, base),
            false => difference(base, &self.result()),
        }
    }

    /// What a provision left behind, besides what was there before.
    fn result(&self) -> Tree {
        let machine = self.machine();
        let before = tree(&machine);
        let report = provision(&machine, &self.configuration());
        assert_eq!(report.code(), 0, "{}: {:?}", self.name, report.failure);
        let mut after = tree(&machine);
        let gone: Vec<String> = before
            .keys()
            .filter(|path| !after.contains_key(*path))
            .cloned()
            .collect();
        after.retain(|path, now| before.get(path) != Some(now) && path != STATE);
        after.extend(
            gone.into_iter()
                .map(|path| (path, ("removed".to_owned(), Vec::new()))),
        );
        after.insert("commands".to_owned(), (String::new(), commands(&machine)));
        after
    }

    fn is_base(&self) -> bool {
        self.name.starts_with("base-")
    }
}

fn golden(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/trees");
    std::fs::create_dir_all(&directory).unwrap();
    directory.join(format!("{name}.txt"))
}

/// Commands that change something, scripts by their first lines.
fn commands(machine: &Machine) -> Vec<String> {
    let asks = [
        "systemctl show",
        "ip -",
        "false",
        "sh -c 'for package",
        "containerd --version",
        "grep",
        "df ",
        "ctr ",
        "findmnt",
        "readlink",
    ];
    let lines = machine.host.commands();
    let lines = lines
        .iter()
        .filter(|line| !asks.iter().any(|ask| line.starts_with(ask)));
    let lines = lines.filter(|line| !line.contains(" -C FORWARD") && !line.contains("nft list"));
    lines.map(|line| shortened(line)).collect()
}

fn shortened(line: &str) -> String {
    match (line.find("-c 'set -eu"), line.rfind("' sh ")) {
        (Some(start), Some(end)) if start < end => {
            let name = line[start..].lines().nth(1).unwrap_or_default();
            format!("{}[{name} ...] {}", &line[..start], &line[end + 5..])
        }
        _ => line.to_owned(),
    }
}

fn tree(machine: &Machine) -> Tree {
    let mut tree = Tree::new();
    walk(machine.root.path(), machine.root.path(), &mut tree);
    tree
}

fn walk(root: &Path, directory: &Path, tree: &mut Tree) {
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = format!("/{}", path.strip_prefix(root).unwrap().display());
        let metadata = std::fs::symlink_metadata(&path).unwrap();
        let mode = format!("{:04o}", metadata.permissions().mode() & 0o7777);
        if metadata.is_symlink() {
            let target = std::fs::read_link(&path).unwrap();
            tree.insert(name, (format!("-> {}", target.display()), Vec::new()));
        } else if metadata.is_dir() {
            if name == STATE {
                tree.insert(name, (mode, Vec::new()));
                continue;
            }
            tree.insert(name, (format!("directory {mode}"), Vec::new()));
            walk(root, &path, tree);
        } else {
            tree.insert(name.clone(), (mode, content(&name, &path)));
        }
    }
}

/// The serving pair is new each time.
fn content(name: &str, path: &Path) -> Vec<String> {
    let text = String::from_utf8_lossy(&std::fs::read(path).unwrap()).into_owned();
    match name.contains("/kubeletserver.") {
        true => text.lines().take(1).map(str::to_owned).collect(),
        false => text.lines().map(str::to_owned).collect(),
    }
}

fn full(tree: &Tree) -> String {
    let mut text = String::new();
    for (path, (mode, lines)) in tree {
        let _ = writeln!(text, "== {path} {mode}");
        for line in lines {
            let _ = writeln!(text, "{line}");
        }
    }
    text
}

fn difference(base: &Tree, tree: &Tree) -> String {
    let mut text = String::new();
    for path in base
        .keys()
        .chain(tree.keys())
        .collect::<std::collections::BTreeSet<_>>()
    {
        match (base.get(path), tree.get(path)) {
            (Some(_), None) => {
                let _ = writeln!(text, "-- {path}");
            }
            (None, Some((mode, lines))) => {
                let _ = writeln!(text, "++ {path} {mode}");
                for line in lines {
                    let _ = writeln!(text, "{line}");
                }
            }
            (Some(old), Some(new)) if old != new => {
                let _ = writeln!(text, "!! {path} {}", new.0);
                changed_lines(&old.1, &new.1, &mut text);
            }
            _ => {}
        }
    }
    text
}

/// The lines that differ, by the longest common subsequence.
fn changed_lines(old: &[String], new: &[String], text: &mut String) {
    let mut common = vec![vec![0usize; new.len() + 1]; old.len() + 1];
    for (i, o) in old.iter().enumerate().rev() {
        for (j, n) in new.iter().enumerate().rev() {
            common[i][j] = match o == n {
                true => common[i + 1][j + 1] + 1,
                false => common[i + 1][j].max(common[i][j + 1]),
            };
        }
    }
    let (mut i, mut j) = (0, 0);
    while i < old.len() || j < new.len() {
        if i < old.len() && j < new.len() && old[i] == new[j] {
            (i, j) = (i + 1, j + 1);
        } else if j == new.len() || (i < old.len() && common[i + 1][j] >= common[i][j + 1]) {
            let _ = writeln!(text, "-{}", old[i]);
            i += 1;
        } else {
            let _ = writeln!(text, "+{}", new[j]);
            j += 1;
        }
    }
}
