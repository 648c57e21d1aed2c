//! The parts of the control plane that are clients of this server, asked how they are as upstream asks them.

use std::time::Duration;

use http::Request;
use http_body_util::Empty;
use tokio::net::TcpStream;

use crate::connection::tls;
use crate::settings::Components;

/// Their names, and where upstream's listen on this machine.
pub(crate) const PARTS: [(&str, u16); 2] = [("controller-manager", 10257), ("scheduler", 10259)];

/// How long one may take to answer (upstream's `probeTimeOut`).
const PATIENCE: Duration = Duration::from_secs(20);

/// Whether a part is well, and what it says.
pub(crate) async fn health(
    components: &Components,
    (name, port): (&str, u16),
) -> Result<String, String> {
    match components {
        Components::Here(runs) if runs(name) => Ok("ok".to_owned()),
        Components::Here(_) => Err("it does not run in this process".to_owned()),
        Components::Elsewhere => {
            let address = format!("https://127.0.0.1:{port}/healthz");
            let asked = tokio::time::timeout(PATIENCE, ask(port)).await;
            let asked = asked.unwrap_or_else(|_| Err("context deadline exceeded".to_owned()));
            asked.map_err(|cause| format!("Get {address:?}: {cause}"))
        }
    }
}

// In Go's words.
async fn ask(port: u16) -> Result<String, String> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await;
    let stream = stream.map_err(|error| match error.kind() {
        std::io::ErrorKind::ConnectionRefused => {
            format!("dial tcp 127.0.0.1:{port}: connect: connection refused")
        }
        _ => format!("dial tcp 127.0.0.1:{port}: {error}"),
    })?;
    // Whoever is there: their certificates are of their own making.
    let config = tls::unverified_client(None).map_err(|e| e.to_string())?;
    let stream = wire::https::secure(stream, "127.0.0.1", std::sync::Arc::new(config)).await;
    let stream = stream.map_err(|e| format!("tls: {e}"))?;
    let request = Request::get("/healthz").header("host", format!("127.0.0.1:{port}"));
    let request = request.body(Empty::new()).map_err(|e| e.to_string())?;
    let answer = wire::https::exchange(stream, request).await;
    let answer = answer.map_err(|e| e.to_string())?;
    match answer.status().as_u16() {
        200..400 => Ok("ok".to_owned()),
        code => Err(format!("HTTP probe failed with statuscode: {code}")),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[tokio::test]
    async fn a_part_is_asked_where_it_is() {
        let here = Components::Here(Arc::new(|name| name == "scheduler"));
        assert_eq!(health(&here, ("scheduler", 1)).await, Ok("ok".to_owned()));
        assert!(health(&here, ("controller-manager", 1)).await.is_err());
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port");
        let port = listener.local_addr().expect("bound").port();
        drop(listener);
        let refused = format!(
            "Get \"https://127.0.0.1:{port}/healthz\": dial tcp 127.0.0.1:{port}: connect: connection refused"
        );
        let asked = health(&Components::Elsewhere, ("scheduler", port)).await;
        assert_eq!(asked, Err(refused));
    }
}
