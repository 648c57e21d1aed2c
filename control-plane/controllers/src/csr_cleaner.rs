//! Removes requests nobody needs any more. Upstream looks once an hour; here each goes when its time
//! comes.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::Manager;
use crate::csr::{self, ACCOUNT};
use client_runtime::Actor;
use client_runtime::Synced;
use client_runtime::enqueue_changes;
use client_runtime::{Cache, ObjectKey};
use client_runtime::{End, Queue};

const DECIDED: Duration = Duration::from_secs(3600);
const PENDING: Duration = Duration::from_secs(24 * 3600);

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let requests = manager.whole::<CertificateSigningRequest>();
    let queue = Arc::new(Queue::new());
    enqueue_changes(&requests, &queue);
    let actor = manager.act_as(ACCOUNT);
    manager.start_work(name, queue, 1, [requests.completion()], move |key| {
        sync(requests.clone(), actor.clone(), key)
    });
}

async fn sync(requests: Cache<CertificateSigningRequest>, actor: Actor, key: ObjectKey) -> Synced {
    let Some(request) = requests.get(&key) else {
        return Ok(End::Done);
    };
    let Some(end) = end_of(&request) else {
        return Ok(End::Done);
    };
    let wait = end.duration_since(Timestamp::now());
    if let Ok(wait) = Duration::try_from(wait)
        && !wait.is_zero()
    {
        return Ok(End::After(wait));
    }
    let uid = request.metadata.uid.as_deref();
    actor
        .delete::<CertificateSigningRequest>("", &key.name, uid)
        .await?;
    tracing::info!(request = key.name, "removed: its time is over");
    Ok(End::Done)
}

/// When a request is to go: the earliest of the reasons it has.
fn end_of(request: &CertificateSigningRequest) -> Option<Timestamp> {
    let certificate = csr::certificate(request);
    if csr::conditions(request).is_empty() {
        let made = request.metadata.creation_timestamp.as_ref()?;
        return made.0.checked_add(PENDING).ok();
    }
    let decided = csr::conditions(request).iter().filter_map(|condition| {
        let kept = match (condition.type_.as_str(), certificate) {
            ("Denied" | "Failed", _) | ("Approved", Some(_)) => DECIDED,
            ("Approved", None) => PENDING,
            _ => return None,
        };
        let since = condition.last_update_time.as_ref()?.0;
        since.checked_add(kept).ok()
    });
    let expiry = certificate
        .filter(|_| csr::has(request, "Approved"))
        .and_then(expiry);
    decided.chain(expiry).min()
}

fn expiry(pem: &[u8]) -> Option<Timestamp> {
    let der = CertificateDer::from_pem_slice(pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use k8s_openapi::ByteString;
    use k8s_openapi::api::certificates::v1::CertificateSigningRequestCondition;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    /// Made at noon, decided at one o'clock.
    fn request(condition: &str, certificate: Option<&str>) -> CertificateSigningRequest {
        let mut request = CertificateSigningRequest::default();
        request.metadata.creation_timestamp = Some(Time(at("2026-01-01T12:00:00Z")));
        let status = request.status.get_or_insert_default();
        status.certificate = certificate.map(|pem| ByteString(pem.as_bytes().to_vec()));
        if !condition.is_empty() {
            status.conditions = Some(vec![CertificateSigningRequestCondition {
                type_: condition.into(),
                last_update_time: Some(Time(at("2026-01-01T13:00:00Z"))),
                ..CertificateSigningRequestCondition::default()
            }]);
        }
        request
    }

    #[test]
    fn requests_stay_as_long_as_upstream_keeps_them() {
        for (condition, certificate, end) in [
            ("", None, "2026-01-02T12:00:00Z"),
            ("Denied", None, "2026-01-01T14:00:00Z"),
            ("Failed", None, "2026-01-01T14:00:00Z"),
            ("Approved", Some("unreadable"), "2026-01-01T14:00:00Z"),
            ("Approved", None, "2026-01-02T13:00:00Z"),
        ] {
            let request = request(condition, certificate);
            assert_eq!(
                end_of(&request),
                Some(at(end)),
                "{condition} {certificate:?}"
            );
        }
    }

    #[test]
    fn an_expired_certificate_takes_its_request_along() {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut params = rcgen::CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 1, 1);
        let pem = params.self_signed(&key).unwrap().pem();
        let request = request("Approved", Some(&pem));
        assert_eq!(end_of(&request), Some(at("2026-01-01T00:00:00Z")));
    }

    #[test]
    fn a_decision_without_a_time_never_ends() {
        let mut request = request("Denied", None);
        let status = request.status.as_mut().unwrap();
        status.conditions.as_mut().unwrap()[0].last_update_time = None;
        assert_eq!(end_of(&request), None);
    }
}
