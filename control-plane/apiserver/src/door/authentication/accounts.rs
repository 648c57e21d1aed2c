//! Service account tokens: the keys in use, and what is told about them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use access::tokens::keys::{PublicKey, SigningKey, public_keys};
use access::tokens::service_account::{Authenticator, Issuer};
use access::tokens::token_request::TokenRequests;
use access::tokens::{Authenticated, Invalid, Objects, discovery, jwk};
use arc_swap::ArcSwap;
use jiff::Timestamp;

use super::Error;
use crate::settings::ServiceAccounts;

/// Where the keys are served unless the settings say otherwise.
const KEYS_PATH: &str = "/openid/v1/jwks";

/// Checks and makes service account tokens with the keys of the day.
#[derive(Debug)]
pub(crate) struct Accounts {
    settings: ServiceAccounts,
    current: ArcSwap<Keys>,
}

/// One reading of the key files.
#[derive(Debug)]
pub(crate) struct Keys {
    authenticator: Authenticator,
    /// Makes tokens; none without a signing key.
    pub(crate) requests: Option<TokenRequests>,
}

impl Accounts {
    /// Reads the key files.
    pub(super) fn open(settings: &ServiceAccounts) -> Result<Accounts, Error> {
        let current = ArcSwap::from_pointee(read(settings)?);
        Ok(Accounts {
            settings: settings.clone(),
            current,
        })
    }

    /// Reads the key files again; on failure the keys from before stay.
    pub(super) fn read(&self) -> Result<(), Error> {
        self.current.store(Arc::new(read(&self.settings)?));
        Ok(())
    }

    /// The files with keys.
    pub(super) fn files(&self) -> Vec<PathBuf> {
        let signing = self.settings.signing_key_file.iter();
        self.settings
            .key_files
            .iter()
            .chain(signing)
            .cloned()
            .collect()
    }

    /// The keys of now.
    pub(crate) fn keys(&self) -> Arc<Keys> {
        self.current.load_full()
    }

    /// Whose token this is; nothing if it is none of ours.
    pub(super) fn authenticate(
        &self,
        token: &str,
        now: Timestamp,
        wanted: &[String],
        objects: &dyn Objects,
    ) -> Option<Result<Authenticated, Invalid>> {
        let keys = self.current.load();
        keys.authenticator.authenticate(token, now, wanted, objects)
    }

    /// `/.well-known/openid-configuration`; none where the issuer is no https address or there are no keys.
    pub(crate) fn metadata(&self, address: &str) -> Option<String> {
        let default = format!("https://{address}{KEYS_PATH}");
        let keys_address = self.settings.jwks_uri.as_ref().unwrap_or(&default);
        let issuer = self.settings.issuers.first()?;
        let keys = self.current.load();
        discovery::metadata(issuer, keys_address, &keys.authenticator.keys).ok()
    }

    /// `/openid/v1/jwks`.
    pub(crate) fn key_set(&self) -> Option<String> {
        let keys = self.current.load();
        let keys = &keys.authenticator.keys;
        (!keys.is_empty()).then(|| jwk::key_set(keys))
    }
}

fn read(settings: &ServiceAccounts) -> Result<Keys, Error> {
    let signing = match &settings.signing_key_file {
        Some(file) => Some(SigningKey::from_pem(&bytes(file)?).map_err(|e| about(file, e))?),
        None => None,
    };
    let mut keys: Vec<PublicKey> = Vec::new();
    for file in &settings.key_files {
        keys.extend(public_keys(&bytes(file)?).map_err(|e| about(file, e))?);
    }
    // What we sign we also believe, whether or not somebody listed the key twice.
    if let Some(own) = signing.as_ref().map(SigningKey::public)
        && !keys.iter().any(|key| key.id() == own.id())
    {
        keys.push(own.clone());
    }
    let issuer = settings.issuers.first().cloned().unwrap_or_default();
    let max = settings.max_token_expiration.map(|max| max.as_secs());
    Ok(Keys {
        requests: signing.map(|key| TokenRequests {
            issuer: Issuer { name: issuer, key },
            api_audiences: settings.api_audiences.clone(),
            max_seconds: max.map(|seconds| i64::try_from(seconds).unwrap_or(i64::MAX)),
            extend: settings.extend_token_expiration,
        }),
        authenticator: Authenticator {
            seen: Default::default(),
            issuers: settings.issuers.clone(),
            keys,
            api_audiences: settings.api_audiences.clone(),
        },
    })
}

fn bytes(file: &Path) -> Result<Vec<u8>, Error> {
    std::fs::read(file).map_err(|e| about(file, e))
}

fn about(file: &Path, cause: impl ToString) -> Error {
    Error::new(format!("`{}`", file.display()), cause)
}
