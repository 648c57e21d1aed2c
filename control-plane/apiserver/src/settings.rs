//! What a server is told about who may come in and what they may do; upstream's flags as plain data.
//!
//! Files that change while the server runs are named by path and read again when they change
//! ([`crate::Reload`]); nothing here holds a secret.

use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;

/// The issuer of service account tokens unless another one is named.
pub const DEFAULT_ISSUER: &str = "https://kubernetes.default.svc.cluster.local";

/// The paths that `kyanite up` answers without credentials.
pub const HEALTH_PATHS: [&str; 5] = ["/healthz", "/livez", "/readyz", "/version", "/version/"];

/// A certificate and its key, as PEM files that are read again when they change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyPairFiles {
    /// The certificate, followed by what connects it to its CA.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// How the server finds out who asks.
#[derive(Debug, Clone, Default)]
pub struct Authentication {
    /// `--client-ca-file`: the CAs of client certificates, read again when it changes.
    pub client_ca_file: Option<PathBuf>,
    /// `--requestheader-*`: proxies that may speak for others.
    pub request_header: Option<RequestHeader>,
    /// `--service-account-*` and `--api-audiences`.
    pub service_accounts: ServiceAccounts,
    /// `--enable-bootstrap-token-auth`.
    pub bootstrap_tokens: bool,
    /// `--anonymous-auth`, or the conditions under which requests without credentials are answered.
    pub anonymous: Anonymous,
    /// `--oidc-*`; at most one of this and `configuration_file` is set.
    pub oidc: Option<Oidc>,
    /// `--authentication-config`: an AuthenticationConfiguration, read again when it changes.
    pub configuration_file: Option<PathBuf>,
    /// Whether `--anonymous-auth` was given, beside which that file may not say anything about it.
    pub anonymous_by_flag: bool,
}

/// Which requests without credentials are answered at all, before authorization.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Anonymous {
    /// None.
    #[default]
    Off,
    /// All, as `system:anonymous`.
    Everywhere,
    /// Those for exactly these paths.
    Paths(Vec<String>),
}

impl Anonymous {
    /// Whether a request for a path is answered without credentials.
    pub fn allows(&self, path: &str) -> bool {
        match self {
            Anonymous::Off => false,
            Anonymous::Everywhere => true,
            Anonymous::Paths(paths) => paths.iter().any(|p| p == path),
        }
    }
}

/// The front proxy: a client certificate of this CA lets its holder name the user in headers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestHeader {
    /// `--requestheader-client-ca-file`, read again when it changes.
    pub client_ca_file: PathBuf,
    /// `--requestheader-allowed-names`: common names; empty means any.
    pub allowed_names: Vec<String>,
    /// `--requestheader-username-headers`.
    pub username_headers: Vec<String>,
    /// `--requestheader-uid-headers`.
    pub uid_headers: Vec<String>,
    /// `--requestheader-group-headers`.
    pub group_headers: Vec<String>,
    /// `--requestheader-extra-headers-prefix`.
    pub extra_header_prefixes: Vec<String>,
}

/// Service account tokens: which are believed, and how new ones are made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceAccounts {
    /// `--service-account-issuer`: the first one signs, all are believed.
    pub issuers: Vec<String>,
    /// `--service-account-key-file`: public or private keys, several per file; read again on change.
    pub key_files: Vec<PathBuf>,
    /// `--service-account-signing-key-file`: without it no token is made; read again on change.
    pub signing_key_file: Option<PathBuf>,
    /// `--api-audiences`; never empty, the issuers unless named.
    pub api_audiences: Vec<String>,
    /// `--service-account-max-token-expiration`.
    pub max_token_expiration: Option<Duration>,
    /// `--service-account-extend-token-expiration`.
    pub extend_token_expiration: bool,
    /// `--service-account-jwks-uri`: overrides the one that discovery names.
    pub jwks_uri: Option<String>,
}

impl Default for ServiceAccounts {
    fn default() -> ServiceAccounts {
        ServiceAccounts {
            issuers: vec![DEFAULT_ISSUER.to_owned()],
            key_files: Vec::new(),
            signing_key_file: None,
            api_audiences: vec![DEFAULT_ISSUER.to_owned()],
            max_token_expiration: None,
            extend_token_expiration: true,
            jwks_uri: None,
        }
    }
}

/// `--oidc-*`: one issuer of ID tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Oidc {
    /// `--oidc-issuer-url`.
    pub issuer_url: String,
    /// `--oidc-client-id`: the audience that is asked for.
    pub client_id: String,
    /// `--oidc-ca-file`: CAs of the issuer, PEM; the system's without it.
    pub ca_pem: Option<String>,
    /// `--oidc-username-claim`.
    pub username_claim: String,
    /// `--oidc-username-prefix` as given; unset and `-` mean different things.
    pub username_prefix: Option<String>,
    /// `--oidc-groups-claim`.
    pub groups_claim: Option<String>,
    /// `--oidc-groups-prefix`.
    pub groups_prefix: String,
    /// `--oidc-signing-algs`.
    pub signing_algs: Vec<String>,
    /// `--oidc-required-claim`: claims and the values they must have.
    pub required_claims: Vec<(String, String)>,
}

/// How the server decides what somebody may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authorization {
    /// `--authorization-mode`, in the order they are asked.
    pub modes: Vec<AuthorizationMode>,
    /// `--authorization-config`: an AuthorizationConfiguration, instead of modes; read again when it changes.
    pub configuration_file: Option<PathBuf>,
}

impl Default for Authorization {
    /// Upstream's default, which is for machines without users.
    fn default() -> Authorization {
        Authorization {
            modes: vec![AuthorizationMode::AlwaysAllow],
            configuration_file: None,
        }
    }
}

/// One authorizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AuthorizationMode {
    /// What kubelets need for the pods of their node, and no more.
    Node,
    /// Roles and bindings.
    Rbac,
    /// Everything.
    AlwaysAllow,
    /// Nothing.
    AlwaysDeny,
}

impl AuthorizationMode {
    /// Every mode with the name upstream gives it.
    pub const NAMES: [(&'static str, AuthorizationMode); 4] = [
        ("Node", AuthorizationMode::Node),
        ("RBAC", AuthorizationMode::Rbac),
        ("AlwaysAllow", AuthorizationMode::AlwaysAllow),
        ("AlwaysDeny", AuthorizationMode::AlwaysDeny),
    ];
}

/// Which admission plugins run, relative to upstream's defaults.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Admission {
    /// `--enable-admission-plugins`.
    pub enable: Vec<String>,
    /// `--disable-admission-plugins`.
    pub disable: Vec<String>,
}

/// How objects are encrypted in the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Encryption {
    /// `--encryption-provider-config`: an EncryptionConfiguration.
    pub file: PathBuf,
    /// `--encryption-provider-config-automatic-reload`.
    pub reloads: bool,
}

/// What is recorded of requests, and where.
#[derive(Debug, Clone, PartialEq)]
pub struct Audit {
    /// `--audit-policy-file`, or one of the ready-made policies `kube-audit` and `kube-audit-admin`.
    pub policy_file: PathBuf,
    /// `--audit-log-*`.
    pub log: Option<(audit::LogFile, audit::Mode, audit::Limits)>,
    /// `--audit-log-truncate-*`.
    pub log_truncation: Option<audit::Truncation>,
    /// `--audit-webhook-*`.
    pub webhook: Option<AuditWebhook>,
}

/// A server that takes records.
#[derive(Debug, Clone, PartialEq)]
pub struct AuditWebhook {
    /// `--audit-webhook-config-file`: a kubeconfig.
    pub config_file: PathBuf,
    /// `--audit-webhook-initial-backoff`.
    pub initial_backoff: Duration,
    /// `--audit-webhook-batch-*`.
    pub limits: audit::Limits,
    /// `--audit-webhook-truncate-*`.
    pub truncation: Option<audit::Truncation>,
}

/// Everything about access.
#[derive(Debug, Clone, Default)]
pub struct Access {
    /// Who asks.
    pub authentication: Authentication,
    /// May they.
    pub authorization: Authorization,
    /// What becomes of what they send.
    pub admission: Admission,
    /// `--proxy-client-cert-file` and `--proxy-client-key-file`: who we are to aggregated servers and
    /// webhooks.
    pub proxy_client: Option<KeyPairFiles>,
    /// Certificates of the cluster whose expiry is a metric: name and file.
    pub reported_certificates: Vec<(String, PathBuf)>,
}

/// How the server reaches kubelets, pods and services.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outbound {
    /// `--kubelet-client-certificate` and `--kubelet-client-key`: who we are to kubelets.
    pub kubelet_client: Option<KeyPairFiles>,
    /// `--kubelet-certificate-authority`: CAs of kubelets; without it their certificates are not checked.
    pub kubelet_authority_file: Option<PathBuf>,
    /// `--kubelet-preferred-address-types`.
    pub kubelet_preferred_address_types: Vec<String>,
}

/// Which way traffic to nodes, pods and services leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Egress {
    /// All of it straight to its destination.
    Direct,
    /// As an EgressSelectorConfiguration says (`--egress-selector-config-file`).
    File(PathBuf),
    /// To the cluster through the konnectivity server that takes `CONNECT` at this socket.
    Tunnel(PathBuf),
}

impl Outbound {
    /// Upstream's order of the kinds of addresses that a node has.
    pub const PREFERRED_ADDRESS_TYPES: [&'static str; 5] = [
        "Hostname",
        "InternalDNS",
        "InternalIP",
        "ExternalDNS",
        "ExternalIP",
    ];
}

impl Default for Outbound {
    fn default() -> Outbound {
        Outbound {
            kubelet_client: None,
            kubelet_authority_file: None,
            kubelet_preferred_address_types: Outbound::PREFERRED_ADDRESS_TYPES
                .map(str::to_owned)
                .to_vec(),
        }
    }
}

/// From where connections are taken at all. Loopback always is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Callers {
    /// From everywhere.
    #[default]
    Anybody,
    /// From these addresses.
    Ranges(Vec<IpNet>),
    /// From private networks: a private cluster.
    PrivateNetworks,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anonymous_paths_are_exact() {
        let health = Anonymous::Paths(HEALTH_PATHS.map(str::to_owned).to_vec());
        for (path, allowed) in [
            ("/healthz", true),
            ("/livez/ping", false),
            ("/version/", true),
            ("/", false),
        ] {
            assert_eq!(health.allows(path), allowed, "{path}");
        }
        assert!(Anonymous::Everywhere.allows("/api"));
        assert!(!Anonymous::Off.allows("/healthz"));
    }
}

/// How the parts of the control plane that are clients of the API server are asked whether they are well.
#[derive(Clone)]
pub enum Components {
    /// At their ports on this machine, as upstream does.
    Elsewhere,
    /// They are roles of this process: whether one of this name runs.
    Here(std::sync::Arc<dyn Fn(&str) -> bool + Send + Sync>),
}

impl std::fmt::Debug for Components {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Components::Elsewhere => "Elsewhere",
            Components::Here(_) => "Here",
        })
    }
}
