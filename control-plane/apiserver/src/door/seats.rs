//! Priority and fairness at the door: what a request costs, and whose objects configure the gate.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use fairness::{Gate, Kind, Seat};
use http::{HeaderMap, HeaderValue};
use kinds::resources::Resource;
use tokio::sync::oneshot;

use crate::call::Call;
use crate::reading::cache::{Follower, following};
use crate::reading::collection::Collection;

/// Large bodies are counted in units of this size: each takes one more seat.
const LARGE_BODY: usize = 64 * 1024;
/// Objects a list reads per seat, and the most seats a list takes (upstream's estimates).
const OBJECTS_PER_SEAT: usize = 100;
const MAX_LIST_SEATS: usize = 10;

/// How long an answer keeps its seats while it is sent, and how long while nothing of it is taken. Who reads slower
/// than that costs next to nothing, and must not be able to keep seats from others by not reading.
const LONGEST_SENDING: Duration = Duration::from_secs(5);
const UNREAD: Duration = Duration::from_millis(200);

/// The seats a request takes: one, and more for what takes long and holds much memory.
pub(crate) fn seats(call: &Call, body: usize, collection: Option<&Collection>) -> u32 {
    let seats = match call.verb() {
        "list" => {
            let all = collection.map_or(0, Collection::count);
            let asked = call.query.number("limit").ok().flatten().filter(|n| *n > 0);
            (asked.map_or(all, |limit: usize| limit.min(all)) / OBJECTS_PER_SEAT)
                .min(MAX_LIST_SEATS)
        }
        _ => 1 + body / LARGE_BODY,
    };
    u32::try_from(seats.max(1)).unwrap_or(u32::MAX)
}

/// An answer that is being sent; tells those who hold its seats.
#[derive(Debug)]
pub(crate) struct Sending {
    taken: Arc<AtomicU64>,
    _over: oneshot::Sender<()>,
}

impl Sending {
    /// Notes that a chunk more is taken.
    pub(crate) fn goes_on(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keeps seats until what is returned is dropped or does not go on: a list is made while it is sent, and that is most
/// of its work.
pub(crate) fn while_sending(seat: Seat) -> Sending {
    let (over, sent) = oneshot::channel();
    let taken = Arc::new(AtomicU64::new(0));
    let sending = Sending {
        taken: Arc::clone(&taken),
        _over: over,
    };
    tokio::spawn(async move {
        let _seat = seat;
        let stalls = async {
            let mut seen = None;
            loop {
                let now = Some(taken.load(Ordering::Relaxed));
                if std::mem::replace(&mut seen, now) == now {
                    return;
                }
                tokio::time::sleep(UNREAD).await;
            }
        };
        tokio::select! {
            _ = sent => {}
            () = stalls => {}
            () = tokio::time::sleep(LONGEST_SENDING) => {}
        }
    });
    sending
}

/// Tells a client which schema and level its request fell under, as upstream does.
pub(crate) fn mark(headers: &mut HeaderMap, class: &fairness::Class) {
    let marks = [
        ("x-kubernetes-pf-flowschema-uid", &class.schema_uid),
        ("x-kubernetes-pf-prioritylevel-uid", &class.level_uid),
    ];
    for (name, uid) in marks {
        if let Ok(value) = HeaderValue::from_str(uid) {
            headers.insert(name, value);
        }
    }
}

/// Who keeps the gate's configuration up to date.
pub(crate) fn follower(gate: &Arc<Gate>, resource: &Resource) -> Option<Arc<dyn Follower>> {
    let kind = match (resource.gv.group, resource.kind) {
        ("flowcontrol.apiserver.k8s.io", "FlowSchema") => Kind::Schema,
        ("flowcontrol.apiserver.k8s.io", "PriorityLevelConfiguration") => Kind::Level,
        _ => return None,
    };
    let gate = Arc::clone(gate);
    Some(following(move |_, name, object| {
        gate.apply(kind, name, object)
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use access::{Attributes, Target, User};
    use tokio::time::Instant;

    async fn a_seat(gate: &Arc<Gate>) -> Result<Seat, fairness::Refused> {
        let user = User {
            name: "jane".into(),
            groups: vec!["system:authenticated".into()],
            ..User::default()
        };
        let class = gate.classify(&Attributes {
            user: &user,
            verb: "get",
            target: Target::Path("/x"),
        });
        gate.enter(&class, 1, Duration::ZERO).await
    }

    /// How long an answer keeps its seat of which a chunk is taken each so often.
    async fn kept_for(every: Duration) -> Duration {
        let gate = Arc::new(Gate::new(10));
        let sending = while_sending(a_seat(&gate).await.expect("free"));
        let reading = tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                sending.goes_on();
            }
        });
        let started = Instant::now();
        while gate.counts().iter().any(|(_, seats, _)| *seats > 0) {
            tokio::time::sleep(UNREAD / 10).await;
        }
        reading.abort();
        started.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_that_is_not_read_gives_its_seats_back_at_once() {
        assert!(kept_for(Duration::from_secs(60)).await <= 2 * UNREAD);
        let read = kept_for(UNREAD / 3).await;
        assert!(
            read >= LONGEST_SENDING,
            "one that is read keeps them: {read:?}"
        );
    }
}
