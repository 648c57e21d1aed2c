//! Brings operations to their end when they are due, and has done what they need for it.

use std::collections::{BTreeSet, HashMap};
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::join_all;
use tokio::sync::{Mutex, watch};
use tokio::task::{AbortHandle, JoinSet};

use crate::arm::operation;
use crate::arm::orders::{self, Needs};
use crate::door::Door;
use crate::providers::compute;
use crate::region::{Done, Order, Trouble};
use crate::turn::View as _;

/// How long nobody looks at the clock when nothing is due.
const IDLE: Duration = Duration::from_secs(3600);
/// How soon an operation is looked at again that waits for others, in milliseconds.
const AGAIN: i64 = 100;

/// Runs until told to stop; begins with what an earlier run left unfinished.
pub(crate) async fn run(door: Arc<Door>, mut stop: watch::Receiver<bool>) {
    for (key, entry) in door.books.under("op/") {
        if let (Some(due), Some(id)) = (operation::due(&key, &entry), key.strip_prefix("op/")) {
            waiting(&door).insert((due, id.to_owned()));
        }
    }
    let mut work = Work::new(Arc::clone(&door));
    tokio::select! {
        () = stopped(&mut stop) => return,
        () = work.take_up() => {}
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
            Some(_) = work.tasks.join_next() => {}
            (id, runs) = door.settings.region.power() => {
                let seen = door.decide(|turn| compute::seen(turn, &id, runs)).await;
                if seen.is_err() {
                    tracing::error!(id, "that a machine came or went could not be kept");
                }
            }
            () = tokio::time::sleep(wait) => work.finish_due().await,
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

/// Orders under way: a task for each operation, as many as the state has. What is interrupted by an end of the
/// program is ordered again at the next start.
struct Work {
    door: Arc<Door>,
    tasks: JoinSet<()>,
    /// Whose turn it is with a resource, and who works on it.
    places: HashMap<String, Place>,
}

#[derive(Default)]
struct Place {
    turn: Arc<Mutex<()>>,
    worker: Option<AbortHandle>,
}

impl Work {
    fn new(door: Arc<Door>) -> Work {
        Work {
            door,
            tasks: JoinSet::new(),
            places: HashMap::new(),
        }
    }

    /// After a start: what stands behind nothing goes, what should stand is brought there again.
    async fn take_up(&mut self) {
        let standing = self.door.look(|turn| orders::standing(turn));
        let known: Vec<Order> = standing.iter().map(|(order, _)| order.clone()).collect();
        self.door.settings.region.clear(&known).await;
        for (order, _) in standing.into_iter().filter(|(_, is_busy)| !is_busy) {
            let (door, turn) = (Arc::clone(&self.door), self.turn_of(&order.id));
            let id = order.id.clone();
            let place = id.clone();
            let worker = self.tasks.spawn(async move {
                let _turn = turn.lock().await;
                let outcome = door.settings.region.carry_out(order).await;
                let _ = tokio::spawn(async move { keep(&door, &id, outcome).await }).await;
            });
            self.works_on(&place, worker);
        }
    }

    async fn finish_due(&mut self) {
        let now = self.door.clock.now().as_millisecond();
        while let Some(id) = first_due(&self.door, now) {
            match self.door.decide(|turn| orders::needs(turn, &id)).await {
                Ok(Needs::Orders(orders)) if orders.is_empty() => {
                    conclude(&self.door, &id, Ok(Done::default())).await;
                }
                Ok(Needs::Orders(orders)) => self.begin(id, orders),
                Ok(Needs::Others) => {
                    waiting(&self.door).insert((now + AGAIN, id));
                }
                Err(_) => conclude(&self.door, &id, Err(None)).await,
            }
        }
    }

    /// Has orders carried out, then ends their operation.
    fn begin(&mut self, operation: String, orders: Vec<Order>) {
        let ids: Vec<String> = orders.iter().map(|order| order.id.clone()).collect();
        let is_aside = orders.iter().all(|order| order.task.is_aside());
        let turns: Vec<Arc<Mutex<()>>> = match is_aside {
            true => ids.iter().map(|_| Arc::default()).collect(),
            false => ids.iter().map(|id| self.turn_of(id)).collect(),
        };
        let door = Arc::clone(&self.door);
        let worker = self.tasks.spawn(async move {
            let all = orders.into_iter().zip(turns).map(|(order, turn)| {
                let door = Arc::clone(&door);
                async move {
                    let _turn = turn.lock().await;
                    door.settings.region.carry_out(order).await
                }
            });
            let all: Result<Vec<Done>, Trouble> = join_all(all).await.into_iter().collect();
            let outcome = all.map(|mut all| all.pop().unwrap_or_default());
            // A worker may be stopped, a change of the state may not.
            let end = async move { conclude(&door, &operation, outcome.map_err(Some)).await };
            let _ = tokio::spawn(end).await;
        });
        for id in ids.iter().filter(|_| !is_aside) {
            self.works_on(id, worker.clone());
        }
    }

    fn turn_of(&mut self, id: &str) -> Arc<Mutex<()>> {
        let place = self.places.entry(id.to_lowercase()).or_default();
        Arc::clone(&place.turn)
    }

    /// The newest order counts: who still carries out an older one for the same resource stops.
    fn works_on(&mut self, id: &str, worker: AbortHandle) {
        self.places.retain(|_, place| {
            place
                .worker
                .as_ref()
                .is_none_or(|worker| !worker.is_finished())
        });
        let place = self.places.entry(id.to_lowercase()).or_default();
        if let Some(before) = place.worker.replace(worker) {
            before.abort();
        }
    }
}

/// Keeps what came of a resource that no operation works on.
async fn keep(door: &Door, id: &str, outcome: Result<Done, Trouble>) {
    match outcome {
        Ok(done) => {
            if door
                .decide(|turn| orders::keep(turn, id, &done))
                .await
                .is_err()
            {
                tracing::error!(id, "what came of a resource could not be kept");
            }
        }
        Err(trouble) => {
            tracing::warn!(id, %trouble, "what stands behind a resource did not come back");
        }
    }
}

/// Ends an operation as its orders went.
async fn conclude(door: &Door, id: &str, outcome: Result<Done, Option<Trouble>>) {
    let ended = match &outcome {
        Ok(done) => {
            door.decide(|turn| operation::conclude(turn, id, done))
                .await
        }
        Err(Some(trouble)) => {
            tracing::warn!(id, %trouble, "an order was not carried out; its operation fails");
            let error = orders::error(trouble);
            door.decide(|turn| operation::fail(turn, id, error)).await
        }
        Err(None) => Err(crate::door::broken()),
    };
    if ended.is_ok() {
        return;
    }
    tracing::error!(id, "an operation could not be brought to its end; it fails");
    let outcome = door
        .decide(|turn| operation::fail(turn, id, operation::unexplained()))
        .await;
    if outcome.is_err() {
        tracing::error!(
            id,
            "not even that could be kept; it is tried at the next start"
        );
    }
}

#[cfg(test)]
mod tests;
