//! Calls to webhooks: where they are, whom to believe, connections that are used again.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use base64::Engine as _;
use bytes::Bytes;
use http::{Request, StatusCode, Uri, header};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use serde_json::Value;
use tokio_rustls::TlsConnector;

use crate::api::Api;
use crate::connection::tls;
use crate::outward::egress::{Traffic, join_host_port};
use crate::status::Result as ApiResult;

/// The largest answer that is read: an object, patched as a whole.
pub(crate) const LARGEST_ANSWER: usize = 7 << 20;
/// How many connections wait for the next call; more are closed instead.
const MOST_IDLE: usize = 16;

type Sender = SendRequest<Full<Bytes>>;

/// The other end of a webhook.
#[derive(Debug)]
pub(crate) struct Client {
    config: Value,
    tls: OnceLock<Result<Arc<ClientConfig>, String>>,
    idle: Mutex<Vec<Sender>>,
}

/// Where a webhook says it is.
#[derive(Debug, PartialEq, Eq)]
struct Place {
    /// The Service behind which it is; others are reached by their name.
    service: Option<(String, String)>,
    port: u16,
    /// The name that the certificate must have.
    name: String,
    /// Name and port as errors and the Host header show them.
    authority: String,
    path: String,
}

impl Client {
    pub(crate) fn new(config: &Value) -> Client {
        Client {
            config: config.clone(),
            tls: OnceLock::new(),
            idle: Mutex::default(),
        }
    }

    pub(crate) fn is_for(&self, config: &Value) -> bool {
        self.config == *config
    }

    fn take(&self) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        idle.retain(|sender| !sender.is_closed());
        idle.pop()
    }

    fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < MOST_IDLE && !sender.is_closed() {
            idle.push(sender);
        }
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        let made = self.tls.get_or_init(|| {
            let bundle = text(&self.config["caBundle"]);
            let pem = match bundle {
                "" => None,
                bundle => Some(
                    base64::engine::general_purpose::STANDARD
                        .decode(bundle)
                        .map_err(|error| format!("unable to load root certificates: {error}"))?,
                ),
            };
            tls::client_trusting(pem.as_deref())
                .map(Arc::new)
                .map_err(|error| format!("unable to load root certificates: {error}"))
        });
        made.clone()
    }

    fn place(&self) -> Result<Place, String> {
        match text(&self.config["url"]) {
            "" => of_reference(&self.config["service"]),
            url => of_url(url),
        }
    }

    /// Asks a webhook within its time; errors are in upstream's words.
    pub(crate) async fn post(&self, api: &Api, ask: Ask) -> Result<Bytes, String> {
        let place = self.place()?;
        let path = &place.path;
        let joint = if path.contains('?') { '&' } else { '?' };
        let path = format!("{path}{joint}timeout={}s", ask.timeout.as_secs());
        let url = format!("https://{}{path}", place.authority);
        let fail = |why: String| format!("Post {url:?}: {why}");
        let exchange = exchange(api, self, &place, &path, &ask);
        match tokio::time::timeout(ask.timeout, exchange).await {
            Err(_) => Err(fail("context deadline exceeded".into())),
            Ok(Err(why)) => Err(fail(why)),
            Ok(Ok((StatusCode::OK, bytes))) => Ok(bytes),
            Ok(Ok((code, _))) => Err(format!("the server answered with code {}", code.as_u16())),
        }
    }
}

/// One question to a webhook.
#[derive(Debug)]
pub(crate) struct Ask {
    pub(crate) body: Bytes,
    pub(crate) timeout: Duration,
    /// The User-Agent.
    pub(crate) agent: &'static str,
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

// A connection that waited may have been closed meanwhile: then a new one is tried, once.
async fn exchange(
    api: &Api,
    client: &Client,
    place: &Place,
    path: &str,
    ask: &Ask,
) -> Result<(StatusCode, Bytes), String> {
    let request = || {
        Request::post(path)
            .header(header::HOST, &place.authority)
            .header(header::CONTENT_TYPE, "application/json")
            .header(header::ACCEPT, "application/json")
            .header(header::USER_AGENT, ask.agent)
            .body(Full::new(ask.body.clone()))
            .map_err(|error| error.to_string())
    };
    // Its last answer has been read, so that it is ready at once, or closed.
    if let Some(mut sender) = client.take()
        && sender.ready().await.is_ok()
        && let Ok(response) = sender.send_request(request()?).await
    {
        return finish(client, sender, response).await;
    }
    let mut sender = connect(api, client, place).await?;
    let response = sender.send_request(request()?).await;
    finish(client, sender, response.map_err(|error| words(&error))?).await
}

async fn finish(
    client: &Client,
    sender: Sender,
    response: http::Response<hyper::body::Incoming>,
) -> Result<(StatusCode, Bytes), String> {
    let code = response.status();
    let body = Limited::new(response.into_body(), LARGEST_ANSWER);
    let bytes = body.collect().await.map_err(|error| error.to_string())?;
    client.keep(sender);
    Ok((code, bytes.to_bytes()))
}

async fn connect(api: &Api, client: &Client, place: &Place) -> Result<Sender, String> {
    let (traffic, host) = match &place.service {
        None => (Traffic::ControlPlane, place.name.clone()),
        Some((namespace, name)) => {
            let service = find(api, namespace, name).await;
            let service = service.map_err(|error| error.message)?;
            let service = service.ok_or_else(|| format!("service {name:?} not found"))?;
            (Traffic::Cluster, of_service(&service, name, place.port)?)
        }
    };
    let there = (host.as_str(), place.port);
    let stream = api.outbound.egress.connect(traffic, there).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let name = ServerName::try_from(place.name.clone()).map_err(|error| error.to_string())?;
    let stream = TlsConnector::from(client.tls()?)
        .connect(name, stream)
        .await;
    let stream = stream.map_err(|error| tls_words(&error))?;
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|error| words(&error))?;
    // Ends with the connection, which ends when its sender is dropped or the other side hangs up.
    tokio::spawn(connection);
    Ok(sender)
}

fn words(error: &hyper::Error) -> String {
    match error.is_incomplete_message() || error.is_closed() || error.is_canceled() {
        true => "EOF".into(),
        false => error.to_string(),
    }
}

// Clients look for Go's sentences.
fn tls_words(error: &std::io::Error) -> String {
    let text = error.to_string();
    let why = match () {
        () if text.contains("UnknownIssuer") => "certificate signed by unknown authority",
        () if text.contains("Expired") => "certificate has expired or is not yet valid",
        () if text.contains("NotValidForName") => "certificate is not valid for the requested name",
        () => return format!("tls: {text}"),
    };
    format!("tls: failed to verify certificate: x509: {why}")
}

fn of_url(url: &str) -> Result<Place, String> {
    let uri: Uri = url.parse().map_err(|error| format!("{error}"))?;
    let host = uri.host().unwrap_or_default().trim_matches(['[', ']']);
    if uri.scheme_str() != Some("https") || host.is_empty() {
        return Err(format!("{url:?} is not an https URL"));
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    Ok(Place {
        service: None,
        port: uri.port_u16().unwrap_or(443),
        name: host.to_owned(),
        authority: authority.to_owned(),
        path: path.to_owned(),
    })
}

fn of_reference(reference: &Value) -> Result<Place, String> {
    let (namespace, name) = (text(&reference["namespace"]), text(&reference["name"]));
    let port = reference["port"].as_u64().unwrap_or(443);
    let port = u16::try_from(port).map_err(|error| error.to_string())?;
    let host = format!("{name}.{namespace}.svc");
    Ok(Place {
        service: Some((namespace.to_owned(), name.to_owned())),
        port,
        authority: join_host_port(&host, port),
        name: host,
        path: match text(&reference["path"]) {
            "" => "/".to_owned(),
            path => path.to_owned(),
        },
    })
}

async fn find(api: &Api, namespace: &str, name: &str) -> ApiResult<Option<Value>> {
    let services = kinds::resources::find("", "v1", "services").expect("in the table");
    let collection = api.collection(services)?;
    let key = collection.key(namespace, name);
    let found = api.fetch(&collection, &key).await?;
    Ok(found.map(|service| service.value()))
}

/// Where a Service is reached by a server without aggregator routing: at its own address.
pub(crate) fn of_service(service: &Value, name: &str, port: u16) -> Result<String, String> {
    let spec = &service["spec"];
    let ports = spec["ports"].as_array().into_iter().flatten();
    let has_port = { ports }.any(|p| p["port"].as_u64() == Some(port.into()));
    let host = match (text(&spec["type"]), text(&spec["clusterIP"])) {
        ("ExternalName", _) => text(&spec["externalName"]),
        ("ClusterIP" | "NodePort" | "LoadBalancer", ip @ ("None" | "")) => {
            return Err(format!("cannot route to service with ClusterIP {ip:?}"));
        }
        _ if !has_port => {
            return Err(format!("no service port {port} found for service {name:?}"));
        }
        ("ClusterIP" | "NodePort" | "LoadBalancer", ip) => ip,
        (other, _) => return Err(format!("unsupported service type {other:?}")),
    };
    Ok(host.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn services_are_reached_as_upstream_does() {
        let reference = json!({"namespace": "n", "name": "s", "port": 8443, "path": "/x"});
        let place = of_reference(&reference).expect("a reference");
        assert_eq!(
            (place.authority.as_str(), place.name.as_str()),
            ("s.n.svc:8443", "s.n.svc")
        );
        let found = |spec: Value| of_service(&json!({ "spec": spec }), "s", 8443);
        let spec = json!({"type": "ClusterIP", "clusterIP": "10.0.0.9", "ports": [{"port": 8443}]});
        assert_eq!(found(spec).as_deref(), Ok("10.0.0.9"));
        let cases = [
            (
                json!({"type": "ClusterIP", "clusterIP": "None", "ports": []}),
                "cannot route to service with ClusterIP \"None\"",
            ),
            (
                json!({"type": "ClusterIP", "clusterIP": "10.0.0.9", "ports": [{"port": 1}]}),
                "no service port 8443 found for service \"s\"",
            ),
            (
                json!({"type": "Odd", "clusterIP": "10.0.0.9", "ports": [{"port": 8443}]}),
                "unsupported service type \"Odd\"",
            ),
        ];
        for (spec, why) in cases {
            assert_eq!(found(spec).expect_err(why), why);
        }
        let url = of_url("https://[::1]:8443/a?b=c").expect("a URL");
        assert_eq!(
            (url.name.as_str(), url.port, url.path.as_str()),
            ("::1", 8443, "/a?b=c")
        );
        assert!(of_url("http://a/").is_err());
    }
}
