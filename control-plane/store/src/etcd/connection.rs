//! Calls to an etcd cluster: one channel per endpoint, a time limit on every call, and another
//! endpoint when one cannot be reached.

use std::error::Error as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use futures::Stream;
use prost::Message;
use tonic::client::Grpc;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Code, Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::Options;
use super::dialer::Connector;
use crate::{Error, Result};

/// The channels to a cluster.
#[derive(Debug)]
pub(super) struct Connection {
    channels: Vec<Channel>,
    /// The endpoint that answered last.
    preferred: AtomicUsize,
    call_timeout: Duration,
}

/// Whether a call may be made again when it is not known whether it took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Repeat {
    /// Reads: ask another endpoint.
    Always,
    /// Writes: only if the call certainly never left this machine.
    IfNotSent,
}

impl Connection {
    /// Prepares the channels; they connect when they are used.
    pub(super) fn new(options: &Options) -> Result<Self> {
        if options.endpoints.is_empty() {
            return Err(unavailable("no etcd endpoint was given"));
        }
        let channels: Result<Vec<Channel>> = options
            .endpoints
            .iter()
            .map(|endpoint| channel(endpoint, options))
            .collect();
        Ok(Self {
            channels: channels?,
            preferred: AtomicUsize::new(0),
            call_timeout: options.call_timeout,
        })
    }

    /// Calls a method, on another endpoint if need be.
    pub(super) async fn call<Q, A>(
        &self,
        path: &'static str,
        request: Q,
        repeat: Repeat,
    ) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let mut last = Status::unavailable("no endpoint was tried");
        for at in self.order() {
            let answer = self.call_one(at, path, request.clone()).await;
            match answer {
                Err(status) if may_try_elsewhere(&status, repeat) => last = status,
                other => {
                    self.preferred.store(self.next_after(at, &other), Relaxed);
                    return other;
                }
            }
        }
        Err(last)
    }

    async fn call_one<Q, A>(&self, at: usize, path: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let mut grpc = self.grpc(at);
        let call = async {
            grpc.ready().await.map_err(not_ready)?;
            let codec = ProstCodec::<Q, A>::default();
            grpc.unary(
                Request::new(request),
                PathAndQuery::from_static(path),
                codec,
            )
            .await
        };
        match tokio::time::timeout(self.call_timeout, call).await {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded(format!(
                "etcd did not answer within {:?}",
                self.call_timeout
            ))),
        }
    }

    /// Opens a stream in both directions on the first endpoint that accepts it.
    pub(super) async fn stream<Q, A, S>(
        &self,
        path: &'static str,
        mut requests: impl FnMut() -> S,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
        S: Stream<Item = Q> + Send + 'static,
    {
        let mut last = Status::unavailable("no endpoint was tried");
        for at in self.order() {
            match self.stream_one(at, path, requests()).await {
                Ok(stream) => {
                    self.preferred.store(at, Relaxed);
                    return Ok(stream);
                }
                Err(status) => last = status,
            }
        }
        Err(last)
    }

    async fn stream_one<Q, A, S>(
        &self,
        at: usize,
        path: &'static str,
        requests: S,
    ) -> Result<Streaming<A>, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
        S: Stream<Item = Q> + Send + 'static,
    {
        let mut grpc = self.grpc(at);
        let mut request = Request::new(requests);
        // Makes etcd end the stream when its member has lost the leader, instead of going silent.
        let yes = tonic::metadata::MetadataValue::from_static("true");
        request.metadata_mut().insert("hasleader", yes);
        let open = async {
            grpc.ready().await.map_err(not_ready)?;
            let codec = ProstCodec::<Q, A>::default();
            grpc.streaming(request, PathAndQuery::from_static(path), codec)
                .await
        };
        match tokio::time::timeout(self.call_timeout, open).await {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_) => Err(Status::deadline_exceeded(
                "etcd did not open the watch in time",
            )),
        }
    }

    fn grpc(&self, at: usize) -> Grpc<Channel> {
        // The size of an answer is etcd's to limit: a range of a big cluster has many megabytes.
        Grpc::new(self.channels[at].clone())
            .max_decoding_message_size(usize::MAX)
            .max_encoding_message_size(usize::MAX)
    }

    /// Every endpoint once, the preferred one first.
    fn order(&self) -> impl Iterator<Item = usize> {
        let (first, count) = (self.preferred.load(Relaxed), self.channels.len());
        (0..count).map(move |step| (first + step) % count)
    }

    /// Which endpoint to prefer after an answer: another one if this one is in trouble.
    fn next_after<A>(&self, at: usize, answer: &Result<A, Status>) -> usize {
        match answer {
            Err(status) if in_trouble(status) => (at + 1) % self.channels.len(),
            _ => at,
        }
    }
}

fn channel(uri: &str, options: &Options) -> Result<Channel> {
    let bad = |error: &dyn std::fmt::Display| unavailable(&format!("etcd endpoint {uri}: {error}"));
    let mut endpoint = Endpoint::from_shared(uri.to_owned())
        .map_err(|error| bad(&error))?
        .connect_timeout(options.connect_timeout)
        .tcp_nodelay(true)
        // The times upstream's etcd client is given: kube's storage factory for etcd3.
        .http2_keep_alive_interval(Duration::from_secs(30))
        .keep_alive_timeout(Duration::from_secs(10));
    if let Some(tls) = &options.tls {
        let mut config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca_pem));
        if let Some(client) = &tls.client {
            let identity = Identity::from_pem(&client.certificate_pem, &client.key_pem);
            config = config.identity(identity);
        }
        if let Some(name) = &tls.server_name {
            config = config.domain_name(name);
        }
        endpoint = endpoint
            .tls_config(config)
            .map_err(|error| bad(&with_sources(&error)))?;
    }
    Ok(match &options.dialer {
        None => endpoint.connect_lazy(),
        Some(dialer) => endpoint.connect_with_connector_lazy(Connector(Arc::clone(dialer))),
    })
}

fn may_try_elsewhere(status: &Status, repeat: Repeat) -> bool {
    match repeat {
        Repeat::Always => in_trouble(status),
        Repeat::IfNotSent => never_sent(status),
    }
}

fn in_trouble(status: &Status) -> bool {
    matches!(status.code(), Code::Unavailable | Code::DeadlineExceeded) || never_sent(status)
}

/// Whether the call failed because no connection could be made.
fn never_sent(status: &Status) -> bool {
    let mut source = status.source();
    while let Some(error) = source {
        if error.is::<tonic::ConnectError>() {
            return true;
        }
        source = error.source();
    }
    false
}

fn not_ready(error: tonic::transport::Error) -> Status {
    Status::from_error(Box::new(error))
}

/// An error with everything that led to it, on one line.
fn with_sources(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(error) = source {
        let cause = error.to_string();
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
        source = error.source();
    }
    text
}

/// The error for a call that failed for reasons of the connection or of etcd.
pub(super) fn failed(status: &Status) -> Error {
    let mut cause = format!("etcd: {}", status.message());
    if let Some(source) = status.source() {
        cause = format!("{cause}: {}", with_sources(source));
    }
    Error::Unavailable { cause }
}

fn unavailable(cause: &str) -> Error {
    Error::Unavailable {
        cause: cause.to_owned(),
    }
}
