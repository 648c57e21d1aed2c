//! What the controllers of certificate signing requests share.

pub(crate) mod authority;
pub(crate) mod request;
pub(crate) mod signers;
#[cfg(test)]
pub(crate) mod testing;

use std::collections::BTreeSet;

use k8s_openapi::api::certificates::v1::{
    CertificateSigningRequest, CertificateSigningRequestCondition,
};

/// The service account of all their controllers (upstream gives them one).
pub(crate) const ACCOUNT: &str = "certificate-controller";

/// The conditions of a request.
pub(crate) fn conditions(
    request: &CertificateSigningRequest,
) -> &[CertificateSigningRequestCondition] {
    let status = request.status.as_ref();
    status.and_then(|s| s.conditions.as_deref()).unwrap_or(&[])
}

/// Whether a condition of this type is there, whatever it says.
pub(crate) fn has(request: &CertificateSigningRequest, kind: &str) -> bool {
    conditions(request).iter().any(|c| c.type_ == kind)
}

/// Whether a condition of this type is true; an empty status counts, as upstream has it.
pub(crate) fn is_true(request: &CertificateSigningRequest, kind: &str) -> bool {
    let holds = |status: &str| status.is_empty() || status == "True";
    conditions(request)
        .iter()
        .any(|c| c.type_ == kind && holds(&c.status))
}

/// The certificate that was issued, PEM.
pub(crate) fn certificate(request: &CertificateSigningRequest) -> Option<&[u8]> {
    let issued = request.status.as_ref()?.certificate.as_ref()?;
    (!issued.0.is_empty()).then_some(&issued.0)
}

/// What the certificate is asked for.
pub(crate) fn usages(request: &CertificateSigningRequest) -> BTreeSet<&str> {
    let usages = request.spec.usages.iter().flatten();
    usages.map(String::as_str).collect()
}

/// Whether somebody has decided about a request.
pub(crate) fn is_decided(request: &CertificateSigningRequest) -> bool {
    certificate(request).is_some() || has(request, "Approved") || has(request, "Denied")
}

/// The request as one that a controller approves.
pub(crate) fn approved(
    request: &CertificateSigningRequest,
    message: &str,
) -> CertificateSigningRequest {
    let mut request = request.clone();
    let status = request.status.get_or_insert_default();
    status
        .conditions
        .get_or_insert_default()
        .push(CertificateSigningRequestCondition {
            type_: "Approved".into(),
            status: "True".into(),
            reason: Some("AutoApproved".into()),
            message: Some(message.into()),
            ..CertificateSigningRequestCondition::default()
        });
    request
}
