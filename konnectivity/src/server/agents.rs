//! The port agents connect to.

use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use super::backend::Backend;
use super::{GREETING_TIMEOUT, Shared, refused};
use crate::http2::{self, Connection, Fields, Stream, Tuning, only};
use crate::lanes::FIRST_WINDOW;
use crate::link;
use crate::listen::{Phases, accept_loop};
use crate::metrics::Method;
use crate::strategies::Identifiers;
use crate::tls::Reloading;
use crate::wire_names::{AGENT_ID, AGENT_IDENTIFIERS, CONNECT, SERVER_COUNT, SERVER_ID, WINDOW};

/// Everything on an agent's stream is taken at once, so its window only has to be large enough.
const TUNING: Tuning = Tuning {
    stream_window: 4 << 20,
    max_streams: 16,
};

pub(super) async fn accept(
    listener: TcpListener,
    tls: Arc<Reloading>,
    shared: Arc<Shared>,
    phases: Phases,
) {
    accept_loop(listener, phases, |socket| {
        let acceptor = TlsAcceptor::from(tls.current());
        serve(socket, acceptor, Arc::clone(&shared))
    })
    .await;
}

async fn serve(socket: TcpStream, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let handshake = acceptor.accept(socket);
    let mut socket = match tokio::time::timeout(GREETING_TIMEOUT, handshake).await {
        Ok(Ok(socket)) => socket,
        Ok(Err(error)) => return refused("agent", &error),
        Err(_) => return refused("agent", &crate::tls::too_slow()),
    };
    socket.get_mut().1.set_buffer_limit(crate::tls::OUT_BUFFER);
    let connection = Connection::server(socket, TUNING).keepalive(shared.keepalive);
    http2::serve(connection, |stream| agent(stream, Arc::clone(&shared))).await;
}

async fn agent(stream: Stream, shared: Arc<Shared>) {
    let request = stream.take_request();
    if only(&request, ":path") != Some(CONNECT) {
        return stream.unimplemented();
    }
    let _counted = shared.counted(Method::Connect);
    match connect(&stream, &request, &shared).await {
        Ok(()) => stream.finish(Ok(())),
        Err(text) => {
            tracing::info!(error = text, "an agent was refused");
            stream.finish(Err(&text));
        }
    }
}

async fn connect(stream: &Stream, request: &Fields, shared: &Shared) -> Result<(), String> {
    let agent_id = only(request, AGENT_ID).ok_or_else(|| wrong_id(request))?;
    if request
        .iter()
        .filter(|(name, _)| name == AGENT_IDENTIFIERS)
        .count()
        > 1
    {
        return Err("expected at most one set of agent identifiers in the context".to_owned());
    }
    let identifiers = Identifiers::parse(only(request, AGENT_IDENTIFIERS).unwrap_or_default());
    if let Some(tokens) = &shared.tokens {
        tokens.check(request).await?;
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
    let backend = Backend::new(agent_id.to_owned(), identifiers, peer_window, metrics);
    let _registered = shared.registry.register(&backend);
    tracing::info!(agent = agent_id, "agent connected");
    let ended = link::run(stream, &backend.lanes, &shared.metrics.agents, |packet| {
        backend.receive(packet)
    })
    .await;
    let reason = ended.as_ref().err().map(ToString::to_string);
    tracing::info!(agent = agent_id, reason, "agent disconnected");
    ended.map_err(|error| error.text)
}

fn wrong_id(request: &Fields) -> String {
    let ids = request.iter().filter(|(name, _)| name == AGENT_ID).count();
    format!("expected one agent ID in the context, got {ids}")
}
