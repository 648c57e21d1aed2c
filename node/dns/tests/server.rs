//! Real queries over UDP and TCP, by `dig` and by hand.
#![allow(
    missing_docs,
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "tests"
)]

use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use dns::Server;
use dns::config::Config;
use dns::objects::{Service, Slice};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UdpSocket};
use tokio::time::timeout;

const PATIENCE: Duration = Duration::from_secs(60);

/// A server on some port of its own, with a few names, that knows one server further up.
async fn started(further_up: SocketAddr) -> SocketAddr {
    let corefile = format!(
        ".:53 {{\n kubernetes cluster.local in-addr.arpa ip6.arpa {{\n pods insecure\n ttl 30\n }}\n\
         hosts {{\n 10.9.8.7 written.down\n }}\n rewrite name suffix .corp .default.svc.cluster.local\n forward . {further_up}\n cache 30\n}}\n"
    );
    let config = Config::parse(&corefile, Path::new("/Corefile")).unwrap();
    let server = Arc::new(Server::new(config));
    let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = tcp.local_addr().unwrap();
    let udp = UdpSocket::bind(address).await.unwrap();
    tokio::spawn(Arc::clone(&server).serve_udp(udp));
    tokio::spawn(Arc::clone(&server).serve_tcp(tcp));
    fill(&server);
    address
}

fn fill(server: &Server) {
    server.change(|records| {
        records.namespace("default", true);
        for (name, spec) in [
            (
                "web",
                json!({ "clusterIP": "10.0.0.5", "ports": [{ "name": "http", "port": 80 }] }),
            ),
            (
                "away",
                json!({ "type": "ExternalName", "externalName": "far.example.org" }),
            ),
            ("many", json!({ "clusterIP": "None" })),
        ] {
            let service = json!({ "metadata": {}, "spec": spec });
            let service = Service::of(&serde_json::from_value(service).unwrap());
            records.service(&("default".into(), name.into()), service);
        }
        let endpoint = |i| json!({ "addresses": [format!("10.244.1.{i}")] });
        let endpoints: Vec<Value> = (0..200).map(endpoint).collect();
        let slice = json!({
            "metadata": { "labels": { "kubernetes.io/service-name": "many" } },
            "addressType": "IPv4", "endpoints": endpoints, "ports": [],
        });
        let slice = Slice::of(&serde_json::from_value(slice).unwrap());
        records.slice(&("default".into(), "many-1".into()), slice);
    });
    server.is_synced();
}

/// A server further up: every A is 192.0.2.1, until it falls silent.
struct FurtherUp {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    silent: Arc<AtomicBool>,
}

async fn further_up() -> FurtherUp {
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let up = FurtherUp {
        address: socket.local_addr().unwrap(),
        asked: Arc::default(),
        silent: Arc::default(),
    };
    let (asked, silent) = (Arc::clone(&up.asked), Arc::clone(&up.silent));
    tokio::spawn(async move {
        let mut buffer = [0; 1500];
        while let Ok((length, from)) = socket.recv_from(&mut buffer).await {
            asked.fetch_add(1, Ordering::Relaxed);
            if silent.load(Ordering::Relaxed) {
                continue;
            }
            let query = &buffer[..length];
            // A lie first: another number. It must not be believed.
            let mut lie = answer(query, [203, 0, 113, 66]);
            lie[0] ^= 0xff;
            socket.send_to(&lie, from).await.unwrap();
            let truth = answer(query, [192, 0, 2, 1]);
            socket.send_to(&truth, from).await.unwrap();
        }
    });
    up
}

// The question as it came, one record behind it, and an EDNS record.
fn answer(query: &[u8], ip: [u8; 4]) -> Vec<u8> {
    let mut at = 12;
    while query[at] != 0 {
        at += 1 + usize::from(query[at]);
    }
    let mut bytes = query[..at + 5].to_vec();
    bytes[2] = 0x81;
    bytes[3] = 0x80;
    bytes[6..12].copy_from_slice(&[0, 1, 0, 0, 0, 1]);
    bytes.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 1, 0, 4]);
    bytes.extend(ip);
    bytes.extend([0, 0, 41, 4, 0xd0, 0, 0, 0, 0, 0, 0]);
    bytes
}

fn has_dig() -> bool {
    let found = Command::new("dig").arg("-v").stderr(Stdio::null()).status();
    if found.is_err() {
        eprintln!("SKIPPED: no dig on this machine");
    }
    found.is_ok()
}

async fn dig(server: SocketAddr, arguments: &str) -> String {
    let (ip, port) = (format!("@{}", server.ip()), server.port().to_string());
    let run = tokio::process::Command::new("dig")
        .args([&ip, "-p", &port, "+tries=1", "+time=30"])
        .args(arguments.split(' '))
        .output();
    let output = timeout(PATIENCE, run).await.unwrap().unwrap();
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[tokio::test]
async fn dig_gets_what_the_cluster_says() {
    if !has_dig() {
        return;
    }
    let up = further_up().await;
    let at = started(up.address).await;
    for (question, expected) in [
        ("+short web.default.svc.cluster.local", "10.0.0.5"),
        ("+short +tcp web.default.svc.cluster.local A", "10.0.0.5"),
        ("+short +noedns WEB.default.SVC.cluster.local", "10.0.0.5"),
        (
            "+short _http._tcp.web.default.svc.cluster.local SRV",
            "0 100 80 web.default.svc.cluster.local.",
        ),
        ("+short -x 10.0.0.5", "web.default.svc.cluster.local."),
        ("+short written.down", "10.9.8.7"),
        ("+short far.example.org", "192.0.2.1"),
        (
            "+noall +answer web.corp",
            "web.corp.\t\t30\tIN\tA\t10.0.0.5",
        ),
        ("+short away.corp", "far.example.org.\n192.0.2.1"),
        (
            "+short away.default.svc.cluster.local",
            "far.example.org.\n192.0.2.1",
        ),
    ] {
        assert_eq!(dig(at, question).await, expected, "{question}");
    }
    for (question, code) in [
        ("nobody.default.svc.cluster.local", "NXDOMAIN"),
        ("nobody.corp", "NXDOMAIN"),
        ("web.default.svc.cluster.local AAAA", "NOERROR"),
        ("-c CH version.bind TXT", "NOTIMP"),
    ] {
        let said = dig(at, question).await;
        assert!(said.contains(code), "{question}: {said}");
    }
    let nothing = dig(at, "+noall +authority nobody.default.svc.cluster.local").await;
    assert!(nothing.contains("SOA"), "{nothing}");
}

#[tokio::test]
async fn a_large_answer_comes_by_tcp() {
    if !has_dig() {
        return;
    }
    let up = further_up().await;
    let at = started(up.address).await;
    let cut = dig(at, "+ignore many.default.svc.cluster.local").await;
    assert!(cut.contains(" tc"), "{cut}");
    let all = dig(at, "+short many.default.svc.cluster.local").await;
    assert_eq!(all.lines().count(), 200);
}

#[tokio::test]
async fn answers_are_remembered_and_outlive_their_server() {
    if !has_dig() {
        return;
    }
    let up = further_up().await;
    let at = started(up.address).await;
    assert_eq!(dig(at, "+short a.example.org").await, "192.0.2.1");
    up.silent.store(true, Ordering::Relaxed);
    // Its time to live is a second; when that is over, the old answer is better than none.
    let held = async {
        while up.asked.load(Ordering::Relaxed) < 2 {
            assert_eq!(dig(at, "+short a.example.org").await, "192.0.2.1");
        }
    };
    timeout(PATIENCE, held).await.unwrap();
    let failed = dig(at, "b.example.org").await;
    assert!(failed.contains("SERVFAIL"), "{failed}");
}

const QUERY: &[u8] = b"\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\
    \x03web\x07default\x03svc\x07cluster\x05local\x00\x00\x01\x00\x01";

fn nonsense() -> Vec<Vec<u8>> {
    let mut all: Vec<Vec<u8>> = (0..QUERY.len()).map(|cut| QUERY[..cut].to_vec()).collect();
    // A name that points at itself, one that points ahead, and labels of forbidden kinds.
    for name in [&[0xc0u8, 12][..], &[0xc0, 40], &[0x80, 1, 2], &[63, 1, 2]] {
        all.push([&QUERY[..12], name, &[0, 1, 0, 1]].concat());
    }
    for i in 2..QUERY.len() {
        for value in [0, 0x7f, 0xff] {
            let mut bytes = QUERY.to_vec();
            bytes[i] = value;
            all.push(bytes);
        }
    }
    all
}

#[tokio::test]
async fn nonsense_is_survived() {
    let up = further_up().await;
    let at = started(up.address).await;
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    socket.connect(at).await.unwrap();
    for bytes in nonsense() {
        socket.send(&bytes).await.unwrap();
    }
    let mut last = QUERY.to_vec();
    last[..2].copy_from_slice(&[0xaa, 0xbb]);
    let mut buffer = [0; 1500];
    let answered = async {
        loop {
            socket.send(&last).await.unwrap();
            let patience = Duration::from_secs(1);
            while let Ok(Ok(length)) = timeout(patience, socket.recv(&mut buffer)).await {
                if buffer[..2] == [0xaa, 0xbb] {
                    return length;
                }
            }
        }
    };
    let length = timeout(PATIENCE, answered).await.unwrap();
    assert_eq!(buffer[length - 4..length], [10, 0, 0, 5]);

    let mut stream = TcpStream::connect(at).await.unwrap();
    stream.write_all(&[0, 5, 1, 2, 3, 4, 5]).await.unwrap();
    let mut rest = Vec::new();
    let read = stream.read_to_end(&mut rest);
    timeout(PATIENCE, read).await.unwrap().unwrap();
    assert_eq!(rest, [0; 0], "too short to be anything: hung up on");
}
