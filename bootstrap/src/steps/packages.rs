//! Programs: those that are there are used; what is missing comes from a file on the machine, from
//! a URL, or from the distribution's packages, in this order.

use std::time::Duration;

use super::Changes;
use crate::config::{Configuration, NetworkPlugin};
use crate::engine::{Change, Check, CommandChange, Content, Failure, File, Scene};
use crate::host::{Command, Kind, Request};
use crate::machine::version_of;
use crate::render::source::{Location, Source, digest};
use crate::render::{credential_provider, proxy, tls_bootstrap};
use crate::version::Version;

const VHD_FILE_NOT_FOUND: u8 = 65;
const CONTAINERD_DOWNLOAD_TIMEOUT: u8 = 70;
const RUNC_DOWNLOAD_TIMEOUT: u8 = 71;
const K8S_INSTALL_ERR: u8 = 204;

const KUBERNETES_DOWNLOADS: &str = "/opt/kubernetes/downloads";
const CNI_BIN: &str = "/opt/cni/bin";
const CNI_DOWNLOADS: &str = "/opt/cni/downloads";
/// Plugins that networks use, those without which there is none at the end.
const PLUGINS: [&str; 7] = [
    "portmap",
    "bandwidth",
    "firewall",
    "tuning",
    "bridge",
    "host-local",
    "loopback",
];
/// Where the distribution's package puts the reference plugins.
const CNI_PACKAGED: &str = "/usr/lib/cni";

/// Waits for other users of the package database, and refreshes its lists only when need be.
const APT_INSTALL: &str = r#"set -eu
export DEBIAN_FRONTEND=noninteractive
install() { apt-get -o DPkg::Lock::Timeout=300 install -y --no-install-recommends --allow-downgrades "$@"; }
install "$@" || { apt-get -o DPkg::Lock::Timeout=300 update; install "$@"; }"#;

/// Takes named files out of an archive, wherever they lie in it. Done beside their place first:
/// what has its name is whole. Arguments: archive, directory, suffix, names.
const UNPACK: &str = r#"set -eu
archive=$1 directory=$2 suffix=$3
shift 3
draft=$directory/.unpacking
rm -rf "$draft"
mkdir -p "$draft"
tar -xzf "$archive" -C "$draft" --no-same-owner
for name in "$@"; do
    found=$(find "$draft" -type f -name "$name" | head -n 1)
    [ -n "$found" ] || { echo "$archive has no $name" >&2; exit 1; }
    chmod 0755 "$found"
    mv -f "$found" "$directory/$name$suffix"
done
rm -rf "$draft""#;

/// Downloads where nobody says what the bytes must be (an archive must at least be one), or where
/// the URL holds a signature or the way goes through a proxy. The URL comes through a pipe, where
/// nobody logs it. Arguments: place, digest or nothing.
const FETCH: &str = r#"set -eu
IFS= read -r url
printf 'url = "%s"\n' "$url" | curl -fsSL --connect-timeout 15 -o "$1.draft" -K -
if [ -n "$2" ]; then echo "$2  $1.draft" | sha256sum -c --quiet; fi
case $1 in *.deb) ;; *) tar -tzf "$1.draft" >/dev/null ;; esac
mv -f "$1.draft" "$1""#;

/// containerd and runc.
pub(super) fn container_runtime(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let files = scene.host.files();
    let has = |name: &str| {
        ["/usr/bin", "/usr/sbin", "/usr/local/bin"]
            .iter()
            .any(|d| files.exists(format!("{d}/{name}")))
    };
    let mut changes = Vec::new();
    let mut missing = Vec::new();
    let rows = [
        (
            "containerd",
            &config.containerd_config.containerd_package_url,
            CONTAINERD_DOWNLOAD_TIMEOUT,
        ),
        (
            "runc",
            &config.runc_config.runc_package_url,
            RUNC_DOWNLOAD_TIMEOUT,
        ),
    ];
    for (program, url, code) in rows {
        match Source::parse(url) {
            Some(source) => changes
                .extend(package(config, scene, program, &source).map_err(|f| f.with_code(code))?),
            None if !has(program) => missing.push(program),
            None => {}
        }
    }
    if missing.is_empty() {
        return Ok(changes);
    }
    if config.is_vhd != Some(false) && !files.exists("/opt/azure/vhd-install.complete") {
        return Err(Failure::permanent(
            format!(
                "{} not installed, and this is not a finished AKS image",
                missing.join(" and ")
            ),
            "use an AKS image, or say `is_vhd: false` so that they are installed",
        )
        .with_code(VHD_FILE_NOT_FOUND));
    }
    let sign = format!("/usr/bin/{}", missing[0]);
    let sign = if missing[0] == "runc" {
        "/usr/sbin/runc".to_owned()
    } else {
        sign
    };
    changes.push(apt_install(scene, &missing, &sign));
    Ok(changes)
}

/// A package file from somewhere, installed once.
fn package(config: &Configuration, scene: &Scene<'_>, program: &str, source: &Source) -> Changes {
    let directory = format!("/opt/{program}/downloads");
    let (mut changes, path) = fetched(config, scene, source, &directory)?;
    let check = Check::Inputs {
        paths: vec![path.clone().into()],
        per_boot: false,
    };
    let command = Command::new("sh", &["-c", APT_INSTALL, "sh", &path]).at_most(scene.remaining());
    changes.push(Change::command(
        format!("install {}", source.file_name),
        check,
        command,
    ));
    Ok(changes)
}

fn apt_install(scene: &Scene<'_>, packages: &[&str], sign: &str) -> Change {
    let mut arguments = vec!["-c", APT_INSTALL, "sh"];
    arguments.extend(packages);
    let command = Command::new("sh", &arguments).at_most(scene.remaining());
    Change::command(
        format!("install {}", packages.join(" ")),
        Check::Exists(sign.into()),
        command,
    )
}

/// The plugins of the pod network, in the place AKS has them.
pub(super) fn network_plugin(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let files = scene.host.files();
    let mut changes = Vec::new();
    let azure = config.network_config.network_plugin == NetworkPlugin::Azure;
    let source = Source::parse(&config.network_config.vnet_cni_plugins_url);
    if let (true, Some(source)) = (azure, source) {
        if !files.exists(format!("{CNI_BIN}/azure-vnet")) {
            let (fetch, path) = fetched(config, scene, &source, CNI_DOWNLOADS)?;
            changes.extend(fetch);
            changes.push(unpacked_whole(scene, &path, "azure-vnet"));
        }
    }
    // The last to be linked: where they are, a run that was killed in between has nothing left to do.
    let reference = &PLUGINS[PLUGINS.len() - 3..];
    if reference
        .iter()
        .all(|plugin| files.exists(format!("{CNI_BIN}/{plugin}")))
    {
        return Ok(changes);
    }
    changes.extend(reference_plugins(scene)?);
    Ok(changes)
}

/// The reference plugins: from an archive on the machine, or the distribution's package.
fn reference_plugins(scene: &Scene<'_>) -> Changes {
    let files = scene.host.files();
    let link = |plugin: &&str| {
        Change::link(
            format!("{CNI_BIN}/{plugin}"),
            format!("{CNI_PACKAGED}/{plugin}"),
        )
    };
    let packaged = |plugin: &&&str| files.exists(format!("{CNI_PACKAGED}/{plugin}"));
    if packaged(&&"bridge") {
        return Ok(PLUGINS.iter().filter(packaged).map(link).collect());
    }
    let archives = files.list(CNI_DOWNLOADS).unwrap_or_default();
    let archive = archives
        .iter()
        .rev()
        .find(|a| a.starts_with("cni-plugins-") && a.ends_with("gz"));
    if let Some(archive) = archive {
        return Ok(vec![unpacked_whole(
            scene,
            &format!("{CNI_DOWNLOADS}/{archive}"),
            "bridge",
        )]);
    }
    let mut changes = vec![apt_install(
        scene,
        &["containernetworking-plugins"],
        &format!("{CNI_PACKAGED}/bridge"),
    )];
    changes.extend(PLUGINS.iter().map(link));
    Ok(changes)
}

fn unpacked_whole(scene: &Scene<'_>, archive: &str, sign: &str) -> Change {
    let command = Command::new("tar", &["-xzf", archive, "-C", CNI_BIN, "--no-same-owner"]);
    let check = Check::Exists(format!("{CNI_BIN}/{sign}").into());
    Change::command(
        format!("unpack {archive}"),
        check,
        command.at_most(scene.remaining()),
    )
}

/// kubelet and kubectl of the cluster's version, under the names AKS has them.
pub(super) fn kubelet(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let version = config.kubernetes_version.trim_start_matches('v');
    if is_there(scene, version) {
        return Ok(Vec::new());
    }
    let files = scene.host.files();
    let cached = |tool: &str| files.exists(format!("/opt/bin/{tool}-{version}"));
    let link = |tool: &str, target: String| Change::link(format!("/opt/bin/{tool}"), target);
    // The kubelet comes last: where it is, a run that was killed in between has nothing left to do.
    let links = || ["kubectl", "kubelet"].map(|tool| link(tool, format!("{tool}-{version}")));
    if !version.is_empty() && cached("kubelet") {
        let present = ["kubectl", "kubelet"]
            .into_iter()
            .filter(|tool| cached(tool));
        return Ok(present
            .map(|tool| link(tool, format!("{tool}-{version}")))
            .collect());
    }
    if let Some(source) = kubelet_source(config, scene) {
        let (mut changes, path) = fetched(config, scene, &source, KUBERNETES_DOWNLOADS)?;
        let suffix = format!("-{version}");
        changes.push(unpacked(
            scene,
            &path,
            "/opt/bin",
            &suffix,
            &["kubelet", "kubectl"],
        ));
        changes.extend(links());
        return Ok(changes);
    }
    if version.is_empty() {
        return Err(Failure::permanent(
            "the kubelet is not installed, and the configuration says neither `kubernetes_version` nor where to get it",
            "set `kubernetes_version` and, unless the package repository has it, `kube_binary_config.kube_binary_url`",
        )
        .with_code(K8S_INSTALL_ERR));
    }
    let packages = [format!("kubelet={version}*"), format!("kubectl={version}*")];
    let packages: Vec<&str> = packages.iter().map(String::as_str).collect();
    let mut changes = vec![apt_install(scene, &packages, "/usr/bin/kubelet")];
    changes.extend(["kubectl", "kubelet"].map(|tool| link(tool, format!("/usr/bin/{tool}"))));
    Ok(changes)
}

/// Whether the kubelet that is there is the right one. A link to a name with the version says so
/// itself; any other must be asked, which costs a process.
fn is_there(scene: &Scene<'_>, version: &str) -> bool {
    let files = scene.host.files();
    let Ok(Some(entry)) = files.entry("/opt/bin/kubelet") else {
        return false;
    };
    if let Kind::Link(target) = &entry.kind {
        let named = format!("kubelet-{version}");
        if target
            .file_name()
            .is_some_and(|name| name.to_string_lossy() == named)
        {
            return files.exists(format!("/opt/bin/{named}"));
        }
    }
    if version.is_empty() {
        return true;
    }
    let answer = scene.run(&Command::new("/opt/bin/kubelet", &["--version"]));
    let found = answer
        .ok()
        .and_then(|answer| version_of(answer.text().split_whitespace().nth(1)?));
    found.is_some() && found == Version::parse(version)
}

/// A private or custom build comes first; then an archive that is already here; then the URL.
fn kubelet_source(config: &Configuration, scene: &Scene<'_>) -> Option<Source> {
    let wish = &config.kube_binary_config;
    let urls = [
        &wish.custom_kube_binary_url,
        &wish.private_kube_binary_url,
        &wish.kube_binary_url,
    ];
    if let Some(source) = urls.into_iter().find_map(|url| Source::parse(url)) {
        return Some(source);
    }
    let archives = scene.host.files().list(KUBERNETES_DOWNLOADS).ok()?;
    let archive = archives
        .into_iter()
        .find(|a| a.starts_with("kubernetes-node") && a.ends_with("gz"))?;
    Source::parse(&format!("{KUBERNETES_DOWNLOADS}/{archive}"))
}

/// The credential provider that the kubelet's flags speak of.
pub(super) fn credential_provider(config: &Configuration, scene: &Scene<'_>) -> Changes {
    if scene.host.files().exists(credential_provider::BINARY) {
        return Ok(Vec::new());
    }
    let Some(source) = Source::parse(&config.kube_binary_config.linux_credential_provider_url)
    else {
        return Err(Failure::permanent(
            format!(
                "the kubelet is to use {}, which is not installed",
                credential_provider::BINARY
            ),
            "give `kube_binary_config.linux_credential_provider_url`, use an image that has it, or \
             leave the `--image-credential-provider-*` flags out",
        ));
    };
    let (mut changes, path) = fetched(config, scene, &source, "/opt/credentialprovider/downloads")?;
    let directory = "/var/lib/kubelet/credential-provider";
    changes.push(Change::directory(directory, 0o755));
    changes.push(unpacked(
        scene,
        &path,
        directory,
        "",
        &["azure-acr-credential-provider"],
    ));
    changes.push(Change::link(
        credential_provider::BINARY,
        "azure-acr-credential-provider",
    ));
    Ok(changes)
}

/// The client of secure TLS bootstrapping; it goes where it is not used, as it holds the way to a
/// credential.
pub(super) fn tls_bootstrap_client(config: &Configuration, scene: &Scene<'_>) -> Changes {
    if !tls_bootstrap::enabled(config) {
        return Ok(vec![Change::absent(tls_bootstrap::CLIENT)]);
    }
    let url = &config
        .bootstrapping_config
        .secure_tls_bootstrapping_custom_client_download_url;
    if let Some(source) = url.as_deref().and_then(Source::parse) {
        let directory = "/opt/aks-secure-tls-bootstrap-client/downloads";
        let (mut changes, path) = fetched(config, scene, &source, directory)?;
        let name = "aks-secure-tls-bootstrap-client";
        changes.push(unpacked(scene, &path, "/opt/bin", "", &[name]));
        return Ok(changes);
    }
    if scene.host.files().exists(tls_bootstrap::CLIENT) {
        return Ok(Vec::new());
    }
    Err(Failure::permanent(
        format!(
            "secure TLS bootstrapping needs {}, which this image does not have",
            tls_bootstrap::CLIENT
        ),
        "give `bootstrapping_config.secure_tls_bootstrapping_custom_client_download_url`, or use an image that has it",
    ))
}

/// Brings an archive here unless it is, and says where it is then.
fn fetched(
    config: &Configuration,
    scene: &Scene<'_>,
    source: &Source,
    directory: &str,
) -> Result<(Vec<Change>, String), Failure> {
    let url = match &source.location {
        Location::File(path) => return local(scene, path).map(|path| (Vec::new(), path)),
        Location::Url(url) => url,
    };
    let path = format!("{directory}/{}", source.file_name);
    let sha256 = source
        .sha256
        .clone()
        .or_else(|| published_digest(config, scene, url, &path));
    let direct = !url.contains('?') && proxy::for_url(config, url).is_none();
    let change = match sha256 {
        Some(sha256) if direct => {
            let content = Content::Download {
                url: url.clone(),
                sha256,
            };
            Change::File(File::new(&path, 0o644, content))
        }
        sha256 => download(
            config,
            scene,
            url,
            &path,
            sha256.as_deref().unwrap_or_default(),
        ),
    };
    Ok((vec![Change::directory(directory, 0o755), change], path))
}

fn local(scene: &Scene<'_>, path: &str) -> Result<String, Failure> {
    if scene.planning || scene.host.files().exists(path) {
        return Ok(path.to_owned());
    }
    Err(Failure::permanent(
        format!("{path}, which the configuration names, is not on this machine"),
        "put the file there, or name a URL instead",
    ))
}

/// What the publisher says the bytes are, in a file beside the archive. Not asked for an archive
/// that is already here.
fn published_digest(
    config: &Configuration,
    scene: &Scene<'_>,
    url: &str,
    path: &str,
) -> Option<String> {
    if scene.planning || scene.host.files().exists(path) {
        return None;
    }
    let url = format!("{url}.sha256");
    let request = Request::get(&url)
        .at_most(scene.remaining().min(Duration::from_secs(15)))
        .through(proxy::for_url(config, &url));
    let mut body = Vec::new();
    let response = scene.host.http(&request, &mut body, scene.stop).ok()?;
    (response.status == 200)
        .then(|| digest(&String::from_utf8_lossy(&body)))
        .flatten()
}

fn download(
    config: &Configuration,
    scene: &Scene<'_>,
    url: &str,
    path: &str,
    sha256: &str,
) -> Change {
    let mut command =
        Command::new("sh", &["-c", FETCH, "sh", path, sha256]).reading(format!("{url}\n"));
    for (name, value) in proxy::variables(config) {
        command = command.with_variable(name, &value);
    }
    Change::Command(CommandChange {
        name: format!("download {path}"),
        check: Check::Exists(path.into()),
        apply: command.at_most(scene.remaining()),
        undo: Some(Command::new("rm", &["-f", path])),
    })
}

fn unpacked(
    scene: &Scene<'_>,
    archive: &str,
    directory: &str,
    suffix: &str,
    names: &[&str],
) -> Change {
    let mut arguments = vec!["-c", UNPACK, "sh", archive, directory, suffix];
    arguments.extend(names);
    let places: Vec<String> = names
        .iter()
        .map(|name| format!("{directory}/{name}{suffix}"))
        .collect();
    let mut undo = vec!["-f"];
    undo.extend(places.iter().map(String::as_str));
    Change::Command(CommandChange {
        name: format!("unpack {archive}"),
        check: Check::Exists(places[0].clone().into()),
        apply: Command::new("sh", &arguments).at_most(scene.remaining()),
        undo: Some(Command::new("rm", &undo)),
    })
}

#[cfg(test)]
mod tests;
