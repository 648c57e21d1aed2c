//! Programs: those that are there are used; what is missing comes from a file on the machine, from
//! a URL, or from the distribution's packages, in this order.

mod archive;

use ::steps::engine::{Change, Check, Failure, Scene};
use ::steps::host::{Command, Kind};
use archive::{APT_INSTALL, apt_install, cut_off, fetched, unpacked, unpacked_whole};

use super::{Changes, observe};
use crate::codes::{
    CONTAINERD_DOWNLOAD_TIMEOUT, K8S_INSTALL_ERR, RUNC_DOWNLOAD_TIMEOUT, VHD_FILE_NOT_FOUND,
};
use crate::config::{Configuration, NetworkPlugin};
use crate::machine::version_of;
use crate::render::source::Source;
use crate::render::{credential_provider, tls_bootstrap};
use crate::version::Version;

const KUBERNETES_DOWNLOADS: &str = "/opt/kubernetes/downloads";
const CNI_BIN: &str = "/opt/cni/bin";
const CNI_DOWNLOADS: &str = "/opt/cni/downloads";
/// Where the distribution's package puts the reference plugins.
const CNI_PACKAGED: &str = "/usr/lib/cni";

const CNI_PACKAGE: &str = "containernetworking-plugins";
/// The reference plugins AKS uses; those that a node cannot do without come last.
const PLUGINS: [&str; 7] = [
    "bandwidth",
    "firewall",
    "portmap",
    "tuning",
    "bridge",
    "host-local",
    "loopback",
];
const REQUIRED: [&str; 3] = ["bridge", "host-local", "loopback"];

/// containerd and runc.
pub(super) fn container_runtime(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let (mut changes, mut missing) = (Vec::new(), Vec::new());
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
        if let Some(source) = Source::parse(url) {
            let package = package(config, scene, program, &source);
            changes.extend(package.map_err(|failure| failure.with_code(code))?);
        } else if !observe::has_program(scene, program)
            || cut_off(scene, program)
            || cut_off(scene, "containerd")
        {
            missing.push(program);
        }
    }
    if missing.is_empty() {
        return Ok(changes);
    }
    let finished = scene.host.files().exists("/opt/azure/vhd-install.complete");
    if config.is_vhd != Some(false) && !finished {
        let missing = missing.join(" and ");
        return Err(Failure::permanent(
            format!("{missing} not installed, and this is not a finished AKS image"),
            "use an AKS image, or say `is_vhd: false` so that they are installed",
        )
        .with_code(VHD_FILE_NOT_FOUND));
    }
    changes.extend(apt_install(scene, &missing));
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

/// The plugins of the pod network, in the place AKS has them.
pub(super) fn network_plugin(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let files = scene.host.files();
    let mut changes = Vec::new();
    let azure = config.network_config.network_plugin == NetworkPlugin::Azure;
    let source = Source::parse(&config.network_config.vnet_cni_plugins_url);
    let wanted = azure && !files.exists(format!("{CNI_BIN}/azure-vnet"));
    if let Some(source) = source.filter(|_| wanted) {
        let (fetch, path) = fetched(config, scene, &source, CNI_DOWNLOADS)?;
        changes.extend(fetch);
        changes.push(unpacked_whole(scene, &path, CNI_BIN, "azure-vnet"));
    }
    let there = |plugin: &&str| files.exists(format!("{CNI_BIN}/{plugin}"));
    if !REQUIRED.iter().all(there) || cut_off(scene, CNI_PACKAGE) {
        changes.extend(reference_plugins(scene));
    }
    Ok(changes)
}

/// The reference plugins: from the distribution's package, or an archive on the machine.
fn reference_plugins(scene: &Scene<'_>) -> Vec<Change> {
    let files = scene.host.files();
    let packaged = |plugin: &str| format!("{CNI_PACKAGED}/{plugin}");
    let link = |plugin: &str| Change::link(format!("{CNI_BIN}/{plugin}"), packaged(plugin));
    if files.exists(packaged("bridge")) && !cut_off(scene, CNI_PACKAGE) {
        let present = PLUGINS
            .into_iter()
            .filter(|plugin| files.exists(packaged(plugin)));
        return present.map(link).collect();
    }
    let archives = files.list(CNI_DOWNLOADS).unwrap_or_default();
    let mut archives = archives.iter().rev();
    if let Some(archive) = archives.find(|a| a.starts_with("cni-plugins-") && a.ends_with("gz")) {
        return vec![unpacked_whole(
            scene,
            &format!("{CNI_DOWNLOADS}/{archive}"),
            CNI_BIN,
            "bridge",
        )];
    }
    let mut changes = apt_install(scene, &[CNI_PACKAGE]);
    changes.extend(PLUGINS.map(link));
    changes
}

/// kubelet and kubectl of the cluster's version, under the names AKS has them.
pub(super) fn kubelet(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let version = config.kubernetes_version.trim_start_matches('v');
    let own = own_build(config);
    // A build of somebody's own is told from the release of the same version.
    let suffix = format!("-{version}{}", if own.is_some() { "-custom" } else { "" });
    if is_there(scene, version, &suffix) && !cut_off(scene, "kubelet") {
        return Ok(Vec::new());
    }
    let files = scene.host.files();
    let cached = |tool: &&str| files.exists(format!("/opt/bin/{tool}{suffix}"));
    let link = |tool: &str, target: String| Change::link(format!("/opt/bin/{tool}"), target);
    let named = |tool: &str| link(tool, format!("{tool}{suffix}"));
    // The kubelet comes last: where it is, a run that was killed in between has nothing left to do.
    let tools = ["kubectl", "kubelet"];
    if !version.is_empty() && cached(&"kubelet") {
        return Ok(tools.into_iter().filter(cached).map(named).collect());
    }
    if let Some(source) = own.or_else(|| release(config, scene)) {
        let (mut changes, path) = fetched(config, scene, &source, KUBERNETES_DOWNLOADS)?;
        changes.push(unpacked(scene, &path, "/opt/bin", &suffix, &tools));
        changes.extend(tools.map(named));
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
    let mut changes = apt_install(scene, &packages);
    changes.extend(tools.map(|tool| link(tool, format!("/usr/bin/{tool}"))));
    Ok(changes)
}

/// Whether the kubelet that is there is the right one. A link to a name with the version says so
/// itself; any other must be asked, which costs a process.
fn is_there(scene: &Scene<'_>, version: &str, suffix: &str) -> bool {
    let files = scene.host.files();
    let Ok(Some(entry)) = files.entry("/opt/bin/kubelet") else {
        return false;
    };
    let named = format!("kubelet{suffix}");
    match &entry.kind {
        Kind::Link(target) if target.as_os_str() == named.as_str() => {
            return files.exists(format!("/opt/bin/{named}"));
        }
        _ if version.is_empty() => return true,
        _ if suffix.ends_with("-custom") => return false,
        _ => {}
    }
    let answer = scene.run(&Command::new("/opt/bin/kubelet", &["--version"]));
    let words = answer.ok().map(|answer| answer.text()).unwrap_or_default();
    let found = words.split_whitespace().nth(1).and_then(version_of);
    found.is_some() && found == Version::parse(version)
}

/// A private or custom build.
fn own_build(config: &Configuration) -> Option<Source> {
    let wish = &config.kube_binary_config;
    let urls = [&wish.custom_kube_binary_url, &wish.private_kube_binary_url];
    urls.into_iter().find_map(|url| Source::parse(url))
}

/// The release: from the URL, or an archive that is already here.
fn release(config: &Configuration, scene: &Scene<'_>) -> Option<Source> {
    if let Some(source) = Source::parse(&config.kube_binary_config.kube_binary_url) {
        return Some(source);
    }
    let archives = scene.host.files().list(KUBERNETES_DOWNLOADS).ok()?;
    let mut archives = archives.into_iter();
    let archive = archives.find(|a| a.starts_with("kubernetes-node") && a.ends_with("gz"))?;
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
