//! The steps that make an Ubuntu or Debian machine a node, as one table.
//!
//! Names are those of upstream's scripts where there is one: they end up in guest-agent events
//! that dashboards read. What ends up in files is decided in [`crate::render`]; here it is only
//! put in place.

mod accounts;
mod cluster;
mod connectivity;
mod containerd;
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

use crate::config::Configuration;
use crate::engine::{Change, Failure, Retry, Scene, Step};
use crate::environment::without_dead_settings;

type Changes = Result<Vec<Change>, Failure>;
type Finding = Result<String, Failure>;

/// What a row does.
enum Act {
    /// Brings the machine into a state.
    Change(fn(&Configuration, &Scene<'_>) -> Changes),
    /// Looks whether something is as it should be.
    Look(fn(&Configuration, &Scene<'_>) -> Finding),
}

/// When a row runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Always, also while an image is baked.
    Base,
    /// Only where the node joins a cluster.
    Node,
}

struct Row {
    name: &'static str,
    phase: Phase,
    /// Whether the configuration asks for it.
    wanted: fn(&Configuration) -> bool,
    after: &'static [&'static str],
    /// The CSE exit code when it fails for no better known reason.
    code: u8,
    /// Attempts, seconds between two, seconds for one, seconds for all.
    patience: [u64; 4],
    act: Act,
}

/// One attempt within this many seconds.
const fn once(seconds: u64) -> [u64; 4] {
    [1, 0, seconds, seconds]
}

const ALWAYS: fn(&Configuration) -> bool = |_| true;
use Act::{Change as Do, Look};
use Phase::{Base, Node};

#[rustfmt::skip]
const TABLE: &[Row] = &[
    Row { name: "checkDistribution", phase: Base, wanted: ALWAYS, after: &[], code: 240, patience: once(5), act: Look(preflight::distribution) },
    Row { name: "checkClock", phase: Node, wanted: ALWAYS, after: &["checkDistribution"], code: 51, patience: once(10), act: Look(preflight::clock) },
    Row { name: "fetch_and_cache_imds_instance_metadata", phase: Base, wanted: observe::asks_metadata, after: &["checkDistribution"], code: 234, patience: [20, 2, 60, 120], act: Do(observe::metadata_cache) },
    Row { name: "createDirectories", phase: Base, wanted: ALWAYS, after: &["checkDistribution"], code: 240, patience: once(10), act: Do(network::directories) },
    Row { name: "configureAdminUser", phase: Base, wanted: ALWAYS, after: &["checkDistribution"], code: 240, patience: once(30), act: Do(accounts::admin_user) },
    Row { name: "disableSSH", phase: Base, wanted: accounts::disables_ssh, after: &["checkDistribution"], code: 172, patience: [3, 5, 60, 180], act: Do(accounts::disable_ssh) },
    Row { name: "disableSSHPubkeyAuth", phase: Base, wanted: accounts::refuses_keys, after: &["checkDistribution"], code: 178, patience: [3, 5, 60, 180], act: Do(accounts::refuse_keys) },
    Row { name: "configureMotd", phase: Base, wanted: accounts::has_motd, after: &["checkDistribution"], code: 240, patience: once(10), act: Do(accounts::motd) },
    Row { name: "configureHTTPProxy", phase: Base, wanted: crate::render::proxy::wanted, after: &["checkDistribution"], code: 161, patience: once(30), act: Do(proxy::settings) },
    Row { name: "configureCustomCaCertificate", phase: Base, wanted: trust::wanted, after: &["checkDistribution"], code: 161, patience: [3, 5, 60, 180], act: Do(trust::certificates) },
    Row { name: "disableSystemdResolved", phase: Base, wanted: ALWAYS, after: &["checkDistribution"], code: 240, patience: once(10), act: Do(network::resolver) },
    Row { name: "installSecureTLSBootstrapClient", phase: Base, wanted: ALWAYS, after: FETCHING, code: 169, patience: [5, 5, 300, 600], act: Do(packages::tls_bootstrap_client) },
    Row { name: "installContainerRuntime", phase: Base, wanted: ALWAYS, after: FETCHING, code: 28, patience: [3, 10, 600, 780], act: Do(packages::container_runtime) },
    Row { name: "installNetworkPlugin", phase: Base, wanted: ALWAYS, after: &["createDirectories", "installContainerRuntime"], code: 41, patience: [3, 10, 300, 780], act: Do(packages::network_plugin) },
    Row { name: "configureKubeletAndKubectl", phase: Base, wanted: ALWAYS, after: &["createDirectories", "configureHTTPProxy", "configureCustomCaCertificate", "disableSystemdResolved", "installNetworkPlugin"], code: 31, patience: [3, 10, 600, 780], act: Do(packages::kubelet) },
    Row { name: "runCustomSearchDomain", phase: Base, wanted: network::has_search_domain, after: &["disableSystemdResolved"], code: 80, patience: once(300), act: Do(network::search_domain) },
    Row { name: "configureCNI", phase: Base, wanted: ALWAYS, after: &["installNetworkPlugin"], code: 49, patience: [12, 5, 25, 120], act: Do(network::cni) },
    Row { name: "ensureDHCPv6", phase: Base, wanted: |c| c.ipv6_dual_stack_enabled, after: &["checkDistribution"], code: 4, patience: [3, 5, 60, 180], act: Do(network::dual_stack) },
    Row { name: "ensureSysctl", phase: Base, wanted: ALWAYS, after: &["configureCNI"], code: 103, patience: [3, 5, 25, 120], act: Do(kernel::sysctl) },
    Row { name: "configureTransparentHugePage", phase: Base, wanted: kernel::has_huge_pages, after: &["checkDistribution"], code: 103, patience: once(10), act: Do(kernel::huge_pages) },
    Row { name: "configureSwapFile", phase: Base, wanted: swap::wanted, after: &["checkDistribution"], code: 130, patience: [3, 5, 120, 300], act: Do(swap::file) },
    Row { name: "setContainerdUlimits", phase: Base, wanted: |c| c.custom_linux_os_config.ulimit_config.is_present(), after: &["installContainerRuntime"], code: 4, patience: once(10), act: Do(containerd::ulimits) },
    Row { name: "ensureKubeletCgroupHierarchy", phase: Base, wanted: kubelet::reserves_cgroups, after: &["checkDistribution"], code: 34, patience: [3, 5, 60, 120], act: Do(kubelet::cgroup_hierarchy) },
    Row { name: "configureContainerd", phase: Base, wanted: ALWAYS, after: &["installContainerRuntime", "createDirectories", "fetch_and_cache_imds_instance_metadata"], code: 6, patience: once(60), act: Do(containerd::configuration) },
    Row { name: "ensureContainerd", phase: Base, wanted: ALWAYS, after: &["configureContainerd", "setContainerdUlimits", "configureHTTPProxy", "configureCNI", "ensureSysctl", "ensureKubeletCgroupHierarchy"], code: 4, patience: [5, 5, 60, 180], act: Do(containerd::start) },
    Row { name: "waitForContainerdReady", phase: Base, wanted: ALWAYS, after: &["ensureContainerd"], code: 4, patience: [60, 1, 10, 120], act: Look(containerd::ready) },
    Row { name: "ensureContainerd.ensureArtifactStreaming", phase: Base, wanted: |c| c.enable_artifact_streaming, after: &["waitForContainerdReady"], code: 153, patience: [5, 5, 60, 180], act: Do(containerd::artifact_streaming) },
    Row { name: "configPrivateClusterHosts", phase: Base, wanted: |c| c.enable_hosts_config_agent, after: &["checkDistribution"], code: 4, patience: [3, 5, 60, 180], act: Do(network::private_hosts) },
    Row { name: "enableLocalDNS", phase: Base, wanted: |c| c.local_dns_profile.enable_local_dns, after: &["disableSystemdResolved"], code: 216, patience: [3, 5, 60, 180], act: Do(localdns::service) },
    Row { name: "checkGPUDriver", phase: Node, wanted: |c| c.gpu_config.enable_nvidia == Some(true), after: &["fetch_and_cache_imds_instance_metadata"], code: 224, patience: once(10), act: Look(preflight::gpu) },
    Row { name: "configureAzureJson", phase: Node, wanted: ALWAYS, after: &["createDirectories"], code: 240, patience: once(10), act: Do(cluster::azure_json) },
    Row { name: "ensureKubeCACert", phase: Node, wanted: ALWAYS, after: &["createDirectories"], code: 51, patience: once(10), act: Do(cluster::ca) },
    Row { name: "configureKubeletServing", phase: Node, wanted: ALWAYS, after: &["createDirectories", "fetch_and_cache_imds_instance_metadata"], code: 213, patience: once(30), act: Do(serving::certificate) },
    Row { name: "configureK8s", phase: Node, wanted: ALWAYS, after: &["createDirectories", "fetch_and_cache_imds_instance_metadata"], code: 34, patience: once(10), act: Do(cluster::kubelet_files) },
    Row { name: "configureAndEnableSecureTLSBootstrapping", phase: Node, wanted: crate::render::tls_bootstrap::enabled, after: &["installSecureTLSBootstrapClient", "configureAzureJson", "ensureKubeCACert"], code: 220, patience: [3, 5, 60, 120], act: Do(cluster::secure_tls_bootstrap) },
    Row { name: "checkOutbound", phase: Node, wanted: |c| !c.outbound_command.is_empty(), after: &["configureHTTPProxy", "configureCustomCaCertificate", "disableSystemdResolved", "enableLocalDNS"], code: 50, patience: [20, 1, 15, 320], act: Look(connectivity::outbound) },
    Row { name: "skipOutboundChecks", phase: Node, wanted: |c| !c.bootstrap_profile_container_registry_server.is_empty(), after: &["createDirectories"], code: 50, patience: once(10), act: Do(connectivity::isolated) },
    Row { name: "configureSecondaryNICs", phase: Node, wanted: |c| c.network_config.standard_secondary_nic_count > 0, after: &["fetch_and_cache_imds_instance_metadata"], code: 243, patience: [3, 5, 60, 180], act: Do(network::secondary_interfaces) },
    Row { name: "apiserverNslookup", phase: Node, wanted: |c| connectivity::looks_up(c) && !connectivity::is_private_link(c), after: &["checkClock", "disableSystemdResolved", "enableLocalDNS", "runCustomSearchDomain"], code: 52, patience: [300, 1, 15, 300], act: Look(connectivity::lookup) },
    Row { name: "apiserverNslookup", phase: Node, wanted: |c| connectivity::looks_up(c) && connectivity::is_private_link(c), after: &["checkClock", "disableSystemdResolved", "enableLocalDNS", "runCustomSearchDomain"], code: 52, patience: [600, 1, 15, 600], act: Look(connectivity::lookup) },
    Row { name: "apiserverCurl", phase: Node, wanted: |c| connectivity::is_named(c) && !connectivity::is_private_link(c), after: &["apiserverNslookup", "ensureKubeCACert", "checkClock", "configPrivateClusterHosts"], code: 51, patience: [34, 1, 15, 300], act: Look(connectivity::answers) },
    Row { name: "apiserverCurl", phase: Node, wanted: |c| connectivity::is_named(c) && connectivity::is_private_link(c), after: &["apiserverNslookup", "ensureKubeCACert", "checkClock", "configPrivateClusterHosts"], code: 51, patience: [68, 1, 15, 600], act: Look(connectivity::answers) },
    Row { name: "apiserverNC", phase: Node, wanted: |c| !connectivity::is_named(c), after: &["checkClock"], code: 51, patience: [300, 1, 10, 600], act: Look(connectivity::listens) },
    Row { name: "ensureKubelet.configCredentialProvider", phase: Node, wanted: crate::render::credential_provider::wanted, after: &["createDirectories"], code: 205, patience: once(10), act: Do(kubelet::credential_provider) },
    Row { name: "ensureKubelet.installCredentialProvider", phase: Node, wanted: crate::render::credential_provider::wanted, after: FETCHING, code: 205, patience: [3, 10, 300, 600], act: Do(packages::credential_provider) },
    Row { name: "ensureKubelet.ensureIMDSRestriction", phase: Node, wanted: |c| c.imds_restriction_config.enable_imds_restriction && c.imds_restriction_config.insert_imds_restriction_rule_to_mangle_table, after: &["fetch_and_cache_imds_instance_metadata"], code: 174, patience: [3, 2, 30, 90], act: Do(network::imds_restriction) },
    Row { name: "ensureKubelet.ensureIMDSRestriction", phase: Node, wanted: |c| c.imds_restriction_config.enable_imds_restriction && !c.imds_restriction_config.insert_imds_restriction_rule_to_mangle_table, after: &["fetch_and_cache_imds_instance_metadata"], code: 175, patience: [3, 2, 30, 90], act: Do(network::imds_restriction) },
    Row { name: "ensureKubelet.ensureIMDSRestriction", phase: Node, wanted: |c| !c.imds_restriction_config.enable_imds_restriction, after: &["fetch_and_cache_imds_instance_metadata"], code: 177, patience: [3, 2, 30, 90], act: Do(network::imds_restriction) },
    Row { name: "ensureKubelet.writeFiles", phase: Node, wanted: ALWAYS, after: &["createDirectories", "fetch_and_cache_imds_instance_metadata", "enableLocalDNS"], code: 34, patience: once(30), act: Do(kubelet::files) },
    Row { name: "ensureKubelet", phase: Node, wanted: ALWAYS, after: &["ensureKubelet.writeFiles", "ensureKubelet.configCredentialProvider", "ensureKubelet.installCredentialProvider", "ensureKubelet.ensureIMDSRestriction", "configureKubeletAndKubectl", "configureK8s", "configureKubeletServing", "configureAzureJson", "configureAndEnableSecureTLSBootstrapping", "checkOutbound", "configureSecondaryNICs", "checkGPUDriver", "apiserverCurl", "apiserverNC", "waitForContainerdReady", "ensureContainerd.ensureArtifactStreaming", "configureSwapFile", "configureTransparentHugePage", "configureAdminUser", "disableSSH", "disableSSHPubkeyAuth", "ensureDHCPv6"], code: 34, patience: [3, 5, 240, 300], act: Do(kubelet::start) },
    Row { name: "checkKubeletHealth", phase: Node, wanted: ALWAYS, after: &["ensureKubelet"], code: 34, patience: [240, 1, 5, 240], act: Look(kubelet::healthy) },
    Row { name: "ensureNoDupOnPromiscuBridge", phase: Node, wanted: crate::environment::is_kubenet_bridge, after: &["ensureKubelet"], code: 4, patience: [3, 5, 60, 180], act: Do(network::no_duplicates) },
    Row { name: "configureNodeExporter", phase: Node, wanted: ALWAYS, after: &["ensureKubelet"], code: 128, patience: [3, 5, 60, 180], act: Do(upkeep::node_exporter) },
    Row { name: "ubuntuSnapshotUpdate", phase: Node, wanted: ALWAYS, after: &["ensureKubelet"], code: 202, patience: [3, 5, 60, 180], act: Do(upkeep::timers) },
    Row { name: "enableUnattendedUpgrades", phase: Node, wanted: |c| c.enable_unattended_upgrade, after: &["ensureKubelet"], code: 4, patience: [3, 5, 60, 180], act: Do(upkeep::unattended_upgrades) },
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
    TABLE
        .iter()
        .filter(|row| (row.wanted)(config) && !(bakes && row.phase == Node))
        .map(|row| step(row, Arc::clone(config)))
        .collect()
}

fn step(row: &'static Row, config: Arc<Configuration>) -> Step {
    let [attempts, pause, attempt, deadline] = row.patience;
    let attempts = u32::try_from(attempts).expect("attempts in the table are few");
    let retry = Retry::times(
        attempts,
        Duration::from_secs(pause),
        Duration::from_secs(attempt),
    );
    let step = match row.act {
        Do(work) => Step::changes(row.name, row.code, move |scene| work(&config, scene)),
        Look(work) => Step::probe(row.name, row.code, move |scene| work(&config, scene)),
    };
    step.after(row.after)
        .within(Duration::from_secs(deadline))
        .retrying(retry)
}

#[cfg(test)]
mod tests;
