//! Calls to a runtime over its Unix socket.

use std::io;
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status};
use tonic_prost::ProstCodec;

use super::{ContainerEventResponse, ExecSyncRequest, GetEventsRequest, StopContainerRequest};

/// Upstream's bound for one message.
const LARGEST_MESSAGE: usize = 16 * 1024 * 1024;

/// The client of a runtime. Clones share the connection, which is made when it is needed and made again when it broke.
#[derive(Clone, Debug)]
pub struct Client {
    channel: Channel,
    timeout: Duration,
}

impl Client {
    /// A client of the runtime at `endpoint`: `unix:///run/containerd/containerd.sock` or a plain path.
    pub fn new(endpoint: &str, timeout: Duration) -> Self {
        let path = endpoint.strip_prefix("unix://").unwrap_or(endpoint);
        let channel = unix_channel(Path::new(path));
        Self { channel, timeout }
    }

    fn grpc(&self) -> Grpc<Channel> {
        Grpc::new(self.channel.clone())
            .max_decoding_message_size(LARGEST_MESSAGE)
            .max_encoding_message_size(LARGEST_MESSAGE)
    }

    pub(super) async fn unary<Q, A>(
        &self,
        path: &'static str,
        request: Q,
        limit: Option<Duration>,
    ) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let call = async {
            let mut grpc = self.grpc();
            grpc.ready().await.map_err(unreachable)?;
            let codec = ProstCodec::<Q, A>::default();
            let path = PathAndQuery::from_static(path);
            grpc.unary(Request::new(request), path, codec).await
        };
        let answer = match limit {
            None => call.await,
            Some(limit) => tokio::time::timeout(limit, call)
                .await
                .unwrap_or_else(|_| Err(Status::deadline_exceeded("context deadline exceeded"))),
        };
        answer.map(tonic::Response::into_inner)
    }

    pub(super) async fn events(
        &self,
    ) -> Result<BoxStream<'static, Result<ContainerEventResponse, Status>>, Status> {
        let mut grpc = self.grpc();
        grpc.ready().await.map_err(unreachable)?;
        let codec = ProstCodec::<GetEventsRequest, ContainerEventResponse>::default();
        let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/GetContainerEvents");
        let answer = grpc
            .server_streaming(Request::new(GetEventsRequest {}), path, codec)
            .await?;
        // The headers come with the first event or the refusal, so the refusal is in the stream.
        Ok(answer.into_inner().into_stream().boxed())
    }
}

fn unreachable(error: tonic::transport::Error) -> Status {
    Status::unavailable(format!("the container runtime cannot be reached: {error}"))
}

/// How long calls may take: upstream's rules, by the name that the table of calls uses.
pub(super) struct Limit;

impl Limit {
    pub(super) fn usual<Q>(client: &Client, _: &Q) -> Option<Duration> {
        Some(client.timeout)
    }

    pub(super) fn twice<Q>(client: &Client, _: &Q) -> Option<Duration> {
        Some(client.timeout * 2)
    }

    pub(super) fn none<Q>(_: &Client, _: &Q) -> Option<Duration> {
        None
    }

    pub(super) fn stopping(client: &Client, request: &StopContainerRequest) -> Option<Duration> {
        Some(client.timeout + seconds(request.timeout))
    }

    /// Without a time limit of its own a command may run for ever, as hooks do.
    pub(super) fn executing(client: &Client, request: &ExecSyncRequest) -> Option<Duration> {
        (request.timeout > 0).then(|| client.timeout + seconds(request.timeout))
    }
}

fn seconds(count: i64) -> Duration {
    Duration::from_secs(count.try_into().unwrap_or(0))
}

/// A connection to whoever listens at a Unix socket, made when it is needed.
pub(crate) fn unix_channel(socket: &Path) -> Channel {
    let connector = Connector(socket.to_owned());
    Endpoint::from_static("http://localhost").connect_with_connector_lazy(connector)
}

struct Connector(PathBuf);

impl Service<Uri> for Connector {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = self.0.clone();
        Box::pin(async move { UnixStream::connect(path).await.map(TokioIo::new) })
    }
}
