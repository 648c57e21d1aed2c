//! Servers further up.

use std::net::{IpAddr, SocketAddr};
use std::sync::Mutex;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::{Instant, timeout};

use crate::cache::Answer;
use crate::message::{OUR_SIZE, Query, kind};

/// Some servers that know the same.
#[derive(Debug)]
pub struct Forward {
    servers: Vec<Server>,
}

#[derive(Debug)]
struct Server {
    address: SocketAddr,
    health: Mutex<Health>,
}

/// How often in a row it failed, and when it may be tried again.
#[derive(Debug, Default)]
struct Health {
    failures: u32,
    again: Option<Instant>,
}

/// How long one server may take, and how long all may.
const PATIENCE: Duration = Duration::from_secs(2);
const ALL: Duration = Duration::from_secs(5);
/// After so many failures (CoreDNS' `max_fails`) a server is left alone for a while.
const FAILURES: u32 = 2;
const REST: Duration = Duration::from_millis(500);

/// Why nobody answered.
#[derive(Debug, thiserror::Error)]
pub enum ForwardError {
    /// There is nobody to ask.
    #[error("no server further up is configured")]
    Nobody,
    /// Nobody answered in time.
    #[error("no server further up answers: {0}")]
    Silence(String),
}

impl Forward {
    /// These servers, in any order.
    pub fn new(addresses: Vec<SocketAddr>) -> Forward {
        let servers = addresses.into_iter().map(|address| Server {
            address,
            health: Mutex::default(),
        });
        Forward {
            servers: servers.collect(),
        }
    }

    /// Asks until somebody answers.
    pub async fn ask(&self, query: &Query) -> Result<Answer, ForwardError> {
        if self.servers.is_empty() {
            return Err(ForwardError::Nobody);
        }
        let mut last = String::new();
        let asking = async {
            for server in self.order(Instant::now()) {
                match server.ask(query).await {
                    Ok(answer) => return Some(answer),
                    Err(error) => last = format!("{}: {error}", server.address),
                }
            }
            None
        };
        let answer = timeout(ALL, asking).await.ok().flatten();
        answer.ok_or(ForwardError::Silence(last))
    }

    // Those that are well, from a random place on; then those that rest, in case they are better again.
    fn order(&self, now: Instant) -> Vec<&Server> {
        let start = rand::random_range(0..self.servers.len());
        let turned = self.servers[start..].iter().chain(&self.servers[..start]);
        let (well, resting): (Vec<&Server>, Vec<&Server>) =
            turned.partition(|server| server.is_well(now));
        well.into_iter().chain(resting).collect()
    }
}

impl Server {
    fn is_well(&self, now: Instant) -> bool {
        self.health().again.is_none_or(|again| again <= now)
    }

    fn health(&self) -> std::sync::MutexGuard<'_, Health> {
        self.health
            .lock()
            .expect("nothing panics while it holds a server's health")
    }

    async fn ask(&self, query: &Query) -> Result<Answer, std::io::Error> {
        let answer = timeout(PATIENCE, self.by_datagram(query)).await;
        let answer = answer.unwrap_or_else(|_| Err(std::io::ErrorKind::TimedOut.into()));
        let mut health = self.health();
        match &answer {
            Ok(_) => *health = Health::default(),
            Err(_) => {
                health.failures += 1;
                health.again = (health.failures >= FAILURES).then(|| Instant::now() + REST);
            }
        }
        answer
    }

    // A port and a number of its own for each question: whoever lies has to guess both.
    async fn by_datagram(&self, query: &Query) -> Result<Answer, std::io::Error> {
        let any: IpAddr = match self.address {
            SocketAddr::V4(_) => [0, 0, 0, 0].into(),
            SocketAddr::V6(_) => [0; 16].into(),
        };
        let socket = UdpSocket::bind((any, 0)).await?;
        socket.connect(self.address).await?;
        let id: u16 = rand::random();
        socket.send(&question(query, id)).await?;
        let mut buffer = vec![0; 4096];
        loop {
            let length = socket.recv(&mut buffer).await?;
            let bytes = &buffer[..length];
            // What is not an answer to this question is somebody's attempt.
            if !bytes.starts_with(&id.to_be_bytes()) {
                continue;
            }
            match Answer::read(query, bytes.to_vec()) {
                Some(answer) if answer.is_cut() => return self.by_stream(query).await,
                Some(answer) => return Ok(answer),
                None => {}
            }
        }
    }

    async fn by_stream(&self, query: &Query) -> Result<Answer, std::io::Error> {
        let mut stream = TcpStream::connect(self.address).await?;
        let id: u16 = rand::random();
        let question = question(query, id);
        let length = u16::try_from(question.len()).unwrap_or_default();
        stream
            .write_all(&[&length.to_be_bytes()[..], &question].concat())
            .await?;
        let length = stream.read_u16().await?;
        let mut bytes = vec![0; length.into()];
        stream.read_exact(&mut bytes).await?;
        let answer = bytes
            .starts_with(&id.to_be_bytes())
            .then(|| Answer::read(query, bytes));
        answer
            .flatten()
            .ok_or_else(|| std::io::ErrorKind::InvalidData.into())
    }
}

fn question(query: &Query, id: u16) -> Vec<u8> {
    let flags: u16 = 0x0100 | if query.checking_disabled { 0x0010 } else { 0 };
    let mut bytes = Vec::with_capacity(64);
    for word in [id, flags, 1, 0, 0, 1] {
        bytes.extend(word.to_be_bytes());
    }
    bytes.extend(query.question());
    bytes.push(0);
    bytes.extend(kind::OPT.to_be_bytes());
    bytes.extend(OUR_SIZE.to_be_bytes());
    let dnssec = query.edns.is_some_and(|edns| edns.dnssec);
    bytes.extend([0, 0, if dnssec { 0x80 } else { 0 }, 0, 0, 0]);
    bytes
}
