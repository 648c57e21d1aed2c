//! exec, attach and port-forward: the runtime serves the streams, and this passes them on.
//!
//! SPDY and the older WebSocket protocols go through as they come, byte by byte, because every runtime speaks them. Two
//! that not every runtime speaks end here and become SPDY: WebSocket commands of version 5, and port-forward in a
//! WebSocket.

mod spdy;
mod translate;
mod websocket;

use http::header::{
    CONNECTION, HOST, HeaderName, HeaderValue, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, UPGRADE,
};
use http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use http_body_util::Empty;
use hyper::body::{Bytes, Incoming};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::Server;
use super::answer::{self, Answer};
use super::query::Query;
use super::route::{Stream, Target};
use crate::cri;
use crate::pods::KnownPod;

/// Commands over WebSocket with an end of input.
const V5: &str = "v5.channel.k8s.io";
/// Port-forward's SPDY inside WebSocket messages.
const TUNNEL: &str = "SPDY/3.1+portforward.k8s.io";
const STREAM_PROTOCOL: HeaderName = HeaderName::from_static("x-stream-protocol-version");

/// Which streams a client wants of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wants {
    stdin: bool,
    stdout: bool,
    stderr: bool,
    tty: bool,
}

impl Wants {
    // The API server's names for the three streams. A terminal has no second output.
    fn read(query: &Query) -> Result<Wants, &'static str> {
        let tty = query.flag("tty");
        let wants = Wants {
            stdin: query.flag("input"),
            stdout: query.flag("output"),
            stderr: query.flag("error") && !tty,
            tty,
        };
        match wants.stdin || wants.stdout || wants.stderr {
            true => Ok(wants),
            false => Err("you must specify at least 1 of stdin, stdout, stderr"),
        }
    }
}

/// How the client's side is spoken to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// As the runtime speaks to it.
    AsIs,
    /// WebSocket, commands of version 5.
    Commands,
    /// WebSocket with SPDY inside.
    Tunnel,
}

fn manner(stream: Stream, headers: &HeaderMap) -> Manner {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let is_websocket = text(UPGRADE).is_some_and(|kind| kind.eq_ignore_ascii_case("websocket"));
    let offered = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter();
    let offered = offered.filter_map(|value| value.to_str().ok());
    let mut offered = offered.flat_map(|list| list.split(',').map(str::trim));
    let wanted = match stream {
        Stream::PortForward => (TUNNEL, Manner::Tunnel),
        Stream::Exec | Stream::Attach => (V5, Manner::Commands),
    };
    match is_websocket && offered.any(|protocol| protocol == wanted.0) {
        true => wanted.1,
        false => Manner::AsIs,
    }
}

/// Serves a request for streams.
pub(super) async fn serve(
    server: &Server,
    stream: Stream,
    target: &Target,
    request: Request<Incoming>,
) -> Answer {
    let query = Query::parse(request.uri().query());
    let Some(known) = server.find(target) else {
        return answer::text(StatusCode::NOT_FOUND, "pod does not exist\n");
    };
    let wants = match (stream, Wants::read(&query)) {
        (Stream::PortForward, _) => None,
        (_, Ok(wants)) => Some(wants),
        (_, Err(why)) => return answer::text(StatusCode::BAD_REQUEST, format!("{why}\n")),
    };
    let url = match place(server, stream, target, &known, wants, &query).await {
        Ok(url) => url,
        Err((code, why)) => return answer::text(code, why),
    };
    let failed = |why: String| answer::text(StatusCode::BAD_GATEWAY, why);
    match manner(stream, request.headers()) {
        Manner::AsIs => pass(&url, request).await.unwrap_or_else(failed),
        manner => translated(&url, manner, wants, request)
            .await
            .unwrap_or_else(failed),
    }
}

type Refused = (StatusCode, String);

/// Asks the runtime where the streams are.
async fn place(
    server: &Server,
    stream: Stream,
    target: &Target,
    known: &KnownPod,
    wants: Option<Wants>,
    query: &Query,
) -> Result<Uri, Refused> {
    let wants = wants.unwrap_or(Wants {
        stdin: false,
        stdout: false,
        stderr: false,
        tty: false,
    });
    let running = known
        .container(&target.container)
        .filter(|container| container.state == cri::ContainerState::Running);
    let container = || {
        let missing = format!("container not found ({:?})", target.container);
        let found = running.map(|container| container.id.clone());
        found.ok_or((StatusCode::INTERNAL_SERVER_ERROR, missing))
    };
    let runtime = &*server.runtime;
    let answer = match stream {
        Stream::Exec => {
            let request = cri::ExecRequest {
                container_id: container()?,
                cmd: query.all("command").map(str::to_owned).collect(),
                tty: wants.tty,
                stdin: wants.stdin,
                stdout: wants.stdout,
                stderr: wants.stderr,
            };
            runtime.exec(request).await.map(|answer| answer.url)
        }
        Stream::Attach => {
            // Whether there is a terminal was decided when the container was made.
            let tty = has_terminal(known, &target.container);
            let request = cri::AttachRequest {
                container_id: container()?,
                stdin: wants.stdin,
                tty,
                stdout: wants.stdout,
                stderr: wants.stderr && !tty,
            };
            runtime.attach(request).await.map(|answer| answer.url)
        }
        Stream::PortForward => {
            let missing = || {
                (
                    StatusCode::INTERNAL_SERVER_ERROR,
                    "pod not found".to_owned(),
                )
            };
            let ports = query.all("port").flat_map(|list| list.split(','));
            let request = cri::PortForwardRequest {
                pod_sandbox_id: known.sandbox_id.clone().ok_or_else(missing)?,
                port: ports.filter_map(|port| port.parse().ok()).collect(),
            };
            runtime.port_forward(request).await.map(|answer| answer.url)
        }
    };
    let url = answer.map_err(|status| (code_of(&status), status.message().to_owned()))?;
    url.parse().map_err(|_| {
        (
            StatusCode::INTERNAL_SERVER_ERROR,
            format!("the runtime answers with {url:?}, which is no address"),
        )
    })
}

// Upstream's `streaming.WriteError`.
fn code_of(status: &tonic::Status) -> StatusCode {
    match status.code() {
        tonic::Code::NotFound => StatusCode::NOT_FOUND,
        tonic::Code::ResourceExhausted => StatusCode::TOO_MANY_REQUESTS,
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

fn has_terminal(known: &KnownPod, name: &str) -> bool {
    let Some(spec) = &known.pod.spec else {
        return false;
    };
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let debuggers = spec.ephemeral_containers.iter().flatten();
    let mut all = containers
        .map(|c| (&c.name, c.tty))
        .chain(debuggers.map(|c| (&c.name, c.tty)));
    all.any(|(own, tty)| own == name && tty == Some(true))
}

/// Passes a request on as it came, and then the bytes of both sides.
async fn pass(url: &Uri, mut request: Request<Incoming>) -> Result<Answer, String> {
    let client = hyper::upgrade::on(&mut request);
    let response = ask(url, request.method().clone(), request.headers().clone()).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response.map(answer::passed));
    }
    let mut agreed = Response::new(answer::whole(""));
    *agreed.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    *agreed.headers_mut() = response.headers().clone();
    let runtime = hyper::upgrade::on(response);
    tokio::spawn(async move {
        if let Some((client, runtime)) = both(client, runtime).await {
            let (mut client, mut runtime) = (TokioIo::new(client), TokioIo::new(runtime));
            let ended = tokio::io::copy_bidirectional(&mut client, &mut runtime).await;
            if let Err(error) = ended {
                tracing::debug!(%error, "streams of a container ended early");
            }
        }
    });
    Ok(agreed)
}

async fn both(client: OnUpgrade, runtime: OnUpgrade) -> Option<(Upgraded, Upgraded)> {
    match tokio::try_join!(client, runtime) {
        Ok(both) => Some(both),
        Err(error) => {
            tracing::debug!(%error, "a connection did not change protocols");
            None
        }
    }
}

/// Ends the client's protocol here and speaks SPDY to the runtime.
async fn translated(
    url: &Uri,
    manner: Manner,
    wants: Option<Wants>,
    mut request: Request<Incoming>,
) -> Result<Answer, String> {
    let (ours, runtimes) = match manner {
        Manner::Tunnel => (TUNNEL, "portforward.k8s.io"),
        _ => (V5, "v4.channel.k8s.io"),
    };
    let key = request.headers().get(SEC_WEBSOCKET_KEY);
    let key = key.and_then(|value| value.to_str().ok());
    let Some(accept) = key.map(websocket::accept) else {
        return Ok(answer::text(
            StatusCode::BAD_REQUEST,
            "missing Sec-WebSocket-Key\n",
        ));
    };
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    headers.insert(STREAM_PROTOCOL, HeaderValue::from_static(runtimes));
    let response = ask(url, Method::POST, headers).await?;
    if response.status() != StatusCode::SWITCHING_PROTOCOLS {
        return Ok(response.map(answer::passed));
    }
    let client = hyper::upgrade::on(&mut request);
    let runtime = hyper::upgrade::on(response);
    tokio::spawn(async move {
        let Some((client, runtime)) = both(client, runtime).await else {
            return;
        };
        let (client, runtime) = (TokioIo::new(client), TokioIo::new(runtime));
        let ended = match wants {
            Some(wants) => translate::commands(client, runtime, wants).await,
            None => translate::tunnel(client, runtime).await,
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "translated streams ended early");
        }
    });
    let mut agreed = Response::new(answer::whole(""));
    *agreed.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let out = agreed.headers_mut();
    out.insert(CONNECTION, HeaderValue::from_static("Upgrade"));
    out.insert(UPGRADE, HeaderValue::from_static("websocket"));
    out.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(ours));
    let accept = HeaderValue::from_str(&accept).map_err(|error| error.to_string())?;
    out.insert(SEC_WEBSOCKET_ACCEPT, accept);
    Ok(agreed)
}

/// One request to the runtime's streaming server, which listens on this machine.
async fn ask(
    url: &Uri,
    method: Method,
    mut headers: HeaderMap,
) -> Result<Response<Incoming>, String> {
    let failed = |error: &dyn std::fmt::Display| {
        format!("error dialing the container runtime at {url}: {error}")
    };
    let authority = url
        .authority()
        .ok_or_else(|| failed(&"the address has no host"))?;
    let port = authority.port_u16().unwrap_or(80);
    let stream = TcpStream::connect((authority.host(), port))
        .await
        .map_err(|e| failed(&e))?;
    let _ = stream.set_nodelay(true);
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .map_err(|e| failed(&e))?;
    tokio::spawn(connection.with_upgrades());
    let host = HeaderValue::from_str(authority.as_str()).map_err(|e| failed(&e))?;
    headers.insert(HOST, host);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method;
    *request.uri_mut() = url
        .path_and_query()
        .map(|path| Uri::from(path.clone()))
        .unwrap_or_default();
    *request.headers_mut() = headers;
    sender.send_request(request).await.map_err(|e| failed(&e))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn streams_are_asked_for_by_the_api_servers_names() {
        let wants = |query| Wants::read(&Query::parse(Some(query)));
        let of = |stdin, stdout, stderr, tty| {
            Ok(Wants {
                stdin,
                stdout,
                stderr,
                tty,
            })
        };
        assert_eq!(
            wants("input=1&output=1&error=1"),
            of(true, true, true, false)
        );
        assert_eq!(
            wants("output=1&error=1&tty=1"),
            of(false, true, false, true)
        );
        assert!(wants("tty=1").is_err());
        assert!(wants("stdin=1&stdout=1").is_err());
    }

    #[test]
    fn only_what_runtimes_may_not_speak_is_translated() {
        for (stream, upgrade, protocols, wanted) in [
            (Stream::Exec, "SPDY/3.1", "", Manner::AsIs),
            (Stream::Exec, "websocket", "channel.k8s.io", Manner::AsIs),
            (
                Stream::Exec,
                "websocket",
                "v4.channel.k8s.io, base64.channel.k8s.io",
                Manner::AsIs,
            ),
            (
                Stream::Attach,
                "WebSocket",
                "v5.channel.k8s.io, v4.channel.k8s.io",
                Manner::Commands,
            ),
            (Stream::PortForward, "websocket", TUNNEL, Manner::Tunnel),
            (
                Stream::PortForward,
                "websocket",
                "v4.channel.k8s.io",
                Manner::AsIs,
            ),
            (Stream::Exec, "SPDY/3.1", "v5.channel.k8s.io", Manner::AsIs),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(UPGRADE, HeaderValue::from_static(upgrade));
            headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocols));
            assert_eq!(manner(stream, &headers), wanted, "{upgrade} {protocols}");
        }
    }
}
