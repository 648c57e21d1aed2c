//! What a cluster leaves on its host, to be compared before and after.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// Everything that has to do with a directory, and what is called as our things are.
pub(crate) fn of(home: &Path) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    all.extend(mounts(home));
    all.extend(processes(home));
    all.extend(loop_devices(home));
    all.extend(links());
    all.extend(tables());
    all
}

/// Mounts that mention the directory.
pub(crate) fn mounts(home: &Path) -> Vec<String> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let place = home.to_string_lossy().into_owned();
    let ours = mounts.lines().filter(|line| line.contains(&place));
    ours.map(|line| format!("mount {line}")).collect()
}

// Processes that were told of the directory, and those whose root lies in it: all that a machine runs.
fn processes(home: &Path) -> Vec<String> {
    let place = home.to_string_lossy().into_owned();
    let own = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").expect("processes").flatten() {
        let pid = entry.file_name().to_string_lossy().into_owned();
        if pid == own || !pid.bytes().all(|byte| byte.is_ascii_digit()) {
            continue;
        }
        let words =
            String::from_utf8_lossy(&fs::read(entry.path().join("cmdline")).unwrap_or_default())
                .replace('\0', " ");
        let mounts = fs::read_to_string(entry.path().join("mountinfo")).unwrap_or_default();
        let has_root_here = mounts
            .lines()
            .any(|line| line.split(' ').nth(4) == Some("/") && line.contains(&place));
        if words.contains(&place) || has_root_here {
            found.push(format!("process {pid} {words}"));
        }
    }
    found
}

/// Loop devices of files in the directory.
pub(crate) fn loop_devices(home: &Path) -> Vec<String> {
    let place = home.to_string_lossy().into_owned();
    let devices = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let files = devices
        .filter_map(|device| fs::read_to_string(device.path().join("loop/backing_file")).ok());
    files
        .filter(|file| file.contains(&place))
        .map(|file| format!("loop device of {file}"))
        .collect()
}

// Others use this host as well: only what is called as ours counts.
fn links() -> Vec<String> {
    let names = fs::read_dir("/sys/class/net")
        .into_iter()
        .flatten()
        .flatten();
    let names = names.map(|name| name.file_name().to_string_lossy().into_owned());
    let is_ours = |name: &String| {
        ["cbr", "br0", "azv", "kyanite", "ky-"]
            .iter()
            .any(|start| name.starts_with(start))
    };
    names
        .filter(is_ours)
        .map(|name| format!("link {name}"))
        .collect()
}

fn tables() -> Vec<String> {
    let listed = std::process::Command::new("nft")
        .args(["list", "tables"])
        .output();
    let text = listed
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default();
    let is_ours = |line: &&str| line.contains("kyanite") || line.contains("kube-proxy");
    text.lines().filter(is_ours).map(str::to_owned).collect()
}
