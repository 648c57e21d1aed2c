//! The documents that tell clients where everything is.

use serde_json::json;

use super::{Refused, tenant_of};
use crate::exchange::Reply;
use crate::turn::Turn;

/// Which of Entra's two protocols.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Version {
    One,
    Two,
}

/// The issuer of tokens of the second version; of the first one it is Microsoft's, whoever serves it.
pub(crate) fn issuer(origin: &str, tenant: &str, version: Version) -> String {
    match version {
        Version::One => format!("https://sts.windows.net/{tenant}/"),
        Version::Two => format!("{origin}/{tenant}/v2.0"),
    }
}

/// `openid-configuration`. The tenant stands in every address, even where an alias was asked for: MSAL learns it there.
pub(super) fn document(turn: &Turn<'_>, named: &str, version: Version) -> Result<Reply, Refused> {
    let tenant = tenant_of(turn, named)?;
    let origin = &turn.settings.origin;
    let v2 = if version == Version::Two { "/v2.0" } else { "" };
    Ok(Reply::ok(json!({
        "token_endpoint": format!("{origin}/{tenant}/oauth2{v2}/token"),
        "token_endpoint_auth_methods_supported": ["client_secret_post", "private_key_jwt", "client_secret_basic"],
        "jwks_uri": format!("{origin}/{tenant}/discovery{v2}/keys"),
        "response_modes_supported": ["query", "fragment", "form_post"],
        "subject_types_supported": ["pairwise"],
        "id_token_signing_alg_values_supported": ["RS256"],
        "response_types_supported": ["code", "id_token", "code id_token", "id_token token"],
        "scopes_supported": ["openid", "profile", "email", "offline_access"],
        "issuer": issuer(origin, &tenant, version),
        "request_uri_parameter_supported": false,
        "authorization_endpoint": format!("{origin}/{tenant}/oauth2{v2}/authorize"),
        "device_authorization_endpoint": format!("{origin}/{tenant}/oauth2{v2}/devicecode"),
        "end_session_endpoint": format!("{origin}/{tenant}/oauth2{v2}/logout"),
        "claims_supported": ["sub", "iss", "aud", "exp", "iat", "auth_time", "acr", "nonce", "preferred_username",
            "name", "tid", "ver", "at_hash", "c_hash", "email"],
        "tenant_region_scope": "WW",
        "cloud_instance_name": turn.settings.host(),
    })))
}

/// Instance discovery: this host and no other one speaks for this cloud.
pub(super) fn instance(turn: &Turn<'_>) -> Reply {
    let (host, tenant) = (turn.settings.host(), &turn.settings.tenant);
    let endpoint = format!(
        "{}/{tenant}/v2.0/.well-known/openid-configuration",
        turn.settings.origin
    );
    Reply::ok(json!({
        "tenant_discovery_endpoint": endpoint,
        "api-version": "1.1",
        "metadata": [{"preferred_network": host, "preferred_cache": host, "aliases": [host]}],
    }))
}

/// How a person's domain signs in: here, with a password of ours.
pub(super) fn user_realm(name: &str) -> Reply {
    let domain = name.split_once('@').map_or(name, |(_, domain)| domain);
    Reply::ok(
        json!({"ver": "1.0", "account_type": "Managed", "domain_name": domain,
        "cloud_audience_urn": "urn:federation:MicrosoftOnline"}),
    )
}
