//! The gRPC front end: a call of upstream's `ProxyService` is one connection.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Instant;

use bytes::Bytes;

use super::Shared;
use super::backend::{DialError, PendingDial};
use super::registry::NoConnection;
use crate::http2::{self, Connection, Stream, StreamError, Tuning, only};
use crate::lanes::Inbound;
use crate::link::Wire;
use crate::metrics::{DialFailure, Method, Segment};
use crate::packet::Packet;
use crate::pump::Local;
use crate::wire_names::{HALF_CLOSE, PROXY};

/// What a client may send ahead of a destination that does not read.
const TUNING: Tuning = Tuning {
    stream_window: 256 << 10,
    max_streams: 10_000,
};

pub(super) async fn serve(socket: impl Local, shared: Arc<Shared>) {
    let connection = Connection::server(socket, TUNING);
    http2::serve(connection, |stream| call(stream, Arc::clone(&shared))).await;
}

async fn call(stream: Stream, shared: Arc<Shared>) {
    let request = stream.take_request();
    if only(&request, ":path") != Some(PROXY) {
        return stream.unimplemented();
    }
    let _counted = shared.counted(Method::Proxy);
    if shared.closing.load(Ordering::Relaxed) {
        // A client that uses its connection for several tunnels finds another one.
        stream.leaver().leave();
    }
    let half_close = only(&request, HALF_CLOSE).is_some();
    stream.accept(if half_close {
        &[(HALF_CLOSE, "1")]
    } else {
        &[]
    });
    let client = Client {
        stream,
        shared: &shared,
        half_close,
    };
    let ended = client.run().await;
    client
        .stream
        .finish(ended.as_ref().map_err(|e| e.text.as_str()).copied());
}

struct Client<'a> {
    stream: Stream,
    shared: &'a Shared,
    half_close: bool,
}

/// What the client asked for while its dial was under way.
enum WhileDialling {
    Answered(Result<Wire, NoConnection>),
    GivenUp,
}

impl Client<'_> {
    // Before a dial there is nothing to talk about; upstream's words.
    async fn run(&self) -> Result<(), StreamError> {
        while let Some(packet) = self.next().await? {
            match packet {
                Packet::DialRequest {
                    random,
                    protocol,
                    address,
                } => return self.dial(random, &protocol, &address).await,
                Packet::Data { id, .. } => {
                    self.send(close_response(id, "backend not initialized"));
                    return Ok(());
                }
                Packet::CloseRequest { id } => {
                    self.send(close_response(id, "backend uninitialized"));
                }
                Packet::DialClose { .. } => {
                    self.shared.metrics.dial_failed(DialFailure::FrontendClose);
                }
                _ => {}
            }
        }
        Ok(())
    }

    async fn dial(&self, random: i64, protocol: &str, address: &str) -> Result<(), StreamError> {
        let failed = |error: String| Packet::DialResponse {
            random,
            id: 0,
            error,
        };
        let (mut pending, backend) = match self.shared.dial(random, protocol, address) {
            Ok(found) => found,
            Err(error) => {
                self.send(failed(error.to_string()));
                return Ok(());
            }
        };
        let wire = match self.answer(&mut pending, random).await? {
            WhileDialling::Answered(Ok(wire)) => wire,
            WhileDialling::Answered(Err(NoConnection::Failed(DialError::Closed))) => {
                self.send(Packet::DialClose { random });
                return Ok(());
            }
            WhileDialling::Answered(Err(error)) => {
                self.send(failed(error.to_string()));
                return Ok(());
            }
            WhileDialling::GivenUp => {
                self.shared.metrics.dial_failed(DialFailure::FrontendClose);
                return Ok(());
            }
        };
        drop(pending);
        self.send(Packet::DialResponse {
            random,
            id: wire.id(),
            error: String::new(),
        });
        let _established = self.shared.metrics.established.hold();
        let (since, id) = (Instant::now(), wire.id());
        let ended = self.relay(wire).await;
        self.shared
            .metrics
            .connection_duration
            .observe(since.elapsed());
        tracing::debug!(
            address,
            agent = backend.agent_id,
            dial = random,
            connection = id,
            seconds = since.elapsed().as_secs_f64(),
            error = ended.as_ref().err().map(ToString::to_string),
            "connection ended"
        );
        ended
    }

    async fn answer(
        &self,
        pending: &mut PendingDial,
        random: i64,
    ) -> Result<WhileDialling, StreamError> {
        let answer = self.shared.answer(pending);
        tokio::pin!(answer);
        loop {
            tokio::select! {
                biased;
                answer = &mut answer => return Ok(WhileDialling::Answered(answer)),
                packet = self.next() => match packet {
                    Ok(Some(Packet::DialClose { random: closed })) if closed == random => {
                        return Ok(WhileDialling::GivenUp);
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => return Ok(WhileDialling::GivenUp),
                    Err(error) => {
                        self.shared.metrics.dial_failed(DialFailure::FrontendClose);
                        return Err(error);
                    }
                },
            }
        }
    }

    async fn relay(&self, wire: Wire) -> Result<(), StreamError> {
        let mut closing = false;
        std::future::poll_fn(|cx| {
            if let Poll::Ready(()) = self.poll_to_client(cx, &wire) {
                return Poll::Ready(Ok(()));
            }
            self.poll_from_client(cx, &wire, &mut closing)
        })
        .await
    }

    // Ready when the connection is over.
    fn poll_to_client(&self, cx: &mut Context<'_>, wire: &Wire) -> Poll<()> {
        let id = wire.id();
        loop {
            std::task::ready!(self.stream.poll_ready(cx));
            match std::task::ready!(wire.poll_take(cx)) {
                Inbound::Data(data) => {
                    let began = Instant::now();
                    self.send(Packet::Data { id, data });
                    self.shared.metrics.frontend_write.observe(began.elapsed());
                }
                Inbound::EndOfData if self.half_close => self.send(Packet::EndOfData { id }),
                // Upstream's client knows only the end of both directions.
                Inbound::EndOfData => {
                    self.send(close_response(id, ""));
                    return Poll::Ready(());
                }
                Inbound::Closed(reason) => {
                    self.send(close_response(id, &reason));
                    return Poll::Ready(());
                }
            }
        }
    }

    fn poll_from_client(
        &self,
        cx: &mut Context<'_>,
        wire: &Wire,
        closing: &mut bool,
    ) -> Poll<Result<(), StreamError>> {
        loop {
            std::task::ready!(wire.poll_ready(cx));
            let message = std::task::ready!(self.stream.poll_message(cx));
            let Some(packet) = self.packet(message)? else {
                return Poll::Ready(Ok(()));
            };
            if *closing {
                continue;
            }
            match packet {
                Packet::Data { id: 0, .. } => {}
                Packet::Data { id, data } if id == wire.id() => wire.send(data),
                Packet::Data { id, .. } => {
                    for id in [wire.id(), id] {
                        self.send(close_response(id, "mismatched connection IDs"));
                    }
                    return Poll::Ready(Ok(()));
                }
                Packet::CloseRequest { .. } => {
                    wire.finish(String::new());
                    *closing = true;
                }
                Packet::EndOfData { .. } if wire.extended => wire.send_end(),
                _ => {}
            }
        }
    }

    async fn next(&self) -> Result<Option<Packet>, StreamError> {
        let message = self.stream.message().await;
        self.packet(message)
    }

    fn packet(
        &self,
        message: Option<Result<Bytes, StreamError>>,
    ) -> Result<Option<Packet>, StreamError> {
        let Some(message) = message else {
            return Ok(None);
        };
        let message = message.inspect_err(|error| {
            self.shared.metrics.clients.error(Segment::In, error.code);
        })?;
        let packet = Packet::decode(message).map_err(StreamError::malformed)?;
        self.shared.metrics.clients.count(Segment::In, &packet);
        Ok(Some(packet))
    }

    fn send(&self, packet: Packet) {
        self.shared.metrics.clients.count(Segment::Out, &packet);
        let (head, data) = packet.encode();
        self.stream.send(&head, data);
    }
}

fn close_response(id: i64, error: &str) -> Packet {
    Packet::CloseResponse {
        id,
        error: error.to_owned(),
    }
}
