//! `kyanite konnectivity-server` and `kyanite konnectivity-agent`.

use std::path::{Path, PathBuf};

use konnectivity::agent::{Agent, AgentConfig, AgentError, CountSource, LeaseCounting};
use konnectivity::server::{
    FrontEnd, LeaseSettings, Mode, Server, ServerConfig, ServerError, TokenSettings,
};
use konnectivity::{ClientFiles, Identifiers, Listen, Policy, ServerFiles, Strategy};

use super::serve;
use crate::cli::konnectivity::{self as cli, KonnectivityAgent, KonnectivityServer, TlsVersion};
use crate::exit::{Code, Failure, Result};
use crate::logging;

/// Runs the server until told to stop.
pub(super) async fn server(flags: KonnectivityServer) -> Result<()> {
    logging::start(&flags.logging)?;
    let graceful = flags.graceful_shutdown_timeout;
    let config = server_config(flags).await?;
    let server = Server::bind(config).await.map_err(|error| match &error {
        ServerError::Listen { source, .. } => listening(&error, source),
        ServerError::Tls(_) => usage(error.to_string()),
    })?;
    tracing::info!(?graceful, "konnectivity server is up");
    server.run(serve::told_to_stop()).await;
    Ok(())
}

/// Runs the agent until told to stop.
pub(super) async fn agent(flags: KonnectivityAgent) -> Result<()> {
    logging::start(&flags.logging)?;
    let agent = Agent::bind(agent_config(flags).await?);
    let agent = agent.await.map_err(|error| match &error {
        AgentError::Listen { source, .. } => listening(&error, source),
        AgentError::Tls(_) => usage(error.to_string()),
    })?;
    agent.run(serve::told_to_stop()).await;
    Ok(())
}

fn usage(text: impl Into<String>) -> Failure {
    Failure::new(Code::Usage, text)
}

fn listening(error: &impl std::fmt::Display, source: &std::io::Error) -> Failure {
    let code = match source.kind() {
        std::io::ErrorKind::AddrInUse => Code::Conflict,
        std::io::ErrorKind::PermissionDenied => Code::Permission,
        _ => Code::Failure,
    };
    Failure::new(code, error.to_string()).hint("choose another port or path")
}

fn random_id() -> String {
    let bits = rand::random::<u128>();
    let [a, b, c, d, e] = [
        bits >> 96,
        bits >> 80 & 0xffff,
        bits >> 64 & 0xfff | 0x4000,
        bits >> 48 & 0x3fff | 0x8000,
        bits & 0xffff_ffff_ffff,
    ];
    format!("{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}")
}

async fn server_config(flags: KonnectivityServer) -> Result<ServerConfig> {
    let front = front_end(&flags)?;
    let strategies = Strategy::parse_list(&flags.proxy_strategies)
        .map_err(|e| usage(format!("invalid proxy strategies: {e}")))?;
    if strategies.is_empty() {
        return Err(usage("ProxyStrategies cannot be empty"));
    }
    let agent_tls = ServerFiles {
        cert: flags.cluster_cert.clone(),
        key: flags.cluster_key.clone(),
        client_ca: flags.cluster_ca_cert.clone(),
        policy: policy(&flags)?,
    };
    let tokens = tokens(&flags)?;
    let labels = konnectivity::parse_labels(&flags.lease_label)
        .map_err(|e| usage(format!("--lease-label cannot be read: {e}")))?;
    let mut settings = (None, None);
    if tokens.is_some() || flags.enable_lease_controller {
        let client = kube_client(flags.kubeconfig.as_deref()).await?;
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
            cli::Mode::Grpc => Mode::Grpc,
            cli::Mode::HttpConnect => Mode::HttpConnect,
        },
        front,
        agents: listen(&flags.agent_bind_address, flags.agent_port),
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

fn listen(host: &str, port: u16) -> Listen {
    let host = host.to_owned();
    Listen { host, port }
}

fn policy(flags: &KonnectivityServer) -> Result<Policy> {
    if let Some(unknown) = flags
        .cipher_suites
        .iter()
        .find(|s| !konnectivity::knows_suite(s))
    {
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
fn front_end(flags: &KonnectivityServer) -> Result<FrontEnd> {
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
                    client_ca: Some(ca.clone()),
                    policy: policy(flags)?,
                },
            })
        }
    }
}

type WithClient = Box<dyn FnOnce(kube::Client) -> TokenSettings + Send>;

fn tokens(flags: &KonnectivityServer) -> Result<Option<WithClient>> {
    let wanted = [
        ("--agent-namespace", &flags.agent_namespace),
        ("--agent-service-account", &flags.agent_service_account),
        ("--authentication-audience", &flags.authentication_audience),
    ];
    if wanted.iter().all(|(_, value)| value.is_none()) {
        return Ok(None);
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
        client,
        audience,
        namespace,
        service_account,
    })))
}

async fn kube_client(kubeconfig: Option<&Path>) -> Result<kube::Client> {
    let client = konnectivity::kube_client(kubeconfig).await;
    client.map_err(|error| usage(error.to_string()).hint("--kubeconfig names a kubeconfig"))
}

async fn agent_config(flags: KonnectivityAgent) -> Result<AgentConfig> {
    if let Some(key) = Identifiers::unknown_key(&flags.agent_identifiers) {
        return Err(usage(format!("unknown address type: {key}")));
    }
    if flags.sync_interval > flags.sync_interval_cap {
        return Err(usage(format!(
            "sync interval {:?} must be less than sync interval cap {:?}",
            flags.sync_interval, flags.sync_interval_cap
        )));
    }
    let leases = if flags.count_server_leases {
        Some(LeaseCounting {
            client: kube_client(flags.kubeconfig.as_deref()).await?,
            namespace: flags.lease_namespace,
            selector: flags.lease_label_selector,
            source: match flags.server_count_source {
                cli::CountSource::Default => CountSource::Leases,
                cli::CountSource::Max => CountSource::Max,
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

fn readable(path: &PathBuf) -> Result<()> {
    std::fs::metadata(path).map(|_| ()).map_err(|error| {
        usage(format!(
            "error checking service account token path {}: {error}",
            path.display()
        ))
    })
}
