//! The front door: TLS connections, and an end for each of them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::app::App;
use crate::connection::gather::{self, Gather, Owed};
use crate::connection::guests::{Guest, Guests};
use crate::connection::linger::Linger;
use crate::connection::one_task::{self, Requests};
use crate::connection::sending::Watched;
use crate::connection::tls::FrontDoor;
use crate::door::identity::Peer;
use crate::quiet::Quiet;
use crate::settings::Callers;

/// A peer that does not finish its handshake or its headers in this time is let go.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Nor does one stay that asks nothing in this time: clients connect because they have something to ask.
const FIRST_REQUEST: Duration = Duration::from_secs(30);
/// How long nobody is accepted after a failure: others must get the chance to close some files.
const BACK_OFF: Duration = Duration::from_millis(50);
/// Idle HTTP/2 peers are asked whether they are still there; silent ones are let go.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(20);
/// Upstream's `--http2-max-streams-per-connection`.
const MAX_STREAMS: u32 = 1_000;
/// What one stream may have in the send buffer: bounds the memory of slow readers.
const SEND_BUFFER: usize = 128 * 1024;
/// How long open requests may take to finish when the server stops.
const DRAIN: Duration = Duration::from_secs(5);

/// Serves until told to stop, then lets open requests finish.
pub(crate) async fn serve(
    app: Arc<App>,
    listeners: Vec<TcpListener>,
    door: Arc<FrontDoor>,
    callers: Callers,
    guests: Arc<Guests>,
    mut stop: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    let quiet = Quiet::default();
    loop {
        tokio::select! {
            accepted = accept(&listeners) => match accepted {
                Ok((_, address)) if !callers.may_knock(address.ip()) => {
                    tracing::debug!(%address, "a connection from an address that is not let in");
                }
                Ok((stream, address)) => match guests.admit(address.ip()) {
                    Some(guest) => {
                        let (app, tls, stop) = (Arc::clone(&app), door.acceptor(), stop.clone());
                        let arrived = Arrived { stream, address, guest };
                        connections.spawn(connection(app, arrived, tls, stop));
                    }
                    None => if let Some(held_back) = quiet.may_speak() {
                        tracing::warn!(%address, held_back, "no room for a connection: all are taken");
                    }
                },
                Err(error) => {
                    // Out of files, most likely.
                    guests.make_room();
                    if let Some(held_back) = quiet.may_speak() {
                        tracing::warn!(%error, held_back, "cannot accept a connection");
                    }
                    tokio::time::sleep(BACK_OFF).await;
                }
            },
            Some(_) = connections.join_next() => {}
            () = stopped(&mut stop) => break,
        }
    }
    let drained = tokio::time::timeout(DRAIN, async {
        while connections.join_next().await.is_some() {}
    });
    if drained.await.is_err() {
        tracing::info!(
            left = connections.len(),
            "closing connections that did not finish in time"
        );
    }
}

// The next connection of any listener.
async fn accept(listeners: &[TcpListener]) -> std::io::Result<(TcpStream, SocketAddr)> {
    std::future::poll_fn(|context| {
        let mut polled = listeners.iter().map(|one| one.poll_accept(context));
        polled
            .find(std::task::Poll::is_ready)
            .unwrap_or(std::task::Poll::Pending)
    })
    .await
}

// The guard that `wait_for` gives back may not live across an await.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await.is_ok();
}

/// A connection that was let in.
struct Arrived {
    stream: TcpStream,
    address: SocketAddr,
    guest: Guest,
}

async fn connection(
    app: Arc<App>,
    arrived: Arrived,
    tls: TlsAcceptor,
    mut stop: watch::Receiver<bool>,
) {
    let Arrived {
        stream,
        address,
        guest,
    } = arrived;
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "a connection keeps Nagle's delay");
    }
    let Some(mut stream) = shake_hands(stream, &tls, &guest).await else {
        return;
    };
    // All that was gathered becomes one write.
    stream.get_mut().1.set_buffer_limit(Some(gather::MOST));
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let chain = stream.get_ref().1.peer_certificates().unwrap_or_default();
    let peer = Arc::new(Peer::new(address, chain.to_vec(), guest));
    let asking = Arc::clone(&peer);
    let service = service_fn(move |request| {
        asking.guest.asks();
        Arc::clone(&app).handle(request, Arc::clone(&asking))
    });
    let requests = Requests::default();
    let owed = Owed::default();
    let stream = TokioIo::new(Gather::new(
        Linger::new(stream),
        is_http2.then(|| owed.clone()),
    ));
    let builder = protocols(&requests);
    let until_over = async move {
        let mut connection =
            std::pin::pin!(builder.serve_connection_with_upgrades(stream, service));
        tokio::select! {
            outcome = connection.as_mut() => outcome,
            () = unwelcome(&peer.guest) => Ok(()),
            () = stopped(&mut stop) => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    };
    let outcome = one_task::serve(Watched::new(until_over), requests, owed).await;
    if let Some(Err(error)) = outcome {
        tracing::debug!(%error, "a connection ended early");
    }
}

async fn shake_hands(
    stream: TcpStream,
    tls: &TlsAcceptor,
    guest: &Guest,
) -> Option<TlsStream<TcpStream>> {
    let shaken = tokio::select! {
        shaken = tokio::time::timeout(HANDSHAKE_TIMEOUT, tls.accept(stream)) => shaken,
        () = guest.must_leave() => return None,
    };
    match shaken {
        Ok(Ok(stream)) => return Some(stream),
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("TLS handshake took too long"),
    }
    None
}

// Completes when a connection asks nothing, or when its place is needed.
async fn unwelcome(guest: &Guest) {
    let silent = async {
        if tokio::time::timeout(FIRST_REQUEST, guest.has_asked())
            .await
            .is_ok()
        {
            std::future::pending::<()>().await;
        }
    };
    tokio::select! {
        () = silent => tracing::debug!("a connection that asked nothing is closed"),
        () = guest.must_leave() => tracing::debug!("a stranger makes room"),
    }
}

fn protocols(requests: &Requests) -> Builder<Requests> {
    let mut builder = Builder::new(requests.clone());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(256 * 1024);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_send_buf_size(SEND_BUFFER)
        .max_header_list_size(256 * 1024)
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_TIMEOUT);
    builder
}
