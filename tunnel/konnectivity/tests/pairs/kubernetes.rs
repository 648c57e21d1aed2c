//! As much of an API server as a token review needs.

use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// The one token that is good, and what it is good for.
pub(crate) const GOOD_TOKEN: &str = "good-token";
pub(crate) const AUDIENCE: &str = "system:konnectivity-server";

/// Starts it, and writes a kubeconfig for it.
pub(crate) async fn start(dir: &Path) -> PathBuf {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            tokio::spawn(serve(socket));
        }
    });
    let path = dir.join("kubeconfig");
    let text = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, \
         clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}], \
         users: [{{name: u, user: {{}}}}], \
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]}}"
    );
    std::fs::write(&path, text).unwrap();
    path
}

async fn serve(mut socket: TcpStream) {
    let mut request = Vec::new();
    loop {
        while !is_whole(&request) {
            match socket.read_buf(&mut request).await {
                Ok(1..) => {}
                _ => return,
            }
        }
        let text = String::from_utf8_lossy(&request).into_owned();
        request.clear();
        let good = text.contains(&format!("\"{GOOD_TOKEN}\""))
            && text.contains(&format!("\"{AUDIENCE}\""));
        let status = if good {
            r#"{"authenticated":true,"user":{"username":"system:serviceaccount:kube-system:konnectivity-agent"}}"#
        } else {
            r#"{"authenticated":false}"#
        };
        let body = format!(
            r#"{{"kind":"TokenReview","apiVersion":"authentication.k8s.io/v1","metadata":{{}},"spec":{{"token":"x"}},"status":{status}}}"#
        );
        let answer = format!(
            "HTTP/1.1 201 Created\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        if socket.write_all(answer.as_bytes()).await.is_err() {
            return;
        }
    }
}

fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else {
        return false;
    };
    let length = head
        .lines()
        .find_map(|line| {
            line.to_lowercase()
                .strip_prefix("content-length:")
                .map(|v| v.trim().parse().unwrap())
        })
        .unwrap_or(0);
    body.len() >= length
}
