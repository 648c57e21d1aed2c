//! Brings operations to their end when they are due.

use std::collections::BTreeSet;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

use crate::arm::operation;
use crate::door::Door;
use crate::turn::View as _;

/// How long nobody looks at the clock when nothing is due.
const IDLE: Duration = Duration::from_secs(3600);

/// Runs until told to stop; begins with what an earlier run left unfinished.
pub(crate) async fn run(door: Arc<Door>, mut stop: watch::Receiver<bool>) {
    for (key, entry) in door.books.under("op/") {
        if let (Some(due), Some(id)) = (operation::due(&key, &entry), key.strip_prefix("op/")) {
            waiting(&door).insert((due, id.to_owned()));
        }
    }
    loop {
        let next = waiting(&door).first().map(|(due, _)| *due);
        let wait = next.map_or(IDLE, |due| {
            let left = operation::wait(due, door.clock.now());
            left.try_into().unwrap_or_default()
        });
        tokio::select! {
            () = stopped(&mut stop) => return,
            () = door.begun.notified() => {}
            () = tokio::time::sleep(wait) => finish_due(&door).await,
        }
    }
}

fn waiting(door: &Door) -> MutexGuard<'_, BTreeSet<(i64, String)>> {
    door.due.lock().unwrap_or_else(PoisonError::into_inner)
}

// The guard that `wait_for` gives back may not live across an await.
async fn stopped(stop: &mut watch::Receiver<bool>) {
    let _ = stop.wait_for(|stop| *stop).await.is_ok();
}

/// Takes the first operation whose time has come.
fn first_due(door: &Door, now: i64) -> Option<String> {
    let mut waiting = waiting(door);
    let is_due = waiting.first().is_some_and(|(due, _)| *due <= now);
    is_due
        .then(|| waiting.pop_first())
        .flatten()
        .map(|(_, id)| id)
}

async fn finish_due(door: &Door) {
    let now = door.clock.now().as_millisecond();
    while let Some(id) = first_due(door, now) {
        let outcome = door.decide(|turn| operation::complete(turn, &id)).await;
        if outcome.is_ok() {
            continue;
        }
        tracing::error!(id, "an operation could not be brought to its end; it fails");
        let outcome = door.decide(|turn| operation::fail(turn, &id)).await;
        if outcome.is_err() {
            tracing::error!(
                id,
                "not even that could be kept; it is tried at the next start"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::{HeaderMap, Method};
    use serde_json::json;

    use super::*;
    use crate::arena::{OWNER, SUBSCRIPTION, caller};
    use crate::arm::{self, access, document};
    use crate::books::Books;
    use crate::clock::Clock;
    use crate::entra::token::Keys;
    use crate::exchange::Asked;
    use crate::settings::Settings;

    async fn door(directory: &std::path::Path, key: &str) -> Arc<Door> {
        let books = Books::open(directory).await.unwrap();
        let keys = Keys::read(key).unwrap();
        Arc::new(Door::new(
            books,
            Settings::for_tests(),
            keys,
            Clock::system(),
        ))
    }

    async fn ask(door: &Door, path: &str, body: serde_json::Value) -> u16 {
        let target = format!("{SUBSCRIPTION}{path}?api-version=2025-01-01");
        let asked = Asked::new(
            Method::PUT,
            &target,
            HeaderMap::new(),
            Bytes::from(body.to_string()),
        );
        let caller = caller("me");
        let reply = door
            .decide(|turn| arm::answer(turn, &caller, &asked))
            .await
            .unwrap();
        reply.status.as_u16()
    }

    #[tokio::test]
    async fn an_operation_that_a_crash_interrupted_comes_to_its_end_after_the_restart() {
        let (dir, key) = (tempfile::tempdir().unwrap(), Keys::generate().unwrap());
        let network = format!(
            "{SUBSCRIPTION}/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v"
        );
        {
            // Nobody runs operations here: as if the process had ended the moment it answered.
            let door = door(dir.path(), &key).await;
            door.decide(|turn| access::grant(turn, "me", "/a", SUBSCRIPTION, OWNER))
                .await
                .unwrap();
            assert_eq!(
                ask(&door, "/resourcegroups/g", json!({"location": "eastus"})).await,
                201
            );
            let body = json!({"location": "eastus", "properties": {"addressSpace": {"addressPrefixes": ["10.0.0.0/16"]}}});
            assert_eq!(
                ask(
                    &door,
                    "/resourceGroups/g/providers/Microsoft.Network/virtualNetworks/v",
                    body
                )
                .await,
                201
            );
        }
        let door = door(dir.path(), &key).await;
        let state = |door: &Door| {
            door.look(|turn| document::get(turn, &network).unwrap().state().to_owned())
        };
        assert_eq!(state(&door), "Updating");
        let (stop, stopped) = watch::channel(false);
        let running = tokio::spawn(run(Arc::clone(&door), stopped));
        tokio::time::timeout(Duration::from_secs(60), async {
            while state(&door) != "Succeeded" {
                tokio::task::yield_now().await;
            }
        })
        .await
        .unwrap();
        stop.send(true).unwrap();
        running.await.unwrap();
    }
}
