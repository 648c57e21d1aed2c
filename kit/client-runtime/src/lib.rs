//! What a client of the API server that reconciles is made of, whatever its role: controllers, scheduler,
//! node agents, add-ons.
//!
//! ```text
//! API server ─watch─► cache ─change─► queue ─key─► the role: decide ─► actor ─write─► API server
//! ```
//!
//! A role brings its configuration and starts its parts on a [`Runtime`], which owns the connection, the shared
//! watches and every task; running it ends when one of them breaks, and dropping it ends them all.

mod actor;
mod cache;
mod connect;
mod connection;
mod connections;
mod inside;
mod leader_election;
pub mod metrics;
mod queue;
mod recorder;
mod runtime;
mod selection;
mod worker;

use std::path::Path;

pub use actor::{Actor, Answer, Object, is, is_namespace_ending, is_outdated, path_of};
pub use cache::{Cache, Change, Completion, Events, ObjectKey, watch_metadata_of};
pub use connect::{client, clients};
pub use connection::{Answers, Connection, Inside, KeyPairFiles, LeaderElection, Said};
pub use leader_election::{Seat, acquire, hold, release};
pub use queue::{End, Key, Queue};
pub use recorder::{Recorder, Severity};
pub use runtime::{Need, Runtime, Watched, enqueue_changes};
pub use selection::Selection;
pub use worker::{SyncError, Synced, work};

/// Why a role could not run, or cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file that was named is of no use.
    #[error("cannot {action} `{path}`: {cause}")]
    File {
        /// What was to be done with it.
        action: &'static str,
        /// Which file.
        path: String,
        /// Why not.
        cause: String,
    },
    /// The API server cannot be reached the way it was described.
    #[error("cannot connect to the API server as `{place}` says: {cause}")]
    Connection {
        /// The kubeconfig or address.
        place: String,
        /// Why not.
        cause: String,
    },
    /// Another one leads now.
    #[error("leader election lost: another one may lead now")]
    LeaseLost,
    /// A part ended that must not.
    #[error("a part of this role broke: {0}")]
    Broken(String),
}

impl Error {
    fn file(action: &'static str, path: &Path, cause: &dyn std::fmt::Display) -> Error {
        Error::File {
            action,
            path: path.display().to_string(),
            cause: cause.to_string(),
        }
    }
}

/// Runs what `start` assembles until `shutdown` completes; with an election, while this one leads.
pub async fn lead<C, S>(
    connection: &Connection,
    agent: &'static str,
    election: Option<&LeaderElection>,
    start: S,
    shutdown: impl Future<Output = ()> + Send,
) -> Result<(), Error>
where
    S: FnOnce(kube::Client, kube::Client) -> Runtime<C>,
{
    let (client, bare) = clients(connection, agent).await?;
    let actor = Actor::of_client(client.clone());
    let mut shutdown = std::pin::pin!(shutdown);
    let mut seat = None;
    if let Some(election) = election {
        seat = tokio::select! {
            () = &mut shutdown => return Ok(()),
            won = acquire(&actor, election) => Some(won),
        };
    }
    let runtime = start(client, bare);
    let outcome = tokio::select! {
        () = &mut shutdown => Ok(()),
        broken = runtime.run() => Err(broken),
        lost = keep_leading(&actor, seat.as_mut()) => Err(lost),
    };
    // What still ran has been dropped: nobody acts on our behalf when the next one starts.
    if let (Ok(()), Some(seat)) = (&outcome, seat.as_mut()) {
        release(&actor, seat).await;
    }
    outcome
}

async fn keep_leading(actor: &Actor, seat: Option<&mut Seat>) -> Error {
    match seat {
        Some(seat) => hold(actor, seat).await,
        None => std::future::pending().await,
    }
}
