//! The port agents connect to.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use wire::tls::{Reloading, too_slow};

use super::backend::Backend;
use super::registry::SHUTTING_DOWN;
use super::{AgentsFrom, GREETING_TIMEOUT, Shared, refused, standstill};
use crate::http2::{self, Connection, Fields, Stream, Tuning, only};
use crate::lanes::FIRST_WINDOW;
use crate::link::{self, lock};
use crate::listen::{Phases, accept_loop};
use crate::metrics::Method;
use crate::strategies::Identifiers;
use crate::wire_names::{AGENT_ID, AGENT_IDENTIFIERS, CONNECT, SERVER_COUNT, SERVER_ID, WINDOW};

/// Everything on an agent's stream is taken at once, so its window only has to be large enough.
const TUNING: Tuning = Tuning {
    stream_window: 4 << 20,
    max_streams: 16,
};

/// Where agents come in.
pub(super) struct Port {
    pub(super) listener: TcpListener,
    pub(super) from: AgentsFrom,
    pub(super) tls: Arc<Reloading>,
}

impl Port {
    pub(super) async fn accept(self, shared: Arc<Shared>, phases: Phases) {
        accept_loop(self.listener, phases, |socket| {
            let may_knock = socket
                .peer_addr()
                .is_ok_and(|peer| (self.from.0)(peer.ip()));
            let tls = may_knock.then(|| self.tls.current());
            let shared = Arc::clone(&shared);
            async move {
                if let Some(tls) = tls {
                    serve(socket, tls, shared).await;
                }
            }
        })
        .await;
    }
}

async fn serve(socket: TcpStream, tls: Arc<ServerConfig>, shared: Arc<Shared>) {
    let handshake = TlsAcceptor::from(tls).accept(socket);
    let socket = match tokio::time::timeout(GREETING_TIMEOUT, handshake).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => return refused("agent", &error),
        Err(_) => return refused("agent", &too_slow()),
    };
    let connection = Connection::server(socket, TUNING).keepalive(shared.keepalive);
    // Set by a call of this connection, which is polled by the same poll.
    let cut = AtomicBool::new(false);
    let serving = http2::serve(connection, |stream| {
        agent(stream, Arc::clone(&shared), &cut)
    });
    let mut serving = std::pin::pin!(serving);
    std::future::poll_fn(|cx| {
        let served = serving.as_mut().poll(cx);
        if cut.load(Ordering::Relaxed) {
            return Poll::Ready(());
        }
        served
    })
    .await;
}

async fn agent(stream: Stream, shared: Arc<Shared>, cut: &AtomicBool) {
    let request = stream.take_request();
    if only(&request, ":path") != Some(CONNECT) {
        return stream.unimplemented();
    }
    let _counted = shared.counted(Method::Connect);
    let backend = match admit(&stream, &request, &shared).await {
        Ok(backend) => backend,
        Err(text) => {
            tracing::info!(error = text, "an agent was refused");
            return stream.finish(Err(&text));
        }
    };
    let registered = shared.registry.register(&backend, stream.leaver());
    let agent = &backend.agent_id;
    tracing::info!(agent, "agent connected");
    let receive = |packet| backend.receive(packet);
    let running = link::run(&stream, &backend.lanes, &shared.metrics.agents, receive);
    let ours = lock(&backend.lanes).extended();
    let ended = match ours {
        true => running.await,
        false => tokio::select! {
            biased;
            ended = running => ended,
            () = standstill::watch(&stream, &registered.suspect) => {
                tracing::warn!(agent, "cut: it takes nothing any more, as one of its destinations does not read");
                return cut.store(true, Ordering::Relaxed);
            }
        },
    };
    drop(registered);
    let reason = ended.err().map(|error| error.text);
    tracing::info!(agent, reason, "agent disconnected");
    stream.finish(reason.as_deref().map_or(Ok(()), Err));
}

// The answer's header goes out as soon as it is clear who asks: agents wait for it.
async fn admit(stream: &Stream, request: &Fields, shared: &Shared) -> Result<Arc<Backend>, String> {
    let values = |name| request.iter().filter(move |(n, _)| n == name).count();
    let agent_id = only(request, AGENT_ID).ok_or_else(|| {
        let ids = values(AGENT_ID);
        format!("expected one agent ID in the context, got {ids}")
    })?;
    if shared.closing.load(Ordering::Relaxed) {
        return Err(SHUTTING_DOWN.to_owned());
    }
    if values(AGENT_IDENTIFIERS) > 1 {
        return Err("expected at most one set of agent identifiers in the context".to_owned());
    }
    let identifiers = Identifiers::parse(only(request, AGENT_IDENTIFIERS).unwrap_or_default());
    if let Some(tokens) = &shared.tokens {
        tokens.check(request, &identifiers).await?;
    }
    let peer_window = only(request, WINDOW).and_then(|text| text.parse().ok());
    let own_window = FIRST_WINDOW.to_string();
    let count = shared.server_count.to_string();
    let metadata = [
        (SERVER_ID, shared.server_id.as_str()),
        (SERVER_COUNT, count.as_str()),
        (WINDOW, own_window.as_str()),
    ];
    // Upstream's agents would carry our header about for nothing.
    let sent = if peer_window.is_some() { 3 } else { 2 };
    stream.accept(&metadata[..sent]);
    let metrics = Arc::clone(&shared.metrics);
    Ok(Backend::new(
        agent_id.to_owned(),
        identifiers,
        peer_window,
        metrics,
    ))
}
