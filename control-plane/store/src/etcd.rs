//! The store on an etcd cluster, over etcd's v3 API.
//!
//! Every write is one transaction: if the key was last modified at the expected revision, put or
//! delete it, else read it. Reads are linearizable. Calls have a time limit; a read goes to another
//! endpoint if one is in trouble, a write only if it certainly was not sent. A watch that loses its
//! connection ends with an error, and its reader starts a new one from the last revision it saw.

mod connection;
mod dialer;
mod lease;
mod messages;
mod watching;

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::{Change, Error, Expect, KeyValue, Range, Result, Revision, Store, Watch, Written};
use connection::{Connection, Repeat, failed};
pub use dialer::{Dialer, Socket};
use lease::Leases;
use messages::{
    CompactionRequest, CompactionResponse, Compare, DeleteRangeRequest, LeaseGrantRequest,
    LeaseGrantResponse, Operation, PutRequest, RangeRequest, RangeResponse, RequestOp,
    StatusRequest, StatusResponse, TxnRequest, TxnResponse,
};

const RANGE: &str = "/etcdserverpb.KV/Range";
const TXN: &str = "/etcdserverpb.KV/Txn";
const COMPACT: &str = "/etcdserverpb.KV/Compact";
const LEASE_GRANT: &str = "/etcdserverpb.Lease/LeaseGrant";
const STATUS: &str = "/etcdserverpb.Maintenance/Status";

// The sentences etcd answers with (`api/v3rpc/rpctypes/error.go`).
const COMPACTED: &str = "required revision has been compacted";
const FUTURE: &str = "required revision is a future revision";
const NO_SPACE: &str = "database space exceeded";
/// From etcd, or from its gRPC layer for requests far beyond the limit.
const TOO_LARGE: [&str; 2] = ["request is too large", "received message larger than max"];
const NO_LEASE: &str = "requested lease not found";

/// etcd's own default for the size of a request.
const WRITE_LIMIT: usize = 3 << 19;

/// How to reach a cluster.
#[derive(Debug, Clone)]
pub struct Options {
    /// The client addresses of the members, as in `https://10.0.0.1:2379`.
    pub endpoints: Vec<String>,
    /// Certificates, if the cluster speaks TLS.
    pub tls: Option<Tls>,
    /// Opens the connections, where they do not go straight to the endpoints.
    pub dialer: Option<Arc<dyn Dialer>>,
    /// How long connecting may take. Default 2 s.
    pub connect_timeout: Duration,
    /// How long a call may take. Default 10 s.
    pub call_timeout: Duration,
}

impl Options {
    /// The default options for these endpoints, without TLS.
    pub fn new(endpoints: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self {
            endpoints: endpoints.into_iter().map(Into::into).collect(),
            tls: None,
            dialer: None,
            connect_timeout: Duration::from_secs(2),
            call_timeout: Duration::from_secs(10),
        }
    }
}

/// The certificates of a TLS connection, in PEM.
#[derive(Debug, Clone)]
pub struct Tls {
    /// Who may have signed the servers' certificates.
    pub ca_pem: String,
    /// Our own certificate, if the cluster asks for one.
    pub client: Option<ClientIdentity>,
    /// The name the servers' certificates carry, if it is not the endpoint's host.
    pub server_name: Option<String>,
}

/// A client certificate with its key, in PEM.
#[derive(Clone)]
pub struct ClientIdentity {
    /// The certificate and any intermediate ones.
    pub certificate_pem: String,
    /// Its private key.
    pub key_pem: String,
}

impl std::fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientIdentity").finish_non_exhaustive()
    }
}

/// The store on etcd.
#[derive(Debug)]
pub struct Etcd {
    connection: Connection,
    call_timeout: Duration,
    leases: Mutex<Leases>,
    known: Arc<Known>,
    /// Whether the server can be asked for progress; found out by the first watch.
    progress_safe: OnceLock<bool>,
}

/// What was learned about the cluster on the way.
#[derive(Debug, Default)]
struct Known {
    /// The highest compaction revision seen.
    oldest: AtomicU64,
}

impl Known {
    fn compacted(&self, revision: Revision) {
        self.oldest.fetch_max(revision, Relaxed);
    }

    /// The oldest revision that can be read, as far as is known; at least above what was refused.
    fn oldest_above(&self, refused: Revision) -> Revision {
        self.oldest.load(Relaxed).max(refused + 1)
    }
}

impl Etcd {
    /// Connects to a cluster and checks that it answers.
    pub async fn connect(options: Options) -> Result<Arc<Self>> {
        let etcd = Self {
            connection: Connection::new(&options)?,
            call_timeout: options.call_timeout,
            leases: Mutex::default(),
            known: Arc::default(),
            progress_safe: OnceLock::new(),
        };
        etcd.revision().await?;
        Ok(Arc::new(etcd))
    }

    async fn status(&self) -> Result<StatusResponse> {
        self.connection
            .call(STATUS, StatusRequest {}, Repeat::Always)
            .await
            .map_err(|status| failed(&status))
    }

    async fn read(&self, request: RangeRequest) -> Result<RangeResponse> {
        let at = revision_of(request.revision);
        match self.connection.call(RANGE, request, Repeat::Always).await {
            Ok(answer) => Ok(answer),
            Err(status) => Err(self.explain(&status, at).await),
        }
    }

    /// The store's error for one of etcd's.
    async fn explain(&self, status: &Status, requested: Revision) -> Error {
        let message = status.message();
        if message.contains(COMPACTED) {
            self.learn_oldest().await;
            let oldest = self.known.oldest_above(requested);
            return Error::Compacted { requested, oldest };
        }
        if message.contains(FUTURE) {
            let newest = self.revision().await.unwrap_or_default();
            return Error::Future { requested, newest };
        }
        if status.code() == Code::ResourceExhausted && message.contains(NO_SPACE) {
            let cause = format!("{message}; compact and defragment etcd, then disarm its alarm");
            return Error::ReadOnly { cause };
        }
        failed(status)
    }

    /// Finds out the oldest revision that can be read. etcd does not say it when it refuses a read,
    /// but it does when it ends a watch from the beginning of time, as here.
    async fn learn_oldest(&self) {
        let from_the_beginning = watching::create("\0", 0);
        let known = Arc::clone(&self.known);
        let patience = self.call_timeout;
        let started =
            watching::start(&self.connection, known, from_the_beginning, patience, false).await;
        if let Ok(mut watch) = started {
            // The watch notes the revision when it is ended; without it, a lower bound is reported.
            let _ = tokio::time::timeout(patience, watch.next()).await;
        }
    }

    async fn transact(
        &self,
        key: &Bytes,
        expect: Expect,
        op: Operation,
    ) -> Result<TxnResponse, Status> {
        let expected = match expect {
            Expect::Absent => 0,
            Expect::Modified(revision) => signed(revision),
        };
        let read = Operation::Range(one_key(key.clone()));
        let request = TxnRequest {
            compare: vec![Compare::modified_at(key.clone(), expected)],
            success: vec![RequestOp { request: Some(op) }],
            failure: vec![RequestOp {
                request: Some(read),
            }],
        };
        self.connection.call(TXN, request, Repeat::IfNotSent).await
    }

    async fn put(
        &self,
        key: &Bytes,
        expect: Expect,
        value: Bytes,
        ttl: Option<Duration>,
    ) -> Result<TxnResponse, Status> {
        let mut put = PutRequest {
            key: key.clone(),
            value,
            lease: self.lease(ttl).await?,
        };
        let first = self
            .transact(key, expect, Operation::Put(put.clone()))
            .await;
        match first {
            Err(status) if status.message().contains(NO_LEASE) => {
                // A shared lease may have been revoked behind our back.
                self.leases().forget(put.lease);
                put.lease = self.lease(ttl).await?;
                self.transact(key, expect, Operation::Put(put)).await
            }
            other => other,
        }
    }

    /// The lease for a time to live; 0 for none.
    async fn lease(&self, ttl: Option<Duration>) -> Result<i64, Status> {
        let Some(ttl) = ttl.map(lease::seconds) else {
            return Ok(0);
        };
        if let Some(id) = self.leases().find(ttl, Instant::now()) {
            return Ok(id);
        }
        let request = LeaseGrantRequest {
            ttl: signed(ttl + lease::extra(ttl)),
        };
        let granted: LeaseGrantResponse = self
            .connection
            .call(LEASE_GRANT, request, Repeat::Always)
            .await?;
        if !granted.error.is_empty() {
            return Err(Status::internal(granted.error));
        }
        self.leases().add(ttl, granted.id, Instant::now());
        Ok(granted.id)
    }

    fn leases(&self) -> std::sync::MutexGuard<'_, Leases> {
        self.leases.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether progress can be asked for. Before these versions an answer could overtake events
    /// (upstream keeps the same list: `apiserver/pkg/storage/feature`).
    async fn progress_safe(&self) -> Result<bool> {
        if let Some(&safe) = self.progress_safe.get() {
            return Ok(safe);
        }
        let version = self.status().await?.version;
        Ok(*self
            .progress_safe
            .get_or_init(|| is_progress_safe(&version)))
    }
}

#[async_trait::async_trait]
impl Store for Etcd {
    async fn revision(&self) -> Result<Revision> {
        // Any key will do: a linearizable read names the newest revision whatever it finds.
        let request = RangeRequest {
            count_only: true,
            ..one_key(Bytes::from_static(b"\0"))
        };
        self.read(request)
            .await
            .map(|answer| header_revision(&answer))
    }

    async fn get(&self, key: &str) -> Result<Option<KeyValue>> {
        let answer = self.read(one_key(bytes_of(key))).await?;
        answer.kvs.into_iter().next().map(key_value).transpose()
    }

    async fn range(
        &self,
        start: &str,
        end: &str,
        limit: usize,
        at: Option<Revision>,
    ) -> Result<Range> {
        let empty = start >= end;
        let request = RangeRequest {
            // etcd has no empty key; the first possible one is a zero byte.
            key: if start.is_empty() {
                bytes_of("\0")
            } else {
                bytes_of(start)
            },
            // A single key instead of a range that would mean something else to etcd.
            range_end: if empty { Bytes::new() } else { bytes_of(end) },
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            revision: signed(at.unwrap_or(0)),
            count_only: empty,
        };
        let answer = self.read(request).await?;
        let revision = at.filter(|&at| at != 0).unwrap_or(header_revision(&answer));
        let count = usize::try_from(answer.count).unwrap_or_default();
        let entries: Result<Vec<KeyValue>> = answer.kvs.into_iter().map(key_value).collect();
        Ok(Range {
            entries: entries?,
            count: if empty { 0 } else { count },
            revision,
        })
    }

    async fn write(&self, key: &str, expect: Expect, change: Change) -> Result<Written> {
        let key = bytes_of(key);
        let (size, answer) = match change {
            Change::Put { value, ttl } => {
                let size = key.len() + value.len();
                (size, self.put(&key, expect, value, ttl).await)
            }
            Change::Delete => {
                let delete = DeleteRangeRequest { key: key.clone() };
                let answer = self.transact(&key, expect, Operation::Delete(delete)).await;
                (key.len(), answer)
            }
        };
        match answer {
            Ok(answer) => written(answer),
            Err(status) if TOO_LARGE.iter().any(|text| status.message().contains(text)) => {
                let limit = WRITE_LIMIT;
                Err(Error::TooLarge { size, limit })
            }
            Err(status) => Err(self.explain(&status, 0).await),
        }
    }

    async fn watch(&self, prefix: &str, after: Revision) -> Result<Watch> {
        let safe = self.progress_safe().await?;
        let create = watching::create(prefix, after);
        let known = Arc::clone(&self.known);
        watching::start(&self.connection, known, create, self.call_timeout, safe).await
    }

    async fn compact(&self, revision: Revision) -> Result<()> {
        let request = CompactionRequest {
            revision: signed(revision),
        };
        let compacted: Result<CompactionResponse, Status> = self
            .connection
            .call(COMPACT, request, Repeat::IfNotSent)
            .await;
        match compacted {
            Ok(_) => {
                self.known.compacted(revision);
                Ok(())
            }
            Err(status) => Err(self.explain(&status, revision).await),
        }
    }

    async fn size(&self) -> Result<u64> {
        let status = self.status().await?;
        Ok(u64::try_from(status.db_size).unwrap_or_default())
    }
}

fn written(answer: TxnResponse) -> Result<Written> {
    if answer.succeeded {
        let revision = answer.header.map_or(0, |header| header.revision);
        return Ok(Written::Done(revision_of(revision)));
    }
    let read = answer.responses.into_iter().next();
    let found = read.and_then(|read| read.range);
    let current = found.and_then(|range| range.kvs.into_iter().next());
    current.map(key_value).transpose().map(Written::Conflict)
}

fn one_key(key: Bytes) -> RangeRequest {
    RangeRequest {
        key,
        ..RangeRequest::default()
    }
}

fn bytes_of(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn header_revision(answer: &RangeResponse) -> Revision {
    answer
        .header
        .as_ref()
        .map_or(0, |header| revision_of(header.revision))
}

/// A revision as etcd counts.
fn signed(revision: Revision) -> i64 {
    i64::try_from(revision).unwrap_or(i64::MAX)
}

/// A revision of etcd's; they are never negative.
fn revision_of(revision: i64) -> Revision {
    Revision::try_from(revision).unwrap_or_default()
}

fn key_value(kv: messages::KeyValue) -> Result<KeyValue> {
    Ok(KeyValue {
        key: text(&kv.key)?,
        value: kv.value,
        create_revision: revision_of(kv.create_revision),
        mod_revision: revision_of(kv.mod_revision),
    })
}

/// A key as text. All keys the store writes are; others do not belong under its prefix.
fn text(key: &[u8]) -> Result<String> {
    String::from_utf8(key.to_vec()).map_err(|_| Error::Corrupt {
        file: "etcd".to_owned(),
        cause: format!("the key {} is not UTF-8", key.escape_ascii()),
    })
}

fn is_progress_safe(version: &str) -> bool {
    let mut parts = version
        .split(['.', '-'])
        .map(|part| part.parse().unwrap_or(0u32));
    let mut part = || parts.next().unwrap_or(0);
    match (part(), part(), part()) {
        (3, 4, patch) => patch >= 31,
        (3, 5, patch) => patch >= 13,
        (major, minor, _) => (major, minor) >= (3, 6),
    }
}

#[cfg(test)]
mod tests {
    use super::is_progress_safe;

    #[test]
    fn progress_is_asked_for_only_where_it_cannot_overtake_events() {
        let table = [
            ("3.4.23", false),
            ("3.4.30", false),
            ("3.4.31", true),
            ("3.5.12", false),
            ("3.5.13", true),
            ("3.6.0-rc.1", true),
            ("3.6.8", true),
            ("3.3.25", false),
            ("4.0.0", true),
            ("", false),
        ];
        for (version, safe) in table {
            assert_eq!(is_progress_safe(version), safe, "{version}");
        }
    }
}
