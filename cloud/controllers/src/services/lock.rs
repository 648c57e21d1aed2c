//! The lease that keeps others from writing load balancers at the same time: `aks-managed-resource-locker`, as upstream's
//! manager and AKS take it.

use client_runtime::{Actor, Answer, SyncError};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

const NAME: &str = "aks-managed-resource-locker";
const NAMESPACE: &str = "kube-system";
/// Who holds it: all managers are one, as only the leader works.
const HOLDER: &str = "cloud-controller-manager";
const PREVIOUS: &str = "aks-managed-resource-locker-previous-holder";
const SECONDS: i32 = 900;

/// What a lease says to us.
#[derive(Debug, PartialEq)]
enum Verdict {
    /// It is ours to take; whether somebody else had it since.
    Free { others_wrote: bool },
    /// Somebody has it.
    Held(String),
}

fn judge(lease: &Lease, now: Timestamp) -> Verdict {
    let spec = lease.spec.clone().unwrap_or_default();
    let holder = spec.holder_identity.unwrap_or_default();
    let renewed = spec.renew_time.map(|time| time.0);
    let seconds = spec.lease_duration_seconds.unwrap_or(SECONDS);
    let ends = renewed.map(|at| at + SignedDuration::from_secs(i64::from(seconds)));
    if !holder.is_empty() && holder != HOLDER && ends.is_some_and(|ends| ends > now) {
        return Verdict::Held(holder);
    }
    let annotations = lease.metadata.annotations.as_ref();
    let previous = annotations.and_then(|all| all.get(PREVIOUS));
    Verdict::Free {
        others_wrote: previous.is_some_and(|previous| previous != HOLDER),
    }
}

/// The lease while it is ours.
pub(crate) struct Held {
    lease: Lease,
    /// Whether somebody else had it since we last did: what we know may be old.
    pub(crate) others_wrote: bool,
}

/// Takes the lease; an error where somebody has it.
pub(crate) async fn take(actor: &Actor) -> Answer<Held> {
    let found = actor.get::<Lease>(NAMESPACE, NAME).await?;
    let mut lease = match found {
        Some(lease) => lease,
        None => {
            let mut lease = Lease::default();
            lease.metadata.name = Some(NAME.into());
            lease.metadata.namespace = Some(NAMESPACE.into());
            lease.spec = Some(LeaseSpec {
                lease_duration_seconds: Some(SECONDS),
                ..LeaseSpec::default()
            });
            actor.create(NAMESPACE, &lease).await?
        }
    };
    let now = Timestamp::now();
    let others_wrote = match judge(&lease, now) {
        Verdict::Free { others_wrote } => others_wrote,
        Verdict::Held(holder) => {
            let cause = format!("{holder} holds the lease {NAMESPACE}/{NAME}: load balancers wait");
            return Err(SyncError::NotYet(cause));
        }
    };
    let spec = lease.spec.get_or_insert_default();
    spec.holder_identity = Some(HOLDER.into());
    spec.acquire_time = Some(MicroTime(now));
    spec.renew_time = Some(MicroTime(now));
    spec.lease_duration_seconds = Some(SECONDS);
    let lease = actor.replace(&lease).await?;
    Ok(Held {
        lease,
        others_wrote,
    })
}

/// Gives the lease back. Where that fails it ends by itself.
pub(crate) async fn give_back(actor: &Actor, held: Held) {
    let mut lease = held.lease;
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert(PREVIOUS.into(), HOLDER.into());
    lease.spec.get_or_insert_default().holder_identity = Some(String::new());
    if let Err(error) = actor.replace(&lease).await {
        tracing::warn!(%error, "the lease {NAME} was not given back");
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn lease(holder: &str, renewed: i64, previous: Option<&str>) -> Lease {
        let mut lease = Lease::default();
        let at = Timestamp::from_second(renewed).unwrap();
        lease.spec = Some(LeaseSpec {
            holder_identity: Some(holder.into()),
            renew_time: Some(MicroTime(at)),
            lease_duration_seconds: Some(SECONDS),
            ..LeaseSpec::default()
        });
        lease.metadata.annotations = previous.map(|p| [(PREVIOUS.to_owned(), p.to_owned())].into());
        lease
    }

    #[test]
    fn whose_it_is() {
        let free = |others_wrote| Verdict::Free { others_wrote };
        let now = Timestamp::from_second(10_000).unwrap();
        let cases = [
            (Lease::default(), free(false)),
            (lease("", 9_999, Some(HOLDER)), free(false)),
            (lease("", 9_999, Some("aks")), free(true)),
            (lease("aks", 9_500, None), Verdict::Held("aks".into())),
            (lease("aks", 9_100, None), free(false)),
            (lease(HOLDER, 9_999, None), free(false)),
        ];
        for (lease, expected) in cases {
            assert_eq!(judge(&lease, now), expected, "{lease:?}");
        }
    }
}
