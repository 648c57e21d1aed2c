//! A light HTTP/2 client: the load generator shares the machine with the server it drives.

use anyhow::{Context as _, Result, bail, ensure};
use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::{Builder, SendRequest};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use tokio::io::BufWriter;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::access::Access;

// The windows of Go's HTTP/2 client, which is what API servers mostly talk to.
const STREAM_WINDOW: u32 = 4 << 20;
const CONNECTION_WINDOW: u32 = 1 << 30;

// Requests that are ready together leave as one write: what the generator takes, the server lacks.
const WRITE_BUFFER: usize = 16 * 1024;

/// One connection; clones share it.
#[derive(Clone)]
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    authority: String,
}

/// A request that is not a read.
pub(crate) struct Write {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) content_type: &'static str,
    pub(crate) body: Bytes,
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
            .handshake(TokioIo::new(BufWriter::with_capacity(WRITE_BUFFER, tls)))
            .await?;
        // Its failures reach whoever waits for a response.
        tokio::spawn(connection);
        Ok(Client {
            sender,
            authority: access.address.to_string(),
        })
    }

    /// Sends a write and reads the whole answer, which must be a success.
    pub(crate) async fn write(&self, write: &Write) -> Result<Bytes> {
        let request = self
            .request(&write.method, &write.path)
            .header(header::CONTENT_TYPE, write.content_type)
            .body(Full::new(write.body.clone()))?;
        self.whole(request).await
    }

    /// Reads a path to its end.
    pub(crate) async fn get(&self, path: &str) -> Result<Bytes> {
        let request = self.request(&Method::GET, path).body(Full::default())?;
        self.whole(request).await
    }

    /// Reads a path to its end and keeps nothing; gives the number of bytes.
    pub(crate) async fn drain(&self, path: &str) -> Result<usize> {
        let mut body = self.open(path).await?;
        let mut bytes = 0;
        while let Some(frame) = body.frame().await {
            bytes += frame?.data_ref().map_or(0, Bytes::len);
        }
        Ok(bytes)
    }

    /// Opens a path whose answer is long or does not end; returns when the server has accepted it.
    pub(crate) async fn open(&self, path: &str) -> Result<Incoming> {
        let request = self.request(&Method::GET, path).body(Full::default())?;
        let response = self.send(request).await?;
        ensure!(response.status() == StatusCode::OK, "{}", response.status());
        Ok(response.into_body())
    }

    fn request(&self, method: &Method, path: &str) -> http::request::Builder {
        Request::builder()
            .method(method)
            .uri(format!("https://{}{path}", self.authority))
            .header(header::ACCEPT, JSON)
            .header(header::USER_AGENT, "kyanite-bench")
    }

    async fn send(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>> {
        let mut sender = self.sender.clone();
        sender.ready().await.context("the connection has ended")?;
        Ok(sender.send_request(request).await?)
    }

    async fn whole(&self, request: Request<Full<Bytes>>) -> Result<Bytes> {
        let said = format!("{} {}", request.method(), request.uri().path());
        let response = self.send(request).await.with_context(|| said.clone())?;
        let status = response.status();
        let body = response.into_body().collect().await?.to_bytes();
        if !status.is_success() {
            bail!("{said}: {status}: {}", String::from_utf8_lossy(&body));
        }
        Ok(body)
    }
}
