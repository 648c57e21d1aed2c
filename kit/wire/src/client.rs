//! A client that keeps its connections: HTTP/1.1, plain or in TLS, for many requests to few servers.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use crate::https::{bare, secure};

/// How many connections to one server are kept while nobody uses them; more are closed.
const KEPT: usize = 32;
/// The most an answer may have.
const MAX_BYTES: usize = 64 << 20;

type Sender = SendRequest<Full<Bytes>>;

/// Why there is no answer.
#[derive(Debug, Clone, thiserror::Error)]
#[error("cannot reach {server}: {cause}")]
pub struct Unreachable {
    /// Scheme, host and port.
    pub server: String,
    /// What went wrong.
    pub cause: String,
}

/// Sends requests; connections are shared by whoever holds it.
pub struct Client {
    tls: Arc<ClientConfig>,
    patience: Duration,
    /// Connections that nobody uses now, by scheme and authority.
    idle: Mutex<HashMap<String, Vec<Sender>>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// A client that trusts whom `tls` trusts, and waits so long for an answer.
    pub fn new(tls: Arc<ClientConfig>, patience: Duration) -> Client {
        Client {
            tls,
            patience,
            idle: Mutex::default(),
        }
    }

    /// Sends a request with an absolute address, and reads the whole answer.
    pub async fn send(
        &self,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, Unreachable> {
        let server = server_of(request.uri());
        let failed = |cause: String| Unreachable {
            server: server.clone(),
            cause,
        };
        match tokio::time::timeout(self.patience, self.exchange(&server, request)).await {
            Ok(outcome) => outcome.map_err(failed),
            Err(_) => Err(failed(format!("no answer in {:?}", self.patience))),
        }
    }

    async fn exchange(
        &self,
        server: &str,
        request: Request<Full<Bytes>>,
    ) -> Result<Response<Bytes>, String> {
        let (uri, mut request) = without_server(request)?;
        loop {
            let kept = self.kept(server);
            let is_kept = kept.is_some();
            let mut sender = match kept {
                Some(sender) => sender,
                None => self.connect(&uri).await?,
            };
            if sender.ready().await.is_err() && is_kept {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => {
                    let whole = whole(response).await?;
                    self.keep(server, sender);
                    return Ok(whole);
                }
                // The server closed a connection that lay idle: nothing was sent, another one will do.
                Err(mut error) => match error.take_message().filter(|_| is_kept) {
                    Some(unsent) => request = unsent,
                    None => return Err(error.into_error().to_string()),
                },
            }
        }
    }

    fn kept(&self, server: &str) -> Option<Sender> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let own = idle.get_mut(server)?;
        own.retain(|sender| !sender.is_closed());
        own.pop()
    }

    fn keep(&self, server: &str, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let own = idle.entry(server.to_owned()).or_default();
        if !sender.is_closed() && own.len() < KEPT {
            own.push(sender);
        }
    }

    async fn connect(&self, uri: &Uri) -> Result<Sender, String> {
        let host = uri.host().ok_or("the address has no host")?;
        let is_secure = uri.scheme_str() == Some("https");
        let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
        let stream = TcpStream::connect((bare(host), port)).await;
        let stream = stream.map_err(|e| e.to_string())?;
        // A small request must not wait for the answer to the one before it; without it it is merely slower.
        let _ = stream.set_nodelay(true);
        if !is_secure {
            return begin(stream).await;
        }
        let stream = secure(stream, host, Arc::clone(&self.tls)).await;
        begin(stream.map_err(|e| e.to_string())?).await
    }
}

async fn begin<S>(stream: S) -> Result<Sender, String>
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sender, connection) = handshake(TokioIo::new(stream))
        .await
        .map_err(|e| e.to_string())?;
    // It ends with its sender, which the pool holds.
    tokio::spawn(connection);
    Ok(sender)
}

fn server_of(uri: &Uri) -> String {
    let authority = uri.authority().map_or("", |a| a.as_str());
    format!("{}://{authority}", uri.scheme_str().unwrap_or("http"))
}

/// The address apart, and the request as HTTP/1.1 has it.
fn without_server(request: Request<Full<Bytes>>) -> Result<(Uri, Request<Full<Bytes>>), String> {
    let (mut head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("/", |p| p.as_str());
    let path = path.parse::<Uri>().map_err(|e| e.to_string())?;
    let uri = std::mem::replace(&mut head.uri, path);
    let host = uri.authority().map_or("", |a| a.as_str());
    let host = HeaderValue::from_str(host).map_err(|e| e.to_string())?;
    head.headers.insert(HOST, host);
    Ok((uri, Request::from_parts(head, body)))
}

async fn whole(response: Response<Incoming>) -> Result<Response<Bytes>, String> {
    let (head, body) = response.into_parts();
    let body = Limited::new(body, MAX_BYTES).collect().await;
    let body = body.map_err(|e| e.to_string())?.to_bytes();
    Ok(Response::from_parts(head, body))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
    use tokio::net::TcpListener;

    /// Answers so many requests on each connection, then closes it; tells how many connections there were.
    async fn server(each: usize) -> (String, Arc<Mutex<usize>>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        let count = Arc::new(Mutex::new(0));
        let counted = Arc::clone(&count);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                *counted.lock().unwrap() += 1;
                tokio::spawn(async move {
                    let mut stream = BufReader::new(stream);
                    for _ in 0..each {
                        let mut line = String::new();
                        while stream.read_line(&mut line).await.unwrap() > 2 {}
                        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";
                        stream.write_all(answer).await.unwrap();
                    }
                });
            }
        });
        (origin, count)
    }

    async fn ask(client: &Client, origin: &str) -> Bytes {
        let request = Request::get(format!("{origin}/path?q=1"));
        let request = request.body(Full::default()).unwrap();
        client.send(request).await.unwrap().into_body()
    }

    fn client() -> Client {
        Client::new(crate::https::tls(None).unwrap(), Duration::from_secs(30))
    }

    #[tokio::test]
    async fn a_connection_is_used_again() {
        let (origin, count) = server(10).await;
        let client = client();
        for _ in 0..5 {
            assert_eq!(&ask(&client, &origin).await[..], b"ok");
        }
        assert_eq!(*count.lock().unwrap(), 1);
    }

    #[tokio::test]
    async fn a_server_that_hangs_up_between_requests_is_called_again() {
        let (origin, count) = server(1).await;
        let client = client();
        for _ in 0..3 {
            assert_eq!(&ask(&client, &origin).await[..], b"ok");
        }
        assert_eq!(*count.lock().unwrap(), 3);
    }

    #[tokio::test]
    async fn nobody_there_is_said_with_the_address() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let origin = format!("http://{}", listener.local_addr().unwrap());
        drop(listener);
        let request = Request::get(&origin).body(Full::default()).unwrap();
        let error = client().send(request).await.unwrap_err();
        assert_eq!(error.server, origin);
    }
}
