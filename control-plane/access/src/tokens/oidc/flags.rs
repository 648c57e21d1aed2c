//! The `--oidc-*` flags, which describe one issuer.

use super::configuration::{ConfigurationError, check_issuer_url};
use super::{Mapping, Rule, Trust};
use crate::tokens::keys::Algorithm;

/// The flags as given; empty where not.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Flags {
    /// `--oidc-issuer-url`
    pub issuer_url: String,
    /// `--oidc-client-id`
    pub client_id: String,
    /// `--oidc-username-claim`, `sub` by default
    pub username_claim: String,
    /// `--oidc-username-prefix`; `-` for none at all
    pub username_prefix: String,
    /// `--oidc-groups-claim`
    pub groups_claim: String,
    /// `--oidc-groups-prefix`
    pub groups_prefix: String,
    /// `--oidc-required-claim`, each `claim=value`
    pub required_claims: Vec<String>,
    /// `--oidc-signing-algs`, RS256 by default
    pub signing_algs: Vec<String>,
    /// Content of `--oidc-ca-file`
    pub authority: Option<String>,
}

impl Flags {
    /// The issuer the flags describe, or nothing if none is given.
    pub fn trust(&self) -> Result<Option<Trust>, ConfigurationError> {
        if *self == Flags::default() {
            return Ok(None);
        }
        if self.issuer_url.is_empty() || self.client_id.is_empty() {
            let why = "oidc-issuer-url and oidc-client-id must be specified together when any oidc-* flags are set";
            return Err(ConfigurationError::new(why));
        }
        let problems = check_issuer_url("oidc-issuer-url", &self.issuer_url);
        if !problems.is_empty() {
            return Err(ConfigurationError { problems });
        }
        let groups = (!self.groups_claim.is_empty()).then(|| Mapping::Claim {
            claim: self.groups_claim.clone(),
            prefix: self.groups_prefix.clone(),
        });
        Ok(Some(Trust {
            url: self.issuer_url.clone(),
            discovery_url: None,
            authority: self.authority.clone(),
            audiences: vec![self.client_id.clone()],
            algorithms: self.algorithms()?,
            username: self.username(),
            groups,
            uid: None,
            extra: Vec::new(),
            claim_rules: self
                .required_claims
                .iter()
                .map(|pair| required(pair))
                .collect::<Result<_, _>>()?,
            user_rules: Vec::new(),
        }))
    }

    /// Names are told apart by their issuer unless they are mail addresses, or the flag says otherwise.
    fn username(&self) -> Mapping {
        let claim = if self.username_claim.is_empty() {
            "sub"
        } else {
            &self.username_claim
        };
        let prefix = match self.username_prefix.as_str() {
            "-" => String::new(),
            "" if claim != "email" => format!("{}#", self.issuer_url),
            given => given.to_owned(),
        };
        Mapping::Claim {
            claim: claim.to_owned(),
            prefix,
        }
    }

    fn algorithms(&self) -> Result<Vec<Algorithm>, ConfigurationError> {
        if self.signing_algs.is_empty() {
            return Ok(vec![Algorithm::Rs256]);
        }
        let known = |name: &String| {
            Algorithm::named(name).ok_or_else(|| {
                ConfigurationError::new(format!("oidc: unsupported signing alg: {name:?}"))
            })
        };
        self.signing_algs.iter().map(known).collect()
    }
}

fn required(pair: &str) -> Result<Rule, ConfigurationError> {
    match pair.split_once('=') {
        Some((claim, value)) if !claim.is_empty() => Ok(Rule::Required {
            claim: claim.trim().to_owned(),
            value: value.trim().to_owned(),
        }),
        _ => Err(ConfigurationError::new(format!(
            "malformed pair, expect string=string: {pair}"
        ))),
    }
}
