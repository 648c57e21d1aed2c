//! OpenID Connect issuers: their keys are fetched when a token needs them, and again when they change.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use access::tokens::oidc::{Anonymous, Configuration, Flags, Provider, Refusal, Trust};
use access::tokens::{Authenticated, Invalid};
use arc_swap::ArcSwap;
use jiff::Timestamp;
use rustls::ClientConfig;
use wire::https;

use super::Error;
use crate::settings::{Authentication, Oidc};

/// The issuers whose tokens are believed.
#[derive(Debug)]
pub(crate) struct Issuers {
    settings: Authentication,
    current: ArcSwap<Current>,
}

/// One reading of the configuration.
#[derive(Debug, Default)]
struct Current {
    issuers: Vec<Arc<Issuer>>,
    /// Who may come without credentials, where the configuration says so.
    anonymous: Option<Anonymous>,
}

#[derive(Debug)]
struct Issuer {
    provider: Mutex<Provider>,
    tls: Arc<ClientConfig>,
    /// One fetch at a time; whoever waits for it finds the keys that it brought.
    fetching: tokio::sync::Mutex<()>,
}

impl Issuers {
    /// The issuers that flags or a configuration file describe.
    pub(super) fn open(settings: &Authentication) -> Result<Issuers, Error> {
        let issuers = Issuers {
            settings: settings.clone(),
            current: ArcSwap::default(),
        };
        issuers.read()?;
        Ok(issuers)
    }

    /// Reads the configuration again; issuers that stay the same keep their keys.
    pub(super) fn read(&self) -> Result<(), Error> {
        let (trusts, anonymous) = configured(&self.settings)?;
        let before = self.current.load();
        let issuers = trusts.into_iter().map(|trust| {
            let same = before.issuers.iter().find(|i| *i.lock().trust() == trust);
            same.map_or_else(|| Issuer::new(trust).map(Arc::new), |i| Ok(Arc::clone(i)))
        });
        let issuers = issuers.collect::<Result<_, _>>()?;
        self.current.store(Arc::new(Current { issuers, anonymous }));
        Ok(())
    }

    /// Whether a path is answered without credentials: what a configuration file says goes before flags.
    pub(super) fn anonymous(&self, path: &str) -> bool {
        let current = self.current.load();
        match &current.anonymous {
            Some(anonymous) => anonymous.allows(path),
            None => self.settings.anonymous.allows(path),
        }
    }

    /// Whose token this is; nothing if no issuer knows it.
    pub(super) async fn authenticate(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Option<Result<Authenticated, Invalid>> {
        let current = self.current.load_full();
        for issuer in &current.issuers {
            if let Some(verdict) = issuer.authenticate(token, now).await {
                return Some(verdict);
            }
        }
        None
    }
}

fn configured(settings: &Authentication) -> Result<(Vec<Trust>, Option<Anonymous>), Error> {
    let mut trusts = Vec::new();
    if let Some(oidc) = &settings.oidc {
        let trust = flags(oidc).trust().map_err(|e| Error::new("--oidc-*", e))?;
        trusts.extend(trust);
    }
    let Some(file) = &settings.configuration_file else {
        return Ok((trusts, None));
    };
    let about = |cause: String| Error::new(format!("`{}`", file.display()), cause);
    let text = std::fs::read_to_string(file).map_err(|e| about(e.to_string()))?;
    let read = Configuration::parse(&text, &settings.service_accounts.issuers);
    let read = read.map_err(|e| about(e.to_string()))?;
    if settings.anonymous_by_flag && read.anonymous.is_some() {
        return Err(about(
            "--anonymous-auth flag cannot be set when anonymous field is configured in authentication configuration file"
                .to_owned(),
        ));
    }
    trusts.extend(read.issuers);
    Ok((trusts, read.anonymous))
}

impl Issuer {
    fn new(trust: Trust) -> Result<Issuer, Error> {
        let tls = https::tls(trust.authority.as_deref().map(str::as_bytes));
        let tls = tls.map_err(|e| Error::new(format!("the CA of issuer {:?}", trust.url), e))?;
        Ok(Issuer {
            provider: Mutex::new(Provider::new(trust)),
            tls,
            fetching: tokio::sync::Mutex::default(),
        })
    }

    async fn authenticate(
        &self,
        token: &str,
        now: Timestamp,
    ) -> Option<Result<Authenticated, Invalid>> {
        let first = self.lock().authenticate(token, now)?;
        let Err(Refusal::UnknownKey(_)) = &first else {
            return Some(first.map_err(flatten));
        };
        self.lock().want_keys();
        self.refresh(now).await;
        let second = self.lock().authenticate(token, now)?;
        Some(second.map_err(flatten))
    }

    async fn refresh(&self, now: Timestamp) {
        let _alone = self.fetching.lock().await;
        if !self.lock().needs_refresh(now) {
            return;
        }
        self.lock().begin_refresh(now);
        if let Err(cause) = self.fetch().await {
            tracing::warn!(%cause, "an issuer's keys cannot be fetched; those from before stay in use");
            self.lock().refresh_failed(cause);
        }
    }

    async fn fetch(&self) -> Result<(), String> {
        let address = self.lock().trust().metadata_address();
        let metadata = https::get(&address, &self.tls).await?;
        let address = self.lock().keys_address(&metadata)?;
        let keys = https::get(&address, &self.tls).await?;
        self.lock().refreshed(&keys).map_err(|e| e.to_string())
    }

    fn lock(&self) -> MutexGuard<'_, Provider> {
        self.provider.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn flatten(refusal: Refusal) -> Invalid {
    match refusal {
        Refusal::Invalid(why) | Refusal::UnknownKey(why) => why,
    }
}

fn flags(oidc: &Oidc) -> Flags {
    let pairs = oidc.required_claims.iter();
    Flags {
        issuer_url: oidc.issuer_url.clone(),
        client_id: oidc.client_id.clone(),
        username_claim: oidc.username_claim.clone(),
        username_prefix: oidc.username_prefix.clone().unwrap_or_default(),
        groups_claim: oidc.groups_claim.clone().unwrap_or_default(),
        groups_prefix: oidc.groups_prefix.clone(),
        required_claims: pairs
            .map(|(claim, value)| format!("{claim}={value}"))
            .collect(),
        signing_algs: oidc.signing_algs.clone(),
        authority: oidc.ca_pem.clone(),
    }
}
