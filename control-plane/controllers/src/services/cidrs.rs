//! Keeps ranges of service addresses: they are ready, and none goes while services have addresses of it.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::networking::v1::{IPAddress, ServiceCIDR};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use client_runtime::{Actor, Cache, End, ObjectKey, Queue, SyncError, Synced};
use client_runtime::{enqueue_changes, is_outdated};

use crate::Manager;
use crate::workloads::pods::reason;

const ACCOUNT: &str = "service-cidrs-controller";
const FINALIZER: &str = "networking.k8s.io/service-cidr-finalizer";
/// How long a range that is to go is watched before it does: addresses may be on their way to the cache
/// (upstream's `deletionGracePeriod`).
const GRACE: Duration = Duration::from_secs(10);
const HELD: &str = "There are still IPAddresses referencing the ServiceCIDR, please remove them or create a new ServiceCIDR";

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let (ranges, addresses) = (manager.whole::<ServiceCIDR>(), manager.whole::<IPAddress>());
    let queue = Arc::new(Queue::new());
    enqueue_changes(&ranges, &queue);
    let (noticed, all) = (Arc::clone(&queue), ranges.clone());
    addresses.on_change(move |change| {
        if change.after.is_none() {
            noticed.add_all(all.all().into_iter().map(|(key, _)| key));
        }
    });
    let actor = manager.act_as(ACCOUNT);
    let ready = [ranges.completion(), addresses.completion()];
    manager.start_work(name, queue, 5, ready, move |key| {
        sync(ranges.clone(), addresses.clone(), actor.clone(), key)
    });
}

async fn sync(
    ranges: Cache<ServiceCIDR>,
    addresses: Cache<IPAddress>,
    actor: Actor,
    key: ObjectKey,
) -> Synced {
    let Some(range) = ranges.get(&key) else {
        return Ok(End::Done);
    };
    let others: Vec<Arc<ServiceCIDR>> = ranges
        .all()
        .into_iter()
        .filter(|(other, _)| *other != key)
        .map(|(_, range)| range)
        .collect();
    let used: Vec<IpAddr> = addresses
        .all()
        .into_iter()
        .filter_map(|(key, _)| key.name.parse().ok())
        .collect();
    let (write, again) = match decide(&range, &others, &used, Timestamp::now()) {
        Step::Nothing => return Ok(End::Done),
        Step::Wait(wait) => return Ok(End::After(wait)),
        Step::Finalizers(next) => (actor.replace(&*next).await, false),
        Step::Status(next, again) => (actor.replace_part("status", &*next).await, again),
    };
    match write {
        Err(error) if is_outdated(&error) => Err(SyncError::NotYet(reason(&error))),
        Err(error) => Err(error),
        Ok(_) if again => Ok(End::After(GRACE)),
        Ok(_) => Ok(End::Done),
    }
}

/// What is to be written next.
#[derive(Debug, PartialEq)]
enum Step {
    Nothing,
    Wait(Duration),
    Finalizers(Box<ServiceCIDR>),
    /// The status, and whether to look again.
    Status(Box<ServiceCIDR>, bool),
}

fn decide(
    range: &ServiceCIDR,
    others: &[Arc<ServiceCIDR>],
    used: &[IpAddr],
    now: Timestamp,
) -> Step {
    let has_finalizer = range
        .metadata
        .finalizers
        .iter()
        .flatten()
        .any(|one| one == FINALIZER);
    let Some(deleted) = &range.metadata.deletion_timestamp else {
        if !has_finalizer {
            let mut next = range.clone();
            next.metadata
                .finalizers
                .get_or_insert_default()
                .push(FINALIZER.into());
            return Step::Finalizers(Box::new(next));
        }
        return said(
            range,
            ("True", "", "Kubernetes Service CIDR is ready"),
            now,
            false,
        );
    };
    if !has_finalizer {
        return Step::Nothing;
    }
    let is_orphan = |address: &&IpAddr| {
        covers(range, **address)
            && !others
                .iter()
                .any(|other| is_alive(other) && covers(other, **address))
    };
    if used.iter().any(|address| is_orphan(&address)) {
        return said(range, ("False", "Terminating", HELD), now, true);
    }
    let left =
        deleted.0.as_second() + i64::try_from(GRACE.as_secs()).unwrap_or(0) - now.as_second();
    if left > 0 {
        return Step::Wait(Duration::from_secs(u64::try_from(left).unwrap_or(0)));
    }
    let mut next = range.clone();
    next.metadata
        .finalizers
        .get_or_insert_default()
        .retain(|one| one != FINALIZER);
    Step::Finalizers(Box::new(next))
}

fn is_alive(range: &ServiceCIDR) -> bool {
    range.metadata.deletion_timestamp.is_none()
}

fn covers(range: &ServiceCIDR, address: IpAddr) -> bool {
    let cidrs = range
        .spec
        .iter()
        .flat_map(|spec| spec.cidrs.iter().flatten());
    cidrs.into_iter().any(|cidr| is_within(cidr, address))
}

fn is_within(cidr: &str, address: IpAddr) -> bool {
    let Some((network, bits)) = cidr.split_once('/') else {
        return false;
    };
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else {
        return false;
    };
    let number = |address: IpAddr| match address {
        IpAddr::V4(address) => (u128::from(address.to_bits()) << 96, 32),
        IpAddr::V6(address) => (address.to_bits(), 128),
    };
    let ((network, width), (address, other_width)) = (number(network), number(address));
    width == other_width && bits <= width && (network ^ address).leading_zeros() >= bits
}

fn said(
    range: &ServiceCIDR,
    (status, reason, message): (&str, &str, &str),
    now: Timestamp,
    again: bool,
) -> Step {
    let mut next = range.clone();
    let conditions = next
        .status
        .get_or_insert_default()
        .conditions
        .get_or_insert_default();
    let known = conditions
        .iter()
        .position(|condition| condition.type_ == "Ready");
    let known = known.map(|place| conditions.remove(place));
    if known.as_ref().is_some_and(|known| known.status == status) {
        return if again {
            Step::Wait(GRACE)
        } else {
            Step::Nothing
        };
    }
    conditions.push(Condition {
        type_: "Ready".into(),
        status: status.into(),
        reason: reason.into(),
        message: message.into(),
        observed_generation: None,
        last_transition_time: Time(now),
    });
    Step::Status(Box::new(next), again)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_range_goes_only_when_no_address_needs_it() {
        let range = |cidr: &str, deleted: bool| -> ServiceCIDR {
            let mut range = json!({ "metadata": { "name": cidr, "finalizers": [FINALIZER] }, "spec": { "cidrs": [cidr] } });
            if deleted {
                range["metadata"]["deletionTimestamp"] = json!("1970-01-01T00:00:00Z");
            }
            serde_json::from_value(range).unwrap()
        };
        let now = Timestamp::from_second(60).unwrap();
        let used = ["10.1.2.3".parse().unwrap()];
        let going = range("10.1.0.0/16", true);
        assert!(matches!(decide(&going, &[], &used, now), Step::Status(..)));
        let wider = [Arc::new(range("10.0.0.0/8", false))];
        let Step::Finalizers(freed) = decide(&going, &wider, &used, now) else {
            panic!("another range has the address");
        };
        assert_eq!(freed.metadata.finalizers, Some(Vec::new()));
        assert!(matches!(
            decide(&going, &[], &[], Timestamp::UNIX_EPOCH),
            Step::Wait(_)
        ));
        let Step::Status(ready, _) = decide(&range("10.1.0.0/16", false), &[], &used, now) else {
            panic!("a new range becomes ready");
        };
        assert_eq!(decide(&ready, &[], &used, now), Step::Nothing);
    }

    #[test]
    fn addresses_are_within_their_ranges() {
        let of = |cidr: &str, address: &str| is_within(cidr, address.parse().unwrap());
        assert!(of("10.0.0.0/16", "10.0.255.1") && !of("10.0.0.0/16", "10.1.0.1"));
        assert!(of("fd00::/112", "fd00::1") && !of("fd00::/112", "10.0.0.1"));
        assert!(of("0.0.0.0/0", "1.2.3.4"));
    }
}
