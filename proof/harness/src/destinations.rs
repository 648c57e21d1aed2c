//! What connections lead to: small servers on loopback, as long as the caller's runtime runs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

async fn listen<F, C>(serve: F) -> SocketAddr
where
    F: Fn(TcpStream) -> C + Send + 'static,
    C: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback has a free port");
    let address = listener
        .local_addr()
        .expect("a bound listener has an address");
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket));
        }
    });
    address
}

/// Sends back what it gets, until its client's end.
pub async fn echo() -> SocketAddr {
    listen(|mut socket| async move {
        let (mut read, mut write) = socket.split();
        let _ = tokio::io::copy(&mut read, &mut write).await;
        let _ = write.shutdown().await;
    })
    .await
}

/// Reads everything, and then says how much that was.
pub async fn count_to_the_end() -> SocketAddr {
    listen(|mut socket| async move {
        let count = tokio::io::copy(&mut socket, &mut tokio::io::sink())
            .await
            .unwrap_or(0);
        let _ = socket.write_u64(count).await;
    })
    .await
}

/// Counts what all its clients send.
pub async fn sink() -> (SocketAddr, Arc<AtomicU64>) {
    let total = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&total);
    let address = listen(move |mut socket| {
        let counted = Arc::clone(&counted);
        async move {
            let mut buffer = vec![0; 64 << 10];
            while let Ok(count @ 1..) = socket.read(&mut buffer).await {
                counted.fetch_add(count as u64, Ordering::Relaxed);
            }
        }
    })
    .await;
    (address, total)
}

/// Takes connections and never reads.
pub async fn deaf() -> SocketAddr {
    listen(|socket| async move {
        std::future::pending::<()>().await;
        drop(socket);
    })
    .await
}

/// Sends without end.
pub async fn fountain() -> SocketAddr {
    listen(|mut socket| async move {
        let water = vec![7; 64 << 10];
        while socket.write_all(&water).await.is_ok() {}
    })
    .await
}

/// Speaks first.
pub async fn greeter() -> SocketAddr {
    listen(|mut socket| async move {
        let _ = socket.write_all(b"hello").await;
        let mut rest = Vec::new();
        let _ = socket.read_to_end(&mut rest).await;
    })
    .await
}

/// A port nobody listens on.
pub async fn nobody() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0")
        .await
        .expect("loopback has a free port");
    listener
        .local_addr()
        .expect("a bound listener has an address")
}

/// A page over HTTP.
pub async fn page() -> SocketAddr {
    listen(|mut socket| async move {
        let mut request = vec![0; 4096];
        let _ = socket.read(&mut request).await;
        let body = "a page of the destination";
        let answer = format!(
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let _ = socket.write_all(answer.as_bytes()).await;
    })
    .await
}
