//! Connects to a destination and moves its bytes.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::net::TcpStream;

use super::servers::Servers;
use super::session::Session;
use crate::lanes::Side;
use crate::link::{Wire, lock};
use crate::metrics::DialFailed;
use crate::packet::Packet;
use crate::pump;

/// Upstream's limit.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);

/// Runs a connection from the dial to its end.
pub(super) async fn run(
    session: Arc<Session>,
    servers: Arc<Servers>,
    random: i64,
    id: i64,
    address: String,
) {
    let Some((mut socket, wire)) = Box::pin(open(&session, &servers, random, id, &address)).await
    else {
        return;
    };
    drop(session);
    let held = servers.metrics.endpoints.hold();
    let since = Instant::now();
    let traffic = pump::run(&mut socket, wire, Side::Agent).await;
    drop((socket, held));
    servers.moved();
    tracing::debug!(
        address,
        dial = random,
        connection = id,
        sent = traffic.to_local,
        received = traffic.from_local,
        seconds = since.elapsed().as_secs_f64(),
        "connection ended"
    );
}

async fn open(
    session: &Session,
    servers: &Servers,
    random: i64,
    id: i64,
    address: &str,
) -> Option<(TcpStream, Wire)> {
    let began = Instant::now();
    let connected = tokio::time::timeout(DIAL_TIMEOUT, connect(address)).await;
    if !session.finished(random) {
        return None;
    }
    let socket = match connected {
        Ok(Ok(socket)) => socket,
        failed => {
            let timed_out = failed.is_err();
            let error = match failed {
                Ok(Err(error)) => error,
                _ => format!("dial tcp {address}: i/o timeout"),
            };
            let why = if timed_out {
                DialFailed::Timeout
            } else {
                DialFailed::Unknown
            };
            servers.metrics.dial_failed(why);
            tracing::debug!(address, dial = random, error, "destination not reached");
            session.failed(random, error);
            return None;
        }
    };
    servers.metrics.dial_duration.observe(began.elapsed());
    let wire = Wire::open(&session.lanes, id);
    lock(&session.lanes).control(Packet::DialResponse {
        random,
        id,
        error: String::new(),
    });
    Some((socket, wire))
}

// The texts are Go's: servers and API servers look into them.
async fn connect(address: &str) -> Result<TcpStream, String> {
    let Some((host, _)) = address.rsplit_once(':') else {
        return Err(format!(
            "dial tcp: address {address}: missing port in address"
        ));
    };
    let found = tokio::net::lookup_host(address)
        .await
        .map_err(|_| format!("dial tcp: lookup {host}: no such host"))?;
    let mut last = format!("dial tcp: lookup {host}: no such host");
    for candidate in found {
        match TcpStream::connect(candidate).await {
            Ok(socket) => {
                // A socket without these works as well.
                let _ = socket.set_nodelay(true);
                let _ = keepalive(&socket);
                return Ok(socket);
            }
            Err(error) => last = go_text(candidate, &error),
        }
    }
    Err(last)
}

// Go's default: a silent destination is asked every 15 seconds.
fn keepalive(socket: &TcpStream) -> rustix::io::Result<()> {
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(socket, true)?;
    sockopt::set_tcp_keepidle(socket, Duration::from_secs(15))?;
    sockopt::set_tcp_keepintvl(socket, Duration::from_secs(15))
}

fn go_text(address: SocketAddr, error: &io::Error) -> String {
    let text = match error.kind() {
        io::ErrorKind::ConnectionRefused => "connect: connection refused".to_owned(),
        io::ErrorKind::TimedOut => "connect: connection timed out".to_owned(),
        io::ErrorKind::HostUnreachable => "connect: no route to host".to_owned(),
        io::ErrorKind::NetworkUnreachable => "connect: network is unreachable".to_owned(),
        io::ErrorKind::ConnectionReset => "connect: connection reset by peer".to_owned(),
        _ if error.raw_os_error() == Some(rustix::io::Errno::MFILE.raw_os_error()) => {
            "socket: too many open files".to_owned()
        }
        _ => format!("connect: {error}"),
    };
    format!("dial tcp {address}: {text}")
}
