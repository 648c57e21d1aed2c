//! The way to the servers: the addresses behind their name, or a proxy.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};

use wire::proxy::{ConnectError, authority};

use super::AgentConfig;

/// How long one address may take before the next one is tried, where there are several.
const ADDRESS_TIMEOUT: Duration = Duration::from_secs(5);

/// Who we are to proxies.
const AGENT: &str = "kyanite-konnectivity";

/// A connection to one of the servers. Each `turn` begins with another address, so that an agent that wants several
/// servers finds them behind one name.
pub(super) async fn open(config: &AgentConfig, turn: usize) -> Result<TcpStream, String> {
    let (host, port) = (
        config.server_host.trim_matches(['[', ']']),
        config.server_port,
    );
    let server = authority(host, port);
    let Some(proxy) = config.proxies.towards(host, port) else {
        let socket = to_any((host, port), turn).await;
        return socket.map_err(|error| format!("{server}: {error}"));
    };
    let through = async {
        let mut socket = to_any((&proxy.host, proxy.port), turn).await?;
        proxy.connect(&mut socket, &server, AGENT).await?;
        Ok(socket)
    };
    let failed = |error: ConnectError| format!("{server} through the proxy {proxy}: {error}");
    through.await.map_err(failed)
}

async fn to_any(place: (&str, u16), turn: usize) -> io::Result<TcpStream> {
    let found = lookup_host(place).await?.collect();
    first_of(in_turn(found, turn)).await
}

// The same order for everybody, so that turns lead round all of them.
fn in_turn(mut addresses: Vec<SocketAddr>, turn: usize) -> Vec<SocketAddr> {
    addresses.sort_unstable();
    addresses.dedup();
    let count = addresses.len().max(1);
    addresses.rotate_left(turn % count);
    addresses
}

async fn first_of(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in addresses {
        let attempt = tokio::time::timeout(ADDRESS_TIMEOUT, TcpStream::connect(address));
        match attempt.await {
            Ok(Ok(socket)) => {
                socket.set_nodelay(true)?;
                return Ok(socket);
            }
            Ok(Err(error)) => last = error,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    Err(last)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn each_turn_begins_with_another_address() {
        let addresses = |texts: [&str; 3]| texts.map(|text| text.parse().unwrap()).to_vec();
        let found = addresses(["10.0.0.2:1", "10.0.0.1:1", "10.0.0.3:1"]);
        let first = |turn| in_turn(found.clone(), turn)[0].to_string();
        let firsts: Vec<String> = (0..4).map(first).collect();
        assert_eq!(
            firsts,
            ["10.0.0.1:1", "10.0.0.2:1", "10.0.0.3:1", "10.0.0.1:1"]
        );
        assert_eq!(
            in_turn(found.clone(), 1),
            addresses(["10.0.0.2:1", "10.0.0.3:1", "10.0.0.1:1"])
        );
        assert!(in_turn(Vec::new(), 1).is_empty());
    }

    #[tokio::test]
    async fn an_address_that_does_not_answer_is_passed_over() {
        let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let dead = gone.local_addr().unwrap();
        drop(gone);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let alive = listener.local_addr().unwrap();
        let socket = first_of(vec![dead, alive]).await.unwrap();
        assert_eq!(socket.peer_addr().unwrap(), alive);
        assert!(first_of(vec![dead]).await.is_err());
    }
}
