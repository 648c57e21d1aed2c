//! Keeps a stream to each server: connects, counts, waits, and again.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use rustls_pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::leases::{self, Count};
use super::servers::{Connected, Servers};
use super::session::{Effect, Session};
use super::{AgentConfig, endpoint, way};
use crate::http2::{self, Connection, Fields, Opener, Stream, Tuning, only};
use crate::lanes::FIRST_WINDOW;
use crate::link::{self, lock};
use crate::listen::raised;
use crate::metrics::Direction;
use crate::packet::Packet;
use crate::wire_names::{
    AGENT_ID, AGENT_IDENTIFIERS, AUTHORIZATION, CONNECT, SERVER_COUNT, SERVER_ID, WINDOW,
};

/// Everything on the stream is taken at once, so its window only has to be large enough.
const TUNING: Tuning = Tuning {
    stream_window: 4 << 20,
    max_streams: 0,
};
/// How long a server may take from the first packet to its answer.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
/// How much longer each wait after a failure is; upstream's figure.
const BACK_OFF: f64 = 1.5;
const JITTER: f64 = 0.1;

/// What every attempt needs.
#[derive(Clone)]
pub(super) struct Context {
    pub(super) config: Arc<AgentConfig>,
    pub(super) servers: Arc<Servers>,
    pub(super) draining: watch::Receiver<bool>,
}

/// Runs until `ended`.
pub(super) async fn run(context: Context, mut ended: watch::Receiver<bool>) {
    let count = Arc::new(Count::default());
    let mut tasks = JoinSet::new();
    if let Some(settings) = context.config.leases.clone() {
        let metrics = Arc::clone(&context.servers.metrics);
        tasks.spawn(leases::count(settings, Arc::clone(&count), metrics));
    }
    let interval = context.config.sync_interval;
    let mut back_off = interval;
    loop {
        let attempt = tokio::select! {
            attempt = context.connect_once(&count, &mut tasks) => attempt,
            () = raised(&mut ended) => break,
        };
        let wait = match attempt {
            Ok(()) => {
                back_off = interval;
                interval
            }
            Err(error) => {
                tracing::warn!(error, "no connection to the server");
                context.servers.metrics.server_failed(Direction::ToServer);
                let wait = back_off;
                back_off = back_off
                    .mul_f64(BACK_OFF)
                    .min(context.config.sync_interval_cap);
                wait
            }
        };
        let wait = wait.mul_f64(1.0 + JITTER * rand::random::<f64>());
        while tasks.try_join_next().is_some() {}
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = raised(&mut ended) => break,
        }
    }
    tasks.shutdown().await;
}

impl Context {
    fn wanted(&self, count: &Count) -> usize {
        let source = self.config.leases.as_ref().map(|leases| leases.source);
        let by_leases = source.map(|source| (source, count.get(Timestamp::now())));
        let wanted = leases::wanted(by_leases, self.servers.told());
        self.servers.metrics.known_servers.set(i64::from(wanted));
        wanted as usize
    }

    async fn connect_once(&self, count: &Count, tasks: &mut JoinSet<()>) -> Result<(), String> {
        let enough = self.servers.count() >= self.wanted(count) && !self.config.sync_forever;
        if enough || *self.draining.borrow() {
            return Ok(());
        }
        let attempt = tokio::time::timeout(CONNECT_TIMEOUT, self.connect(tasks));
        match attempt.await {
            Ok(attempt) => attempt,
            Err(_) => Err("the server took too long to answer".to_owned()),
        }
    }

    async fn connect(&self, tasks: &mut JoinSet<()>) -> Result<(), String> {
        let socket = self.socket().await?;
        let (opener, connection) = Connection::client(socket, TUNING);
        let connection = connection.keepalive(self.config.keepalive);
        // Opening and running share a task with the connection, so it is driven here until the
        // server has answered.
        let mut connection = Box::pin(connection);
        let stream = self.call(&opener)?;
        let answer = tokio::select! {
            answer = stream.response() => answer.map_err(|error| error.text)?,
            () = &mut connection => return Err("the server closed the connection".to_owned()),
        };
        let server = ServerHello::read(&answer)?;
        let Some(place) = self.servers.add(&server.id, server.count) else {
            // Behind one address it is chance who answers: next time, perhaps, another one.
            return Ok(());
        };
        tracing::info!(server = server.id, "connected");
        let served = self.clone().serve(stream, opener, server, place);
        tasks.spawn(http2::drive(connection, served));
        Ok(())
    }

    async fn socket(&self) -> Result<TlsStream<TcpStream>, String> {
        let config = &self.config;
        let tls = config.tls.load().map_err(|error| error.to_string())?;
        let name = ServerName::try_from(config.server_host.clone())
            .map_err(|_| format!("`{}` is no host name", config.server_host))?;
        let socket = way::open(config, self.servers.turn()).await?;
        let handshake = TlsConnector::from(Arc::new(tls)).connect(name, socket);
        handshake.await.map_err(|error| self.unreachable(&error))
    }

    fn unreachable(&self, error: &std::io::Error) -> String {
        let (host, port) = (&self.config.server_host, self.config.server_port);
        format!("{host}:{port}: {error}")
    }

    fn call(&self, opener: &Opener) -> Result<Stream, String> {
        let config = &self.config;
        let token = match &config.token {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|e| format!("the token {} cannot be read: {e}", path.display()))?;
                Some(format!("Bearer {}", text.trim()))
            }
        };
        let window = FIRST_WINDOW.to_string();
        let mut metadata = vec![
            (AGENT_ID, config.agent_id.as_str()),
            (AGENT_IDENTIFIERS, config.identifiers.as_str()),
            (WINDOW, window.as_str()),
        ];
        metadata.extend(token.as_deref().map(|token| (AUTHORIZATION, token)));
        let authority = format!("{}:{}", config.server_host, config.server_port);
        opener
            .call(&authority, CONNECT, &metadata)
            .map_err(|error| error.text)
    }

    async fn serve(self, stream: Stream, _opener: Opener, server: ServerHello, place: Connected) {
        let mut place = Some(place);
        let session = Arc::new(Session::new(server.window));
        let mut draining = self.draining.clone();
        let mut endpoints = JoinSet::new();
        let metrics = Arc::clone(&self.servers.metrics);
        let running = link::run(&stream, &session.lanes, &metrics.server, |packet| {
            while endpoints.try_join_next().is_some() {}
            match session.receive(packet) {
                Effect::Nothing => None,
                Effect::Congested(id) => Some(id),
                Effect::Dial {
                    random,
                    id,
                    address,
                } => {
                    let (session, servers) = (Arc::clone(&session), Arc::clone(&self.servers));
                    let run = endpoint::run(Arc::clone(&session), servers, random, id, address);
                    session.dialling(random, endpoints.spawn(run));
                    None
                }
            }
        });
        let leaving = async {
            raised(&mut draining).await;
            lock(&session.lanes).control(Packet::Drain);
            std::future::pending::<()>().await;
        };
        let told = stream.peer_leaves();
        // The stream's packets first: what is asked after them is asked about the state they leave.
        let ended = tokio::select! {
            biased;
            ended = running => ended,
            () = leaving => Ok(()),
            () = self.dismissed(told, &stream, &session, &mut place) => Ok(()),
        };
        let reason = ended.as_ref().err().map(ToString::to_string);
        tracing::info!(server = server.id, reason, "disconnected");
        metrics.server_failed(Direction::FromServer);
        drop(place);
        session.lose();
        // What destinations still have to be given goes out before they are closed.
        while endpoints.join_next().await.is_some() {}
    }
}

impl Context {
    // The server takes nothing new: its place is free for the next connection, and this one stays until what runs on
    // it has ended. Upstream's agent cuts it all.
    async fn dismissed(
        &self,
        told: oneshot::Receiver<()>,
        stream: &Stream,
        session: &Session,
        place: &mut Option<Connected>,
    ) {
        if told.await.is_err() {
            return std::future::pending().await;
        }
        tracing::info!("the server is leaving; what runs through it goes on");
        drop(place.take());
        self.servers.until(|| session.is_empty()).await;
        std::future::poll_fn(|cx| stream.poll_sent(cx)).await;
    }
}

/// What a server says of itself.
struct ServerHello {
    id: String,
    count: Option<u32>,
    window: Option<i64>,
}

impl ServerHello {
    fn read(fields: &Fields) -> Result<ServerHello, String> {
        let id = only(fields, SERVER_ID);
        let id = id.ok_or("the server did not say its id exactly once")?;
        let count = only(fields, SERVER_COUNT);
        let count =
            count.ok_or("the server did not say exactly once how many servers there are")?;
        Ok(ServerHello {
            id: id.to_owned(),
            count: count.parse().ok(),
            window: only(fields, WINDOW).and_then(|text| text.parse().ok()),
        })
    }
}
