//! One leader among several of a role, agreed on by a Lease (upstream's `leaderelection`).
//!
//! Clocks are never compared: a candidate believes a leader for as long as it sees the Lease change.

use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use tokio::time::Instant;

use crate::actor::Actor;
use crate::worker::SyncError;
use crate::{Error, LeaderElection};

/// Tries until the Lease is ours.
pub async fn acquire(actor: &Actor, election: &LeaderElection) -> Seat {
    let mut seat = Seat::new(election.clone());
    loop {
        match seat.attempt(actor).await {
            Ok(true) => {
                tracing::info!(identity = election.identity, "this one leads");
                return seat;
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(%error, "the lease cannot be read or written"),
        }
        tokio::time::sleep(jittered(election.retry_period)).await;
    }
}

/// Renews the Lease; ends when that was not possible for the renew deadline.
pub async fn hold(actor: &Actor, seat: &mut Seat) -> Error {
    let election = seat.election.clone();
    let mut renewed = Instant::now();
    loop {
        tokio::time::sleep(election.retry_period).await;
        let left = election.renew_deadline.saturating_sub(renewed.elapsed());
        match tokio::time::timeout(left, seat.attempt(actor)).await {
            Ok(Ok(true)) => renewed = Instant::now(),
            Ok(Ok(false)) => return Error::LeaseLost,
            Ok(Err(error)) => tracing::warn!(%error, "the lease cannot be renewed"),
            Err(_) => {}
        }
        if renewed.elapsed() >= election.renew_deadline {
            return Error::LeaseLost;
        }
    }
}

/// Gives the Lease back, so that the next one need not wait for it to end.
pub async fn release(actor: &Actor, seat: &mut Seat) {
    let Some(mut lease) = seat.seen.take().map(|seen| seen.lease) else {
        return;
    };
    lease.spec = Some(released(lease.spec.unwrap_or_default(), Timestamp::now()));
    if let Err(error) = actor.replace(&lease).await {
        tracing::debug!(%error, "the lease was not given back");
    }
}

// As client-go's JitterFactor: up to 1.2 times longer, so that candidates do not march in step.
fn jittered(period: Duration) -> Duration {
    period.mul_f64(1.0 + 1.2 * rand::random::<f64>())
}

/// A candidate and what it last saw of the Lease.
pub struct Seat {
    election: LeaderElection,
    seen: Option<Seen>,
}

struct Seen {
    lease: Lease,
    at: Instant,
}

impl Seat {
    fn new(election: LeaderElection) -> Seat {
        Seat {
            election,
            seen: None,
        }
    }

    /// One try; whether the Lease is ours after it.
    async fn attempt(&mut self, actor: &Actor) -> Result<bool, SyncError> {
        let election = &self.election;
        let found: Option<Lease> = actor.get(&election.namespace, &election.name).await?;
        let now = Instant::now();
        self.note(found.as_ref(), now);
        let spec = found.as_ref().and_then(|lease| lease.spec.as_ref());
        let election = &self.election;
        let Some(wanted) = wanted(election, spec, self.fresh(now), Timestamp::now()) else {
            return Ok(false);
        };
        let written = match found {
            Some(mut lease) => {
                lease.spec = Some(wanted);
                actor.replace(&lease).await?
            }
            None => {
                let mut lease = Lease::default();
                lease.metadata.name = Some(election.name.clone());
                lease.metadata.namespace = Some(election.namespace.clone());
                lease.spec = Some(wanted);
                actor.create(&election.namespace, &lease).await?
            }
        };
        self.note(Some(&written), now);
        Ok(true)
    }

    // Whether the Lease changed recently enough for its holder to be believed.
    fn fresh(&self, now: Instant) -> bool {
        self.seen
            .as_ref()
            .is_some_and(|seen| now.duration_since(seen.at) < self.election.lease_duration)
    }

    fn note(&mut self, found: Option<&Lease>, now: Instant) {
        let unchanged = match (&self.seen, found) {
            (Some(seen), Some(found)) => seen.lease.spec == found.spec,
            _ => false,
        };
        if !unchanged {
            self.seen = found.map(|lease| Seen {
                lease: lease.clone(),
                at: now,
            });
        }
    }
}

/// What the Lease should say for us to lead, or nothing while somebody else does.
fn wanted(
    election: &LeaderElection,
    found: Option<&LeaseSpec>,
    fresh: bool,
    now: Timestamp,
) -> Option<LeaseSpec> {
    let holder = found.and_then(|spec| spec.holder_identity.as_deref());
    let is_ours = holder == Some(election.identity.as_str());
    let is_taken = holder.is_some_and(|holder| !holder.is_empty());
    if is_taken && !is_ours && fresh {
        return None;
    }
    let transitions = found.and_then(|spec| spec.lease_transitions).unwrap_or(0);
    let kept = found
        .filter(|_| is_ours)
        .and_then(|s| s.acquire_time.clone());
    let seconds = i32::try_from(election.lease_duration.as_secs()).unwrap_or(i32::MAX);
    Some(LeaseSpec {
        holder_identity: Some(election.identity.clone()),
        lease_duration_seconds: Some(seconds),
        acquire_time: Some(kept.unwrap_or(MicroTime(now))),
        renew_time: Some(MicroTime(now)),
        // A first holder, and one that stays, is no transition.
        lease_transitions: Some(transitions + i32::from(found.is_some() && !is_ours)),
        ..found.cloned().unwrap_or_default()
    })
}

// As upstream's release: nobody holds it, and it ends in a second.
fn released(spec: LeaseSpec, now: Timestamp) -> LeaseSpec {
    LeaseSpec {
        holder_identity: Some(String::new()),
        lease_duration_seconds: Some(1),
        acquire_time: Some(MicroTime(now)),
        renew_time: Some(MicroTime(now)),
        ..spec
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn us() -> LeaderElection {
        LeaderElection::new("kube-controller-manager", "us".into())
    }

    fn held_by(holder: &str) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(holder.into()),
            acquire_time: Some(MicroTime(Timestamp::UNIX_EPOCH)),
            lease_transitions: Some(3),
            ..LeaseSpec::default()
        }
    }

    #[test]
    fn a_lease_nobody_holds_is_taken() {
        let now = Timestamp::now();
        let spec = wanted(&us(), None, false, now).unwrap();
        assert_eq!(spec.holder_identity.as_deref(), Some("us"));
        assert_eq!(spec.lease_transitions, Some(0));
        assert_eq!(spec.lease_duration_seconds, Some(15));
        let after_release = wanted(&us(), Some(&held_by("")), true, now).unwrap();
        assert_eq!(after_release.lease_transitions, Some(4));
    }

    #[test]
    fn a_leader_is_believed_while_the_lease_changes() {
        let now = Timestamp::now();
        assert_eq!(wanted(&us(), Some(&held_by("them")), true, now), None);
        let stale = wanted(&us(), Some(&held_by("them")), false, now).unwrap();
        assert_eq!(stale.holder_identity.as_deref(), Some("us"));
        assert_eq!(stale.acquire_time, Some(MicroTime(now)));
    }

    #[test]
    fn renewing_changes_the_time_of_renewal_only() {
        let now = Timestamp::now();
        let spec = wanted(&us(), Some(&held_by("us")), true, now).unwrap();
        assert_eq!(spec.acquire_time, Some(MicroTime(Timestamp::UNIX_EPOCH)));
        assert_eq!(spec.renew_time, Some(MicroTime(now)));
        assert_eq!(spec.lease_transitions, Some(3));
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_that_does_not_change_grows_stale() {
        let mut seat = Seat::new(us());
        let lease = Lease {
            spec: Some(held_by("them")),
            ..Lease::default()
        };
        seat.note(Some(&lease), Instant::now());
        tokio::time::advance(Duration::from_secs(14)).await;
        seat.note(Some(&lease), Instant::now());
        assert!(seat.fresh(Instant::now()));
        tokio::time::advance(Duration::from_secs(1)).await;
        seat.note(Some(&lease), Instant::now());
        assert!(!seat.fresh(Instant::now()));
    }
}
