//! The steps that make an Ubuntu or Debian machine a node, as one table.
//!
//! Names are those of upstream's scripts where there is one: they end up in guest-agent events
//! that dashboards read. What ends up in files is decided in [`crate::render`]; here it is only
//! put in place.

mod accounts;
mod cluster;
mod connectivity;
mod containerd;
mod directories;
mod imds;
mod kernel;
mod kubelet;
mod localdns;
mod network;
mod observe;
mod packages;
mod preflight;
mod proxy;
mod serving;
mod swap;
mod trust;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use ::steps::engine::{Change, Failure, Retry, Scene, Step};

use crate::codes as code;
use crate::config::Configuration;
use crate::config::predicates::{is_kubenet_bridge, without_dead_settings};
use crate::render::{credential_provider, tls_bootstrap};

type Changes = Result<Vec<Change>, Failure>;
type Finding = Result<String, Failure>;

/// What a row does.
#[derive(Clone, Copy)]
enum Act {
    /// Brings the machine into a state.
    Change(fn(&Configuration, &Scene<'_>) -> Changes),
    /// Looks whether something is as it should be.
    Look(fn(&Configuration, &Scene<'_>) -> Finding),
}

/// A step as the table has it.
#[derive(Clone, Copy)]
struct Row {
    name: &'static str,
    /// The CSE exit code when it fails for no better known reason.
    code: u8,
    act: Act,
    /// Runs only where the node joins a cluster, not while an image is baked.
    joins: bool,
    /// Whether the configuration asks for it.
    wanted: fn(&Configuration) -> bool,
    after: &'static [&'static str],
    retry: Retry,
    deadline: Duration,
}

/// A step that brings the machine into a state: on every node, once the distribution is known, in
/// one attempt of ten seconds, unless the row says otherwise.
const fn does(name: &'static str, code: u8, act: fn(&Configuration, &Scene<'_>) -> Changes) -> Row {
    row(name, code, Act::Change(act))
}

/// A step that only looks; otherwise the same.
const fn looks(
    name: &'static str,
    code: u8,
    act: fn(&Configuration, &Scene<'_>) -> Finding,
) -> Row {
    row(name, code, Act::Look(act))
}

const fn row(name: &'static str, code: u8, act: Act) -> Row {
    let row = Row {
        name,
        code,
        act,
        joins: false,
        wanted: |_| true,
        after: &[],
        retry: Retry::ONCE,
        deadline: Duration::ZERO,
    };
    row.within(10)
}

impl Row {
    const fn joining(self) -> Row {
        Row {
            joins: true,
            ..self
        }
    }

    const fn when(self, wanted: fn(&Configuration) -> bool) -> Row {
        Row { wanted, ..self }
    }

    const fn after(self, after: &'static [&'static str]) -> Row {
        Row { after, ..self }
    }

    /// One attempt of this many seconds.
    const fn within(self, seconds: u64) -> Row {
        self.trying(1, 0, seconds, seconds)
    }

    /// So many attempts, so many milliseconds apart, so many seconds for one and for all.
    const fn trying(self, attempts: u32, pause: u64, attempt: u64, deadline: u64) -> Row {
        let (pause, attempt) = (Duration::from_millis(pause), Duration::from_secs(attempt));
        let retry = Retry::times(attempts, pause, attempt);
        Row {
            retry,
            deadline: Duration::from_secs(deadline),
            ..self
        }
    }
}

/// What every other step waits for.
const FIRST: &str = "checkDistribution";

#[rustfmt::skip]
const TABLE: &[Row] = &[
    looks(FIRST, code::AKS_NODE_CONTROLLER_ERROR, preflight::distribution).within(5),
    looks("checkClock", code::K8S_API_SERVER_CONN_FAIL, preflight::clock).joining(),
    does("fetch_and_cache_imds_instance_metadata", code::IMDS_FETCH_FAILED, observe::metadata_cache).when(observe::asks_metadata)
        .trying(20, 2000, 60, 120),
    does("createDirectories", code::AKS_NODE_CONTROLLER_ERROR, directories::make),
    does("configureAdminUser", code::AKS_NODE_CONTROLLER_ERROR, accounts::admin_user).within(30),
    does("disableSSH", code::DISABLE_SSH, accounts::disable_ssh).when(accounts::disables_ssh).trying(3, 5000, 60, 180),
    does("disableSSHPubkeyAuth", code::CONFIG_PUBKEY_AUTH_SSH, accounts::refuse_keys).when(accounts::refuses_keys).trying(3, 5000, 60, 180),
    does("configureMotd", code::AKS_NODE_CONTROLLER_ERROR, accounts::motd).when(accounts::has_motd),
    does("configureHTTPProxy", code::UPDATE_CA_CERTS, proxy::settings).when(crate::render::proxy::wanted).within(30),
    does("configureCustomCaCertificate", code::UPDATE_CA_CERTS, trust::certificates).when(trust::wanted).trying(3, 5000, 60, 180),
    does("disableSystemdResolved", code::AKS_NODE_CONTROLLER_ERROR, network::resolver),
    does("installSecureTLSBootstrapClient", code::SECURE_TLS_BOOTSTRAP_CLIENT_DOWNLOAD_ERROR, packages::tls_bootstrap_client).after(FETCHING)
        .trying(5, 5000, 300, 600),
    does("installContainerRuntime", code::CONTAINERD_INSTALL_TIMEOUT, packages::container_runtime).after(FETCHING).trying(3, 10000, 600, 780),
    does("installNetworkPlugin", code::CNI_DOWNLOAD_TIMEOUT, packages::network_plugin)
        .after(&["createDirectories", "installContainerRuntime"]).trying(3, 10000, 300, 780),
    does("configureKubeletAndKubectl", code::K8S_DOWNLOAD_TIMEOUT, packages::kubelet)
        .after(&["createDirectories", "configureHTTPProxy", "configureCustomCaCertificate",
            "disableSystemdResolved", "installNetworkPlugin"])
        .trying(3, 10000, 600, 780),
    does("runCustomSearchDomain", code::CUSTOM_SEARCH_DOMAINS_FAIL, network::search_domain).when(network::has_search_domain)
        .after(&["disableSystemdResolved"]).within(300),
    does("configureCNI", code::MODPROBE_FAIL, network::cni).after(&["installNetworkPlugin"]).trying(12, 5000, 25, 120),
    does("ensureDHCPv6", code::SYSTEMCTL_START_FAIL, network::dual_stack).when(|c| c.ipv6_dual_stack_enabled).trying(3, 5000, 60, 180),
    does("ensureSysctl", code::SYSCTL_RELOAD, kernel::sysctl).after(&["configureCNI"]).trying(3, 5000, 25, 120),
    does("configureTransparentHugePage", code::SYSCTL_RELOAD, kernel::huge_pages).when(kernel::has_huge_pages),
    does("configureSwapFile", code::SWAP_CREATE_FAIL, swap::file).when(swap::wanted).trying(3, 5000, 120, 300),
    does("setContainerdUlimits", code::SYSTEMCTL_START_FAIL, containerd::ulimits)
        .when(|c| c.custom_linux_os_config.ulimit_config.is_present()).after(&["installContainerRuntime"]),
    does("ensureKubeletCgroupHierarchy", code::KUBELET_START_FAIL, kubelet::cgroup_hierarchy).when(kubelet::reserves_cgroups)
        .trying(3, 5000, 60, 120),
    does("configureContainerd", code::FILE_WATCH_TIMEOUT, containerd::configuration)
        .after(&["installContainerRuntime", "createDirectories", "fetch_and_cache_imds_instance_metadata"])
        .within(60),
    does("ensureContainerd", code::SYSTEMCTL_START_FAIL, containerd::start)
        .after(&["configureContainerd", "setContainerdUlimits", "configureHTTPProxy", "configureCNI",
            "ensureSysctl", "ensureKubeletCgroupHierarchy"])
        .trying(5, 5000, 60, 180),
    looks("waitForContainerdReady", code::SYSTEMCTL_START_FAIL, containerd::ready).after(&["ensureContainerd"]).trying(1200, 100, 10, 120),
    does("ensureContainerd.ensureArtifactStreaming", code::ARTIFACT_STREAMING_INSTALL, containerd::artifact_streaming)
        .when(|c| c.enable_artifact_streaming).after(&["waitForContainerdReady"]).trying(5, 5000, 60, 180),
    does("configPrivateClusterHosts", code::SYSTEMCTL_START_FAIL, network::private_hosts).when(|c| c.enable_hosts_config_agent)
        .trying(3, 5000, 60, 180),
    does("enableLocalDNS", code::LOCALDNS_FAIL, localdns::service).when(|c| c.local_dns_profile.enable_local_dns)
        .after(&["disableSystemdResolved"]).trying(3, 5000, 60, 180),
    looks("checkGPUDriver", code::NVIDIA_DRIVER_INSTALL, preflight::gpu).joining().when(|c| c.gpu_config.enable_nvidia == Some(true))
        .after(&["fetch_and_cache_imds_instance_metadata"]),
    does("configureAzureJson", code::AKS_NODE_CONTROLLER_ERROR, cluster::azure_json).joining().after(&["createDirectories"]),
    does("ensureKubeCACert", code::K8S_API_SERVER_CONN_FAIL, cluster::ca).joining().after(&["createDirectories"]),
    does("configureKubeletServing", code::LOOKUP_DISABLE_KUBELET_SERVING_CERTIFICATE_ROTATION_TAG, serving::certificate).joining()
        .after(&["createDirectories", "fetch_and_cache_imds_instance_metadata"]).within(30),
    does("configureK8s", code::KUBELET_START_FAIL, cluster::kubelet_files).joining()
        .after(&["createDirectories", "fetch_and_cache_imds_instance_metadata"]),
    does("configureAndEnableSecureTLSBootstrapping", code::SECURE_TLS_BOOTSTRAP_ENABLE_FAILURE, cluster::secure_tls_bootstrap).joining()
        .when(tls_bootstrap::enabled)
        .after(&["installSecureTLSBootstrapClient", "configureAzureJson", "ensureKubeCACert"])
        .trying(3, 5000, 60, 120),
    looks("checkOutbound", code::OUTBOUND_CONN_FAIL, connectivity::outbound).joining().when(|c| !c.outbound_command.is_empty())
        .after(&["configureHTTPProxy", "configureCustomCaCertificate", "disableSystemdResolved", "enableLocalDNS"])
        .trying(20, 1000, 15, 320),
    does("skipOutboundChecks", code::OUTBOUND_CONN_FAIL, connectivity::isolated).joining()
        .when(|c| !c.bootstrap_profile_container_registry_server.is_empty()).after(&["createDirectories"]),
    does("configureSecondaryNICs", code::SECONDARY_NIC_CONFIG_FAIL, network::secondary_interfaces).joining()
        .when(|c| c.network_config.standard_secondary_nic_count > 0)
        .after(&["fetch_and_cache_imds_instance_metadata"]).trying(3, 5000, 60, 180),
    looks("apiserverNslookup", code::K8S_API_SERVER_DNS_LOOKUP_FAIL, connectivity::lookup).joining()
        .when(|c| connectivity::looks_up(c) && !connectivity::is_private_link(c))
        .after(&["checkClock", "disableSystemdResolved", "enableLocalDNS", "runCustomSearchDomain"])
        .trying(300, 1000, 15, 300),
    looks("apiserverNslookup", code::K8S_API_SERVER_DNS_LOOKUP_FAIL, connectivity::lookup).joining()
        .when(|c| connectivity::looks_up(c) && connectivity::is_private_link(c))
        .after(&["checkClock", "disableSystemdResolved", "enableLocalDNS", "runCustomSearchDomain"])
        .trying(600, 1000, 15, 600),
    looks("apiserverCurl", code::K8S_API_SERVER_CONN_FAIL, connectivity::answers).joining()
        .when(|c| connectivity::is_named(c) && !connectivity::is_private_link(c))
        .after(&["apiserverNslookup", "ensureKubeCACert", "checkClock", "configPrivateClusterHosts"])
        .trying(34, 1000, 15, 300),
    looks("apiserverCurl", code::K8S_API_SERVER_CONN_FAIL, connectivity::answers).joining()
        .when(|c| connectivity::is_named(c) && connectivity::is_private_link(c))
        .after(&["apiserverNslookup", "ensureKubeCACert", "checkClock", "configPrivateClusterHosts"])
        .trying(68, 1000, 15, 600),
    looks("apiserverNC", code::K8S_API_SERVER_CONN_FAIL, connectivity::listens).joining().when(|c| !connectivity::is_named(c))
        .after(&["checkClock"]).trying(300, 1000, 10, 600),
    does("ensureKubelet.configCredentialProvider", code::CREDENTIAL_PROVIDER_DOWNLOAD_TIMEOUT, kubelet::credential_provider).joining()
        .when(credential_provider::wanted).after(&["createDirectories"]),
    does("ensureKubelet.installCredentialProvider", code::CREDENTIAL_PROVIDER_DOWNLOAD_TIMEOUT, packages::credential_provider).joining()
        .when(credential_provider::wanted).after(FETCHING).trying(3, 10000, 300, 600),
    does("ensureKubelet.ensureIMDSRestriction", code::INSERT_IMDS_RESTRICTION_RULE_INTO_MANGLE_TABLE, imds::restriction).joining()
        .when(imds::restricts_in_mangle).after(&["fetch_and_cache_imds_instance_metadata"]).trying(3, 2000, 30, 90),
    does("ensureKubelet.ensureIMDSRestriction", code::INSERT_IMDS_RESTRICTION_RULE_INTO_FILTER_TABLE, imds::restriction).joining()
        .when(imds::restricts_in_filter).after(&["fetch_and_cache_imds_instance_metadata"]).trying(3, 2000, 30, 90),
    does("ensureKubelet.ensureIMDSRestriction", code::DELETE_IMDS_RESTRICTION_RULE_FROM_FILTER_TABLE, imds::restriction).joining()
        .when(|c| !c.imds_restriction_config.enable_imds_restriction)
        .after(&["fetch_and_cache_imds_instance_metadata"]).trying(3, 2000, 30, 90),
    does("ensureKubelet.writeFiles", code::KUBELET_START_FAIL, kubelet::files).joining()
        .after(&["createDirectories", "fetch_and_cache_imds_instance_metadata", "enableLocalDNS"]).within(30),
    does("ensureKubelet", code::KUBELET_START_FAIL, kubelet::start).joining()
        .after(&["ensureKubelet.writeFiles", "ensureKubelet.configCredentialProvider",
            "ensureKubelet.installCredentialProvider", "ensureKubelet.ensureIMDSRestriction",
            "configureKubeletAndKubectl", "configureK8s", "configureKubeletServing", "configureAzureJson",
            "configureAndEnableSecureTLSBootstrapping", "checkOutbound", "configureSecondaryNICs",
            "checkGPUDriver", "apiserverCurl", "apiserverNC", "waitForContainerdReady",
            "ensureContainerd.ensureArtifactStreaming", "configureSwapFile", "configureTransparentHugePage",
            "configureAdminUser", "disableSSH", "disableSSHPubkeyAuth", "ensureDHCPv6"])
        .trying(3, 5000, 240, 300),
    looks("checkKubeletHealth", code::KUBELET_START_FAIL, kubelet::healthy).joining().after(&["ensureKubelet"]).trying(1200, 200, 5, 240),
    does("ensureNoDupOnPromiscuBridge", code::SYSTEMCTL_START_FAIL, network::no_duplicates).joining().when(is_kubenet_bridge)
        .after(&["ensureKubelet"]).trying(3, 5000, 60, 180),
    does("configureNodeExporter", code::NODE_EXPORTER_START_FAIL, upkeep::node_exporter).joining().after(&["ensureKubelet"])
        .trying(3, 5000, 60, 180),
    does("ubuntuSnapshotUpdate", code::SNAPSHOT_UPDATE_START_FAIL, upkeep::timers).joining().after(&["ensureKubelet"]).trying(3, 5000, 60, 180),
    does("enableUnattendedUpgrades", code::SYSTEMCTL_START_FAIL, upkeep::unattended_upgrades).joining().when(|c| c.enable_unattended_upgrade)
        .after(&["ensureKubelet"]).trying(3, 5000, 60, 180),
];

/// What must be there before anything is fetched from elsewhere.
const FETCHING: &[&str] = &[
    "createDirectories",
    "configureHTTPProxy",
    "configureCustomCaCertificate",
    "disableSystemdResolved",
];

/// Every step this configuration asks for.
pub fn steps(config: &Configuration) -> Vec<Step> {
    let config = &Arc::new(without_dead_settings(config));
    let bakes = config.pre_provision_only;
    let rows = TABLE
        .iter()
        .filter(|row| (row.wanted)(config) && !(bakes && row.joins));
    rows.map(|row| step(row, Arc::clone(config))).collect()
}

fn step(row: &'static Row, config: Arc<Configuration>) -> Step {
    let step = match row.act {
        Act::Change(work) => Step::changes(row.name, row.code, move |scene| work(&config, scene)),
        Act::Look(work) => Step::probe(row.name, row.code, move |scene| work(&config, scene)),
    };
    // A need that is not in the run holds nobody back, but a foreign distribution holds all.
    let first: &[&str] = if row.name == FIRST { &[] } else { &[FIRST] };
    step.after(first)
        .after(row.after)
        .within(row.deadline)
        .retrying(row.retry)
}

#[cfg(test)]
mod tests;
