//! Who we are to Azure: sources of tokens, in upstream's order, and the token that is in use.

mod assertion;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{Method, Request, Response};
use http_body_util::Full;
use jiff::Timestamp;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;
use wire::client::Client;

use crate::imds;
use crate::{CloudConfig, Endpoints, Error};

/// A token is renewed when this part of its life is left, at most so much.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// How often a managed identity is asked again that is not there yet, and how long the first wait is.
const MANAGED_TRIES: u32 = 5;
const MANAGED_WAIT: Duration = Duration::from_millis(800);
/// Where an agent of Arc lays down its proofs; nothing else is read for it.
pub const ARC_PROOFS: &str = "/var/opt/azcmagent/tokens";
const ARC_PROOF_BYTES: u64 = 4096;

/// Where tokens come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A token of the cluster, exchanged; the file is read for every exchange.
    Federated {
        /// The application.
        client: String,
        /// The file.
        file: PathBuf,
    },
    /// The machine's identity.
    Managed {
        /// `&client_id=…`, `&msi_res_id=…`, or nothing for the machine's own.
        which: String,
    },
    /// The identity of a machine that Azure manages from afar; where its agent listens.
    Arc {
        /// The whole address up to the query.
        endpoint: String,
        /// Where it lays down its proofs: [`ARC_PROOFS`].
        proofs: PathBuf,
    },
    /// A secret.
    Secret {
        /// The application.
        client: String,
        /// Its secret.
        secret: String,
    },
    /// A certificate and its key, PEM.
    Certificate {
        /// The application.
        client: String,
        /// The file.
        file: PathBuf,
    },
}

impl Source {
    /// The source that a configuration means, in upstream's order; none where it has no credentials.
    pub fn of(
        config: &CloudConfig,
        environment: impl Fn(&str) -> Option<String>,
    ) -> Option<Source> {
        let client = config.aad_client_id.clone();
        if config.use_federated_workload_identity_extension {
            let file = PathBuf::from(&config.aad_federated_token_file);
            return Some(Source::Federated { client, file });
        }
        if config.use_managed_identity_extension {
            let endpoint = environment("IDENTITY_ENDPOINT").filter(|text| !text.is_empty());
            return Some(match (endpoint, environment("IMDS_ENDPOINT")) {
                (Some(endpoint), Some(_)) => Source::Arc {
                    endpoint,
                    proofs: ARC_PROOFS.into(),
                },
                _ => Source::Managed {
                    which: which_identity(&config.user_assigned_identity_id),
                },
            });
        }
        if !config.aad_client_secret.is_empty() {
            let secret = config.aad_client_secret.clone();
            return Some(Source::Secret { client, secret });
        }
        let file = PathBuf::from(&config.aad_client_cert_path);
        (!config.aad_client_cert_path.is_empty()).then_some(Source::Certificate { client, file })
    }
}

fn which_identity(id: &str) -> String {
    match id {
        "" => String::new(),
        id if id.to_lowercase().contains("/subscriptions/") => {
            format!("&msi_res_id={}", encoded(id))
        }
        id => format!("&client_id={}", encoded(id)),
    }
}

/// Text as a form or a query has it.
pub(crate) fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

fn form(fields: &[(&str, &str)]) -> String {
    let pairs = fields
        .iter()
        .map(|(name, value)| format!("{name}={}", encoded(value)));
    pairs.collect::<Vec<_>>().join("&")
}

/// A token and how long it is good.
struct Token {
    text: String,
    renew_at: Instant,
    ends_at: Instant,
}

/// The token in use: asked for at the first request, renewed before it ends, by one at a time.
pub struct Tokens {
    source: Source,
    tenant: String,
    endpoints: Endpoints,
    metadata: imds::Place,
    client: Arc<Client>,
    current: Mutex<Option<Token>>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl Tokens {
    /// Tokens of a source for a cloud's Resource Manager.
    pub fn new(
        source: Source,
        tenant: &str,
        endpoints: &Endpoints,
        metadata: imds::Place,
        client: Arc<Client>,
    ) -> Tokens {
        Tokens {
            source,
            tenant: tenant.to_owned(),
            endpoints: endpoints.clone(),
            metadata,
            client,
            current: Mutex::new(None),
        }
    }

    /// A token that is good for a while.
    pub async fn token(&self) -> Result<String, Error> {
        self.fresh_or_kept().await.map(|(text, _)| text)
    }

    /// A token that is good for a while, and how long it still is.
    pub async fn fresh_or_kept(&self) -> Result<(String, Duration), Error> {
        let mut current = self.current.lock().await;
        let now = Instant::now();
        if let Some(token) = current.as_ref().filter(|t| now < t.renew_at) {
            return Ok((token.text.clone(), token.ends_at - now));
        }
        let (text, life) = self.fetch().await?;
        let now = Instant::now();
        *current = Some(Token {
            text: text.clone(),
            renew_at: now + life - RENEW_BEFORE.min(life / 2),
            ends_at: now + life,
        });
        Ok((text, life))
    }

    /// A new token and how long it is good: for those who keep it elsewhere.
    pub async fn fresh(&self) -> Result<(String, Duration), Error> {
        self.fetch().await
    }

    /// Forgets the token: it was refused.
    pub async fn forget(&self) {
        *self.current.lock().await = None;
    }

    async fn fetch(&self) -> Result<(String, Duration), Error> {
        match &self.source {
            Source::Managed { which } => self.managed(which).await,
            Source::Arc { endpoint, proofs } => self.arc(endpoint, proofs).await,
            Source::Secret { client, secret } => {
                self.grant(&[("client_id", client), ("client_secret", secret)])
                    .await
            }
            Source::Federated { client, file } => {
                let token = tokio::fs::read_to_string(file).await;
                let token = token.map_err(|e| unreadable(file, &e))?;
                self.assert(client, token.trim()).await
            }
            Source::Certificate { client, file } => {
                let pem = tokio::fs::read(file).await;
                let pem = pem.map_err(|e| unreadable(file, &e))?;
                let made =
                    assertion::signed(&pem, client, &self.token_endpoint(), Timestamp::now());
                let made = made.map_err(|cause| unreadable(file, &cause))?;
                self.assert(client, &made).await
            }
        }
    }

    fn token_endpoint(&self) -> String {
        format!("{}/{}/oauth2/v2.0/token", self.endpoints.login, self.tenant)
    }

    async fn assert(&self, client: &str, assertion: &str) -> Result<(String, Duration), Error> {
        const KIND: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
        self.grant(&[
            ("client_id", client),
            ("client_assertion_type", KIND),
            ("client_assertion", assertion),
        ])
        .await
    }

    async fn grant(&self, proof: &[(&str, &str)]) -> Result<(String, Duration), Error> {
        let scope = format!("{}/.default", self.endpoints.audience);
        let mut fields = vec![
            ("grant_type", "client_credentials"),
            ("scope", scope.as_str()),
        ];
        fields.extend(proof);
        let request = Request::post(self.token_endpoint())
            .header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let answer = self.send(request, form(&fields)).await?;
        read(&answer)
    }

    async fn managed(&self, which: &str) -> Result<(String, Duration), Error> {
        let mut wait = MANAGED_WAIT;
        for attempt in 1.. {
            let path = format!(
                "/metadata/identity/oauth2/token?api-version=2018-02-01&resource={}{which}",
                encoded(&self.endpoints.audience)
            );
            let asked = Request::get(self.metadata.address(&path)).header("Metadata", "true");
            let answer = self.send(asked, String::new()).await;
            // An identity that was just assigned is not there at once.
            let is_later = match &answer {
                Ok(answer) => {
                    let status = answer.status();
                    [404, 410, 429].contains(&status.as_u16()) || status.is_server_error()
                }
                Err(_) => true,
            };
            if !is_later || attempt == MANAGED_TRIES {
                return read(&answer?);
            }
            tokio::time::sleep(wait).await;
            wait *= 2;
        }
        unreachable!("the loop ends at its last attempt")
    }

    async fn arc(&self, endpoint: &str, proofs: &Path) -> Result<(String, Duration), Error> {
        let address = format!(
            "{endpoint}?api-version=2020-06-01&resource={}",
            encoded(&self.endpoints.audience)
        );
        let ask = || Request::get(&address).header("Metadata", "true");
        let challenge = self.send(ask(), String::new()).await?;
        let named = challenge.headers().get(WWW_AUTHENTICATE);
        let named = named.and_then(|value| value.to_str().ok());
        // An agent that asks for no proof has answered.
        if named.is_none() {
            return read(&challenge);
        }
        let proof = arc_proof(named.unwrap_or_default(), proofs)?;
        let content = std::fs::read_to_string(&proof).map_err(|e| unreadable(&proof, &e))?;
        let shown = ask().header(AUTHORIZATION, format!("Basic {}", content.trim_end()));
        read(&self.send(shown, String::new()).await?)
    }

    async fn send(
        &self,
        request: http::request::Builder,
        body: String,
    ) -> Result<Response<Bytes>, Error> {
        let request = request.body(Full::from(body));
        let request = request.map_err(|e| Error::Token(e.to_string()))?;
        debug_assert!(matches!(*request.method(), Method::GET | Method::POST));
        Ok(self.client.send(request).await?)
    }
}

fn unreadable(file: &std::path::Path, cause: &dyn std::fmt::Display) -> Error {
    Error::Token(format!("`{}` cannot be used: {cause}", file.display()))
}

/// The file that proves that we are root here; only a small key in the agent's own directory is read.
fn arc_proof(challenge: &str, proofs: &Path) -> Result<PathBuf, Error> {
    let refused = |why: &str| Error::Token(format!("the agent of Arc names no proof: {why}"));
    let file = challenge.strip_prefix("Basic realm=");
    let file = PathBuf::from(file.ok_or_else(|| refused("it asks for none"))?);
    let is_there = file.parent() == Some(proofs);
    if !is_there || file.extension().is_none_or(|e| e != "key") {
        return Err(refused("the file is not one of its own"));
    }
    match std::fs::metadata(&file) {
        Ok(found) if found.len() <= ARC_PROOF_BYTES => Ok(file),
        Ok(_) => Err(refused("the file is too large")),
        Err(error) => Err(refused(&error.to_string())),
    }
}

fn read(answer: &Response<Bytes>) -> Result<(String, Duration), Error> {
    let said: Value = serde_json::from_slice(answer.body()).unwrap_or_default();
    if !answer.status().is_success() {
        let cause = said["error_description"]
            .as_str()
            .or(said["error"].as_str())
            .unwrap_or("no reason was given");
        return Err(Error::Token(format!("{}: {cause}", answer.status())));
    }
    let text = said["access_token"].as_str();
    let text = text.ok_or_else(|| Error::Token("the answer has none".into()))?;
    // A managed identity gives numbers as text.
    let seconds = said["expires_in"]
        .as_u64()
        .or_else(|| said["expires_in"].as_str()?.parse().ok());
    Ok((
        text.to_owned(),
        Duration::from_secs(seconds.unwrap_or(3600)),
    ))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn source(json: &str, environment: &[(&str, &str)]) -> Option<Source> {
        let config = CloudConfig::parse(json, |_| None).unwrap();
        Source::of(&config, |name| {
            let found = environment.iter().find(|(key, _)| *key == name);
            found.map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn sources_have_upstreams_order() {
        let all = r#""aadClientId": "c", "aadClientSecret": "s", "aadClientCertPath": "/cert""#;
        let federated = format!(
            r#"{{{all}, "useManagedIdentityExtension": true, "useFederatedWorkloadIdentityExtension": true}}"#
        );
        assert!(matches!(
            source(&federated, &[]),
            Some(Source::Federated { .. })
        ));
        let managed = format!(r#"{{{all}, "useManagedIdentityExtension": true}}"#);
        let own = Source::Managed {
            which: String::new(),
        };
        assert_eq!(source(&managed, &[]), Some(own));
        let arc = [("IDENTITY_ENDPOINT", "http://x"), ("IMDS_ENDPOINT", "y")];
        assert!(matches!(source(&managed, &arc), Some(Source::Arc { .. })));
        assert!(matches!(
            source(&format!("{{{all}}}"), &[]),
            Some(Source::Secret { .. })
        ));
        assert_eq!(source("{}", &[]), None);
    }

    #[test]
    fn identities_are_named_by_what_they_are() {
        assert_eq!(which_identity("abc"), "&client_id=abc");
        let resource = which_identity("/subscriptions/s/x");
        assert_eq!(resource, "&msi_res_id=%2Fsubscriptions%2Fs%2Fx");
    }

    #[test]
    fn answers_are_read_in_both_dialects() {
        let answer = |status: u16, body: &str| {
            let body = Bytes::from(body.to_owned());
            Response::builder().status(status).body(body).unwrap()
        };
        let read = |status, body| read(&answer(status, body));
        let text = read(200, r#"{"access_token":"t","expires_in":"60"}"#).unwrap();
        assert_eq!(text, ("t".to_owned(), Duration::from_secs(60)));
        let number = read(200, r#"{"access_token":"t","expires_in":3599}"#).unwrap();
        assert_eq!(number.1, Duration::from_secs(3599));
        let refused = read(401, r#"{"error_description":"AADSTS7000215: wrong"}"#).unwrap_err();
        assert!(refused.to_string().contains("AADSTS7000215"), "{refused}");
        assert!(read(200, "{}").is_err());
    }

    #[test]
    fn only_the_agents_own_keys_are_proofs() {
        for challenge in [
            "Bearer x",
            "Basic realm=/etc/shadow",
            "Basic realm=/var/opt/azcmagent/tokens/../../../etc/x.key",
            "Basic realm=/var/opt/azcmagent/tokens/x.txt",
        ] {
            assert!(
                arc_proof(challenge, Path::new(ARC_PROOFS)).is_err(),
                "{challenge}"
            );
        }
    }
}
