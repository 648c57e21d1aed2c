//! `kyanite cloud-controller-manager` and `kyanite cloud-node-manager`: what follows Azure, beside any API server.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::cloud_controllers::{Config, Connection, NodeManager, Provider};
use azure::imds::{Imds, Place};
use azure::{Arm, CloudConfig};
use wire::client::Client;

use super::controller_manager::{election, failure};
use super::serve;
use crate::cli::cloud_controllers::{CloudControllerManager, CloudNodeManager};
use crate::exit::{Code, Failure, Result};
use crate::logging;

/// The lease that upstream's manager takes.
const LEASE: &str = "cloud-controller-manager";

/// Runs the controllers until told to stop.
pub(super) async fn manager(flags: CloudControllerManager) -> Result<()> {
    logging::start(&flags.logging)?;
    let selection = ::cloud_controllers::select(flags.controllers.iter().map(String::as_str))
        .map_err(|e| Failure::new(Code::Usage, format!("--controllers cannot be read: {e}")))?;
    let cloud = cloud_config(&flags.cloud_config)?;
    let arm = resource_manager(&cloud).await?;
    let mut config = Config::new(connection(flags.kubeconfig), cloud, arm);
    config.selection = selection;
    config.own_identities = flags.use_service_account_credentials;
    config.leader_election = election(&flags.election, LEASE)?;
    config.cluster_name = flags.cluster_name;
    config.cluster_cidrs = flags.cluster_cidr;
    config.routes = flags.configure_cloud_routes && flags.allocate_node_cidrs;
    config.route_reconciliation_period = flags.route_reconciliation_period;
    config.node_monitor_period = flags.node_monitor_period;
    config.node_status_update_frequency = flags.node_status_update_frequency;
    ::cloud_controllers::run(config, serve::told_to_stop())
        .await
        .map_err(failure)
}

/// Keeps this node's view of its machine until told to stop.
pub(super) async fn node_manager(flags: CloudNodeManager) -> Result<()> {
    logging::start(&flags.logging)?;
    let provider = match flags.use_instance_metadata {
        true => Provider::metadata_service(Imds::new(Place::of(variable), client(None)?)),
        false => {
            let cloud = cloud_config(&flags.cloud_config)?;
            Provider::resource_manager(resource_manager(&cloud).await?, Arc::new(cloud))
        }
    };
    let host = || crate::pki::hostname().unwrap_or_default();
    let manager = NodeManager {
        connection: connection(flags.kubeconfig),
        node: flags.node_name.unwrap_or_else(host).to_lowercase(),
        provider,
        wait_routes: flags.wait_routes,
        frequency: flags.node_status_update_frequency,
        beta_labels: flags.enable_deprecated_beta_topology_labels,
    };
    ::cloud_controllers::run_node_manager(manager, serve::told_to_stop())
        .await
        .map_err(failure)
}

fn connection(kubeconfig: Option<PathBuf>) -> Connection {
    kubeconfig.map_or(Connection::InCluster, Connection::Kubeconfig)
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

fn cloud_config(path: &Path) -> Result<CloudConfig> {
    let text = std::fs::read_to_string(path).map_err(|e| Failure::file("read", path, &e))?;
    CloudConfig::parse(&text, variable)
        .map_err(|e| Failure::new(Code::Usage, format!("`{}`: {e}", path.display())))
}

pub(super) fn client(authority: Option<&[u8]>) -> Result<Arc<Client>> {
    let tls = wire::https::tls(authority).map_err(|e| Failure::new(Code::Failure, e))?;
    Ok(Arc::new(Client::new(tls, azure::arm::PATIENCE)))
}

async fn resource_manager(cloud: &CloudConfig) -> Result<Arm> {
    let connected = Arm::connect(cloud, client(None)?, variable).await;
    connected.map_err(|error| {
        let code = match &error {
            azure::Error::Config(_) => Code::Usage,
            _ => Code::Unavailable,
        };
        Failure::new(code, error.to_string())
    })
}
