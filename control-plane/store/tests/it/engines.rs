//! Engines to test: fresh, empty, and gone when the test ends.

use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use harness::{find_program, skip};
use store::embedded::{Clock, Options};
use store::{Change, Embedded, Etcd, Event, Expect, Revision, Store, Watch, WatchItem, Written};
use tempfile::TempDir;

/// How long anything that is bound to happen may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// A store and what keeps it alive.
pub(crate) struct Engine {
    pub(crate) store: Arc<dyn Store>,
    _server: Option<EtcdServer>,
    _dir: TempDir,
}

impl Engine {
    pub(crate) async fn embedded() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let store = Embedded::open(dir.path(), Options::default()).unwrap();
        Some(Self {
            store,
            _server: None,
            _dir: dir,
        })
    }

    /// An etcd of its own; `None`, said loudly, if this machine has none.
    pub(crate) async fn etcd() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let server = EtcdServer::start(&dir, &[])?;
        let store = connect(store::etcd::Options::new([server.url.clone()])).await;
        Some(Self {
            store,
            _server: Some(server),
            _dir: dir,
        })
    }
}

/// Connects as soon as the server is up.
pub(crate) async fn connect(options: store::etcd::Options) -> Arc<Etcd> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match Etcd::connect(options.clone()).await {
            Ok(store) => return store,
            Err(error) if Instant::now() > deadline => panic!("etcd did not start: {error}"),
            Err(_) => tokio::task::yield_now().await,
        }
    }
}

/// A running etcd.
pub(crate) struct EtcdServer {
    child: Child,
    pub(crate) url: String,
}

impl EtcdServer {
    /// Starts a server; with TLS if the extra flags say so.
    pub(crate) fn start(dir: &TempDir, flags: &[String]) -> Option<Self> {
        let Some(binary) = find_program("ETCD_BIN", "etcd") else {
            skip("etcd not found on PATH or in ETCD_BIN");
            return None;
        };
        let [client, peer] = free_addresses();
        let scheme = if flags.is_empty() { "http" } else { "https" };
        let url = format!("{scheme}://{client}");
        let peer = format!("http://{peer}");
        let child = Command::new(&binary)
            .arg("--data-dir")
            .arg(dir.path().join("etcd"))
            .args([
                "--listen-client-urls",
                &url,
                "--advertise-client-urls",
                &url,
            ])
            .args(["--listen-peer-urls", &peer])
            .args(["--initial-advertise-peer-urls", &peer])
            .args(["--initial-cluster", &format!("default={peer}")])
            .args(["--heartbeat-interval", "10", "--election-timeout", "100"])
            .args(progress_flag(&binary))
            .args(flags)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self { child, url })
    }
}

impl Drop for EtcdServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The flag that makes etcd report progress every second; its name depends on the version.
fn progress_flag(binary: &PathBuf) -> Vec<String> {
    let help = Command::new(binary).arg("--help").output().unwrap();
    let help = [help.stdout, help.stderr].concat();
    let help = String::from_utf8_lossy(&help);
    [
        "--watch-progress-notify-interval",
        "--experimental-watch-progress-notify-interval",
    ]
    .into_iter()
    .find(|flag| help.lines().any(|line| line.trim_start().starts_with(flag)))
    .map(|flag| format!("{flag}=1s"))
    .into_iter()
    .collect()
}

/// Addresses nobody listens on at the moment.
pub(crate) fn free_addresses<const N: usize>() -> [String; N] {
    let listeners = [(); N].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    listeners.map(|listener| listener.local_addr().unwrap().to_string())
}

/// A clock that stands still until it is moved.
#[derive(Debug, Clone)]
pub(crate) struct ManualClock(Arc<Mutex<SystemTime>>);

impl ManualClock {
    pub(crate) fn new() -> Self {
        let start = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        Self(Arc::new(Mutex::new(start)))
    }

    pub(crate) fn advance(&self, by: Duration) {
        *self.0.lock().unwrap() += by;
    }
}

impl Clock for ManualClock {
    fn now(&self) -> SystemTime {
        *self.0.lock().unwrap()
    }
}

pub(crate) fn put(value: impl Into<Bytes>) -> Change {
    Change::Put {
        value: value.into(),
        ttl: None,
    }
}

/// Writes and expects success.
pub(crate) async fn done(store: &dyn Store, key: &str, expect: Expect, change: Change) -> Revision {
    match store.write(key, expect, change).await.unwrap() {
        Written::Done(revision) => revision,
        Written::Conflict(current) => panic!("unexpected conflict on {key}: {current:?}"),
    }
}

/// The next item of a watch, within the patience of the tests.
pub(crate) async fn next(watch: &mut Watch) -> Option<store::Result<WatchItem>> {
    tokio::time::timeout(PATIENCE, watch.next())
        .await
        .expect("the watch stayed silent")
}

/// The next `count` events of a watch.
pub(crate) async fn events(watch: &mut Watch, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        match next(watch).await.expect("the watch ended").unwrap() {
            WatchItem::Events(more) => events.extend(more),
            WatchItem::Progress(_) => {}
        }
    }
    assert_eq!(events.len(), count, "more events than expected: {events:?}");
    events
}
