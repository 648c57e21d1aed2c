//! Records sent to another server, many at once.

use std::sync::Arc;
use std::time::Duration;

use audit::{Boxed, Deliver, Event};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::json;
use tokio_rustls::TlsConnector;

use super::kubeconfig::{self, Target};
use crate::connection::tls;
use crate::outward::egress::{Connection, Egress, Traffic};
use crate::settings::AuditWebhook;

/// Upstream's: how often a batch is tried, how the pauses grow, how long one try may take.
const TRIES: u32 = 5;
const GROWTH: f64 = 1.5;
const PATIENCE: Duration = Duration::from_secs(30);
/// Nothing is done with an answer.
const LARGEST_ANSWER: usize = 1 << 20;

/// The server that takes records.
#[derive(Debug)]
pub(super) struct Webhook {
    target: Target,
    uri: Uri,
    tls: Option<Arc<ClientConfig>>,
    egress: Arc<Egress>,
    backoff: Duration,
}

/// Why a try failed, and whether another one may go better.
struct Failure {
    why: String,
    passes: bool,
}

impl Webhook {
    pub(super) fn open(settings: &AuditWebhook, egress: Arc<Egress>) -> Result<Webhook, String> {
        let wrong = |why: String| format!("--audit-webhook-config-file: {why}");
        let target = kubeconfig::read(&settings.config_file).map_err(wrong)?;
        let uri: Uri = target
            .server
            .parse()
            .map_err(|error| wrong(format!("{:?}: {error}", target.server)))?;
        if uri.host().is_none() {
            return Err(wrong(format!("{:?} names no host", target.server)));
        }
        let tls = match uri.scheme_str() {
            Some("https") => {
                let identity = target.identity.as_ref();
                let identity = identity.map(|(c, k)| (c.as_slice(), k.as_slice()));
                let trust = match target.unchecked {
                    true => None,
                    false => Some(target.authority.as_deref()),
                };
                Some(Arc::new(
                    tls::client_of_pem(trust, identity).map_err(wrong)?,
                ))
            }
            _ => None,
        };
        Ok(Webhook {
            target,
            uri,
            tls,
            egress,
            backoff: settings.initial_backoff,
        })
    }

    async fn connect(&self) -> Result<Box<dyn Connection>, String> {
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let usual = if self.tls.is_some() { 443 } else { 80 };
        let port = self.uri.port_u16().unwrap_or(usual);
        let stream = self
            .egress
            .connect(Traffic::ControlPlane, (host, port))
            .await;
        let stream = stream.map_err(|error| error.to_string())?;
        let Some(config) = &self.tls else {
            return Ok(stream);
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        let stream = stream.await.map_err(|error| format!("tls: {error}"))?;
        Ok(Box::new(stream))
    }

    async fn post(&self, body: &Bytes) -> Result<(), Failure> {
        let again = |why: String| Failure { why, passes: true };
        let stream = self.connect().await.map_err(again)?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(|error| again(error.to_string()))?;
        // Ends with its sender.
        tokio::spawn(connection);
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = self
            .uri
            .authority()
            .map_or("", |authority| authority.as_str());
        let mut request = Request::post(path)
            .header(HOST, authority)
            .header(CONTENT_TYPE, "application/json")
            .header(USER_AGENT, "kube-apiserver");
        if let Some(authorization) = &self.target.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(body.clone()));
        let request = request.map_err(|error| Failure {
            why: error.to_string(),
            passes: false,
        })?;
        let response = sender.send_request(request).await;
        let response = response.map_err(|error| again(error.to_string()))?;
        let code = response.status();
        let _ = Limited::new(response.into_body(), LARGEST_ANSWER)
            .collect()
            .await;
        match code.is_success() {
            true => Ok(()),
            false => Err(Failure {
                why: format!("the server answered with code {}", code.as_u16()),
                passes: code.is_server_error() || code.as_u16() == 429,
            }),
        }
    }

    async fn deliver(&self, body: Bytes) -> Result<(), String> {
        let mut pause = self.backoff;
        let mut tried = 1;
        loop {
            let outcome = tokio::time::timeout(PATIENCE, self.post(&body)).await;
            let failure = match outcome {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(failure)) => failure,
                Err(_) => Failure {
                    why: format!("no answer in {PATIENCE:?}"),
                    passes: true,
                },
            };
            if !failure.passes || tried == TRIES {
                return Err(failure.why);
            }
            tracing::warn!(why = failure.why, tried, "audit records are sent again");
            tokio::time::sleep(pause).await;
            pause = pause.mul_f64(GROWTH);
            tried += 1;
        }
    }
}

impl Deliver for Webhook {
    fn name(&self) -> &'static str {
        "webhook"
    }

    fn deliver<'a>(&'a self, events: &'a [Arc<Event>]) -> Boxed<'a> {
        let events: Vec<&Event> = events.iter().map(|event| &**event).collect();
        let list = json!({"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": events});
        Box::pin(self.deliver(Bytes::from(list.to_string())))
    }
}
