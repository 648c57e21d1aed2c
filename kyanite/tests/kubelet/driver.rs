//! A CSI driver whose volumes are memory: it registers over a real socket, mounts for real, and fails when it is told to.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustix::mount::{MountFlags, UnmountFlags, mount, mount_bind, unmount};
use tokio::net::UnixListener;

/// What the driver is called.
pub(crate) const NAME: &str = "memory.csi.test";

macro_rules! messages {
    ($( $name:ident { $( $tag:tt $field:ident: $type:ty [$($kind:tt)*]; )* } )*) => { $(
        #[derive(Clone, PartialEq, Message)]
        struct $name { $( #[prost($($kind)*, tag = $tag)] $field: $type, )* }
    )* };
}

messages! {
    PluginInfo {
        "1" kind: String [string];
        "2" name: String [string];
        "3" endpoint: String [string];
        "4" versions: Vec<String> [string, repeated];
    }
    NodeInfo { "1" node_id: String [string]; "2" most: i64 [int64]; }
    Rpc { "1" kind: i32 [int32]; }
    Capability { "1" rpc: Option<Rpc> [message, optional]; }
    Capabilities { "1" capabilities: Vec<Capability> [message, repeated]; }
    Stage {
        "1" volume: String [string];
        "2" published: BTreeMap<String, String> [btree_map = "string, string"];
        "3" staging: String [string];
    }
    Publish {
        "1" volume: String [string];
        "3" staging: String [string];
        "4" target: String [string];
        "8" context: BTreeMap<String, String> [btree_map = "string, string"];
    }
    Place { "1" volume: String [string]; "2" path: String [string]; }
    Range { "1" bytes: i64 [int64]; }
    Expand { "1" volume: String [string]; "3" range: Option<Range> [message, optional]; }
    Usage {
        "1" available: i64 [int64];
        "2" total: i64 [int64];
        "3" used: i64 [int64];
        "4" unit: i32 [int32];
    }
    Usages { "1" usage: Vec<Usage> [message, repeated]; }
}

/// What it was asked, in order, and what it is to refuse: how often, by call.
#[derive(Default)]
struct Book {
    calls: Vec<String>,
    refusals: BTreeMap<String, u32>,
}

/// The driver, which ends with its value.
pub(crate) struct Driver {
    book: Arc<Mutex<Book>>,
    registration: PathBuf,
    _runtime: tokio::runtime::Runtime,
}

impl Driver {
    /// Registers with the kubelet whose directory this is.
    pub(crate) fn start(root: &Path) -> Driver {
        let book = Arc::new(Mutex::new(Book::default()));
        let home = root.join("plugins").join(NAME);
        fs::create_dir_all(&home).expect("a directory");
        fs::create_dir_all(root.join("plugins_registry")).expect("a directory");
        let endpoint = home.join("csi.sock");
        let registration = root.join("plugins_registry/memory-reg.sock");
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime");
        for socket in [&endpoint, &registration] {
            let (book, endpoint) = (Arc::clone(&book), endpoint.clone());
            let listener = runtime.block_on(async { UnixListener::bind(socket) });
            runtime.spawn(serve(listener.expect("a socket"), endpoint, book));
        }
        Driver {
            book,
            registration,
            _runtime: runtime,
        }
    }

    /// The next calls of this name fail, so many of them.
    pub(crate) fn refuse(&self, call: &str, times: u32) {
        let mut book = self.book.lock().expect("a lock");
        book.refusals.insert(call.to_owned(), times);
    }

    /// What it was asked since it was last looked at.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.book.lock().expect("a lock").calls.clone()
    }

    /// Forgets what it was asked.
    pub(crate) fn forget(&self) {
        self.book.lock().expect("a lock").calls.clear();
    }

    /// It is gone, as far as the kubelet is concerned.
    pub(crate) fn unregister(&self) {
        fs::remove_file(&self.registration).expect("it was there");
    }
}

async fn serve(listener: UnixListener, endpoint: PathBuf, book: Arc<Mutex<Book>>) {
    while let Ok((stream, _)) = listener.accept().await {
        let (endpoint, book) = (endpoint.clone(), Arc::clone(&book));
        let service = service_fn(move |request: Request<Incoming>| {
            let (endpoint, book) = (endpoint.clone(), Arc::clone(&book));
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.expect("a body");
                let call = path.rsplit('/').next().unwrap_or_default();
                let answer = answer(call, &body.to_bytes()[5..], &endpoint, &book);
                Ok::<_, Infallible>(framed(answer))
            }
        });
        let connection = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
            .serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}

type Frames = futures::stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>;

/// gRPC by hand: five bytes and the message, or why there is none.
fn framed(answer: Result<Vec<u8>, String>) -> Response<StreamBody<Frames>> {
    let mut end = HeaderMap::new();
    let mut frames = Vec::new();
    match answer {
        Ok(message) => {
            let length = u32::try_from(message.len()).expect("a small message");
            let bytes = [&[0], &length.to_be_bytes()[..], &message].concat();
            frames.push(Ok(Frame::data(Bytes::from(bytes))));
            end.insert("grpc-status", HeaderValue::from_static("0"));
        }
        Err(why) => {
            end.insert("grpc-status", HeaderValue::from_static("13"));
            let why = HeaderValue::from_str(&why).expect("plain words");
            end.insert("grpc-message", why);
        }
    }
    frames.push(Ok(Frame::trailers(end)));
    let mut response = Response::new(StreamBody::new(futures::stream::iter(frames)));
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert("content-type", kind);
    response
}

fn answer(
    call: &str,
    message: &[u8],
    endpoint: &Path,
    book: &Mutex<Book>,
) -> Result<Vec<u8>, String> {
    let mut book = book.lock().expect("a lock");
    let refusal = book.refusals.get_mut(call).filter(|left| **left > 0);
    if let Some(left) = refusal {
        *left -= 1;
        book.calls.push(format!("{call} refused"));
        return Err(format!("{call} does not want to"));
    }
    match call {
        "GetInfo" => {
            let info = PluginInfo {
                kind: "CSIPlugin".into(),
                name: NAME.into(),
                endpoint: endpoint.display().to_string(),
                versions: vec!["1.0.0".into()],
            };
            return Ok(info.encode_to_vec());
        }
        "NodeGetInfo" => {
            let info = NodeInfo {
                node_id: "node-id".into(),
                most: 7,
            };
            return Ok(info.encode_to_vec());
        }
        // Staging, measuring, growing.
        "NodeGetCapabilities" => {
            let each = [1, 2, 3].map(|kind| Capability {
                rpc: Some(Rpc { kind }),
            });
            let all = Capabilities {
                capabilities: each.into(),
            };
            return Ok(all.encode_to_vec());
        }
        "NodeGetVolumeStats" => {
            let bytes = Usage {
                available: 600,
                total: 1000,
                used: 400,
                unit: 1,
            };
            return Ok(Usages { usage: vec![bytes] }.encode_to_vec());
        }
        _ => {}
    }
    let words = act(call, message)?;
    book.calls.push(format!("{call} {words}"));
    Ok(Vec::new())
}

/// Does what is asked with mounts; says what it was.
fn act(call: &str, message: &[u8]) -> Result<String, String> {
    let text = |error: rustix::io::Errno| error.to_string();
    let memory =
        |path: &str| mount("tmpfs", path, "tmpfs", MountFlags::empty(), None).map_err(text);
    let end = |path: &str| match unmount(path, UnmountFlags::empty()) {
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) | Ok(()) => Ok(()),
        Err(error) => Err(text(error)),
    };
    let known = "the message can be read";
    Ok(match call {
        "NodeStageVolume" => {
            let asked = Stage::decode(message).expect(known);
            memory(&asked.staging)?;
            format!("{} {:?}", asked.volume, asked.published)
        }
        "NodePublishVolume" => {
            let asked = Publish::decode(message).expect(known);
            fs::create_dir_all(&asked.target).map_err(|error| error.to_string())?;
            match asked.staging.is_empty() {
                true => memory(&asked.target)?,
                false => mount_bind(&asked.staging, &asked.target).map_err(text)?,
            }
            let pod = asked.context.get("csi.storage.k8s.io/pod.name");
            let volume = if asked.staging.is_empty() {
                "inline"
            } else {
                &asked.volume
            };
            format!("{volume} for {}", pod.cloned().unwrap_or_default())
        }
        "NodeUnpublishVolume" | "NodeUnstageVolume" => {
            let asked = Place::decode(message).expect(known);
            end(&asked.path)?;
            if asked.volume.starts_with("csi-") {
                "inline".to_owned()
            } else {
                asked.volume
            }
        }
        "NodeExpandVolume" => {
            let asked = Expand::decode(message).expect(known);
            format!("{} {}", asked.volume, asked.range.unwrap_or_default().bytes)
        }
        "NotifyRegistrationStatus" => (message == [8, 1]).to_string(),
        other => return Err(format!("{other} is not known")),
    })
}
