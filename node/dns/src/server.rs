//! Answers queries: what is ours at once, the rest once somebody has been asked.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, RwLock, RwLockReadGuard};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::sync::{Semaphore, watch};
use tokio::time::{Instant, timeout};

use crate::cache::{Answer, CAPACITY, Cache, Question};
use crate::config::{Block, Config};
use crate::message::{Code, INTERNET, Malformed, Query, Record, Reply, kind, parse_query, refusal};
use crate::metrics::Metrics;
use crate::name::Name;
use crate::records::{Outcome, Records};

/// How many questions may wait for servers further up; more are refused rather than kept in memory.
const WAITING: usize = 1000;
/// How many clients may have a connection open.
const CONNECTIONS: usize = 512;
/// How long a connection may be silent.
const IDLE: Duration = Duration::from_secs(10);

/// Everything that answers depend on.
pub struct Server {
    records: RwLock<Records>,
    config: RwLock<Arc<Config>>,
    cache: Mutex<Cache>,
    waiting: Arc<Semaphore>,
    /// Whether everything that exists has been seen.
    synced: watch::Sender<bool>,
    /// What is counted.
    pub metrics: Metrics,
}

enum Handled {
    Now(Vec<u8>),
    Nothing,
    /// Somebody has to be asked, perhaps about another name.
    Later(Box<Query>, Way),
}

/// How an answer is found that is not at hand.
enum Way {
    /// Servers further up know it.
    Up,
    /// The name is another name for one outside.
    Alias(Record),
    /// The configuration says that it stands for another.
    Rewritten(Name),
}

const UNPOISONED: &str = "nothing panics while it holds the server's state";

impl Server {
    /// With no names yet.
    pub fn new(config: Config) -> Server {
        Server {
            records: RwLock::default(),
            cache: Mutex::new(Cache::new(CAPACITY, config.cache)),
            config: RwLock::new(Arc::new(config)),
            waiting: Arc::new(Semaphore::new(WAITING)),
            synced: watch::Sender::new(false),
            metrics: Metrics::default(),
        }
    }

    /// Changes names.
    pub fn change(&self, change: impl FnOnce(&mut Records)) {
        change(&mut self.records.write().expect(UNPOISONED));
    }

    /// From now on the cluster's names can be answered.
    pub fn is_synced(&self) {
        self.synced.send_replace(true);
    }

    /// Whether they can.
    pub fn is_ready(&self) -> bool {
        *self.synced.borrow()
    }

    /// Follows another configuration; what was learnt by the old one is forgotten.
    pub fn reconfigure(&self, config: Config) {
        *self.cache.lock().expect(UNPOISONED) = Cache::new(CAPACITY, config.cache);
        *self.config.write().expect(UNPOISONED) = Arc::new(config);
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().expect(UNPOISONED))
    }

    fn records(&self) -> RwLockReadGuard<'_, Records> {
        self.records.read().expect(UNPOISONED)
    }

    /// Answers datagrams, for ever.
    pub async fn serve_udp(self: Arc<Self>, socket: UdpSocket) -> std::io::Error {
        let socket = Arc::new(socket);
        let mut buffer = vec![0; 4096];
        loop {
            let (length, from) = match socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                // A client that went away before its answer came.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return error,
            };
            match self.handle(&buffer[..length], "udp", None) {
                Handled::Nothing => {}
                Handled::Now(bytes) => send(&socket, &bytes, from).await,
                Handled::Later(query, way) => self.answer_later(&socket, *query, way, from),
            }
        }
    }

    fn answer_later(
        self: &Arc<Self>,
        socket: &Arc<UdpSocket>,
        query: Query,
        way: Way,
        to: SocketAddr,
    ) {
        let (server, socket) = (Arc::clone(self), Arc::clone(socket));
        let Ok(place) = Arc::clone(&self.waiting).try_acquire_owned() else {
            let bytes = self.failure(&query, query.size());
            // Whether it can be sent or not, there is nothing more to do for this client.
            let _ = socket.try_send_to(&bytes, to);
            return;
        };
        tokio::spawn(async move {
            let limit = query.size();
            let bytes = server.ask(&query, way, limit).await;
            send(&socket, &bytes, to).await;
            drop(place);
        });
    }

    /// Answers connections, for ever.
    pub async fn serve_tcp(self: Arc<Self>, listener: TcpListener) {
        let places = Arc::new(Semaphore::new(CONNECTIONS));
        loop {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else {
                return;
            };
            let Ok((stream, _)) = listener.accept().await else {
                continue;
            };
            let server = Arc::clone(&self);
            tokio::spawn(async move {
                // A client that goes away, or says nothing, ends its connection.
                let _ = server.serve_stream(stream).await;
                drop(place);
            });
        }
    }

    async fn serve_stream(&self, mut stream: TcpStream) -> std::io::Result<()> {
        loop {
            let length = timeout(IDLE, stream.read_u16()).await??;
            let mut message = vec![0; length.into()];
            timeout(IDLE, stream.read_exact(&mut message)).await??;
            let limit = usize::from(u16::MAX);
            let bytes = match self.handle(&message, "tcp", Some(limit)) {
                Handled::Nothing => return Ok(()),
                Handled::Now(bytes) => bytes,
                Handled::Later(query, way) => self.ask(&query, way, limit).await,
            };
            let length = u16::try_from(bytes.len()).unwrap_or_default().to_be_bytes();
            timeout(IDLE, stream.write_all(&[&length[..], &bytes].concat())).await??;
        }
    }

    // Everything that can be done at once.
    fn handle(&self, bytes: &[u8], transport: &'static str, limit: Option<usize>) -> Handled {
        let started = Instant::now();
        let query = match parse_query(bytes) {
            Ok(query) => query,
            Err(Malformed::Silent) => return Handled::Nothing,
            Err(Malformed::Answer(id, code)) => return Handled::Now(refusal(id, code)),
        };
        self.metrics.asked(transport, query.kind);
        let limit = limit.unwrap_or_else(|| query.size());
        let handled = self.decide(&query, limit);
        if let Handled::Now(bytes) = &handled {
            self.metrics
                .answered(Code::of(bytes[3] & 0xf), started.elapsed());
        }
        handled
    }

    fn decide(&self, query: &Query, limit: usize) -> Handled {
        let said = |code| Handled::Now(query.reply(&Reply::of_code(code), limit));
        if query.edns.is_some_and(|edns| edns.version > 0) || query.class != INTERNET {
            return said(Code::NotImp);
        }
        if query.kind == kind::AXFR || query.kind == kind::OPT {
            return said(Code::Refused);
        }
        let config = self.config();
        let Some(block) = config.block(&query.name) else {
            return said(Code::Refused);
        };
        match block.rewrites.of(&query.name) {
            Some(other) => Handled::Later(Box::new(query.clone()), Way::Rewritten(other)),
            None => self.within(query, block, limit),
        }
    }

    fn within(&self, query: &Query, block: &Block, limit: usize) -> Handled {
        if let Some(reply) = block.hosts.answer(query) {
            return Handled::Now(query.reply(&reply, limit));
        }
        match self.own(query, block) {
            Some(Outcome::Reply(reply)) => Handled::Now(query.reply(&shuffled(reply), limit)),
            Some(Outcome::Follow(alias)) => {
                Handled::Later(Box::new(query.clone()), Way::Alias(alias))
            }
            Some(Outcome::NotOurs) | None => self.remembered(query, limit),
        }
    }

    // Until everything has been seen, a name that is not known may well exist.
    fn own(&self, query: &Query, block: &Block) -> Option<Outcome> {
        let settings = block.kubernetes.as_ref()?;
        let outcome = self.records().answer(query, settings);
        match &outcome {
            Outcome::Reply(reply) if reply.answers.is_empty() && !self.is_ready() => {
                Some(Outcome::Reply(Reply::of_code(Code::ServFail)))
            }
            _ => Some(outcome),
        }
    }

    fn remembered(&self, query: &Query, limit: usize) -> Handled {
        let cache = self.cache.lock().expect(UNPOISONED);
        match cache.get(&Question::of(query), Instant::now()) {
            Some((answer, age)) => {
                self.metrics.hits.inc();
                Handled::Now(answer.reply(query, limit, age))
            }
            None => {
                self.metrics.misses.inc();
                Handled::Later(Box::new(query.clone()), Way::Up)
            }
        }
    }

    /// Asks somebody further up, about the query or about the other name it leads to.
    async fn ask(&self, query: &Query, way: Way, limit: usize) -> Vec<u8> {
        let started = Instant::now();
        let bytes = match way {
            Way::Up => match self.forwarded(query, &query.name).await {
                Some(answer) => answer.reply(query, limit, 0),
                None => self.failure(query, limit),
            },
            Way::Alias(alias) => self.followed(query, alias, limit).await,
            Way::Rewritten(other) => self.rewritten(query, other, limit).await,
        };
        self.metrics
            .answered(Code::of(bytes[3] & 0xf), started.elapsed());
        bytes
    }

    // Those are asked whom the block of `name` knows.
    async fn forwarded(&self, query: &Query, name: &Name) -> Option<Answer> {
        let config = self.config();
        let forward = config.block(name)?.forward.as_ref()?;
        let question = Question::of(query);
        match forward.ask(query).await {
            Ok(answer) => {
                let mut cache = self.cache.lock().expect(UNPOISONED);
                cache.put(question, answer.clone(), Instant::now());
                Some(answer)
            }
            Err(error) => {
                tracing::warn!(name = %query.name, %error, "a question stays without an answer");
                self.metrics.forward_failures.inc();
                let cache = self.cache.lock().expect(UNPOISONED);
                cache.stale(&question, Instant::now()).cloned()
            }
        }
    }

    async fn followed(&self, query: &Query, alias: Record, limit: usize) -> Vec<u8> {
        let crate::message::Data::Cname(target) = &alias.data else {
            return self.failure(query, limit);
        };
        let further = query.about(target.clone());
        let found = match self.decide(&further, usize::from(u16::MAX)) {
            Handled::Now(bytes) => Answer::read(&further, bytes),
            Handled::Later(further, Way::Up) => self.forwarded(&further, &further.name).await,
            // An alias of an alias within the cluster: the client asks again.
            Handled::Later(..) | Handled::Nothing => None,
        };
        let mut answers = vec![alias];
        answers.extend(found.iter().flat_map(|answer| answer.addresses()));
        let reply = Reply {
            authoritative: true,
            answers,
            ..Reply::default()
        };
        query.reply(&reply, limit)
    }

    // The block of the name that was asked for goes on with the other one, as CoreDNS does.
    async fn rewritten(&self, query: &Query, other: Name, limit: usize) -> Vec<u8> {
        let config = self.config();
        let Some(block) = config.block(&query.name) else {
            return self.failure(query, limit);
        };
        let (inner, most) = (query.about(other), usize::from(u16::MAX));
        let found = match self.within(&inner, block, most) {
            Handled::Now(bytes) => Answer::read(&inner, bytes),
            Handled::Later(inner, Way::Alias(alias)) => {
                let bytes = self.followed(&inner, alias, most).await;
                Answer::read(&inner, bytes)
            }
            Handled::Later(inner, _) => self.forwarded(&inner, &query.name).await,
            Handled::Nothing => None,
        };
        let Some(found) = found else {
            return self.failure(query, limit);
        };
        let mut answers = found.addresses();
        for record in answers
            .iter_mut()
            .filter(|record| record.name == inner.name)
        {
            record.name = query.name.clone();
        }
        let reply = Reply {
            answers,
            ..Reply::of_code(found.code())
        };
        query.reply(&reply, limit)
    }

    fn failure(&self, query: &Query, limit: usize) -> Vec<u8> {
        query.reply(&Reply::of_code(Code::ServFail), limit)
    }
}

// Clients take the first: each time another one is the first.
fn shuffled(mut reply: Reply) -> Reply {
    if reply.answers.len() > 1 {
        let by = rand::random_range(0..reply.answers.len());
        reply.answers.rotate_left(by);
    }
    reply
}

async fn send(socket: &UdpSocket, bytes: &[u8], to: SocketAddr) {
    // A client that cannot be reached asks again.
    let _ = socket.send_to(bytes, to).await;
}
