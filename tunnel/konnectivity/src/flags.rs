//! Upstream's flags, and the settings they mean.

mod args;

use std::path::Path;
use std::sync::Arc;

use wire::tls::{ClientFiles, Clients, Policy, ServerFiles, knows_suite};

use crate::agent::{AgentConfig, CountSource, LeaseCounting, Proxies};
use crate::kubernetes::{self, KubeError};
use crate::listen::Listen;
use crate::server::{AgentsFrom, FrontEnd, LeaseSettings, Mode, ServerConfig, TokenSettings};
use crate::strategies::{Identifiers, Strategy};
use args::TlsVersion;

pub use args::{AgentFlags, ServerFlags};

/// Flags that do not go together, in upstream's words.
#[derive(Debug, thiserror::Error)]
pub enum FlagError {
    /// A value or a combination that may not be.
    #[error("{0}")]
    Usage(String),
    /// The API server that a flag needs.
    #[error(transparent)]
    Kube(#[from] KubeError),
}

type Result<T> = std::result::Result<T, FlagError>;

fn usage(text: impl Into<String>) -> FlagError {
    FlagError::Usage(text.into())
}

fn random_id() -> String {
    uuid::Uuid::new_v4().to_string()
}

impl ServerFlags {
    /// What the server is told; asks for a way to the API server where it needs one.
    pub async fn config(self) -> Result<ServerConfig> {
        let flags = self;
        let front = front_end(&flags)?;
        let strategies = Strategy::parse_list(&flags.proxy_strategies)
            .map_err(|e| usage(format!("invalid proxy strategies: {e}")))?;
        if strategies.is_empty() {
            return Err(usage("ProxyStrategies cannot be empty"));
        }
        let agent_tls = ServerFiles {
            cert: flags.cluster_cert.clone(),
            key: flags.cluster_key.clone(),
            clients: flags
                .cluster_ca_cert
                .clone()
                .map_or(Clients::Anybody, Clients::Of),
            policy: policy(&flags)?,
        };
        let tokens = tokens(&flags)?;
        let labels = crate::leases::parse_labels(&flags.lease_label)
            .map_err(|e| usage(format!("--lease-label cannot be read: {e}")))?;
        let mut settings = (None, None);
        if tokens.is_some() || flags.enable_lease_controller {
            let client = kubernetes::client(flags.kubeconfig.as_deref()).await?;
            settings.0 = tokens.map(|tokens| tokens(client.clone()));
            settings.1 = flags.enable_lease_controller.then(|| LeaseSettings {
                client,
                namespace: flags.lease_namespace.clone(),
                labels,
            });
        }
        Ok(ServerConfig {
            server_id: flags.server_id.unwrap_or_else(random_id),
            server_count: flags.server_count,
            mode: match flags.mode {
                args::Mode::Grpc => Mode::Grpc,
                args::Mode::HttpConnect => Mode::HttpConnect,
            },
            front,
            agents: listen(&flags.agent_bind_address, flags.agent_port),
            agents_from: AgentsFrom::anywhere(),
            agent_tls,
            health: Some(listen(&flags.health_bind_address, flags.health_port)),
            admin: Some(listen(&flags.admin_bind_address, flags.admin_port)),
            strategies,
            keepalive: flags.keepalive_time,
            dial_timeout: Some(flags.backend_dial_timeout).filter(|limit| !limit.is_zero()),
            graceful: flags.graceful_shutdown_timeout,
            tokens: settings.0,
            leases: settings.1,
        })
    }
}

fn listen(host: &str, port: u16) -> Listen {
    let host = host.to_owned();
    Listen { host, port }
}

fn policy(flags: &ServerFlags) -> Result<Policy> {
    if let Some(unknown) = flags.cipher_suites.iter().find(|s| !knows_suite(s)) {
        return Err(usage(format!(
            "cipher suite {unknown} not supported, doesn't exist or considered as insecure"
        )));
    }
    Ok(Policy {
        only_13: flags.tls_min_version == Some(TlsVersion::Tls13),
        suites: flags.cipher_suites.clone(),
    })
}

// Upstream's rules, in its words.
fn front_end(flags: &ServerFlags) -> Result<FrontEnd> {
    match (&flags.uds_name, &flags.server_ca_cert) {
        (Some(_), _) if flags.server_port != 0 => Err(usage(format!(
            "server port should be set to 0 not {} for UDS",
            flags.server_port
        ))),
        (Some(_), _) if flags.server_key.is_some() => {
            Err(usage("server key should not be set for UDS"))
        }
        (Some(_), Some(_)) => Err(usage("server ca cert should not be set for UDS")),
        (Some(path), None) => Ok(FrontEnd::Uds {
            path: path.clone(),
            replace: flags.delete_existing_uds_file,
        }),
        (None, None) => Err(usage(
            "server ca cert must be set when in TCP mode (uds-name is empty)",
        )),
        (None, Some(ca)) => {
            let (Some(cert), Some(key)) = (&flags.server_cert, &flags.server_key) else {
                return Err(usage(
                    "--server-cert and --server-key are needed in TCP mode",
                ));
            };
            Ok(FrontEnd::Tcp {
                listen: listen(&flags.server_bind_address, flags.server_port),
                tls: ServerFiles {
                    cert: cert.clone(),
                    key: key.clone(),
                    clients: Clients::Of(ca.clone()),
                    policy: policy(flags)?,
                },
            })
        }
    }
}

type WithClient = Box<dyn FnOnce(kube::Client) -> TokenSettings + Send>;

fn tokens(flags: &ServerFlags) -> Result<Option<WithClient>> {
    let wanted = [
        ("--agent-namespace", &flags.agent_namespace),
        ("--agent-service-account", &flags.agent_service_account),
        ("--authentication-audience", &flags.authentication_audience),
    ];
    if wanted.iter().all(|(_, value)| value.is_none()) {
        // Whoever reaches the port could be any node, and see what the control plane says to it.
        return match flags.cluster_ca_cert.is_some() || flags.insecure_agents {
            true => Ok(None),
            false => Err(usage(
                "agents would be believed without credentials: give --cluster-ca-cert, or --agent-namespace, \
                 --agent-service-account and --authentication-audience, or allow it with --insecure-agents",
            )),
        };
    }
    if flags.cluster_ca_cert.is_some() {
        return Err(usage(
            "--cluster-ca-cert can not be used when agent authentication is enabled",
        ));
    }
    if let Some((name, _)) = wanted.iter().find(|(_, value)| value.is_none()) {
        return Err(usage(format!(
            "{name} cannot be empty when agent authentication is enabled"
        )));
    }
    let [namespace, service_account, audience] =
        wanted.map(|(_, value)| value.clone().unwrap_or_default());
    Ok(Some(Box::new(move |client| TokenSettings {
        reviewer: Arc::new(client),
        audience,
        namespace,
        service_account,
    })))
}

impl AgentFlags {
    /// What the agent is told; asks for a way to the API server where it needs one.
    pub async fn config(self) -> Result<AgentConfig> {
        let flags = self;
        if let Some(key) = Identifiers::unknown_key(&flags.agent_identifiers) {
            return Err(usage(format!("unknown address type: {key}")));
        }
        if flags.sync_interval.is_zero() {
            return Err(usage("sync interval must be greater than 0"));
        }
        if flags.sync_interval > flags.sync_interval_cap {
            return Err(usage(format!(
                "sync interval {:?} must be less than sync interval cap {:?}",
                flags.sync_interval, flags.sync_interval_cap
            )));
        }
        let leases = if flags.count_server_leases {
            Some(LeaseCounting {
                client: kubernetes::client(flags.kubeconfig.as_deref()).await?,
                namespace: flags.lease_namespace,
                selector: flags.lease_label_selector,
                source: match flags.server_count_source {
                    args::CountSource::Default => CountSource::Leases,
                    args::CountSource::Max => CountSource::Max,
                },
            })
        } else {
            None
        };
        if let Some(path) = &flags.service_account_token_path {
            readable(path)?;
        }
        Ok(AgentConfig {
            agent_id: flags.agent_id.unwrap_or_else(random_id),
            identifiers: flags.agent_identifiers,
            server_host: flags.proxy_server_host,
            server_port: flags.proxy_server_port,
            proxies: Proxies::from_environment(),
            tls: ClientFiles {
                ca: flags.ca_cert,
                identity: flags.agent_cert.zip(flags.agent_key),
                alpn: flags.alpn_proto,
            },
            token: flags.service_account_token_path,
            health: Some(listen(&flags.health_server_host, flags.health_server_port)),
            admin: Some(listen(&flags.admin_bind_address, flags.admin_server_port)),
            sync_interval: flags.sync_interval,
            sync_interval_cap: flags.sync_interval_cap,
            sync_forever: flags.sync_forever,
            keepalive: flags.keepalive_time,
            leases,
        })
    }
}

// Upstream looks at the start whether files are there.
fn readable(path: &Path) -> Result<()> {
    std::fs::metadata(path).map(|_| ()).map_err(|error| {
        let path = path.display();
        usage(format!(
            "error checking service account token path {path}: {error}"
        ))
    })
}

#[cfg(test)]
mod tests;
