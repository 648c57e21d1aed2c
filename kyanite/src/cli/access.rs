//! Flags about who may come in and what they may do; upstream's names and defaults.

use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use super::duration;

/// Flags of authentication, authorization and admission.
#[derive(Debug, Clone, Args)]
pub(crate) struct Access {
    /// CA of client certificates, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// Whether requests without credentials are answered, as system:anonymous [default: true]
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) anonymous_auth: Option<bool>,
    /// Whether bootstrap tokens of kube-system are believed
    #[arg(long, default_value_t = false, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) enable_bootstrap_token_auth: bool,
    /// An AuthenticationConfiguration, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) authentication_config: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) request_header: RequestHeader,
    #[command(flatten)]
    pub(crate) service_account: ServiceAccount,
    #[command(flatten)]
    pub(crate) oidc: Oidc,
    /// Authorizers in the order they are asked: Node, RBAC, AlwaysAllow, AlwaysDeny [default: AlwaysAllow]
    #[arg(long, value_delimiter = ',', value_name = "MODES")]
    pub(crate) authorization_mode: Vec<String>,
    /// An AuthorizationConfiguration: authorizers and webhooks in the order they are asked; instead of modes, read again
    /// when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) authorization_config: Option<PathBuf>,
    /// Admission plugins beside the usual ones
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) enable_admission_plugins: Vec<String>,
    /// Usual admission plugins to leave out
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) disable_admission_plugins: Vec<String>,
    /// Client certificate for aggregated servers and webhooks
    #[arg(long, value_name = "FILE", requires = "proxy_client_key_file")]
    pub(crate) proxy_client_cert_file: Option<PathBuf>,
    /// Key of the client certificate for aggregated servers and webhooks
    #[arg(long, value_name = "FILE", requires = "proxy_client_cert_file")]
    pub(crate) proxy_client_key_file: Option<PathBuf>,
}

/// Proxies that vouch for users in headers.
#[derive(Debug, Clone, Args)]
pub(crate) struct RequestHeader {
    /// CA of the proxies that may name users in headers, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) requestheader_client_ca_file: Option<PathBuf>,
    /// Common names such a proxy may have; any when empty
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) requestheader_allowed_names: Vec<String>,
    /// Headers with the user's name; X-Remote-User is common
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    pub(crate) requestheader_username_headers: Vec<String>,
    /// Headers with the user's uid; X-Remote-Uid is suggested
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    pub(crate) requestheader_uid_headers: Vec<String>,
    /// Headers with the user's groups; X-Remote-Group is suggested
    #[arg(long, value_delimiter = ',', value_name = "HEADERS")]
    pub(crate) requestheader_group_headers: Vec<String>,
    /// Beginnings of headers with more about the user; X-Remote-Extra- is suggested
    #[arg(long, value_delimiter = ',', value_name = "PREFIXES")]
    pub(crate) requestheader_extra_headers_prefix: Vec<String>,
}

/// Tokens of service accounts.
#[derive(Debug, Clone, Args)]
pub(crate) struct ServiceAccount {
    /// Keys that verify service account tokens, public or private; repeatable, read again on change
    #[arg(long, value_name = "FILE")]
    pub(crate) service_account_key_file: Vec<PathBuf>,
    /// Key that signs service account tokens, read again when it changes
    #[arg(long, value_name = "FILE")]
    pub(crate) service_account_signing_key_file: Option<PathBuf>,
    /// Issuer of service account tokens; the first signs, all are believed; repeatable
    #[arg(long, value_name = "URL")]
    pub(crate) service_account_issuer: Vec<String>,
    /// Where the issuer's keys are said to be, instead of this server's own address
    #[arg(long, value_name = "URL")]
    pub(crate) service_account_jwks_uri: Option<String>,
    /// Longest life of a service account token
    #[arg(long, value_parser = duration, value_name = "DURATION")]
    pub(crate) service_account_max_token_expiration: Option<Duration>,
    /// Whether tokens of pods that do not renew them live a year
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true)]
    pub(crate) service_account_extend_token_expiration: bool,
    /// Audiences this server takes tokens for [default: the issuers]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) api_audiences: Vec<String>,
}

/// One issuer of ID tokens.
#[derive(Debug, Clone, Args)]
pub(crate) struct Oidc {
    /// Issuer of ID tokens
    #[arg(long, value_name = "URL")]
    pub(crate) oidc_issuer_url: Option<String>,
    /// Audience that ID tokens must be for
    #[arg(long, value_name = "ID")]
    pub(crate) oidc_client_id: Option<String>,
    /// CA of the issuer's server
    #[arg(long, value_name = "FILE")]
    pub(crate) oidc_ca_file: Option<PathBuf>,
    /// Claim with the user's name
    #[arg(long, default_value = "sub", value_name = "CLAIM")]
    pub(crate) oidc_username_claim: String,
    /// Put before user names; `-` for nothing [default: the issuer's URL and #, but nothing for email]
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true)]
    pub(crate) oidc_username_prefix: Option<String>,
    /// Claim with the user's groups
    #[arg(long, value_name = "CLAIM")]
    pub(crate) oidc_groups_claim: Option<String>,
    /// Put before group names
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub(crate) oidc_groups_prefix: String,
    /// Signature algorithms of ID tokens
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "RS256",
        value_name = "NAMES"
    )]
    pub(crate) oidc_signing_algs: Vec<String>,
    /// A claim ID tokens must have, with its value; repeatable
    #[arg(long, value_delimiter = ',', value_name = "CLAIM=VALUE")]
    pub(crate) oidc_required_claim: Vec<String>,
}
