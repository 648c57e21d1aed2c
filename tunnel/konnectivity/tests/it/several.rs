//! Several servers behind one address.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use harness::{Pki, destinations, eventually_async as eventually, in_time};
use konnectivity::agent::{AgentConfig, Proxies};
use konnectivity::dialer::dial;
use konnectivity::server::{AgentsFrom, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::pair::{
    FRONTS, Front, NAMES, agent_config, dial_soon, start_agent, start_server, start_server_as,
};

async fn relay(mut client: TcpStream, port: u16) {
    let mut server = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
}

/// Hands connections out in turn, and counts them.
async fn balancer(ports: [u16; 2]) -> (u16, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let taken = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&taken);
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            let port = ports[counted.fetch_add(1, Ordering::Relaxed) % ports.len()];
            tokio::spawn(relay(client, port));
        }
    });
    (port, taken)
}

#[tokio::test]
async fn an_agent_connects_to_each_server_once() {
    in_time(async {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::new(dir.path(), "one", NAMES);
        let start = async |id| start_server(Front::ConnectUds, &pki, dir.path(), (id, 2)).await;
        let (first, second) = (start("s1").await, start("s2").await);
        let (port, taken) = balancer([first.agent_port, second.agent_port]).await;
        let agent = start_agent(agent_config(pki.clone(), port)).await;
        let echo = destinations::echo().await;
        for via in [&first.via, &second.via] {
            let mut tunnel = dial_soon(via, echo).await;
            tunnel.write_all(b"ping").await.unwrap();
            tunnel.read_exact(&mut [0; 4]).await.unwrap();
        }
        assert_eq!(taken.load(Ordering::Relaxed), 2);
        agent.stop().await;
        first.running.stop().await;
        second.running.stop().await;
    })
    .await;
}

// The first server stops: its tunnel goes on, its agent goes to the second one, nobody gets a new tunnel there, and it
// ends with the last tunnel, long before its limit.
#[tokio::test]
async fn a_server_that_leaves_lets_its_tunnels_end() {
    in_time(async {
        for front in FRONTS {
            let dir = tempfile::tempdir().unwrap();
            let pki = Pki::new(dir.path(), "one", NAMES);
            let patient = |config: &mut ServerConfig| config.graceful = Duration::from_secs(600);
            let start = async |id| start_server_as(front, &pki, dir.path(), (id, 1), patient).await;
            let (mut first, second) = (start("s1").await, start("s2").await);
            let (port, _) = balancer([first.agent_port, second.agent_port]).await;
            let agent = start_agent(agent_config(pki.clone(), port)).await;
            let echo = destinations::echo().await;
            let mut old = dial_soon(&first.via, echo).await;
            first.running.tell_to_stop();
            let mut new = dial_soon(&second.via, echo).await;
            for tunnel in [&mut old, &mut new] {
                tunnel.write_all(b"ping").await.unwrap();
                tunnel.read_exact(&mut [0; 4]).await.unwrap();
            }
            eventually("a refusal", async || {
                dial(&first.via, &echo.to_string()).await.err()
            })
            .await;
            drop(old);
            let ended = tokio::time::timeout(Duration::from_secs(20), first.running.stop());
            ended.await.expect("it ends with its last tunnel");
            new.write_all(b"ping").await.unwrap();
            new.read_exact(&mut [0; 4]).await.unwrap();
            drop(new);
            agent.stop().await;
            second.running.stop().await;
        }
    })
    .await;
}

/// A proxy that leads everybody to one port, and what it was asked for.
async fn proxy(port: u16) -> (u16, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let own = listener.local_addr().unwrap().port();
    let asked = Arc::new(Mutex::new(Vec::new()));
    let heard = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(client.read_u8().await.unwrap());
            }
            heard.lock().unwrap().push(String::from_utf8(head).unwrap());
            let answer = b"HTTP/1.1 200 Connection established\r\n\r\n";
            client.write_all(answer).await.unwrap();
            tokio::spawn(relay(client, port));
        }
    });
    (own, asked)
}

// The server's name means something to the proxy only.
#[tokio::test]
async fn an_agent_behind_a_proxy_reaches_its_server() {
    in_time(async {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::new(dir.path(), "one", NAMES);
        let server = start_server(Front::ConnectUds, &pki, dir.path(), ("s1", 1)).await;
        let (port, asked) = proxy(server.agent_port).await;
        let agent = start_agent(AgentConfig {
            server_host: "konnectivity.test".to_owned(),
            server_port: 8132,
            proxies: Proxies::parse(&format!("http://me:secret@127.0.0.1:{port}"), "other.test"),
            ..agent_config(pki.clone(), 0)
        })
        .await;
        let mut tunnel = dial_soon(&server.via, destinations::echo().await).await;
        tunnel.write_all(b"ping").await.unwrap();
        tunnel.read_exact(&mut [0; 4]).await.unwrap();
        let asked = asked.lock().unwrap().remove(0);
        assert!(
            asked.starts_with("CONNECT konnectivity.test:8132 HTTP/1.1\r\n"),
            "{asked}"
        );
        assert!(
            asked.contains("\r\nProxy-Authorization: Basic bWU6c2VjcmV0\r\n"),
            "{asked}"
        );
        drop(tunnel);
        agent.stop().await;
        server.running.stop().await;
    })
    .await;
}

#[tokio::test]
async fn whoever_may_not_knock_is_hung_up_on_before_a_byte() {
    in_time(async {
        let dir = tempfile::tempdir().unwrap();
        let pki = Pki::new(dir.path(), "one", NAMES);
        let nobody = |config: &mut ServerConfig| config.agents_from = AgentsFrom::only(|_| false);
        let server = start_server_as(Front::ConnectUds, &pki, dir.path(), ("s1", 1), nobody).await;
        let mut socket = TcpStream::connect(("127.0.0.1", server.agent_port))
            .await
            .unwrap();
        let mut said = Vec::new();
        let hung_up = tokio::time::timeout(Duration::from_secs(10), socket.read_to_end(&mut said));
        hung_up.await.expect("at once").unwrap();
        assert!(said.is_empty());
        server.running.stop().await;
    })
    .await;
}
