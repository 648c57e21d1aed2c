//! Settings of access: from upstream's flags, or from a data directory.

use std::path::PathBuf;

use ::apiserver::settings::{
    Access, Admission, Anonymous, Authentication, Authorization, AuthorizationMode, HEALTH_PATHS,
    KeyPairFiles, Oidc, RequestHeader, ServiceAccounts,
};

use crate::cli::access as flags;
use crate::exit::{Code, Failure, Result};
use crate::pki::{Authority, Pki};

/// The access of `kyanite up`: Node and RBAC, anonymous only for health, keys of the data directory.
/// With `issuers`, a file that says which tokens of others are believed.
pub(super) fn of_cluster(pki: &Pki, issuers: Option<PathBuf>) -> Access {
    let proxy = pki.leaf("front-proxy-client");
    let list = |value: &str| vec![value.to_owned()];
    let authentication = Authentication {
        client_ca_file: Some(pki.authority(Authority::Cluster).cert),
        request_header: Some(RequestHeader {
            client_ca_file: pki.authority(Authority::FrontProxy).cert,
            allowed_names: list("front-proxy-client"),
            username_headers: list("X-Remote-User"),
            uid_headers: list("X-Remote-Uid"),
            group_headers: list("X-Remote-Group"),
            extra_header_prefixes: list("X-Remote-Extra-"),
        }),
        service_accounts: ServiceAccounts {
            key_files: vec![pki.service_account_public_keys()],
            signing_key_file: Some(pki.service_account_key()),
            ..ServiceAccounts::default()
        },
        bootstrap_tokens: true,
        anonymous: Anonymous::Paths(HEALTH_PATHS.map(str::to_owned).to_vec()),
        oidc: None,
        configuration_file: issuers,
        anonymous_by_flag: false,
    };
    let reported = pki.certificates().into_iter();
    Access {
        authentication,
        authorization: Authorization {
            modes: vec![AuthorizationMode::Node, AuthorizationMode::Rbac],
            configuration_file: None,
        },
        admission: Admission {
            // As kubeadm starts upstream's server.
            enable: list("NodeRestriction"),
            disable: Vec::new(),
        },
        proxy_client: Some(KeyPairFiles {
            certificate: proxy.cert,
            key: proxy.key,
        }),
        reported_certificates: reported
            .map(|(name, file)| (name.to_owned(), file))
            .collect(),
    }
}

/// The access that flags describe, checked as upstream checks it.
pub(super) fn of_flags(flags: &flags::Access) -> Result<Access> {
    let mut authorization = authorization(&flags.authorization_mode)?;
    authorization.configuration_file = flags.authorization_config.clone();
    if flags.authorization_config.is_some() {
        if !flags.authorization_mode.is_empty() {
            return Err(usage(
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined",
            ));
        }
        authorization.modes = Vec::new();
    }
    let oidc = oidc(&flags.oidc)?;
    if oidc.is_some() && flags.authentication_config.is_some() {
        return Err(usage(
            "authentication-config file and oidc-* flags are mutually exclusive",
        ));
    }
    let everybody_may = authorization
        .modes
        .contains(&AuthorizationMode::AlwaysAllow);
    let anonymous_auth = flags.anonymous_auth.unwrap_or(true);
    if anonymous_auth && everybody_may {
        // Upstream's rule: otherwise anybody could do anything.
        tracing::warn!(
            "anonymous requests are refused because the AlwaysAllow authorizer is in use"
        );
    }
    let anonymous = match anonymous_auth && !everybody_may {
        true => Anonymous::Everywhere,
        false => Anonymous::Off,
    };
    let pair = (
        flags.proxy_client_cert_file.clone(),
        flags.proxy_client_key_file.clone(),
    );
    Ok(Access {
        authentication: Authentication {
            client_ca_file: flags.client_ca_file.clone(),
            request_header: request_header(&flags.request_header)?,
            service_accounts: service_accounts(&flags.service_account)?,
            bootstrap_tokens: flags.enable_bootstrap_token_auth,
            anonymous,
            oidc,
            configuration_file: flags.authentication_config.clone(),
            anonymous_by_flag: flags.anonymous_auth.is_some(),
        },
        authorization,
        admission: Admission {
            enable: flags.enable_admission_plugins.clone(),
            disable: flags.disable_admission_plugins.clone(),
        },
        proxy_client: match pair {
            (Some(certificate), Some(key)) => Some(KeyPairFiles { certificate, key }),
            _ => None,
        },
        reported_certificates: Vec::new(),
    })
}

fn usage(message: impl Into<String>) -> Failure {
    Failure::new(Code::Usage, message)
}

fn authorization(names: &[String]) -> Result<Authorization> {
    if names.is_empty() {
        return Ok(Authorization::default());
    }
    let mut modes = Vec::new();
    for name in names {
        let known = AuthorizationMode::NAMES
            .iter()
            .find(|(known, _)| known == name);
        let Some((_, mode)) = known else {
            return Err(
                usage(format!("authorization-mode {name:?} is not a valid mode"))
                    .hint("use some of Node, RBAC, AlwaysAllow, AlwaysDeny"),
            );
        };
        if modes.contains(mode) {
            return Err(usage(format!(
                "authorization-mode {} has mode specified more than once",
                format!("{names:?}").replace(", ", " ")
            )));
        }
        modes.push(*mode);
    }
    Ok(Authorization {
        modes,
        configuration_file: None,
    })
}

fn request_header(flags: &flags::RequestHeader) -> Result<Option<RequestHeader>> {
    let headers = [
        (
            "requestheader-username-headers",
            &flags.requestheader_username_headers,
        ),
        (
            "requestheader-group-headers",
            &flags.requestheader_group_headers,
        ),
        (
            "requestheader-uid-headers",
            &flags.requestheader_uid_headers,
        ),
        (
            "requestheader-extra-headers-prefix",
            &flags.requestheader_extra_headers_prefix,
        ),
    ];
    for (flag, values) in headers {
        if values.iter().any(|value| value.trim().is_empty()) {
            return Err(usage(format!("{flag:?} has an empty value")));
        }
    }
    let Some(file) = &flags.requestheader_client_ca_file else {
        return Ok(None);
    };
    Ok(Some(RequestHeader {
        client_ca_file: file.clone(),
        allowed_names: flags.requestheader_allowed_names.clone(),
        username_headers: flags.requestheader_username_headers.clone(),
        uid_headers: flags.requestheader_uid_headers.clone(),
        group_headers: flags.requestheader_group_headers.clone(),
        extra_header_prefixes: flags.requestheader_extra_headers_prefix.clone(),
    }))
}

fn service_accounts(flags: &flags::ServiceAccount) -> Result<ServiceAccounts> {
    let mut settings = ServiceAccounts {
        key_files: flags.service_account_key_file.clone(),
        signing_key_file: flags.service_account_signing_key_file.clone(),
        max_token_expiration: flags.service_account_max_token_expiration,
        extend_token_expiration: flags.service_account_extend_token_expiration,
        jwks_uri: flags.service_account_jwks_uri.clone(),
        ..ServiceAccounts::default()
    };
    // A server with one key needs to be told about it once.
    if settings.key_files.is_empty() {
        settings.key_files.extend(settings.signing_key_file.clone());
    }
    if !flags.service_account_issuer.is_empty() {
        check_issuers(&flags.service_account_issuer)?;
        settings.issuers = flags.service_account_issuer.clone();
    }
    settings.api_audiences = match flags.api_audiences.is_empty() {
        true => settings.issuers.clone(),
        false => flags.api_audiences.clone(),
    };
    let is_https = |uri: &String| uri.starts_with("https://");
    match &settings.jwks_uri {
        Some(uri) if !is_https(uri) => Err(usage(format!(
            "service-account-jwks-uri requires https scheme, parsed as: {uri}"
        ))),
        _ => Ok(settings),
    }
}

fn check_issuers(issuers: &[String]) -> Result<()> {
    for (position, issuer) in issuers.iter().enumerate() {
        if issuer.is_empty() {
            return Err(usage(
                "service-account-issuer should not be an empty string",
            ));
        }
        if issuers[..position].contains(issuer) {
            return Err(usage(format!(
                "service-account-issuer {issuer:?} is already specified"
            )));
        }
    }
    Ok(())
}

fn oidc(flags: &flags::Oidc) -> Result<Option<Oidc>> {
    let (issuer_url, client_id) = match (&flags.oidc_issuer_url, &flags.oidc_client_id) {
        (Some(issuer_url), Some(client_id)) => (issuer_url.clone(), client_id.clone()),
        (None, None) if !is_any_other_set(flags) => return Ok(None),
        _ => {
            return Err(usage(
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
            ));
        }
    };
    let ca_pem = flags
        .oidc_ca_file
        .as_ref()
        .map(|path| std::fs::read_to_string(path).map_err(|e| Failure::file("read", path, &e)));
    let required = flags.oidc_required_claim.iter().map(|pair| {
        let split = pair
            .split_once('=')
            .map(|(k, v)| (k.to_owned(), v.to_owned()));
        split.ok_or_else(|| usage(format!("oidc-required-claim `{pair}` is not claim=value")))
    });
    Ok(Some(Oidc {
        issuer_url,
        client_id,
        ca_pem: ca_pem.transpose()?,
        username_claim: flags.oidc_username_claim.clone(),
        username_prefix: flags.oidc_username_prefix.clone(),
        groups_claim: flags.oidc_groups_claim.clone(),
        groups_prefix: flags.oidc_groups_prefix.clone(),
        signing_algs: flags.oidc_signing_algs.clone(),
        required_claims: required.collect::<Result<_>>()?,
    }))
}

fn is_any_other_set(flags: &flags::Oidc) -> bool {
    flags.oidc_ca_file.is_some()
        || flags.oidc_username_prefix.is_some()
        || flags.oidc_groups_claim.is_some()
        || !flags.oidc_required_claim.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::{Cli, Command};
    use clap::Parser as _;

    fn access(words: &str) -> Result<Access> {
        let words = ["kyanite", "apiserver"].into_iter().chain(words.split(' '));
        let cli = Cli::try_parse_from(words.filter(|word| !word.is_empty())).unwrap();
        let Command::Apiserver(flags) = cli.command else {
            panic!("another command");
        };
        of_flags(&flags.access)
    }

    #[test]
    fn flags_are_read_as_upstream_reads_them() {
        let found = access(
            "--authorization-mode=Node,RBAC --enable-bootstrap-token-auth --api-audiences=a,b \
             --service-account-issuer=https://one --service-account-issuer=https://two \
             --service-account-signing-key-file=k --requestheader-client-ca-file=f \
             --requestheader-username-headers=X-Remote-User,X-User --oidc-issuer-url=https://i \
             --oidc-client-id=c --oidc-username-prefix=- --oidc-required-claim=a=b",
        )
        .unwrap();
        let authentication = &found.authentication;
        assert_eq!(
            found.authorization.modes,
            [AuthorizationMode::Node, AuthorizationMode::Rbac]
        );
        assert!(authentication.bootstrap_tokens);
        assert_eq!(authentication.anonymous, Anonymous::Everywhere);
        let accounts = &authentication.service_accounts;
        assert_eq!(accounts.issuers, ["https://one", "https://two"]);
        assert_eq!(accounts.api_audiences, ["a", "b"]);
        assert_eq!(accounts.key_files, [std::path::PathBuf::from("k")]);
        let proxies = authentication.request_header.as_ref().unwrap();
        assert_eq!(proxies.username_headers, ["X-Remote-User", "X-User"]);
        let oidc = authentication.oidc.as_ref().unwrap();
        assert_eq!(oidc.username_prefix.as_deref(), Some("-"));
        assert_eq!(oidc.required_claims, [("a".to_owned(), "b".to_owned())]);
        assert_eq!(oidc.signing_algs, ["RS256"]);
    }

    #[test]
    fn nobody_is_anonymous_where_everything_is_allowed() {
        let found = access("").unwrap();
        assert_eq!(found.authentication.anonymous, Anonymous::Off);
        let found = access("--authorization-mode=RBAC --anonymous-auth=false").unwrap();
        assert_eq!(found.authentication.anonymous, Anonymous::Off);
    }

    #[test]
    fn contradictions_are_refused_with_upstreams_sentences() {
        let cases = [
            (
                "--authorization-mode=RBAC,Magic",
                "authorization-mode \"Magic\" is not a valid mode",
            ),
            (
                "--authorization-mode=RBAC,RBAC",
                "authorization-mode [\"RBAC\" \"RBAC\"] has mode specified more than once",
            ),
            (
                "--service-account-issuer=a --service-account-issuer=a",
                "service-account-issuer \"a\" is already specified",
            ),
            (
                "--service-account-jwks-uri=http://x",
                "service-account-jwks-uri requires https scheme, parsed as: http://x",
            ),
            (
                "--oidc-client-id=c",
                "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set",
            ),
            (
                "--authorization-mode=RBAC --authorization-config=f",
                "--authorization-config can not be specified when --authorization-mode or --authorization-webhook-* flags are defined",
            ),
            (
                "--oidc-issuer-url=https://i --oidc-client-id=c --authentication-config=f",
                "authentication-config file and oidc-* flags are mutually exclusive",
            ),
        ];
        for (words, expected) in cases {
            let failure = access(words).unwrap_err();
            assert_eq!(failure.message, expected);
            assert_eq!(failure.code, Code::Usage);
        }
    }
}
