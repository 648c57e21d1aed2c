//! The service itself: three calls over a Unix socket, `v2.KeyManagementService`.

use std::io;
use std::path::PathBuf;
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use hyper_util::rt::TokioIo;
use prost::Message;
use tokio::net::UnixStream;
use tonic::client::Grpc;
use tonic::codegen::Service;
use tonic::codegen::http::Uri;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};
use tonic_prost::ProstCodec;

use super::envelope::Annotations;
use crate::meters::Meters;

const STATUS: &str = "/v2.KeyManagementService/Status";
const ENCRYPT: &str = "/v2.KeyManagementService/Encrypt";
const DECRYPT: &str = "/v2.KeyManagementService/Decrypt";

#[derive(Clone, PartialEq, Message)]
struct StatusRequest {}

/// How a service is, and which key it encrypts with.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    #[prost(string, tag = "1")]
    pub(crate) version: String,
    #[prost(string, tag = "2")]
    pub(crate) healthz: String,
    #[prost(string, tag = "3")]
    pub(crate) key_id: String,
}

#[derive(Clone, PartialEq, Message)]
struct EncryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
    #[prost(string, tag = "2")]
    uid: String,
}

/// Something encrypted, and with which key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Encrypted {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) ciphertext: Bytes,
    #[prost(string, tag = "2")]
    pub(crate) key_id: String,
    #[prost(btree_map = "string, bytes", tag = "3")]
    pub(crate) annotations: Annotations,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptRequest {
    #[prost(bytes = "bytes", tag = "1")]
    ciphertext: Bytes,
    #[prost(string, tag = "2")]
    uid: String,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(btree_map = "string, bytes", tag = "4")]
    annotations: Annotations,
}

#[derive(Clone, PartialEq, Message)]
struct Decrypted {
    #[prost(bytes = "bytes", tag = "1")]
    plaintext: Bytes,
}

/// A connection to a service; it is made when it is used, and made again when it breaks.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    name: String,
    timeout: Duration,
    channel: Channel,
    meters: Meters,
}

struct Socket(PathBuf);

impl Service<Uri> for Socket {
    type Response = TokioIo<UnixStream>;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let path = self.0.clone();
        Box::pin(async move {
            let stream = UnixStream::connect(&path).await;
            let stream = stream
                .map_err(|e| io::Error::new(e.kind(), format!("dial {}: {e}", path.display())))?;
            Ok(TokioIo::new(stream))
        })
    }
}

impl Client {
    /// A client of the service at a socket. Has to be made where tokio runs.
    pub(crate) fn new(name: String, socket: PathBuf, timeout: Duration, meters: Meters) -> Client {
        let channel = Endpoint::from_static("http://localhost")
            .connect_timeout(timeout)
            .connect_with_connector_lazy(Socket(socket));
        Client {
            name,
            timeout,
            channel,
            meters,
        }
    }

    pub(crate) async fn status(&self) -> Result<Status, String> {
        self.call(STATUS, StatusRequest {}).await
    }

    pub(crate) async fn encrypt(&self, plaintext: Vec<u8>) -> Result<Encrypted, String> {
        let uid = uuid::Uuid::new_v4().to_string();
        self.call(ENCRYPT, EncryptRequest { plaintext, uid }).await
    }

    pub(crate) async fn decrypt(
        &self,
        ciphertext: Bytes,
        key_id: String,
        annotations: Annotations,
    ) -> Result<Bytes, String> {
        let request = DecryptRequest {
            ciphertext,
            uid: uuid::Uuid::new_v4().to_string(),
            key_id,
            annotations,
        };
        let answer: Decrypted = self.call(DECRYPT, request).await?;
        Ok(answer.plaintext)
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, String>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let began = Instant::now();
        let mut grpc = Grpc::new(self.channel.clone());
        let call = async {
            grpc.ready().await.map_err(|error| {
                let text = with_sources(&error);
                (Code::Unavailable, text)
            })?;
            let codec = ProstCodec::<Q, A>::default();
            let path = PathAndQuery::from_static(path);
            let answer = grpc.unary(Request::new(request), path, codec).await;
            answer.map_err(|status| (status.code(), described(&status)))
        };
        let answer = match tokio::time::timeout(self.timeout, call).await {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_) => Err((
                Code::DeadlineExceeded,
                format!("no answer within {:?}", self.timeout),
            )),
        };
        let code = answer.as_ref().err().map_or(Code::Ok, |(code, _)| *code);
        self.meters
            .kms_call(&self.name, path, code, began.elapsed());
        answer.map_err(|(code, text)| format!("rpc error: code = {code:?} desc = {text}"))
    }
}

fn described(status: &tonic::Status) -> String {
    use std::error::Error as _;
    match status.source() {
        Some(source) => format!("{}: {}", status.message(), with_sources(source)),
        None => status.message().to_owned(),
    }
}

// An error with everything that led to it, on one line.
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
