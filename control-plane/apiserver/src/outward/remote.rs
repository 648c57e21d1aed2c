//! A server that a kubeconfig names: what takes audit records, what decides who may do what. Connections are used again.

mod kubeconfig;

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, USER_AGENT};
use http::{Request, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio_rustls::TlsConnector;

use crate::connection::tls;
use crate::outward::egress::{Connection, Egress, Traffic};
use kubeconfig::Target;

/// Answers are small.
const LARGEST_ANSWER: usize = 1 << 20;
/// How many connections wait for the next question; more are closed instead.
const MOST_IDLE: usize = 16;

type Sender = SendRequest<Full<Bytes>>;

/// The server.
#[derive(Debug)]
pub(crate) struct Remote {
    target: Target,
    uri: Uri,
    tls: Option<Arc<ClientConfig>>,
    egress: Arc<Egress>,
    idle: Mutex<Vec<Sender>>,
}

/// Why a try failed, and whether another one may go better.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) why: String,
    pub(crate) passes: bool,
}

impl Failure {
    fn again(why: impl ToString) -> Failure {
        Failure {
            why: why.to_string(),
            passes: true,
        }
    }
}

impl Remote {
    /// The server that the current context of a kubeconfig names; says what is wrong with the file.
    pub(crate) fn open(file: &Path, egress: Arc<Egress>) -> Result<Remote, String> {
        let target = kubeconfig::read(file)?;
        let uri: Uri = target
            .server
            .parse()
            .map_err(|error| format!("{:?}: {error}", target.server))?;
        if uri.host().is_none() {
            return Err(format!("{:?} names no host", target.server));
        }
        let tls = match uri.scheme_str() {
            Some("https") => {
                let identity = target.identity.as_ref();
                let identity = identity.map(|(c, k)| (c.as_slice(), k.as_slice()));
                let trust = match target.unchecked {
                    true => None,
                    false => Some(target.authority.as_deref()),
                };
                Some(Arc::new(tls::client_of_pem(trust, identity)?))
            }
            _ => None,
        };
        Ok(Remote {
            target,
            uri,
            tls,
            egress,
            idle: Mutex::default(),
        })
    }

    /// Posts JSON and gives what is answered to it. A connection that waited may have been closed meanwhile: then a new
    /// one is tried, once.
    pub(crate) async fn post(&self, body: &Bytes) -> Result<Bytes, Failure> {
        if let Some(mut sender) = self.take()
            && sender.ready().await.is_ok()
            && let Ok(response) = sender.send_request(self.request(body)?).await
        {
            return self.finish(sender, response).await;
        }
        let stream = self.connect().await.map_err(Failure::again)?;
        let handshake = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = handshake.map_err(Failure::again)?;
        // Ends with its sender, or when the other side hangs up.
        tokio::spawn(connection);
        let response = sender.send_request(self.request(body)?).await;
        self.finish(sender, response.map_err(Failure::again)?).await
    }

    fn request(&self, body: &Bytes) -> Result<Request<Full<Bytes>>, Failure> {
        let path = self.uri.path_and_query().map_or("/", |path| path.as_str());
        let authority = self.uri.authority();
        let authority = authority.map_or("", |authority| authority.as_str());
        let mut request = Request::post(path)
            .header(HOST, authority)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .header(USER_AGENT, "kube-apiserver");
        if let Some(authorization) = &self.target.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        let request = request.body(Full::new(body.clone()));
        request.map_err(|error| Failure {
            why: error.to_string(),
            passes: false,
        })
    }

    async fn finish(
        &self,
        sender: Sender,
        response: http::Response<hyper::body::Incoming>,
    ) -> Result<Bytes, Failure> {
        let code = response.status();
        let body = Limited::new(response.into_body(), LARGEST_ANSWER);
        let body = body.collect().await.map_err(Failure::again)?.to_bytes();
        self.keep(sender);
        match code.is_success() {
            true => Ok(body),
            false => Err(Failure {
                why: format!("the server answered with code {}", code.as_u16()),
                passes: code.is_server_error() || code.as_u16() == 429,
            }),
        }
    }

    async fn connect(&self) -> Result<Box<dyn Connection>, String> {
        let host = self.uri.host().unwrap_or_default().trim_matches(['[', ']']);
        let usual = if self.tls.is_some() { 443 } else { 80 };
        let there = (host, self.uri.port_u16().unwrap_or(usual));
        let stream = self.egress.connect(Traffic::ControlPlane, there).await;
        let stream = stream.map_err(|error| error.to_string())?;
        let Some(config) = &self.tls else {
            return Ok(stream);
        };
        let name = ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, stream);
        let stream = stream.await.map_err(|error| format!("tls: {error}"))?;
        Ok(Box::new(stream))
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
}
