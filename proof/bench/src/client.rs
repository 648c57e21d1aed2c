//! A light HTTP/2 client: the load generator shares the machine with the server it drives.

mod http2;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

use anyhow::{Context as _, Result, bail, ensure};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncBufRead as _, AsyncWrite as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::access::Access;
use http2::{Asked, Connection, Part, Until};

const OK: u16 = 200;

/// One connection; clones share it.
#[derive(Clone)]
pub(crate) struct Client {
    shared: Arc<Shared>,
    authority: String,
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
        let connection = Arc::new(Mutex::new(Connection::new()));
        tokio::spawn(
            Driver {
                tls,
                connection: Arc::clone(&connection),
                out: Vec::new(),
                sent: 0,
            }
            .run(),
        );
        Ok(Client {
            shared: Arc::new(Shared(connection)),
            authority: access.address.to_string(),
        })
    }

    /// Sends a write and reads the whole answer, which must be a success.
    pub(crate) async fn write(&self, write: &Write) -> Result<Vec<u8>> {
        let asked = Asked {
            method: write.method,
            content_type: Some(write.content_type),
            body: &write.body,
            ..self.asked(&write.path)
        };
        self.whole(&asked).await
    }

    /// Reads a path to its end.
    pub(crate) async fn get(&self, path: &str) -> Result<Vec<u8>> {
        self.whole(&self.asked(path)).await
    }

    /// Reads a path to its end and keeps nothing; gives the number of bytes.
    pub(crate) async fn drain(&self, path: &str) -> Result<usize> {
        let asked = Asked {
            keeps: false,
            ..self.asked(path)
        };
        let part = self.open_stream(&asked)?.part(Until::End).await?;
        ensure!(part.status == OK, "{path}: status {}", part.status);
        Ok(part.count)
    }

    /// Opens a path whose answer does not end; returns when the server has accepted it.
    pub(crate) async fn open(&self, path: &str) -> Result<Stream> {
        let mut stream = self.open_stream(&self.asked(path))?;
        let part = stream.part(Until::Status).await?;
        ensure!(part.status == OK, "{path}: status {}", part.status);
        stream.first = part.bytes;
        Ok(stream)
    }

    fn asked<'a>(&'a self, path: &'a str) -> Asked<'a> {
        Asked {
            method: "GET",
            authority: &self.authority,
            path,
            content_type: None,
            body: &[],
            keeps: true,
        }
    }

    fn open_stream(&self, asked: &Asked<'_>) -> Result<Stream> {
        let id = self.shared.lock().ask(asked)?;
        Ok(Stream {
            shared: Arc::clone(&self.shared),
            id,
            first: Vec::new(),
        })
    }

    async fn whole(&self, asked: &Asked<'_>) -> Result<Vec<u8>> {
        let said = || format!("{} {}", asked.method, asked.path);
        let stream = self.open_stream(asked).with_context(said)?;
        let part = stream.part(Until::End).await.with_context(said)?;
        if !(200..300).contains(&part.status) {
            let answer = String::from_utf8_lossy(&part.bytes);
            bail!("{}: status {}: {answer}", said(), part.status);
        }
        Ok(part.bytes)
    }
}

/// An answer that comes in parts. Dropping it ends it.
pub(crate) struct Stream {
    shared: Arc<Shared>,
    id: u32,
    first: Vec<u8>,
}

impl Stream {
    /// What comes next; an answer that ends is an error.
    pub(crate) async fn next(&mut self) -> Result<Vec<u8>> {
        if !self.first.is_empty() {
            return Ok(std::mem::take(&mut self.first));
        }
        let part = self.part(Until::Some).await?;
        ensure!(!part.ended, "the answer has ended early");
        Ok(part.bytes)
    }

    async fn part(&self, until: Until) -> Result<Part> {
        poll_fn(|context| self.shared.lock().poll(self.id, until, context)).await
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.shared.lock().forget(self.id);
    }
}

/// What clients hold of a connection; it ends with the last of them.
struct Shared(Arc<Mutex<Connection>>);

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Connection> {
        lock(&self.0)
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.lock().leave();
    }
}

fn lock(connection: &Mutex<Connection>) -> MutexGuard<'_, Connection> {
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Moves a connection's bytes.
struct Driver {
    tls: TlsStream<TcpStream>,
    connection: Arc<Mutex<Connection>>,
    out: Vec<u8>,
    sent: usize,
}

impl Driver {
    async fn run(mut self) {
        let ended = poll_fn(|context| self.poll(context)).await;
        let why = ended.err().map_or("closed".into(), |why| why.to_string());
        lock(&self.connection).lose(&why);
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            if self.poll_write(context)?.is_ready() && lock(&self.connection).is_left() {
                return Poll::Ready(Ok(()));
            }
            // Where TLS has it: a copy of a long list is a good part of what the list takes.
            let mut tls = Pin::new(&mut self.tls);
            let come = ready!(tls.as_mut().poll_fill_buf(context))?;
            if come.is_empty() {
                return Poll::Ready(Ok(()));
            }
            lock(&self.connection).feed(come)?;
            let length = come.len();
            tls.consume(length);
        }
    }

    // Requests that are ready together leave as one write.
    fn poll_write(&mut self, context: &mut Context<'_>) -> Poll<Result<()>> {
        loop {
            if self.sent == self.out.len() {
                let mut connection = lock(&self.connection);
                connection.driver = Some(context.waker().clone());
                self.out.clear();
                self.sent = 0;
                std::mem::swap(&mut self.out, &mut connection.out);
            }
            if self.out.is_empty() {
                return Pin::new(&mut self.tls)
                    .poll_flush(context)
                    .map_err(Into::into);
            }
            let rest = &self.out[self.sent..];
            self.sent += ready!(Pin::new(&mut self.tls).poll_write(context, rest))?;
        }
    }
}
