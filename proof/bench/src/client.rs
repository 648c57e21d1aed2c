//! The load's HTTP/2 client: hyper's, with the windows of Go's, which is what API servers mostly talk to.
//!
//! The load generator shares the machine with the server it drives, so ratios are those of server and client together
//! wherever the client is what is waited for.

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::access::Access;

/// Go's, in bytes.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

/// One connection; clones share it.
#[derive(Clone)]
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    origin: String,
    /// What is said of who asks, besides their certificate.
    bearer: Option<String>,
}

/// A request that is not a read.
pub(crate) struct Write {
    pub(crate) method: &'static str,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Vec<u8>,
}

/// JSON, for creates and updates.
pub(crate) const JSON: &str = "application/json";
/// What kubelets send for statuses.
pub(crate) const STRATEGIC_MERGE: &str = "application/strategic-merge-patch+json";

impl Client {
    pub(crate) async fn connect(access: &Access) -> Result<Client> {
        let tcp = TcpStream::connect(access.address).await?;
        tcp.set_nodelay(true)?;
        let name = ServerName::from(access.address.ip());
        let tls = TlsConnector::from(access.tls.clone())
            .connect(name, tcp)
            .await?;
        let (sender, connection) = Builder::new(TokioExecutor::new())
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(TokioIo::new(tls))
            .await?;
        // It ends with the last clone; what is asked of one that has ended says why.
        tokio::spawn(connection);
        Ok(Client {
            sender,
            origin: format!("https://{}", access.address),
            bearer: None,
        })
    }

    /// The same connection, for who has this token.
    pub(crate) fn with_bearer(mut self, token: &str) -> Client {
        self.bearer = Some(format!("Bearer {token}"));
        self
    }

    /// Sends a write and reads the whole answer, which must be a success.
    pub(crate) async fn write(&self, write: &Write) -> Result<Bytes> {
        let request = self
            .request(&write.path)
            .method(write.method)
            .header(CONTENT_TYPE, write.content_type)
            .body(Full::from(write.body.clone()))?;
        let said = || format!("{} {}", write.method, write.path);
        self.whole(request).await.with_context(said)
    }

    /// Reads a path to its end.
    pub(crate) async fn get(&self, path: &str) -> Result<Bytes> {
        let request = self.request(path).body(Full::default())?;
        let said = || format!("GET {path}");
        self.whole(request).await.with_context(said)
    }

    /// Reads a path to its end and keeps nothing; gives the number of bytes.
    pub(crate) async fn drain(&self, path: &str) -> Result<usize> {
        let mut body = self.opened(path).await?;
        let mut count = 0;
        while let Some(frame) = body.frame().await {
            count += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(count)
    }

    /// Opens a path whose answer does not end; returns when the server has accepted it.
    pub(crate) async fn open(&self, path: &str) -> Result<Stream> {
        Ok(Stream(self.opened(path).await?))
    }

    async fn opened(&self, path: &str) -> Result<Incoming> {
        let request = self.request(path).body(Full::default())?;
        let answer = self
            .answer(request)
            .await
            .with_context(|| path.to_owned())?;
        ensure!(
            answer.status() == StatusCode::OK,
            "{path}: status {}",
            answer.status()
        );
        Ok(answer.into_body())
    }

    fn request(&self, path: &str) -> hyper::http::request::Builder {
        let request = Request::builder()
            .uri(format!("{}{path}", self.origin))
            .header(ACCEPT, JSON)
            .header(USER_AGENT, "kyanite-bench");
        match &self.bearer {
            Some(bearer) => request.header(AUTHORIZATION, bearer),
            None => request,
        }
    }

    async fn answer(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        let mut sender = self.sender.clone();
        sender.ready().await?;
        Ok(sender.send_request(request).await?)
    }

    async fn whole(&self, request: Request<Full<Bytes>>) -> Result<Bytes> {
        let (head, body) = self.answer(request).await?.into_parts();
        let answer = body.collect().await?.to_bytes();
        if !head.status.is_success() {
            let answer = String::from_utf8_lossy(&answer);
            bail!("status {}: {answer}", head.status);
        }
        Ok(answer)
    }
}

/// An answer that comes in parts. Dropping it ends it.
pub(crate) struct Stream(Incoming);

impl Stream {
    /// What comes next; an answer that ends is an error.
    pub(crate) async fn next(&mut self) -> Result<Bytes> {
        loop {
            let frame = self.0.frame().await.context("the answer has ended early")?;
            if let Ok(data) = frame?.into_data()
                && !data.is_empty()
            {
                return Ok(data);
            }
        }
    }
}
