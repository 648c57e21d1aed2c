//! The running server's local door: a private Unix socket that takes one JSON question per connection.
//!
//! It exists for what only the process that holds the store can do: a consistent backup, figures about
//! the store, and taking up new certificates at once. Whoever can open the socket owns the data directory anyway.

use std::io::{BufRead as _, BufReader as StdReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apiserver::Reload;
use serde_json::{Value, json};
use store::Embedded;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::exit::{Code, Failure, Result};

/// The longest question that is read.
const MAX_QUESTION: u64 = 64 * 1024;
/// How long a command waits for the answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// What questions are about.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) store: Arc<Embedded>,
    pub(crate) reload: Arc<Reload>,
    /// Told when certificates were taken up, for those that use them as clients.
    pub(crate) rotated: watch::Sender<()>,
}

/// Opens the door; the task answers until it is ended.
pub(crate) fn open(path: &Path, door: Door) -> Result<JoinHandle<()>> {
    let listener = UnixListener::bind(path).map_err(|e| Failure::file("listen at", path, &e))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .map_err(|e| Failure::file("protect", path, &e))?;
    Ok(tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // One at a time is enough: questions are rare and a backup is bounded by the disk.
            if let Err(error) = answer(stream, &door).await {
                tracing::warn!(%error, "a local command was not answered");
            }
        }
    }))
}

async fn answer(mut stream: UnixStream, door: &Door) -> std::io::Result<()> {
    let mut line = String::new();
    BufReader::new((&mut stream).take(MAX_QUESTION))
        .read_line(&mut line)
        .await?;
    let question: Value = serde_json::from_str(&line).unwrap_or_default();
    let reply = match (question["ask"].as_str(), question["file"].as_str()) {
        (Some("stats"), _) => stats(&door.store),
        (Some("reload"), _) => match door.reload.now() {
            Ok(parts) => {
                door.rotated.send_replace(());
                json!({"reloaded": parts})
            }
            Err(error) => json!({"error": error}),
        },
        (Some("backup"), Some(file)) => match door.store.backup(file).await {
            Ok(made) => json!({"revision": made.revision, "keys": made.keys, "bytes": made.bytes}),
            Err(error) => json!({"error": error.to_string()}),
        },
        _ => json!({"error": "this server does not know that question"}),
    };
    stream.write_all(format!("{reply}\n").as_bytes()).await
}

fn stats(store: &Embedded) -> Value {
    let stats = store.stats();
    json!({"revision": stats.revision, "keys": stats.live_keys, "diskBytes": stats.disk_bytes, "readOnly": stats.read_only})
}

/// Asks the server behind a door.
pub(crate) fn ask(path: &Path, question: &Value) -> Result<Value> {
    let unreachable = |e: std::io::Error| {
        Failure::new(
            Code::Unavailable,
            format!("the server does not answer at `{}`: {e}", path.display()),
        )
        .hint("look at its log, or stop it with `kyanite down`")
    };
    let mut stream = StdStream::connect(path).map_err(unreachable)?;
    stream
        .set_read_timeout(Some(PATIENCE))
        .map_err(unreachable)?;
    writeln!(stream, "{question}").map_err(unreachable)?;
    let mut line = String::new();
    StdReader::new(stream)
        .read_line(&mut line)
        .map_err(unreachable)?;
    let reply: Value = serde_json::from_str(&line).map_err(|e| {
        Failure::new(
            Code::Failure,
            format!("the server's answer makes no sense: {e}"),
        )
    })?;
    match reply["error"].as_str() {
        Some(error) => Err(Failure::new(Code::Failure, error)),
        None => Ok(reply),
    }
}
