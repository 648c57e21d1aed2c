//! A small registry of container images: the OCI distribution specification 1.1 (push, pull, tags, deletion,
//! referrers) over a directory.
//!
//! [`route`] says what a request is about, `shelf` keeps blobs, manifests and tags as files, `answers` puts them
//! together, [`refusal`] is what clients are told when something is wrong.

mod answers;
pub mod refusal;
pub mod route;
mod shelf;

use std::path::PathBuf;
use std::sync::Arc;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;

pub use shelf::ShelfError;

/// Connections at once; more wait at the door.
const CONNECTIONS: usize = 512;

/// What a registry is to be.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Where everything is kept.
    pub directory: PathBuf,
    /// What clients must know, as the password of any user or as a bearer token; nothing lets everybody in.
    pub token: Option<String>,
}

/// A registry over its directory.
#[derive(Debug, Clone)]
pub struct Registry(Arc<answers::Desk>);

impl Registry {
    /// Opens the directory, and takes away what no repository has any more and uploads that never ended.
    pub fn open(settings: Settings) -> Result<Registry, ShelfError> {
        let shelf = shelf::Shelf::open(&settings.directory)?;
        let desk = answers::Desk::new(shelf, settings.token);
        Ok(Registry(Arc::new(desk)))
    }

    /// Serves until `stop` is done; then connections are cut, and clients ask again.
    pub async fn serve(&self, listener: TcpListener, stop: impl Future<Output = ()>) {
        let room = Arc::new(Semaphore::new(CONNECTIONS));
        let mut connections = JoinSet::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                accepted = accept(&listener, &room) => {
                    if let Some((stream, place)) = accepted {
                        let desk = Arc::clone(&self.0);
                        connections.spawn(connection(stream, desk, place));
                    }
                }
                Some(_) = connections.join_next() => {}
            }
        }
        connections.shutdown().await;
    }
}

async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> Option<(tokio::net::TcpStream, OwnedSemaphorePermit)> {
    let place = Arc::clone(room).acquire_owned().await.ok()?;
    let (stream, _) = listener.accept().await.ok()?;
    Some((stream, place))
}

async fn connection(
    stream: tokio::net::TcpStream,
    desk: Arc<answers::Desk>,
    _place: OwnedSemaphorePermit,
) {
    let service = service_fn(|request| {
        let desk = Arc::clone(&desk);
        async move { Ok::<_, std::convert::Infallible>(desk.answer(request).await) }
    });
    let server = auto::Builder::new(TokioExecutor::new());
    if let Err(error) = server.serve_connection(TokioIo::new(stream), service).await {
        tracing::debug!(%error, "a connection ended");
    }
}
