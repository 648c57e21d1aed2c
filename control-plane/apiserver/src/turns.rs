//! Priority and fairness at the door: what a request costs, and whose objects configure the gate.

use std::sync::Arc;
use std::time::Duration;

use fairness::{Gate, Kind, Seat};
use http::{HeaderMap, HeaderValue};
use kinds::resources::Resource;
use tokio::sync::oneshot;

use crate::cache::{Follower, following};
use crate::collection::Collection;
use crate::rest::Call;

/// Large bodies are counted in units of this size: each takes one more seat.
pub(crate) const LARGE_BODY: usize = 64 * 1024;
/// Objects a list reads per seat, and the most seats a list takes (upstream's estimates).
const OBJECTS_PER_SEAT: usize = 100;
const MAX_LIST_SEATS: usize = 10;

/// How long an answer keeps its seats while it is sent. Who reads slower than that costs next to nothing, and
/// must not be able to keep seats from others by not reading.
const LONGEST_SENDING: Duration = Duration::from_secs(5);

/// The seats a request takes: one, and more for what takes long and holds much memory.
pub(crate) fn seats(call: &Call, collection: Option<&Collection>) -> u32 {
    let seats = match call.verb() {
        "list" => {
            let all = collection.map_or(0, Collection::count);
            let asked = call.query.number("limit").ok().flatten().filter(|n| *n > 0);
            (asked.map_or(all, |limit: usize| limit.min(all)) / OBJECTS_PER_SEAT)
                .min(MAX_LIST_SEATS)
        }
        _ => 1 + call.body.len() / LARGE_BODY,
    };
    u32::try_from(seats.max(1)).unwrap_or(u32::MAX)
}

/// Keeps seats until what is returned is dropped: a list is made while it is sent, and that is most of its work.
pub(crate) fn while_sending(seat: Seat) -> oneshot::Sender<()> {
    let (sending, sent) = oneshot::channel();
    tokio::spawn(async move {
        let _ = tokio::time::timeout(LONGEST_SENDING, sent).await;
        drop(seat);
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
