//! Signs approved requests of the built-in signers with the cluster's authority.

use std::path::Path;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use crate::Manager;
use crate::csr::authority::Authority;
use crate::csr::request::Request;
use crate::csr::signers::Signer;
use crate::csr::{self, ACCOUNT};
use crate::{Config, KeyPairFiles};
use client_runtime::Actor;
use client_runtime::enqueue_changes;
use client_runtime::{Cache, ObjectKey};
use client_runtime::{End, Queue};
use client_runtime::{SyncError, Synced};

/// Starts the controller; without an authority there is nothing to do, as upstream.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let config = Arc::clone(&manager.config);
    if config.signing.is_none() {
        tracing::warn!(
            controller = name,
            "no signing certificate: nothing is signed"
        );
        return;
    }
    let requests = manager.whole::<CertificateSigningRequest>();
    let queue = Arc::new(Queue::new());
    enqueue_changes(&requests, &queue);
    let actor = manager.act_as(ACCOUNT);
    manager.start_work(name, queue, 5, [requests.completion()], move |key| {
        sync(Arc::clone(&config), requests.clone(), actor.clone(), key)
    });
}

async fn sync(
    config: Arc<Config>,
    requests: Cache<CertificateSigningRequest>,
    actor: Actor,
    key: ObjectKey,
) -> Synced {
    let Some(request) = requests.get(&key) else {
        return Ok(End::Done);
    };
    let (Some(files), Some(signer)) = (&config.signing, to_sign(&request)) else {
        return Ok(End::Done);
    };
    let now = Timestamp::now();
    let parsed = Request::parse(&request.spec.request.0).map_err(SyncError::Other)?;
    let usages = request.spec.usages.as_deref().unwrap_or(&[]);
    let outcome = match signer.check(&parsed, usages) {
        Err(complaint) => failed(&request, complaint, now),
        Ok(()) => {
            let authority = read_authority(files)?;
            let certificate = authority
                .life(
                    request.spec.expiration_seconds,
                    config.signing_duration,
                    now,
                )
                .and_then(|life| authority.sign(&parsed, usages, life, rand::random()))
                .map_err(|e| SyncError::Other(format!("error auto signing csr: {e}")))?;
            issued(&request, certificate)
        }
    };
    actor.replace_part("status", &outcome).await?;
    tracing::info!(
        request = key.name,
        signer = request.spec.signer_name,
        "signed or refused"
    );
    Ok(End::Done)
}

/// The signer of ours that is to act on a request now, if any.
fn to_sign(request: &CertificateSigningRequest) -> Option<Signer> {
    let is_waiting = csr::certificate(request).is_none()
        && csr::has(request, "Approved")
        && !csr::has(request, "Denied")
        && !csr::is_true(request, "Failed");
    Signer::named(&request.spec.signer_name).filter(|_| is_waiting)
}

// Read at every signing, so that a rotated authority signs at once.
fn read_authority(files: &KeyPairFiles) -> Result<Authority, SyncError> {
    let read = |path: &Path| {
        std::fs::read_to_string(path)
            .map_err(|e| SyncError::Other(format!("cannot read `{}`: {e}", path.display())))
    };
    Authority::from_pem(read(&files.cert)?.as_bytes(), &read(&files.key)?)
        .map_err(|e| SyncError::Other(format!("`{}` cannot sign: {e}", files.cert.display())))
}

fn issued(request: &CertificateSigningRequest, certificate: String) -> CertificateSigningRequest {
    let mut request = request.clone();
    let status = request.status.get_or_insert_default();
    status.certificate = Some(ByteString(certificate.into_bytes()));
    request
}

fn failed(
    request: &CertificateSigningRequest,
    complaint: String,
    now: Timestamp,
) -> CertificateSigningRequest {
    let mut request = request.clone();
    let status = request.status.get_or_insert_default();
    status
        .conditions
        .get_or_insert_default()
        .push(CertificateSigningRequestCondition {
            type_: "Failed".into(),
            status: "True".into(),
            reason: Some("SignerValidationFailure".into()),
            message: Some(complaint),
            last_update_time: Some(Time(now)),
            ..CertificateSigningRequestCondition::default()
        });
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(signer: &str, conditions: &[(&str, &str)]) -> CertificateSigningRequest {
        let mut request = CertificateSigningRequest::default();
        request.spec.signer_name = signer.into();
        let condition = |(kind, status): &(&str, &str)| CertificateSigningRequestCondition {
            type_: (*kind).into(),
            status: (*status).into(),
            ..CertificateSigningRequestCondition::default()
        };
        let status = request.status.get_or_insert_default();
        status.conditions = Some(conditions.iter().map(condition).collect());
        request
    }

    #[test]
    fn only_approved_requests_of_our_signers_are_signed() {
        const CLIENT: &str = "kubernetes.io/kube-apiserver-client";
        const APPROVED: (&str, &str) = ("Approved", "True");
        type Conditions = &'static [(&'static str, &'static str)];
        let cases: [(&str, Conditions, bool); 6] = [
            (CLIENT, &[APPROVED], true),
            (CLIENT, &[], false),
            (CLIENT, &[APPROVED, ("Denied", "True")], false),
            (CLIENT, &[APPROVED, ("Failed", "True")], false),
            (CLIENT, &[APPROVED, ("Failed", "False")], true),
            ("example.com/own", &[APPROVED], false),
        ];
        for (signer, conditions, expected) in cases {
            let request = request(signer, conditions);
            assert_eq!(
                to_sign(&request).is_some(),
                expected,
                "{signer} {conditions:?}"
            );
        }
        let signed = issued(&request(CLIENT, &[APPROVED]), "pem".into());
        assert_eq!(to_sign(&signed), None, "signed twice");
        let refused = failed(
            &request(CLIENT, &[APPROVED]),
            "no".into(),
            Timestamp::UNIX_EPOCH,
        );
        assert_eq!(to_sign(&refused), None, "refused twice");
    }
}
