//! Ports, and the loop that takes connections from them.

use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Where to listen: a host and a port. An empty host is every interface, as in Go.
#[derive(Debug, Clone)]
pub struct Listen {
    /// Host name or address.
    pub host: String,
    /// Port; 0 takes any free one.
    pub port: u16,
}

impl std::fmt::Display for Listen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.host, self.port)
    }
}

impl Listen {
    pub(crate) async fn bind(&self) -> io::Result<TcpListener> {
        if !self.host.is_empty() {
            return TcpListener::bind((self.host.as_str(), self.port)).await;
        }
        // A socket of IPv6 takes both; hosts without IPv6 have only the other.
        match TcpListener::bind((Ipv6Addr::UNSPECIFIED, self.port)).await {
            Ok(listener) => Ok(listener),
            Err(_) => TcpListener::bind((Ipv4Addr::UNSPECIFIED, self.port)).await,
        }
    }
}

/// Something connections come from.
pub(crate) trait Accept: Send {
    type Socket: Send;
    fn accept(&self) -> impl Future<Output = io::Result<Self::Socket>> + Send;
}

impl Accept for TcpListener {
    type Socket = TcpStream;

    async fn accept(&self) -> io::Result<TcpStream> {
        let (socket, _): (TcpStream, SocketAddr) = TcpListener::accept(self).await?;
        socket.set_nodelay(true)?;
        Ok(socket)
    }
}

impl Accept for UnixListener {
    type Socket = UnixStream;

    async fn accept(&self) -> io::Result<UnixStream> {
        Ok(UnixListener::accept(self).await?.0)
    }
}

/// When the loop stops taking connections, and when those it has are ended.
#[derive(Clone)]
pub(crate) struct Phases {
    pub(crate) closing: watch::Receiver<bool>,
    pub(crate) ended: watch::Receiver<bool>,
}

/// Completes when the flag is set, or nobody can set it any more.
pub(crate) async fn raised(flag: &mut watch::Receiver<bool>) {
    // An error is the sender's end, which means the same.
    let _ = flag.wait_for(|set| *set).await;
}

/// Takes connections until `closing`; ends what is left of them at `ended`.
pub(crate) async fn accept_loop<L, F, C>(listener: L, mut phases: Phases, mut handle: F)
where
    L: Accept,
    F: FnMut(L::Socket) -> C,
    C: Future<Output = ()> + Send + 'static,
{
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok(socket) => { tasks.spawn(handle(socket)); }
                Err(error) => refused(&error).await,
            },
            Some(_) = tasks.join_next(), if !tasks.is_empty() => {}
            () = raised(&mut phases.closing) => break,
        }
    }
    drop(listener);
    tokio::select! {
        () = raised(&mut phases.ended) => tasks.abort_all(),
        () = finished(&mut tasks) => {}
    }
    finished(&mut tasks).await;
}

async fn finished(tasks: &mut JoinSet<()>) {
    while tasks.join_next().await.is_some() {}
}

// Out of descriptors, most likely: trying again at once would only burn the processor.
async fn refused(error: &io::Error) {
    tracing::warn!(%error, "a connection could not be taken");
    tokio::time::sleep(Duration::from_millis(100)).await;
}
