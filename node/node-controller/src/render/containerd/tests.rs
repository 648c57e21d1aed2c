use super::*;
use crate::config::{NetworkPlugin, UlimitConfig};
use crate::machine::version_of;

/// Every mixture of the features that write into the file, for both layouts.
fn mixtures() -> impl Iterator<Item = (Configuration, Machine)> {
    (0..64).map(|bits: u32| {
        let bit = |n: u32| bits & (1 << n) != 0;
        let mut config = Configuration {
            is_kata: bit(0),
            enable_artifact_streaming: bit(1),
            needs_cgroupv2: Some(bit(2)),
            kubernetes_version: "1.34.8".to_owned(),
            ..Configuration::default()
        };
        config.gpu_config.enable_nvidia = Some(bit(3));
        config.kube_binary_config.pod_infra_container_image_url = "pause".to_owned();
        config.network_config.network_plugin = NetworkPlugin::Kubenet;
        let containerd = version_of(if bit(4) { "2.1.4" } else { "1.6.20~ds1" });
        let machine = Machine {
            containerd,
            lowers_oom_scores: bit(5),
            ..Machine::default()
        };
        (config, machine)
    })
}

#[test]
fn no_table_and_no_key_stands_twice() {
    for (config, machine) in mixtures() {
        let text = config_file(&config, &machine);
        let (mut table, mut seen) = ("", std::collections::BTreeSet::new());
        for line in text.lines() {
            let key = line.split(" = ").next().unwrap_or_default().trim();
            if line.starts_with('[') {
                table = line;
            }
            assert!(
                seen.insert((table, key)),
                "{key} of {table} is there twice in\n{text}"
            );
        }
    }
}

#[test]
fn each_layout_has_only_its_own_plugins() {
    for (config, machine) in mixtures() {
        let text = config_file(&config, &machine);
        let (own, other) = match machine.has_containerd_2() {
            true => ("io.containerd.cri.v1.", "io.containerd.grpc.v1.cri"),
            false => ("io.containerd.grpc.v1.cri", "io.containerd.cri.v1."),
        };
        assert!(text.contains(own) && !text.contains(other), "{text}");
    }
}

#[test]
fn limits_are_written_only_where_they_are_given() {
    let mut config = Configuration::default();
    assert_eq!(ulimits(&config), None);
    config.custom_linux_os_config.ulimit_config = UlimitConfig::default().into();
    assert_eq!(ulimits(&config).as_deref(), Some("[Service]\n"));
    config.custom_linux_os_config.ulimit_config.no_file = Some("1024".to_owned());
    assert_eq!(
        ulimits(&config).as_deref(),
        Some("[Service]\nLimitNOFILE=1024\n")
    );
}

#[test]
fn a_mirror_keeps_the_path_of_its_registry() {
    let mirror_of = |server: &str| {
        let config = Configuration {
            bootstrap_profile_container_registry_server: server.to_owned(),
            ..Configuration::default()
        };
        mirror(&config).map(|(_, text)| text.lines().next().unwrap_or_default().to_owned())
    };
    assert_eq!(
        mirror_of("r.example/a/b").as_deref(),
        Some(r#"[host."https://r.example/v2/a/b"]"#)
    );
    assert_eq!(
        mirror_of("r.example").as_deref(),
        Some(r#"[host."https://r.example/v2"]"#)
    );
    assert_eq!(mirror_of(""), None);
}

#[test]
fn a_template_that_came_with_the_plugin_is_used_unless_kubenet_has_its_own() {
    for (plugin, shipped, wanted) in [
        (NetworkPlugin::Azure, true, Some(SHIPPED_TEMPLATE)),
        (NetworkPlugin::Azure, false, None),
        (NetworkPlugin::Kubenet, true, Some(KUBENET_TEMPLATE)),
    ] {
        let mut config = Configuration::default();
        config.network_config.network_plugin = plugin;
        let machine = Machine {
            has_network_template: shipped,
            ..Machine::default()
        };
        let text = config_file(&config, &machine);
        let line = text.lines().find(|line| line.contains("conf_template"));
        assert_eq!(
            line.map(|line| line.contains(wanted.unwrap_or("-"))),
            wanted.map(|_| true)
        );
    }
}
