//! Kernel settings.

use std::collections::BTreeMap;

use ::steps::engine::{Change, Failure, Scene};

use super::{Changes, observe};
use crate::config::Configuration;
use crate::render::{merge, sysctl};

const HUGE_PAGES: &str = "/sys/kernel/mm/transparent_hugepage";

/// Files for the next boot, values for this one. A value the configuration asks for must exist; of
/// the defaults, kernels and network namespaces may lack some.
pub(super) fn sysctl(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let settings = sysctl::settings(&config.custom_linux_os_config.sysctl_config);
    let asked = sysctl::asked(config);
    let own: Vec<(&str, &str)> = settings
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    // In the order of their names, as they are read at boot: the last one counts.
    let mut files = vec![
        (sysctl::FORWARDING_FILE, sysctl::FORWARDING.to_vec()),
        (sysctl::FILE, own),
    ];
    if protects_defaults(config) {
        files.insert(0, (sysctl::PROTECTED_FILE, sysctl::PROTECTED.to_vec()));
    }
    let mut changes: Vec<Change> = files
        .iter()
        .map(|(path, rows)| Change::file(*path, 0o644, sysctl::file(rows)))
        .collect();
    let values: BTreeMap<&str, &str> = files.into_iter().flat_map(|(_, rows)| rows).collect();
    for (name, value) in values {
        changes.extend(value_now(scene, name, value, asked.contains_key(name))?);
    }
    Ok(changes)
}

fn value_now(
    scene: &Scene<'_>,
    name: &str,
    value: &str,
    asked: bool,
) -> Result<Option<Change>, Failure> {
    let path = format!("/proc/sys/{}", name.replace('.', "/"));
    if scene.host.files().exists(&path) {
        return Ok(Some(Change::sysctl(name, value)));
    }
    if asked && !scene.planning {
        return Err(Failure::permanent(
            format!("this kernel has no setting `{name}`"),
            format!(
                "leave `{name}` out of `custom_linux_os_config.sysctl_config`, or load the module that has it"
            ),
        ));
    }
    Ok(None)
}

fn protects_defaults(config: &Configuration) -> bool {
    let kubelet = &config.kubelet_config;
    let flag = kubelet.kubelet_flags.get("--protect-kernel-defaults");
    let file = &kubelet.kubelet_config_file_config;
    flag.is_some_and(|value| value == "true")
        || (kubelet.enable_kubelet_config_file && file.protect_kernel_defaults)
}

/// Whether transparent huge pages are spoken of.
pub(super) fn has_huge_pages(config: &Configuration) -> bool {
    !huge_page_values(config).is_empty()
}

fn huge_page_values(config: &Configuration) -> Vec<(&'static str, &str)> {
    let wish = &config.custom_linux_os_config;
    let rows = [
        ("enabled", wish.transparent_hugepage_support.as_str()),
        ("defrag", wish.transparent_defrag.as_str()),
    ];
    rows.into_iter()
        .filter(|(_, value)| !value.is_empty())
        .collect()
}

/// Now, and after a reboot: sysfs.conf is where AKS says it, but only read where sysfsutils is
/// installed; tmpfiles is read everywhere.
pub(super) fn huge_pages(config: &Configuration, scene: &Scene<'_>) -> Changes {
    let values = huge_page_values(config);
    let names: Vec<String> = values
        .iter()
        .map(|(name, _)| format!("kernel/mm/transparent_hugepage/{name}"))
        .collect();
    let rows: Vec<(&str, &str)> = names
        .iter()
        .map(String::as_str)
        .zip(values.iter().map(|(_, value)| *value))
        .collect();
    let present = observe::read_text(scene, "/etc/sysfs.conf").unwrap_or_default();
    let boot: String = values
        .iter()
        .map(|(name, value)| format!("w {HUGE_PAGES}/{name} - - - - {value}\n"))
        .collect();
    let mut changes = vec![
        Change::file(
            "/etc/sysfs.conf",
            0o644,
            merge::with_variables(&present, &rows),
        ),
        Change::file("/etc/tmpfiles.d/aks-transparent-hugepage.conf", 0o644, boot),
    ];
    changes.extend(values.into_iter().map(|(name, value)| Change::Setting {
        path: format!("{HUGE_PAGES}/{name}").into(),
        value: value.to_owned(),
    }));
    Ok(changes)
}
