#![allow(clippy::unwrap_used, reason = "tests")]
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use super::*;
use crate::settings;

/// A server that answers `/close` by hanging up afterwards, and counts its connections.
async fn server() -> (Place, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let connections = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&connections);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            counted.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(async move {
                let mut head = Vec::new();
                while let Ok(byte) = stream.read_u8().await {
                    head.push(byte);
                    if !head.ends_with(b"\r\n\r\n") {
                        continue;
                    }
                    let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
                    stream.write_all(answer).await.unwrap();
                    if head.starts_with(b"GET /close") {
                        return;
                    }
                    head.clear();
                }
            });
        }
    });
    let place = Place {
        tls: None,
        host: "127.0.0.1".into(),
        port,
    };
    (place, connections)
}

async fn get(outbound: &Outbound, place: &Place, path: &str) {
    let request = request(&Method::GET, path, HeaderMap::new(), nothing())
        .unwrap_or_else(|e| panic!("{}", e.message));
    let response = send(outbound, place, request).await.unwrap();
    let body = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(&body[..], b"ok");
    // The connection is put away by a task of its own.
    while path != "/close" && outbound.idle.waiting() == 0 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_connection_serves_one_request_after_the_other_until_the_server_hangs_up() {
    let outbound = Outbound::open(settings::Outbound::default(), Arc::default()).unwrap();
    let (place, connections) = server().await;
    for _ in 0..3 {
        get(&outbound, &place, "/").await;
    }
    assert_eq!(connections.load(Ordering::SeqCst), 1);
    get(&outbound, &place, "/close").await;
    get(&outbound, &place, "/").await;
    assert_eq!(connections.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_connection_waits_only_so_long() {
    let outbound = Outbound::open(settings::Outbound::default(), Arc::default()).unwrap();
    let (place, _) = server().await;
    get(&outbound, &place, "/").await;
    assert_eq!(outbound.idle.waiting(), 1);
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(outbound.idle.waiting(), 0);
    assert!(outbound.idle.take(&place).is_none());
}

#[test]
fn pages_are_unpacked_and_packed_again() {
    for encoding in [Encoding::Plain, Encoding::Gzip, Encoding::Deflate] {
        let packed = encoding.pack(b"some text").unwrap();
        assert_eq!(encoding.unpack(&packed).unwrap(), b"some text");
    }
    let bomb = Encoding::Gzip.pack(&vec![0; LARGEST_PAGE + 1]).unwrap();
    assert!(Encoding::Gzip.unpack(&bomb).is_err());
}
