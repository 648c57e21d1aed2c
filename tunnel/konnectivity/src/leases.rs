//! The leases by which servers make themselves counted.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};

/// How long a lease is believed without being renewed.
pub(crate) const DURATION_SECONDS: i32 = 30;

/// Labels as `a=b,c=d`.
pub(crate) fn parse_labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    text.split(',')
        .filter(|item| !item.is_empty())
        .map(|item| match item.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => Err(format!("`{item}` is not a label such as key=value")),
        })
        .collect()
}

/// Until when the server behind a lease is taken to be there.
pub(crate) fn valid_until(lease: &Lease) -> Option<Timestamp> {
    let spec = lease.spec.as_ref()?;
    let MicroTime(since) = spec.renew_time.as_ref().or(spec.acquire_time.as_ref())?;
    let seconds = SignedDuration::from_secs(i64::from(spec.lease_duration_seconds?));
    since.checked_add(seconds).ok()
}

/// Whether it is still there.
pub(crate) fn is_valid(lease: &Lease, now: Timestamp) -> bool {
    valid_until(lease).is_some_and(|end| end > now)
}

/// The name of a server's lease.
pub(crate) fn name(server_id: &str) -> String {
    format!("konnectivity-proxy-server-{server_id}")
}

/// A server's lease as it should stand now.
pub(crate) fn lease(
    server_id: &str,
    labels: &BTreeMap<String, String>,
    acquired: Option<MicroTime>,
    now: Timestamp,
) -> Lease {
    Lease {
        metadata: ObjectMeta {
            name: Some(name(server_id)),
            labels: Some(labels.clone()),
            ..ObjectMeta::default()
        },
        spec: Some(LeaseSpec {
            holder_identity: Some(server_id.to_owned()),
            lease_duration_seconds: Some(DURATION_SECONDS),
            acquire_time: Some(acquired.unwrap_or(MicroTime(now))),
            renew_time: Some(MicroTime(now)),
            ..LeaseSpec::default()
        }),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]

    use super::*;

    #[test]
    fn a_lease_is_valid_until_its_time_is_over() {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let lease = lease("a", &BTreeMap::new(), None, now);
        assert!(is_valid(&lease, now + SignedDuration::from_secs(29)));
        assert!(!is_valid(&lease, now + SignedDuration::from_secs(30)));
        assert!(!is_valid(&Lease::default(), now));
    }

    #[test]
    fn labels_are_read() {
        let labels = parse_labels("k8s-app=konnectivity-server,a=").unwrap();
        assert_eq!(labels["k8s-app"], "konnectivity-server");
        assert_eq!(labels["a"], "");
        assert!(parse_labels("novalue").is_err());
    }
}
