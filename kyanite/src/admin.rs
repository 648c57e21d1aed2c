//! The running server's local door: a private Unix socket that takes one JSON question per connection.
//!
//! It exists for what only the process that holds the store can do: a consistent backup, figures about
//! the store, taking up new certificates at once, and other machines. Whoever can open the socket owns the data
//! directory anyway.

use std::io::{BufRead as _, BufReader as StdReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream as StdStream;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use apiserver::Reload;
use konnectivity::server::Roster;
use serde_json::{Value, json};
use store::Embedded;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

use crate::commands::{Wanted, Wish};
use crate::exit::{Code, Failure, Result};

/// The longest question that is read: one that names a thousand machines.
const MAX_QUESTION: u64 = 256 * 1024;
/// How long a question may take to arrive.
const QUESTION: Duration = Duration::from_secs(5);
/// How long nobody is answered after a failure to accept.
const BACK_OFF: Duration = Duration::from_secs(1);
/// How many questions are answered at the same time.
const AT_ONCE: usize = 8;
/// How long a command waits for the answer.
const PATIENCE: Duration = Duration::from_secs(120);

/// What questions are about.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) store: Arc<Embedded>,
    pub(crate) reload: Arc<Reload>,
    /// Told when certificates were taken up, for those that use them as clients.
    pub(crate) rotated: watch::Sender<()>,
    /// To whom looks after machines, where there are any.
    pub(crate) machines: Option<mpsc::Sender<Wanted>>,
    /// Who has opened tunnels, where there are any.
    pub(crate) tunnels: Option<Roster>,
}

/// Opens the door; the task answers until it is ended.
pub(crate) fn open(path: &Path, door: Door) -> Result<JoinHandle<()>> {
    let listener = UnixListener::bind(path).map_err(|e| Failure::file("listen at", path, &e))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))
        .map_err(|e| Failure::file("protect", path, &e))?;
    let door = Arc::new(door);
    Ok(tokio::spawn(async move {
        let mut answers = JoinSet::new();
        loop {
            match listener.accept().await {
                // Some take long: machines that boot. The others are not to wait for them.
                Ok((stream, _)) => {
                    if answers.len() >= AT_ONCE {
                        answers.join_next().await;
                    }
                    while answers.try_join_next().is_some() {}
                    answers.spawn(answered(stream, Arc::clone(&door)));
                }
                // Files have run out, most likely: there will be some again.
                Err(error) => {
                    tracing::warn!(%error, "the local door cannot take a question");
                    tokio::time::sleep(BACK_OFF).await;
                }
            }
        }
    }))
}

async fn answered(stream: UnixStream, door: Arc<Door>) {
    if let Err(error) = answer(stream, &door).await {
        tracing::warn!(%error, "a local command was not answered");
    }
}

async fn answer(mut stream: UnixStream, door: &Door) -> std::io::Result<()> {
    let mut line = String::new();
    let mut reader = BufReader::new((&mut stream).take(MAX_QUESTION));
    // Whoever says nothing must not keep the others waiting.
    tokio::time::timeout(QUESTION, reader.read_line(&mut line)).await??;
    let question: Value = serde_json::from_str(&line).unwrap_or_default();
    let reply = match (question["ask"].as_str(), question["file"].as_str()) {
        (Some("stats"), _) => stats(&door.store),
        (Some("agents"), _) => agents(door.tunnels.as_ref()),
        (Some("reload"), _) => match door.reload.now() {
            Ok(parts) => {
                door.rotated.send_replace(());
                json!({"reloaded": parts})
            }
            Err(error) => json!({"error": error}),
        },
        (Some("repair"), _) => told(ask_for(Wish::Repair(question["nodes"].as_u64()), door).await),
        (Some("pools"), _) => match serde_json::from_value(question["pools"].clone()) {
            Ok(pools) => told(ask_for(Wish::Pools(pools), door).await),
            Err(error) => json!({"error": format!("these are no pools: {error}")}),
        },
        (Some("forget"), _) => match serde_json::from_value(question["machines"].clone()) {
            Ok(names) => told(ask_for(Wish::Forget(names), door).await),
            Err(error) => json!({"error": format!("these are no machines: {error}")}),
        },
        (Some("backup"), Some(file)) => match door.store.backup(file).await {
            Ok(made) => json!({"revision": made.revision, "keys": made.keys, "bytes": made.bytes}),
            Err(error) => json!({"error": error.to_string()}),
        },
        _ => json!({"error": "this server does not know that question"}),
    };
    stream.write_all(format!("{reply}\n").as_bytes()).await
}

fn told(outcome: Result<Value>) -> Value {
    outcome.unwrap_or_else(|failure| json!({"error": failure.message, "hint": failure.hint}))
}

/// Asks for something of whoever looks after machines.
async fn ask_for(wish: Wish, door: &Door) -> Result<Value> {
    let Some(machines) = &door.machines else {
        return match wish {
            // There is nothing to bring back.
            Wish::Repair(_) => Ok(json!({"booted": [], "nodes": []})),
            Wish::Pools(_) | Wish::Forget(_) => {
                let what = "this cluster has no machines of its own";
                Err(Failure::new(Code::Unavailable, what))
            }
        };
    };
    let (reply, answer) = oneshot::channel();
    let stopping = || Failure::new(Code::Unavailable, "the server is stopping");
    let asked = machines.send((wish, reply)).await;
    asked.map_err(|_| stopping())?;
    answer.await.map_err(|_| stopping())?
}

fn stats(store: &Embedded) -> Value {
    let stats = store.stats();
    json!({"revision": stats.revision, "keys": stats.live_keys, "diskBytes": stats.disk_bytes, "readOnly": stats.read_only})
}

fn agents(tunnels: Option<&Roster>) -> Value {
    let all = tunnels.map(Roster::agents).unwrap_or_default();
    let shown = all.iter().map(
        |agent| json!({"id": agent.id, "hosts": agent.hosts, "connections": agent.connections}),
    );
    json!({"agents": shown.collect::<Vec<_>>()})
}

/// Asks the server behind a door.
pub(crate) fn ask(path: &Path, question: &Value) -> Result<Value> {
    ask_patiently(path, question, PATIENCE)
}

/// Asks something that takes its time.
pub(crate) fn ask_patiently(path: &Path, question: &Value, patience: Duration) -> Result<Value> {
    let unreachable = |e: std::io::Error| {
        Failure::new(
            Code::Unavailable,
            format!("the server does not answer at `{}`: {e}", path.display()),
        )
        .hint("look at its log, or stop it with `kyanite down`")
    };
    let mut stream = StdStream::connect(path).map_err(unreachable)?;
    stream
        .set_read_timeout(Some(patience))
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
        Some(error) => {
            let failure = Failure::new(Code::Failure, error);
            Err(match reply["hint"].as_str() {
                Some(hint) => failure.hint(hint),
                None => failure,
            })
        }
        None => Ok(reply),
    }
}
