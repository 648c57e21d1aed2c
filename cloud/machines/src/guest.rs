//! What a machine's root has that the host's has not: who it is, and what starts in it. Pure.

pub(crate) mod accounts;

use std::ffi::OsStr;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use crate::custom_data::CustomData;
use crate::{Attachment, File, Spec, User};

/// What systemd is asked to reach.
pub(crate) const TARGET: &str = "kyanite-machine.target";

/// Where units of the administrator go; they win over those of packages.
pub(crate) const UNITS: &str = "/etc/systemd/system";

/// Where cloud-init keeps what it found, by the paths that people and tools look at.
const CLOUD: &str = "/var/lib/cloud/instance";

/// What is there once custom data was laid down: like cloud-init, that happens once in a machine's life.
pub(crate) const LAID_DOWN: &str = "/var/lib/cloud/instance/sem/config_write_files";

/// Units of the host that would act on the host's kernel, wait for its hardware or run its network.
const MASKED: [&str; 33] = [
    "blk-availability.service",
    "console-getty.service",
    "console-setup.service",
    "dev-hugepages.mount",
    "getty.target",
    "ifupdown-pre.service",
    "keyboard-setup.service",
    "kmod-static-nodes.service",
    "lvm2-lvmpolld.socket",
    "lvm2-monitor.service",
    "multipathd.service",
    "networking.service",
    "NetworkManager.service",
    "NetworkManager-wait-online.service",
    "proc-sys-fs-binfmt_misc.automount",
    "proc-sys-fs-binfmt_misc.mount",
    "sys-fs-fuse-connections.mount",
    "sys-kernel-config.mount",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
    "systemd-binfmt.service",
    "systemd-modules-load.service",
    "systemd-network-generator.service",
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "systemd-networkd-wait-online.service",
    "systemd-resolved.service",
    "systemd-timesyncd.service",
    "systemd-udev-settle.service",
    "systemd-udev-trigger.service",
    "systemd-udevd.service",
    "systemd-udevd-control.socket",
    "systemd-udevd-kernel.socket",
];

/// Generators that would make units of the host's hardware and of its old init scripts.
const GENERATORS: [&str; 5] = [
    "systemd-getty-generator",
    "systemd-gpt-auto-generator",
    "systemd-hibernate-resume-generator",
    "systemd-rc-local-generator",
    "systemd-sysv-generator",
];

/// Whether this directory below [`UNITS`] says what is enabled. A new machine forgets what the host has enabled
/// and remembers what it enables itself.
pub(crate) fn says_what_is_enabled(directory: &Path) -> bool {
    let kind = directory.extension().and_then(OsStr::to_str);
    matches!(kind, Some("wants" | "requires"))
}

/// Something to be laid down in the machine's root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Laid {
    File(File),
    /// A symbolic link: where it is, what it says.
    Link(PathBuf, PathBuf),
}

/// What every start lays down: what is to be started.
pub(crate) fn every_start(spec: &Spec) -> Laid {
    text(format!("{UNITS}/{TARGET}"), target(&spec.units))
}

/// What the first start lays down; from then on it is the machine's to change. The machine's identity and its
/// units, then what the caller asked for.
pub(crate) fn first_start(spec: &Spec, machine_id: &str, custom_data: &CustomData) -> Vec<Laid> {
    let mut laid = identity(spec, machine_id);
    laid.extend(units(custom_data));
    laid.extend(spec.files.iter().cloned().map(Laid::File));
    laid
}

fn text(path: impl Into<PathBuf>, content: impl Into<Vec<u8>>) -> Laid {
    Laid::File(File::new(path, content))
}

fn identity(spec: &Spec, machine_id: &str) -> Vec<Laid> {
    vec![
        text("/etc/hostname", format!("{}\n", spec.name)),
        text("/etc/hosts", hosts(spec)),
        text("/etc/machine-id", format!("{machine_id}\n")),
        text("/etc/resolv.conf", resolver(spec.attachment.as_ref())),
        // The host's disks are not the machine's.
        text("/etc/fstab", ""),
        text("/etc/crypttab", ""),
        // The machine's log is on its disk, so that it can be read when the machine is off; the kernel's
        // messages are the host's.
        text(
            "/etc/systemd/journald.conf.d/50-kyanite.conf",
            "[Journal]\nStorage=persistent\nSystemMaxUse=64M\nReadKMsg=no\n",
        ),
    ]
}

// The machine's name is its own address, as Azure's name service would say.
fn hosts(spec: &Spec) -> String {
    let own = match &spec.attachment {
        Some(attachment) => attachment.address,
        None => Ipv4Addr::new(127, 0, 1, 1),
    };
    format!(
        "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n{own} {}\n",
        spec.name
    )
}

fn resolver(attachment: Option<&Attachment>) -> String {
    let servers = attachment.map_or(&[][..], |a| &a.name_servers);
    servers
        .iter()
        .map(|server| format!("nameserver {server}\n"))
        .collect()
}

fn units(custom_data: &CustomData) -> Vec<Laid> {
    let unit = |name: &str, content: String| text(format!("{UNITS}/{name}"), content);
    let mut laid = vec![
        unit(
            "cloud-init.service",
            cloud_init(custom_data.boothooks.len()),
        ),
        unit(
            "cloud-final.service",
            cloud_final(custom_data.scripts.len()),
        ),
        unit("cloud-init.target", CLOUD_INIT_TARGET.to_owned()),
        // The power button is a signal, and the signal is the target that systemd has for it.
        Laid::Link(
            format!("{UNITS}/sigpwr.target").into(),
            "/lib/systemd/system/poweroff.target".into(),
        ),
    ];
    let units = MASKED.iter().map(|name| format!("{UNITS}/{name}"));
    let generators = GENERATORS
        .iter()
        .map(|name| format!("/etc/systemd/system-generators/{name}"));
    let masks = units
        .chain(generators)
        .map(|path| Laid::Link(path.into(), "/dev/null".into()));
    laid.extend(masks);
    laid
}

fn target(units: &[String]) -> String {
    let units = units.join(" ");
    format!(
        "[Unit]
Description=A machine with what it was asked to run
Requires=multi-user.target
Wants=network-online.target cloud-init.target {units}
After=multi-user.target network-online.target cloud-init.target {units}
AllowIsolate=yes
"
    )
}

const CLOUD_INIT_TARGET: &str = "[Unit]
Description=Custom data is done
Wants=cloud-init.service cloud-final.service
After=cloud-init.service cloud-final.service
";

// As in cloud-init: boothooks run at every start, before anything else; what they leave running stays.
fn cloud_init(hooks: usize) -> String {
    let runs: String = (0..hooks)
        .map(|i| format!("ExecStart=-{}\n", hook(i)))
        .collect();
    format!(
        "[Unit]
Description=Boothooks of the custom data
DefaultDependencies=no
After=local-fs.target systemd-tmpfiles-setup.service
Before=sysinit.target network-online.target shutdown.target
Conflicts=shutdown.target

[Service]
Type=oneshot
RemainAfterExit=yes
KillMode=process
TimeoutSec=0
Environment=INSTANCE_ID=kyanite
{runs}ExecStart=/bin/true
"
    )
}

// Scripts run once, when the system is up.
fn cloud_final(scripts: usize) -> String {
    let runs: String = (0..scripts)
        .map(|i| format!("ExecStart=-{}\n", script(i)))
        .collect();
    format!(
        "[Unit]
Description=Scripts of the custom data
After=cloud-init.service network-online.target
ConditionPathExists=!{CLOUD}/sem/config_scripts_user

[Service]
Type=oneshot
RemainAfterExit=yes
KillMode=process
TimeoutSec=0
{runs}ExecStart=/bin/touch {CLOUD}/sem/config_scripts_user
"
    )
}

fn hook(index: usize) -> String {
    format!("{CLOUD}/boothooks/part-{:03}", index + 1)
}

fn script(index: usize) -> String {
    format!("{CLOUD}/scripts/part-{:03}", index + 1)
}

/// Who gets an account at the first start: whom the caller names and whom the custom data names. Keys that the custom
/// data has for nobody in particular are the first one's, as cloud-init has a default user.
pub(crate) fn users(spec: &Spec, custom_data: &CustomData) -> Vec<User> {
    let mut users = spec.users.clone();
    users.extend(custom_data.users.iter().cloned());
    if let Some(first) = users.first_mut() {
        first.keys.extend(custom_data.keys.iter().cloned());
    }
    users
}

/// The custom data itself, the scripts in it, and what of it is not done: laid down at the first start too.
pub(crate) fn programs(spec: &Spec, custom_data: &CustomData) -> Vec<File> {
    let program = |path: String, content: &Vec<u8>| File {
        path: path.into(),
        mode: 0o700,
        content: content.clone(),
    };
    let hooks = custom_data.boothooks.iter().enumerate();
    let scripts = custom_data.scripts.iter().enumerate();
    let mut files: Vec<File> = hooks
        .map(|(i, content)| program(hook(i), content))
        .collect();
    files.extend(scripts.map(|(i, content)| program(script(i), content)));
    let ignored = custom_data.ignored.iter();
    let log: String = ignored.map(|what| format!("not done: {what}\n")).collect();
    files.push(File::new("/var/log/cloud-init.log", log));
    files.push(File {
        path: format!("{CLOUD}/user-data.txt").into(),
        mode: 0o600,
        content: spec.custom_data.clone(),
    });
    files
}

#[cfg(test)]
mod tests;
