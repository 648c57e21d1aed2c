//! The names and defaults; those that are hidden are accepted and have no effect.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args, ValueEnum};
use kube_kit::duration::go;

/// Flags of upstream's logging library: taken, so that manifests work, and without effect.
#[derive(Debug, Clone, Args)]
struct Klog {
    /// Number for the log level verbosity
    #[arg(short = 'v', long = "v", hide = true, value_name = "N")]
    v: Option<String>,
    #[arg(long, hide = true)]
    vmodule: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    logtostderr: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    alsologtostderr: Option<String>,
    #[arg(long, hide = true)]
    alsologtostderrthreshold: Option<String>,
    #[arg(long, hide = true)]
    stderrthreshold: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    legacy_stderr_threshold_behavior: Option<String>,
    #[arg(long, hide = true)]
    log_file: Option<String>,
    #[arg(long, hide = true)]
    log_file_max_size: Option<String>,
    #[arg(long, hide = true)]
    log_dir: Option<String>,
    #[arg(long, hide = true)]
    log_backtrace_at: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    add_dir_header: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    skip_headers: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    skip_log_headers: Option<String>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    one_output: Option<String>,
}

/// What the API server speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Mode {
    Grpc,
    HttpConnect,
}

/// The oldest TLS there may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum TlsVersion {
    #[value(name = "VersionTLS10")]
    Tls10,
    #[value(name = "VersionTLS11")]
    Tls11,
    #[value(name = "VersionTLS12")]
    Tls12,
    #[value(name = "VersionTLS13")]
    Tls13,
}

/// Whose number of servers an agent believes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum CountSource {
    Default,
    Max,
}

/// What `proxy-server` can be told.
#[derive(Debug, Clone, Args)]
pub struct ServerFlags {
    /// Certificate shown to the API server, PEM
    #[arg(long, value_name = "FILE", requires = "server_key")]
    pub(super) server_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "server_cert")]
    pub(super) server_key: Option<PathBuf>,
    /// CA of the API server's client certificate; needed for TCP
    #[arg(long, value_name = "FILE")]
    pub(super) server_ca_cert: Option<PathBuf>,
    /// Certificate shown to agents, PEM
    #[arg(long, value_name = "FILE", requires = "cluster_key")]
    pub(super) cluster_cert: PathBuf,
    /// Its key
    #[arg(long, value_name = "FILE")]
    pub(super) cluster_key: PathBuf,
    /// CA of agents' certificates
    #[arg(long, value_name = "FILE")]
    pub(super) cluster_ca_cert: Option<PathBuf>,
    /// Believe agents that show neither a certificate nor a token: whoever reaches the port can be any node
    #[arg(long)]
    pub(super) insecure_agents: bool,
    /// What the API server speaks
    #[arg(long, value_enum, default_value = "grpc")]
    pub(super) mode: Mode,
    /// Unix socket for the API server; needs --server-port=0
    #[arg(long, value_name = "PATH")]
    pub(super) uds_name: Option<PathBuf>,
    /// Whether a socket that is already there is removed first
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(super) delete_existing_uds_file: bool,
    /// Port for the API server; 0 with --uds-name
    #[arg(long, default_value_t = 8090)]
    pub(super) server_port: u16,
    /// Address of that port; empty is every interface
    #[arg(long, default_value = "")]
    pub(super) server_bind_address: String,
    /// Port for agents
    #[arg(long, default_value_t = 8091)]
    pub(super) agent_port: u16,
    /// Address of that port; empty is every interface
    #[arg(long, default_value = "")]
    pub(super) agent_bind_address: String,
    /// Port of /healthz, /readyz and /metrics
    #[arg(long, default_value_t = 8092)]
    pub(super) health_port: u16,
    /// Address of that port; empty is every interface
    #[arg(long, default_value = "")]
    pub(super) health_bind_address: String,
    /// Port of /metrics for this host
    #[arg(long, default_value_t = 8095)]
    pub(super) admin_port: u16,
    /// Address of that port
    #[arg(long, default_value = "127.0.0.1")]
    pub(super) admin_bind_address: String,
    /// After how much silence an agent is asked whether it is there
    #[arg(long, default_value = "30s", value_parser = go::flag, value_name = "DURATION")]
    pub(super) keepalive_time: Duration,
    /// The same for API servers; without effect, as each closes its connections itself
    #[arg(long, default_value = "1h", value_parser = go::flag, value_name = "DURATION", hide = true)]
    frontend_keepalive_time: Duration,
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, hide = true)]
    enable_profiling: bool,
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, hide = true)]
    enable_contention_profiling: bool,
    /// This server's name among several [default: a random one]
    #[arg(long, env = "PROXY_SERVER_ID", value_name = "ID")]
    pub(super) server_id: Option<String>,
    /// How many servers there are
    #[arg(long, default_value_t = 1)]
    pub(super) server_count: u32,
    /// Agents must show a token of a service account of this namespace
    #[arg(long, value_name = "NAMESPACE")]
    pub(super) agent_namespace: Option<String>,
    /// That service account
    #[arg(long, value_name = "NAME")]
    pub(super) agent_service_account: Option<String>,
    /// The audience of that token
    #[arg(long, value_name = "AUDIENCE")]
    pub(super) authentication_audience: Option<String>,
    /// How the API server is reached for tokens and leases [default: as a pod]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    #[arg(long, hide = true, default_value = "0")]
    kubeconfig_qps: String,
    #[arg(long, hide = true, default_value = "0")]
    kubeconfig_burst: String,
    #[arg(long, hide = true, default_value = "application/json")]
    kube_api_content_type: String,
    /// How agents are chosen, in order: default, destHost, defaultRoute
    #[arg(long, default_value = "default", value_name = "LIST")]
    pub(super) proxy_strategies: String,
    /// Go's names of the cipher suites for TLS 1.2
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub(super) cipher_suites: Vec<String>,
    /// The oldest TLS; never older than 1.2
    #[arg(long, value_enum)]
    pub(super) tls_min_version: Option<TlsVersion>,
    #[arg(long, hide = true, default_value_t = 10)]
    xfr_channel_size: u32,
    /// Whether this server keeps a lease for agents to count
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(super) enable_lease_controller: bool,
    /// Where leases are kept
    #[arg(long, default_value = "kube-system")]
    pub(super) lease_namespace: String,
    /// Labels of the leases
    #[arg(long, default_value = "k8s-app=konnectivity-server")]
    pub(super) lease_label: String,
    /// How long open connections may go on after SIGTERM
    #[arg(long, default_value = "0s", value_parser = go::flag, value_name = "DURATION")]
    pub(super) graceful_shutdown_timeout: Duration,
    /// How long a dial may take; 0 is 25s
    #[arg(long, default_value = "0s", value_parser = go::flag, value_name = "DURATION")]
    pub(super) backend_dial_timeout: Duration,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    warn_on_channel_limit: Option<String>,
    #[command(flatten)]
    klog: Klog,
}

/// What `proxy-agent` can be told.
#[derive(Debug, Clone, Args)]
pub struct AgentFlags {
    /// Certificate shown to servers, PEM
    #[arg(long, value_name = "FILE", requires = "agent_key")]
    pub(super) agent_cert: Option<PathBuf>,
    /// Its key
    #[arg(long, value_name = "FILE", requires = "agent_cert")]
    pub(super) agent_key: Option<PathBuf>,
    /// CA of the servers' certificate
    #[arg(long, value_name = "FILE")]
    pub(super) ca_cert: PathBuf,
    /// Name or address of all servers; every address behind a name is tried, HTTPS_PROXY and NO_PROXY are honoured
    #[arg(long, default_value = "127.0.0.1", value_name = "HOST")]
    pub(super) proxy_server_host: String,
    /// Its port
    #[arg(long, default_value_t = 8091)]
    pub(super) proxy_server_port: u16,
    /// Protocol names offered before h2
    #[arg(long, value_delimiter = ',', value_name = "LIST")]
    pub(super) alpn_proto: Vec<String>,
    /// Address of the health port; empty is every interface
    #[arg(long, default_value = "")]
    pub(super) health_server_host: String,
    /// Port of /healthz, /readyz and /metrics
    #[arg(long, default_value_t = 8093)]
    pub(super) health_server_port: u16,
    /// Address of the admin port
    #[arg(long, default_value = "127.0.0.1")]
    pub(super) admin_bind_address: String,
    /// Port of /metrics for this host
    #[arg(long, default_value_t = 8094)]
    pub(super) admin_server_port: u16,
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, hide = true)]
    enable_profiling: bool,
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, hide = true)]
    enable_contention_profiling: bool,
    /// This agent's name among several [default: a random one]
    #[arg(long, env = "PROXY_AGENT_ID", value_name = "ID")]
    pub(super) agent_id: Option<String>,
    /// What this agent can reach, such as host=node-1&ipv4=10.0.0.4; keys ipv4, ipv6, host, cidr, default-route
    #[arg(long, default_value = "", value_name = "QUERY")]
    pub(super) agent_identifiers: String,
    /// How often servers are counted; the first wait after a failure
    #[arg(long, default_value = "1s", value_parser = go::flag, value_name = "DURATION")]
    pub(super) sync_interval: Duration,
    /// The longest wait after failures
    #[arg(long, default_value = "10s", value_parser = go::flag, value_name = "DURATION")]
    pub(super) sync_interval_cap: Duration,
    #[arg(long, default_value = "1s", value_parser = go::flag, value_name = "DURATION", hide = true)]
    probe_interval: Duration,
    /// After how much silence a server is asked whether it is there; upstream's allow no less than 30s
    #[arg(long, default_value = "1m", value_parser = go::flag, value_name = "DURATION")]
    pub(super) keepalive_time: Duration,
    /// File of the service account's token; read at every connection
    #[arg(long, value_name = "FILE")]
    pub(super) service_account_token_path: Option<PathBuf>,
    #[arg(long, hide = true, num_args = 0..=1, require_equals = true, default_missing_value = "true")]
    warn_on_channel_limit: Option<String>,
    /// Whether further servers are looked for even when all are connected
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(super) sync_forever: bool,
    #[arg(long, hide = true, default_value_t = 150)]
    xfr_channel_size: u32,
    /// Whether servers are counted by their leases
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(super) count_server_leases: bool,
    /// Where leases are kept
    #[arg(long, default_value = "kube-system")]
    pub(super) lease_namespace: String,
    /// How leases are labelled
    #[arg(
        long,
        default_value = "k8s-app=konnectivity-server",
        alias = "lease-label"
    )]
    pub(super) lease_label_selector: String,
    /// Whose number of servers counts beside leases
    #[arg(long, value_enum, default_value = "default")]
    pub(super) server_count_source: CountSource,
    /// How the API server is reached for leases [default: as a pod]
    #[arg(long, value_name = "FILE")]
    pub(super) kubeconfig: Option<PathBuf>,
    #[arg(long, hide = true, default_value = "application/json")]
    kube_api_content_type: String,
    #[command(flatten)]
    klog: Klog,
}
