//! A key management service for the API server: KMS v2 over a Unix socket, with a key that can be changed and a service
//! that can be ill or gone. What it encrypts with is no secret; that it was asked can be seen.

use std::collections::HashMap;
use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{BufMut, Bytes};
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;
use tokio::runtime::Runtime;

#[derive(Clone, PartialEq, Message)]
struct Status {
    #[prost(string, tag = "1")]
    version: String,
    #[prost(string, tag = "2")]
    healthz: String,
    #[prost(string, tag = "3")]
    key_id: String,
}

/// Both the request to encrypt and the answer to decrypt, as far as they are looked at.
#[derive(Clone, PartialEq, Message)]
struct Plain {
    #[prost(bytes = "vec", tag = "1")]
    plaintext: Vec<u8>,
}

#[derive(Clone, PartialEq, Message)]
struct Encrypted {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "2")]
    key_id: String,
    #[prost(map = "string, bytes", tag = "3")]
    annotations: HashMap<String, Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
struct DecryptRequest {
    #[prost(bytes = "vec", tag = "1")]
    ciphertext: Vec<u8>,
    #[prost(string, tag = "3")]
    key_id: String,
    #[prost(map = "string, bytes", tag = "4")]
    annotations: HashMap<String, Vec<u8>>,
}

#[derive(Default)]
struct State {
    key_id: String,
    calls: HashMap<String, usize>,
}

/// The service.
pub(crate) struct KmsPlugin {
    socket: PathBuf,
    state: Arc<Mutex<State>>,
    running: Option<Runtime>,
}

impl KmsPlugin {
    pub(crate) fn start(socket: PathBuf, key_id: &str) -> KmsPlugin {
        let mut plugin = KmsPlugin {
            socket,
            state: Arc::default(),
            running: None,
        };
        plugin.turn(key_id);
        plugin.start_again();
        plugin
    }

    pub(crate) fn socket(&self) -> &Path {
        &self.socket
    }

    /// Encrypts with another key from now on; what the old ones encrypted can still be decrypted.
    pub(crate) fn turn(&self, key_id: &str) {
        self.lock().key_id = key_id.to_owned();
    }

    /// How often a method was called.
    pub(crate) fn calls(&self, method: &str) -> usize {
        self.lock().calls.get(method).copied().unwrap_or(0)
    }

    /// The service is gone, and so are its connections.
    pub(crate) fn stop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown_background();
        }
        std::fs::remove_file(&self.socket).expect("the socket is ours");
    }

    pub(crate) fn start_again(&mut self) {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime can be made");
        let within = runtime.enter();
        let listener = UnixListener::bind(&self.socket).expect("a socket can be made");
        drop(within);
        runtime.spawn(serve(listener, Arc::clone(&self.state)));
        self.running = Some(runtime);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panics with it")
    }
}

impl Drop for KmsPlugin {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            running.shutdown_background();
        }
    }
}

async fn serve(listener: UnixListener, state: Arc<Mutex<State>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let state = Arc::clone(&state);
        let service = service_fn(move |request: Request<Incoming>| {
            let state = Arc::clone(&state);
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.expect("a whole body");
                // gRPC by hand: five bytes, the message, and a good end.
                let message = answer(&path, &body.to_bytes()[5..], &state);
                let mut framed = vec![0];
                framed.put_u32(u32::try_from(message.len()).expect("small"));
                framed.extend(message);
                let mut end = HeaderMap::new();
                end.insert("grpc-status", HeaderValue::from_static("0"));
                let frames = [Frame::data(Bytes::from(framed)), Frame::trailers(end)];
                let frames = futures::stream::iter(frames.map(Ok::<_, Infallible>));
                let mut response = Response::new(StreamBody::new(frames));
                let kind = HeaderValue::from_static("application/grpc");
                response.headers_mut().insert("content-type", kind);
                Ok::<_, Infallible>(response)
            }
        });
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

const NOTE: &str = "version.kms.example";

fn answer(path: &str, message: &[u8], state: &Mutex<State>) -> Vec<u8> {
    let mut state = state.lock().expect("nobody panics with it");
    let method = path
        .strip_prefix("/v2.KeyManagementService/")
        .expect("the service's own path");
    *state.calls.entry(method.to_owned()).or_default() += 1;
    let mixed = |bytes: &[u8], key_id: &str| -> Vec<u8> {
        let key = key_id.bytes().cycle();
        bytes
            .iter()
            .zip(key)
            .map(|(byte, key)| byte ^ key)
            .collect()
    };
    match method {
        "Status" => Status {
            version: "v2".to_owned(),
            healthz: "ok".to_owned(),
            key_id: state.key_id.clone(),
        }
        .encode_to_vec(),
        "Encrypt" => {
            let plain = Plain::decode(message).expect("a request").plaintext;
            Encrypted {
                ciphertext: mixed(&plain, &state.key_id),
                key_id: state.key_id.clone(),
                annotations: HashMap::from([(NOTE.to_owned(), b"1".to_vec())]),
            }
            .encode_to_vec()
        }
        "Decrypt" => {
            let request = DecryptRequest::decode(message).expect("a request");
            assert_eq!(request.annotations[NOTE], b"1", "what was noted comes back");
            let plaintext = mixed(&request.ciphertext, &request.key_id);
            Plain { plaintext }.encode_to_vec()
        }
        other => panic!("no such method: {other}"),
    }
}
