//! Looks at the machine: everything the files of a node depend on.

use std::time::Duration;

use ::steps::engine::{Change, Failure, Scene};
use ::steps::host::{Command, Kind, Request};

use super::Changes;
use crate::config::Configuration;
use crate::machine::{Distribution, Machine, Metadata, version_of};
use crate::render::containerd;

const METADATA_URL: &str = "http://169.254.169.254/metadata/instance?api-version=2021-02-01";
const METADATA_CACHE: &str = "/opt/azure/containers/imds_instance_metadata_cache.json";
const METADATA_LIMIT: usize = 1 << 20;

/// Where units lie that an image brings.
const UNIT_DIRECTORIES: [&str; 4] = [
    "/etc/systemd/system",
    "/usr/local/lib/systemd/system",
    "/lib/systemd/system",
    "/usr/lib/systemd/system",
];

/// The bit of the capability that negative OOM scores take.
const CAP_SYS_RESOURCE: u32 = 24;

/// Whether the machine is to ask the instance metadata service; outside of Azure there is none.
pub(super) fn asks_metadata(config: &Configuration) -> bool {
    config.cluster_config.use_instance_metadata
}

/// The metadata document, kept for the steps that come after.
pub(super) fn metadata_cache(_: &Configuration, scene: &Scene<'_>) -> Changes {
    // Whoever only wants a plan may sit anywhere, and has not said that the network may be asked.
    if scene.planning {
        let unknown = Change::secret_file(METADATA_CACHE, Vec::new());
        let is_there = scene.host.files().exists(METADATA_CACHE);
        return Ok((!is_there).then_some(unknown).into_iter().collect());
    }
    let request = Request::get(METADATA_URL)
        .with_header("Metadata", "true")
        .at_most(scene.remaining().min(Duration::from_secs(60)));
    let mut document = Vec::new();
    let response = scene.host.http(&request, &mut document, scene.stop)?;
    let readable = document.len() <= METADATA_LIMIT && Metadata::parse(&document).is_some();
    if response.status != 200 || !readable {
        let cause = format!(
            "the instance metadata service answered {} with {} bytes that are not an instance document",
            response.status,
            document.len()
        );
        return Err(Failure::new(cause, METADATA_REMEDY));
    }
    let file = Change::File(::steps::engine::File {
        secret: true,
        ..::steps::engine::File::new(
            METADATA_CACHE,
            0o600,
            ::steps::engine::Content::Bytes(document),
        )
    });
    Ok(vec![file])
}

const METADATA_REMEDY: &str = "check that the machine may reach 169.254.169.254 on port 80 without \
    a proxy; a machine outside of Azure says `cluster_config.use_instance_metadata: false`";

/// The metadata document that was kept.
pub(super) fn metadata(config: &Configuration, scene: &Scene<'_>) -> Option<Metadata> {
    if !asks_metadata(config) {
        return None;
    }
    Metadata::parse(&scene.host.files().read(METADATA_CACHE).ok()?)
}

/// The machine, without what costs a process to ask: its containerd, and its addresses where no
/// metadata service says them.
pub(super) fn machine(config: &Configuration, scene: &Scene<'_>) -> Machine {
    let files = scene.host.files();
    let metadata = metadata(config, scene).unwrap_or_default();
    Machine {
        hostname: hostname(scene),
        distribution: distribution(scene),
        containerd: None,
        runc: runc(scene),
        unified_cgroups: files.exists("/sys/fs/cgroup/cgroup.controllers"),
        lowers_oom_scores: lowers_oom_scores(scene),
        has_network_template: files.exists(containerd::SHIPPED_TEMPLATE),
        addresses: metadata.addresses,
        tags: metadata.tags,
        units: ["localdns-exporter.socket"]
            .into_iter()
            .filter(|unit| has_unit(scene, unit))
            .map(str::to_owned)
            .collect(),
    }
}

/// The machine and its containerd.
pub(super) fn machine_with_containerd(config: &Configuration, scene: &Scene<'_>) -> Machine {
    let answer = scene.run(&Command::new("containerd", &["--version"]));
    let containerd = answer
        .ok()
        .and_then(|answer| version_of(answer.text().split_whitespace().nth(2)?));
    Machine {
        containerd,
        ..machine(config, scene)
    }
}

/// The machine and its addresses.
pub(super) fn machine_with_addresses(config: &Configuration, scene: &Scene<'_>) -> Machine {
    let mut machine = machine(config, scene);
    if machine.addresses.is_empty() {
        machine.addresses = own_addresses(config, scene);
    }
    machine
}

/// The distribution; one that says nothing of itself is nobody.
pub(super) fn distribution(scene: &Scene<'_>) -> Distribution {
    let text =
        read_text(scene, "/etc/os-release").or_else(|| read_text(scene, "/usr/lib/os-release"));
    Distribution::parse(&text.unwrap_or_default())
}

/// A file as text, or nothing where it is absent or unreadable.
pub(super) fn read_text(scene: &Scene<'_>, path: &str) -> Option<String> {
    scene.host.files().text(path).ok().flatten()
}

/// Whether the machine has a program of this name.
pub(super) fn has_program(scene: &Scene<'_>, name: &str) -> bool {
    let places = [
        "/usr/bin",
        "/usr/sbin",
        "/sbin",
        "/usr/local/bin",
        "/usr/local/sbin",
    ];
    places
        .iter()
        .any(|place| scene.host.files().exists(format!("{place}/{name}")))
}

/// Whether the machine has a unit of this name.
pub(super) fn has_unit(scene: &Scene<'_>, name: &str) -> bool {
    UNIT_DIRECTORIES
        .iter()
        .any(|directory| scene.host.files().exists(format!("{directory}/{name}")))
}

/// Our own unit file, unless the image brought one of its own.
pub(super) fn own_unit(scene: &Scene<'_>, name: &str, text: String) -> Option<Change> {
    let path = format!("{}/{name}", crate::render::units::DIRECTORY);
    let ours = read_text(scene, &path)
        .is_some_and(|present| present.starts_with(crate::render::units::MARK));
    (ours || !has_unit(scene, name)).then(|| Change::file(path, 0o644, text))
}

fn hostname(scene: &Scene<'_>) -> String {
    let name = ["/proc/sys/kernel/hostname", "/etc/hostname"]
        .into_iter()
        .find_map(|path| read_text(scene, path));
    name.map(|name| name.trim().to_owned())
        .filter(|name| !name.is_empty())
        .unwrap_or("localhost".to_owned())
}

fn runc(scene: &Scene<'_>) -> Option<String> {
    let files = scene.host.files();
    let elsewhere = !files.exists("/usr/bin/runc") && files.exists("/usr/sbin/runc");
    elsewhere.then(|| "/usr/sbin/runc".to_owned())
}

fn lowers_oom_scores(scene: &Scene<'_>) -> bool {
    let status = read_text(scene, "/proc/self/status").unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let bits = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    bits.is_none_or(|bits| bits & (1 << CAP_SYS_RESOURCE) != 0)
}

/// The addresses packets to the outside would carry, where no metadata service says.
fn own_addresses(config: &Configuration, scene: &Scene<'_>) -> Vec<String> {
    // Addresses of documentation: nobody's, so the route is the default one.
    let mut families = vec![("-4", "192.0.2.1")];
    if config.ipv6_dual_stack_enabled {
        families.push(("-6", "2001:db8::1"));
    }
    families
        .into_iter()
        .filter_map(|(family, outside)| {
            let command = Command::new("ip", &[family, "-o", "route", "get", outside]);
            let answer = scene.run(&command).ok().filter(|answer| answer.success())?;
            source_address(&answer.text())
        })
        .collect()
}

fn source_address(route: &str) -> Option<String> {
    let mut words = route.split_whitespace().skip_while(|word| *word != "src");
    words.nth(1).map(str::to_owned)
}

/// Whether a unit file is a mask.
pub(super) fn is_masked(scene: &Scene<'_>, name: &str) -> bool {
    let entry = scene
        .host
        .files()
        .entry(format!("/etc/systemd/system/{name}"));
    let masked = std::path::Path::new("/dev/null");
    matches!(entry, Ok(Some(entry)) if entry.kind == Kind::Link(masked.to_owned()))
}
