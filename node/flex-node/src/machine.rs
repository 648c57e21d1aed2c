//! What the machine is, as far as what it should become depends on it.

use ::steps::engine::Scene;
use ::steps::host::Command;

/// The bit of the capability that negative OOM scores take.
const CAP_SYS_RESOURCE: u32 = 24;

const UNIT_DIRECTORIES: [&str; 4] = [
    "/etc/systemd/system",
    "/usr/local/lib/systemd/system",
    "/lib/systemd/system",
    "/usr/lib/systemd/system",
];
const PROGRAM_DIRECTORIES: [&str; 6] = [
    "/usr/local/sbin",
    "/usr/local/bin",
    "/usr/sbin",
    "/usr/bin",
    "/sbin",
    "/bin",
];

/// The first line of every unit of ours: such a unit we may replace.
pub const MARK: &str = "# Written by aks-flex-node.";

/// The machine.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Machine {
    /// Its name, in small letters.
    pub hostname: String,
    /// It shares its kernel with others: swap and modules are not its own.
    pub is_container: bool,
    /// Control groups are version 2's alone.
    pub unified_cgroups: bool,
    /// It may give processes negative OOM scores.
    pub lowers_oom_scores: bool,
    /// It resolves names with systemd-resolved, whose own list of servers pods can use.
    pub has_resolved: bool,
}

/// Looks at it.
pub fn look(scene: &Scene<'_>) -> Machine {
    let files = scene.host.files();
    Machine {
        hostname: text(scene, "/proc/sys/kernel/hostname").to_lowercase(),
        is_container: files.exists("/run/systemd/container"),
        unified_cgroups: files.exists("/sys/fs/cgroup/cgroup.controllers"),
        lowers_oom_scores: lowers_oom_scores(&text(scene, "/proc/self/status")),
        has_resolved: files.exists("/run/systemd/resolve/resolv.conf"),
    }
}

/// A file's text without surrounding white space; empty where it is not there.
pub fn text(scene: &Scene<'_>, path: &str) -> String {
    let text = scene.host.files().text(path).ok().flatten();
    text.unwrap_or_default().trim().to_owned()
}

fn lowers_oom_scores(status: &str) -> bool {
    let line = status.lines().find_map(|l| l.strip_prefix("CapEff:"));
    let bits = line.and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok());
    bits.is_some_and(|bits| bits >> CAP_SYS_RESOURCE & 1 == 1)
}

/// Where a program is.
pub fn find_program(scene: &Scene<'_>, name: &str) -> Option<String> {
    let files = scene.host.files();
    let mut places = PROGRAM_DIRECTORIES.iter().map(|d| format!("{d}/{name}"));
    places.find(|path| files.exists(path))
}

/// Where a unit's file is, whoever brought it.
pub fn find_unit(scene: &Scene<'_>, name: &str) -> Option<String> {
    let files = scene.host.files();
    let mut places = UNIT_DIRECTORIES.iter().map(|d| format!("{d}/{name}"));
    places.find(|path| files.exists(path))
}

/// Whether a unit is there that somebody else brought.
pub fn is_foreign_unit(scene: &Scene<'_>, name: &str) -> bool {
    find_unit(scene, name).is_some_and(|path| !text(scene, &path).starts_with(MARK))
}

/// A version, as three numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub [u32; 3]);

impl std::fmt::Display for Version {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl Version {
    /// The first version in what a program says of itself. What a distribution appends (`1.6.20~ds1`) is cut off.
    pub fn find(text: &str) -> Option<Version> {
        text.split(|c: char| c.is_whitespace() || c == ',')
            .find_map(Version::parse)
    }

    /// `1.2.3`, `v1.2` and the like.
    pub fn parse(word: &str) -> Option<Version> {
        let word = word.trim_start_matches('v');
        let end = word.find(|c: char| !c.is_ascii_digit() && c != '.');
        let numbers = word[..end.unwrap_or(word.len())].trim_end_matches('.');
        let mut parts = numbers.split('.').map(|n| n.parse().ok());
        let (major, minor) = (parts.next()??, parts.next()??);
        Some(Version([major, minor, parts.next().flatten().unwrap_or(0)]))
    }
}

/// The version of an installed program: what it says, not what its file is called.
pub fn installed(scene: &Scene<'_>, program: &str) -> Option<(String, Version)> {
    let path = find_program(scene, program)?;
    let answer = scene.run(&Command::new(&path, &["--version"])).ok()?;
    Some((path, Version::find(&answer.text())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_found_in_what_programs_say() {
        let cases = [
            (
                "containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u3",
                Some([1, 6, 20]),
            ),
            (
                "containerd github.com/containerd/containerd/v2 v2.1.4 75cb2b7",
                Some([2, 1, 4]),
            ),
            ("runc version 1.1.5+ds1\ncommit: 1.1.5", Some([1, 1, 5])),
            ("Kubernetes v1.36.0", Some([1, 36, 0])),
            ("runc version unknown", None),
            ("", None),
        ];
        for (text, expected) in cases {
            assert_eq!(Version::find(text).map(|v| v.0), expected, "{text:?}");
        }
        assert!(Version::parse("1.10.0") > Version::parse("1.9.9"));
        assert_eq!(
            Version::parse("v2.0").map(|v| v.to_string()),
            Some("2.0.0".to_owned())
        );
    }

    #[test]
    fn the_capability_for_negative_scores_is_one_bit() {
        assert!(lowers_oom_scores("Name:\tx\nCapEff:\t000001ffffffffff\n"));
        assert!(!lowers_oom_scores("CapEff:\t000001fffeffffff\n"));
        assert!(!lowers_oom_scores(""));
    }
}
