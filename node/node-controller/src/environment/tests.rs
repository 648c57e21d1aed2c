#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;

use super::containerd::Layout;
use super::gpu::{DriverImages, needs};
use super::*;
use crate::config::tests::{every_secret, fixtures};
use crate::config::{NetworkPlugin, read};

fn host(containerd: Layout) -> Host {
    let drivers = DriverImages::default();
    Host {
        containerd,
        drivers,
    }
}

fn told(config: &Configuration) -> BTreeMap<String, String> {
    let variables = variables(config, &host(Layout::V1)).into_iter();
    variables
        .map(|variable| (variable.name, variable.value))
        .collect()
}

fn empty() -> Configuration {
    read(br#"{"version": "v1"}"#).unwrap().configuration
}

#[test]
fn an_empty_configuration_has_upstreams_defaults() {
    let told = told(&empty());
    assert_eq!(told.len(), 164);
    let expected = [
        ("ADMINUSER", "azureuser"),
        ("IS_VHD", "true"),
        ("DISABLE_SSH", "false"),
        ("GPU_NODE", "false"),
        ("NEEDS_CGROUPV2", "false"),
        ("SWAP_FILE_SIZE_MB", "0"),
        ("CUSTOM_CA_TRUST_COUNT", "0"),
        ("TARGET_ENVIRONMENT", "AzurePublicCloud"),
        ("TARGET_CLOUD", "AzurePublicCloud"),
        ("MAXIMUM_LOADBALANCER_RULE_COUNT", "148"),
        ("EXCLUDE_MASTER_FROM_STANDARD_LB", "true"),
        ("CSE_TIMEOUT", "900"),
        ("LOCALDNS_CPU_LIMIT", "200.0%"),
        ("LOCALDNS_MEMORY_LIMIT", "128M"),
        ("KUBELET_CONFIG_FILE_CONTENT", ""),
        ("STANDARD_SECONDARY_NIC_COUNT", "0"),
        ("GPU_DRIVER_TYPE", "cuda-lts"),
        (
            "SYSCTL_CONTENT",
            "bmV0LmNvcmUubWVzc2FnZV9idXJzdD04MApuZXQuY29yZS5tZXNzYWdlX2Nvc3Q9NDAKbmV0LmNvcmUuc29tYXhjb25uPTE2Mzg0Cm5l\
             dC5pcHY0Lm5laWdoLmRlZmF1bHQuZ2NfdGhyZXNoMT00MDk2Cm5ldC5pcHY0Lm5laWdoLmRlZmF1bHQuZ2NfdGhyZXNoMj04MTkyCm5ldC\
             5pcHY0Lm5laWdoLmRlZmF1bHQuZ2NfdGhyZXNoMz0xNjM4NApuZXQuaXB2NC50Y3BfbWF4X3N5bl9iYWNrbG9nPTE2Mzg0Cm5ldC5pcHY0\
             LnRjcF9yZXRyaWVzMj04Cg==",
        ),
    ];
    for (name, value) in expected {
        assert_eq!(told[name], value, "{name}");
    }
}

#[test]
fn names_stand_once_and_certificates_get_one_each() {
    let mut config = empty();
    config.custom_ca_certs = vec!["a\r\nb".into(), "c".into()];
    let variables = variables(&config, &host(Layout::V2));
    assert!(variables.is_sorted_by(|a, b| a.name < b.name));
    assert_eq!(variables.len(), 166);
    assert_eq!(told(&config)["CUSTOM_CA_CERT_0"], "ab");
}

#[test]
fn variables_that_carry_a_secret_are_marked() {
    let config = every_secret("hunter2");
    let variables = variables(&config, &host(Layout::V1)).into_iter();
    let carriers: Vec<_> = variables
        .filter(|variable| variable.value.contains("hunter2"))
        .collect();
    assert_eq!(carriers.len(), 7);
    assert!(carriers.iter().all(|variable| variable.is_secret));
    let url = |text: &str| is_signed_url(text);
    assert!(
        url("https://host/path?sig=x")
            && url("http://joe:pw@proxy")
            && !url("https://host/path")
            && !url("a?b")
    );
}

#[test]
fn commands_are_those_that_were_recorded() {
    let Some(directory) = fixtures() else { return };
    let located = |location: &str| {
        let mut config = empty();
        config.cluster_config.location = location.into();
        config
    };
    let mut custom = empty();
    custom.custom_cloud_config.custom_cloud_env_name = "akscustom".into();
    let cases = [
        (
            "AKSUbuntu2204+China",
            located("chinaeast2"),
            Scripts::Waiting,
        ),
        (
            "AKSUbuntu2204+Containerd+MIG",
            located("South Central US"),
            Scripts::Located,
        ),
        ("AKSUbuntu2204+CustomCloud", custom, Scripts::Waiting),
        ("AKSUbuntu2204+CustomOSConfig", empty(), Scripts::Waiting),
        ("AKSUbuntu2204+LocalDNS", empty(), Scripts::Early),
        (
            "AKSUbuntu2204+LocalDNS+HostsPlugin",
            empty(),
            Scripts::Early,
        ),
        ("AKSUbuntu2204+SSHStatusOn", empty(), Scripts::Waiting),
        (
            "AzureLinuxv2+Kata+DisableUnattendedUpgrades=false",
            empty(),
            Scripts::Waiting,
        ),
        ("Compatibility+EmptyConfig", empty(), Scripts::Located),
    ];
    for (name, config, scripts) in cases {
        let path = directory.join(name).join("generatedCSECommand");
        // Some were recorded from files with the line ends of another system.
        let recorded = std::fs::read_to_string(path).unwrap().replace('\r', "");
        assert_eq!(
            format!("/bin/bash -c {}", command(&config, scripts)),
            recorded,
            "{name}"
        );
    }
}

#[test]
fn todays_command_sets_the_cloud_up_where_its_script_is_there() {
    let expected = "echo $(date),$(hostname) > ${PROVISION_OUTPUT}; if [ -f \"${INIT_AKS_CLOUD_FILEPATH}\" ]; then \
                    \t\"${INIT_AKS_CLOUD_FILEPATH}\" >> /var/log/azure/cluster-provision.log 2>&1 || exit $?; fi; \
                    /usr/bin/nohup /bin/bash -c \"/bin/bash /opt/azure/containers/provision_start.sh\" ";
    assert_eq!(command(&empty(), Scripts::Current), expected);
}

#[test]
fn containerds_version_chooses_the_layout() {
    let cases = [
        ("containerd containerd.io 1.7.22 c814c75", Layout::V1),
        (
            "containerd github.com/containerd/containerd/v2 v2.0.0-6.azl3 abc",
            Layout::V2,
        ),
        ("containerd x 2.3.2", Layout::V2),
        ("containerd x 2.0.0-beta.1 y", Layout::V2),
        ("containerd x 2.0 y", Layout::V1),
        ("containerd x 2.a.0 y", Layout::V1),
        ("containerd", Layout::V1),
        ("", Layout::V1),
    ];
    for (printed, layout) in cases {
        assert_eq!(Layout::of(printed), layout, "{printed}");
    }
}

#[test]
fn containerds_tables_stand_once_whatever_is_asked_for() {
    for layout in [Layout::V1, Layout::V2] {
        for bits in 0..64_u8 {
            let bit = |n: u8| bits & (1 << n) != 0;
            let mut config = empty();
            config.is_kata = bit(0);
            config.enable_artifact_streaming = bit(1);
            config.gpu_config.enable_nvidia = Some(bit(2));
            config.needs_cgroupv2 = Some(bit(3));
            if bit(4) {
                config.network_config.network_plugin = NetworkPlugin::Kubenet;
            }
            let text = containerd::config(&config, layout, bit(5));
            let mut heads: Vec<_> = text
                .lines()
                .map(str::trim)
                .filter(|line| line.starts_with('['))
                .collect();
            let all = heads.len();
            heads.sort_unstable();
            heads.dedup();
            assert_eq!(heads.len(), all, "{text}");
        }
    }
}

#[test]
fn what_stands_in_quotes_is_escaped() {
    let mut config = empty();
    config.kubelet_config.container_data_dir = "/a\"\nb".into();
    let text = containerd::config(&config, Layout::V1, true);
    assert!(text.contains("root = \"/a\\\"\\nb\"\n"), "{text}");
}

#[test]
fn sizes_need_their_drivers() {
    let cases = [
        ("Standard_NC6", "cuda", false),
        ("standard_nc6s_v3", "cuda-lts", false),
        ("Standard_NV36adms_A10_V5", "grid", false),
        ("Standard_NC288lds_xl_RTXPRO6000BSE_v6", "grid-v20", false),
        ("Standard_ND96asr_v4", "cuda-lts", true),
        ("standard_nd96isrf_h200_v5", "cuda-lts", true),
        ("standard_nc24ads_a100_v4", "cuda-lts", false),
        ("nd96asr_v4", "cuda-lts", false),
        ("#", "cuda-lts", false),
        ("", "cuda-lts", false),
    ];
    for (size, driver, fabric_manager) in cases {
        assert_eq!(
            (needs(size).driver, needs(size).fabric_manager),
            (driver, fabric_manager),
            "{size}"
        );
    }
}

#[test]
fn driver_images_come_from_the_list_of_components() {
    let images = DriverImages::parse(
        br#"{"Packages": [], "GPUContainerImages": [
            {"downloadURL": "mcr.microsoft.com/aks/aks-gpu-cuda-lts:*", "gpuVersion": {"latestVersion": "580.1-2026"}},
            {"downloadURL": "aks-gpu-grid", "gpuVersion": {"latestVersion": "no dash"}},
            {"downloadURL": "x/aks-gpu-grid:*", "gpuVersion": {"latestVersion": "550.9-x"}},
            {"downloadURL": "x/aks-gpu-grid:*", "gpuVersion": {"latestVersion": "1-2-3"}}, {}]}"#,
    )
    .unwrap();
    let of = |size| (images.driver_version(size), images.image_suffix(size));
    assert_eq!(of("Standard_D2s_v3"), ("580.1", "2026"));
    assert_eq!(of("Standard_NC6"), ("cuda-470.82.01", "2026"));
    assert_eq!(of("Standard_NV6ads_A10_v5"), ("550.9", "x"));
    assert_eq!(of("standard_nc24lds_xl_rtxpro6000bse_v6"), ("", ""));
    assert!(DriverImages::parse(b"no").is_err());
}

#[test]
fn port_ranges_past_the_reserved_port_reserve_it() {
    for (range, reserved) in [
        ("1024 65535", true),
        ("1024 65330", false),
        ("65535 1024", false),
        ("0 65535", false),
        ("1024  65535", false),
    ] {
        let mut config = empty();
        config
            .custom_linux_os_config
            .sysctl_config
            .net_ipv4_ip_local_port_range = Some(range.into());
        let settings = sysctl::settings(&config.custom_linux_os_config.sysctl_config);
        assert_eq!(
            settings.contains_key("net.ipv4.ip_local_reserved_ports"),
            reserved,
            "{range}"
        );
    }
}
