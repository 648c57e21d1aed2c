//! The metadata service of a machine that connected itself: what Azure's agent serves at 127.0.0.1:40342 where it is installed.
//!
//! Whoever asks for a token must prove to be root: the answer to a first request names a file that only root can read, and a second
//! request shows what is in it, once.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use azure::imds::Place;
use azure::token::{Source, Tokens};
use azure::{CloudConfig, Endpoints};
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, WWW_AUTHENTICATE};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::config::Config;
use crate::identity::own::{Keys, Known};
use crate::identity::{self, Refused, private};
use crate::machine::MARK;
use crate::paths;
use crate::steps::Wish;

/// What a proof is called, and how many may wait to be shown.
const PROOFS: usize = 16;
const TOKEN: &str = "/metadata/identity/oauth2/token";
const INSTANCE: &str = "/metadata/instance/compute";

/// The unit that runs it.
pub const UNIT: &str = "aks-flex-node-himds.service";

/// The unit's file.
pub fn unit(wish: &Wish) -> String {
    format!(
        "{MARK}\n[Unit]\nDescription=Identity of this machine in Azure Arc\nAfter=network-online.target\n         Wants=network-online.target\nBefore=kubelet.service\n\n         [Service]\nExecStart={} himds --config {}\nRestart=always\nRestartSec=2\n\n         [Install]\nWantedBy=multi-user.target\n",
        wish.program.join(" "),
        wish.file,
    )
}

type Answer = Response<Full<Bytes>>;

fn answer(status: u16, body: &Value) -> Answer {
    let built = Response::builder()
        .status(status)
        .header(CONTENT_TYPE, "application/json")
        .body(Full::from(body.to_string()));
    built.expect("these headers are valid")
}

fn error(status: u16, word: &str, text: &str) -> Answer {
    answer(status, &json!({"error": word, "error_description": text}))
}

/// The service of one machine.
pub struct Service {
    known: Known,
    place: Value,
    cloud: CloudConfig,
    endpoints: Endpoints,
    source: Source,
    client: Arc<wire::client::Client>,
    proofs: Proofs,
    /// By what they are for.
    tokens: Mutex<HashMap<String, Arc<Tokens>>>,
}

impl Service {
    /// Of a machine that is connected; asks its cloud where one signs in.
    pub async fn open(config: &Config, keys: &Keys, proofs: &Path) -> Result<Service, Refused> {
        let known = keys.read().ok_or_else(|| Refused {
            cause: "this machine is not connected".to_owned(),
            remedy: "connect it with `aks-flex-node bootstrap`".to_owned(),
        })?;
        let client = identity::client(config)?;
        let cloud = identity::cloud_config(config);
        let endpoints = Endpoints::of(&cloud, &client).await;
        let endpoints = endpoints.map_err(|e| Refused {
            cause: e.to_string(),
            remedy: "check the way to Azure".to_owned(),
        })?;
        let location = match &config.join {
            crate::config::Join::Arc(arc) => arc.location.clone(),
            _ => String::new(),
        };
        Ok(Service {
            place: compute(&known, &location),
            source: Source::Certificate {
                client: known.client.clone(),
                file: keys.pem(),
            },
            proofs: Proofs::new(proofs),
            tokens: Mutex::default(),
            known,
            cloud,
            endpoints,
            client,
        })
    }

    /// Serves until it is dropped.
    pub async fn serve(self: Arc<Self>, listener: TcpListener) {
        self.proofs.clear();
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Out of files, mostly: others let go of some.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            };
            let service = Arc::clone(&self);
            let serving = service_fn(move |request: Request<Incoming>| {
                let service = Arc::clone(&service);
                async move { Ok::<_, Infallible>(service.answer(&request).await) }
            });
            let connection = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(Duration::from_secs(10))
                .serve_connection(TokioIo::new(stream), serving);
            tokio::spawn(async move {
                // A client that goes away is none of our business.
                let _ = connection.await;
            });
        }
    }

    async fn answer<B>(&self, request: &Request<B>) -> Answer {
        if let Some(refusal) = refusal(request.method(), request.headers()) {
            return refusal;
        }
        match request.uri().path().to_lowercase().as_str() {
            TOKEN => self.token(request).await,
            INSTANCE => answer(200, &self.place),
            _ => error(404, "not_found", "Not found"),
        }
    }

    async fn token<B>(&self, request: &Request<B>) -> Answer {
        let query = request.uri().query().unwrap_or_default();
        let Some(resource) = parameter(query, "resource").filter(|text| !text.is_empty()) else {
            return error(
                400,
                "invalid_request",
                "Required query variable 'resource' is missing",
            );
        };
        let shown = request.headers().get(AUTHORIZATION);
        let shown = shown.and_then(|value| value.to_str().ok()?.strip_prefix("Basic "));
        if !shown.is_some_and(|shown| self.proofs.take(shown.trim())) {
            return match self.proofs.lay_down() {
                Ok(file) => challenge(&file),
                Err(cause) => error(
                    500,
                    "server_error",
                    &format!("no proof can be laid down: {cause}"),
                ),
            };
        }
        match self.tokens(&resource).fresh_or_kept().await {
            Ok((token, left)) => answer(200, &self.granted(&token, left, &resource)),
            Err(cause) => error(502, "server_error", &cause.to_string()),
        }
    }

    fn granted(&self, token: &str, left: Duration, resource: &str) -> Value {
        let now = jiff::Timestamp::now().as_second();
        let left = left.as_secs();
        json!({"access_token": token, "client_id": self.known.client, "expires_in": left.to_string(),
            "expires_on": (now + left.cast_signed()).to_string(), "ext_expires_in": left.to_string(),
            "not_before": now.to_string(), "resource": resource, "token_type": "Bearer"})
    }

    fn tokens(&self, resource: &str) -> Arc<Tokens> {
        let mut all = self.tokens.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let endpoints = Endpoints {
                audience: resource.to_owned(),
                ..self.endpoints.clone()
            };
            let (source, client) = (self.source.clone(), Arc::clone(&self.client));
            let place = Place::of(|_| None);
            Arc::new(Tokens::new(
                source,
                &self.cloud.tenant_id,
                &endpoints,
                place,
                client,
            ))
        };
        Arc::clone(all.entry(resource.to_owned()).or_insert_with(new))
    }
}

/// What the machine is, as that agent says it.
fn compute(known: &Known, location: &str) -> Value {
    let parts: Vec<&str> = known.machine.split('/').collect();
    let after = |word: &str| {
        let at = parts
            .iter()
            .position(|part| part.eq_ignore_ascii_case(word));
        at.and_then(|at| parts.get(at + 1))
            .copied()
            .unwrap_or_default()
    };
    json!({"azEnvironment": "AzurePublicCloud", "provider": "Microsoft.HybridCompute", "resourceId": known.machine,
        "name": after("machines"), "subscriptionId": after("subscriptions"), "resourceGroupName": after("resourceGroups"),
        "location": location, "osType": "linux"})
}

/// What every request is held to before anything is said.
fn refusal(method: &Method, headers: &HeaderMap) -> Option<Answer> {
    let has_header = headers
        .get("metadata")
        .is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"true"));
    match (method, has_header) {
        _ if headers.contains_key("x-forwarded-for") => Some(error(
            400,
            "invalid_request",
            "X-Forwarded-For is not allowed",
        )),
        (_, false) => Some(error(
            400,
            "invalid_request",
            "Required metadata header not specified",
        )),
        (&Method::GET, true) => None,
        _ => Some(error(405, "invalid_request", "Method not allowed")),
    }
}

fn challenge(file: &Path) -> Answer {
    let mut told = error(
        401,
        "unauthorized",
        "Read the file that WWW-Authenticate names",
    );
    let realm = format!("Basic realm={}", file.display());
    if let Ok(realm) = realm.parse() {
        told.headers_mut().insert(WWW_AUTHENTICATE, realm);
    }
    told
}

/// A parameter of a query, decoded.
fn parameter(query: &str, name: &str) -> Option<String> {
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let (_, value) = pairs.find(|(key, _)| *key == name)?;
    let mut out = Vec::with_capacity(value.len());
    let mut bytes = value.bytes();
    while let Some(byte) = bytes.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let digits = std::str::from_utf8(&digits).ok()?;
                out.push(u8::from_str_radix(digits, 16).ok()?);
            }
            other => out.push(other),
        }
    }
    String::from_utf8(out).ok()
}

/// Proofs that were laid down and not shown yet, the oldest first.
struct Proofs {
    directory: PathBuf,
    waiting: Mutex<Vec<(PathBuf, String)>>,
}

impl Proofs {
    fn new(directory: &Path) -> Proofs {
        Proofs {
            directory: directory.to_owned(),
            waiting: Mutex::default(),
        }
    }

    /// Those of a service before this one prove nothing any more.
    fn clear(&self) {
        for entry in std::fs::read_dir(&self.directory)
            .into_iter()
            .flatten()
            .flatten()
        {
            if entry.path().extension().is_some_and(|e| e == "key") {
                let _ = std::fs::remove_file(entry.path());
            }
        }
    }

    fn lay_down(&self) -> std::io::Result<PathBuf> {
        let (name, proof) = (random(8), random(32));
        let file = self.directory.join(format!("{name}.key"));
        private::write(&file, proof.as_bytes())?;
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.push((file.clone(), proof));
        if waiting.len() > PROOFS {
            let (oldest, _) = waiting.remove(0);
            let _ = std::fs::remove_file(oldest);
        }
        Ok(file)
    }

    /// Whether it is one; it is good once.
    fn take(&self, shown: &str) -> bool {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let same = |(_, proof): &(PathBuf, String)| {
            aws_lc_rs::constant_time::verify_slices_are_equal(proof.as_bytes(), shown.as_bytes())
                .is_ok()
        };
        let Some(at) = waiting.iter().position(same) else {
            return false;
        };
        let (file, _) = waiting.remove(at);
        let _ = std::fs::remove_file(file);
        true
    }
}

fn random(bytes: usize) -> String {
    let mut noise = vec![0; bytes];
    SystemRandom::new()
        .fill(&mut noise)
        .expect("the system has randomness");
    noise.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Where proofs are laid down.
pub fn proofs() -> &'static Path {
    Path::new(paths::ARC_TOKENS)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_proof_is_good_once_and_few_wait() {
        let dir = tempfile::tempdir().unwrap();
        let proofs = Proofs::new(dir.path());
        let file = proofs.lay_down().unwrap();
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(!proofs.take("something else"));
        assert!(proofs.take(&text) && !proofs.take(&text) && !file.exists());
        for _ in 0..PROOFS * 2 {
            proofs.lay_down().unwrap();
        }
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), PROOFS);
        proofs.clear();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn only_machines_themselves_are_answered() {
        let mut headers = HeaderMap::new();
        assert_eq!(refusal(&Method::GET, &headers).unwrap().status(), 400);
        headers.insert("metadata", "true".parse().unwrap());
        assert!(refusal(&Method::GET, &headers).is_none());
        assert_eq!(refusal(&Method::POST, &headers).unwrap().status(), 405);
        headers.insert("x-forwarded-for", "1.2.3.4".parse().unwrap());
        assert_eq!(refusal(&Method::GET, &headers).unwrap().status(), 400);
    }

    #[test]
    fn parameters_are_decoded() {
        let query = "api-version=2020-06-01&resource=https%3A%2F%2Fmanagement.azure.com%2F";
        assert_eq!(
            parameter(query, "resource").unwrap(),
            "https://management.azure.com/"
        );
        assert_eq!(parameter(query, "other"), None);
    }
}
