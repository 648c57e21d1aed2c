//! A swap file: on the temporary disk where it fits, else on the OS disk.

use ::steps::engine::{Change, Check, CommandChange, Failure, Scene};
use ::steps::host::{Command, Kind};

use super::{Changes, observe};
use crate::codes::SWAP_CREATE_INSUFFICIENT_DISK_SPACE;
use crate::config::Configuration;
use crate::render::{merge, units};

/// Azure's name for the temporary disk's partition.
const RESOURCE_DISK: &str = "/dev/disk/azure/resource-part1";
const UNIT: &str = "aks-swapfile.service";

/// Made under another name first: what has the name is whole.
const MAKE: &str = r#"set -eu
rm -f "$1.draft"
fallocate -l "$2K" "$1.draft"
chmod 600 "$1.draft"
mkswap "$1.draft"
mv "$1.draft" "$1""#;

/// Whether there is to be one.
pub(super) fn wanted(config: &Configuration) -> bool {
    let wish = &config.custom_linux_os_config;
    wish.enable_swap_config && wish.swap_file_size > 0
}

/// Makes it, uses it, and sees to it that the next boot does.
pub(super) fn file(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let kilobytes = i64::from(config.custom_linux_os_config.swap_file_size) * 1000;
    let directory = place(scene, kilobytes)?;
    let file = format!("{}/swapfile", directory.trim_end_matches('/'));
    let fstab = observe::read_text(scene, "/etc/fstab").unwrap_or_default();
    let make = Command::new("sh", &["-c", MAKE, "sh", &file, &kilobytes.to_string()]);
    let in_use = Command::new("grep", &["-q", &format!("^{file} "), "/proc/swaps"]);
    let mut changes = vec![
        Change::Command(CommandChange {
            name: format!("make {file}"),
            check: Check::Exists(file.clone().into()),
            apply: make,
            undo: Some(Command::new("rm", &["-f", &file])),
        }),
        Change::Command(CommandChange {
            name: format!("use {file}"),
            check: Check::Succeeds(in_use),
            apply: Command::new("swapon", &[&file]),
            undo: Some(Command::new("swapoff", &[&file])),
        }),
        Change::file("/etc/fstab", 0o644, merge::with_swap(&fstab, &file)),
    ];
    changes.extend(observe::own_unit(
        scene,
        UNIT,
        units::swap(&file, &directory),
    ));
    changes.push(Change::running_unit(UNIT, &[]));
    Ok(changes)
}

/// The directory of the swap file: where it is already, else where there is room.
fn place(scene: &Scene<'_>, kilobytes: i64) -> Result<String, Failure> {
    let mut places: Vec<String> = resource_mount(scene).into_iter().collect();
    places.push("/".to_owned());
    let exists = |place: &&String| {
        scene
            .host
            .files()
            .exists(format!("{}/swapfile", place.trim_end_matches('/')))
    };
    if let Some(place) = places.iter().find(exists) {
        return Ok(place.clone());
    }
    let mut seen = Vec::new();
    for place in places {
        let free = free_kilobytes(scene, &place)?;
        if free > kilobytes {
            return Ok(place);
        }
        seen.push(format!("{free} kB on {place}"));
    }
    let cause = format!(
        "a swap file of {kilobytes} kB does not fit: there are {}",
        seen.join(" and ")
    );
    let remedy = "ask for less in `custom_linux_os_config.swap_file_size`, or take a larger disk";
    Err(Failure::permanent(cause, remedy).with_code(SWAP_CREATE_INSUFFICIENT_DISK_SPACE))
}

fn resource_mount(scene: &Scene<'_>) -> Option<String> {
    let entry = scene.host.files().entry(RESOURCE_DISK).ok()??;
    let Kind::Link(_) = entry.kind else {
        return None;
    };
    let device = scene
        .run(&Command::new("readlink", &["-f", RESOURCE_DISK]))
        .ok()?
        .text();
    let find = Command::new("findmnt", &["-nr", "-o", "target", "-S", &device]);
    let answer = scene.run(&find).ok().filter(|answer| answer.success())?;
    answer
        .text()
        .lines()
        .next()
        .map(str::to_owned)
        .filter(|target| !target.is_empty())
}

fn free_kilobytes(scene: &Scene<'_>, place: &str) -> Result<i64, Failure> {
    let command = Command::new("df", &["-Pk", place]);
    let answer = scene.run(&command)?;
    let text = answer.text();
    let line = text.lines().nth(1).unwrap_or_default();
    line.split_whitespace()
        .nth(3)
        .and_then(|free| free.parse().ok())
        .ok_or_else(|| {
            Failure::new(
                format!(
                    "`{}` does not say how much is free on {place}",
                    command.line()
                ),
                "see what `df` says by hand",
            )
        })
}
