//! The subject of a certificate request.

use base64::Engine as _;
use x509_parser::prelude::{FromDer as _, X509CertificationRequest};
use x509_parser::x509::AttributeTypeAndValue;

/// Who a certificate is asked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Subject {
    /// CN; the last one if there are several, as upstream reads it.
    pub(super) common_name: String,
    /// Every O.
    pub(super) organizations: Vec<String>,
}

/// The subject of a request as it stands in the API: PEM in base64.
pub(super) fn subject(encoded: &str) -> Result<Subject, String> {
    const NOT_A_REQUEST: &str = "PEM block type must be CERTIFICATE REQUEST";
    let pem = base64::engine::general_purpose::STANDARD
        .decode(encoded)
        .map_err(|_| NOT_A_REQUEST.to_owned())?;
    let (_, block) =
        x509_parser::pem::parse_x509_pem(&pem).map_err(|_| NOT_A_REQUEST.to_owned())?;
    if block.label != "CERTIFICATE REQUEST" {
        return Err(NOT_A_REQUEST.into());
    }
    let (_, request) = X509CertificationRequest::from_der(&block.contents)
        .map_err(|error| format!("x509: malformed certificate request: {error}"))?;
    let name = &request.certification_request_info.subject;
    Ok(Subject {
        common_name: texts(name.iter_common_name())?.pop().unwrap_or_default(),
        organizations: texts(name.iter_organization())?,
    })
}

// A part that cannot be read must not pass for one that is not there.
fn texts<'a>(
    parts: impl Iterator<Item = &'a AttributeTypeAndValue<'a>>,
) -> Result<Vec<String>, String> {
    let text = |part: &AttributeTypeAndValue<'_>| part.as_str().map(str::to_owned);
    let unreadable = |_| "x509: invalid RDNSequence: unreadable attribute value".to_owned();
    parts.map(|part| text(part).map_err(unreadable)).collect()
}

/// Requests made with OpenSSL, for tests.
#[cfg(test)]
pub(super) mod samples {
    /// O=system:nodes, CN=system:node:n1.
    pub(crate) const NODE: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIcU1JR1NBZ0VBTURBeEZUQVRCZ05WQkFvTURITjVjM1JsYlRwdWIyUmxjekVYTUJVR0ExVUVBd3dPYzNsegpkR1Z0T201dlpHVTZiakV3V1RBVEJnY3Foa2pPUFFJQkJnZ3Foa2pPUFFNQkJ3TkNBQVRmNHp0M28yS0p1NkR4CitMMkNvMjVOcG9VK3RIWENjeFBOU0NEZ1E0UERjQlZwYU5yWmlUcmR1Vk9lRDJsSnJmNDRHbFRFMXpaMHdpbjIKeWFGR2UzMzVvQUF3Q2dZSUtvWkl6ajBFQXdJRFJ3QXdSQUlnRXByeWdNUlRvRytCbmMxdkNJQnpaMkNYYmlsQQpTV3NJNExzKzc2UFhXbWtDSUFlc1I4a0RGUUYraXRuaE1RSEZENmcwVmZRbXRNZnFldDk4cFYyUkRtRmwKLS0tLS1FTkQgQ0VSVElGSUNBVEUgUkVRVUVTVC0tLS0tCg==";
    /// O=system:masters, CN=mallory.
    pub(crate) const MASTERS: &str = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0KTUlIbk1JR05BZ0VBTUNzeEZ6QVZCZ05WQkFvTURuTjVjM1JsYlRwdFlYTjBaWEp6TVJBd0RnWURWUVFEREFkdApZV3hzYjNKNU1Ga3dFd1lIS29aSXpqMENBUVlJS29aSXpqMERBUWNEUWdBRTMrTTdkNk5paWJ1ZzhmaTlncU51ClRhYUZQclIxd25NVHpVZ2c0RU9EdzNBVmFXamEyWWs2M2JsVG5nOXBTYTMrT0JwVXhOYzJkTUlwOXNtaFJudDkKK2FBQU1Bb0dDQ3FHU000OUJBTUNBMGtBTUVZQ0lRRHhvUlNoK1ZJd3RTdlJQbCtvMEpjc1crNU9xOG9ZZSszVwpJRytTdUZ3WXJnSWhBTVltTE1DUnVUblBQbnVaYXg3dXlITlR5MkVlYzkvWjhCQ2F4Qm9DNUluZQotLS0tLUVORCBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_says_who_it_is_for() {
        let node = subject(samples::NODE).expect("a request");
        assert_eq!(node.common_name, "system:node:n1");
        assert_eq!(node.organizations, ["system:nodes"]);
        for nonsense in ["", "?", "bm90IHBlbQ=="] {
            let why = subject(nonsense).expect_err("no request");
            assert_eq!(
                why, "PEM block type must be CERTIFICATE REQUEST",
                "{nonsense}"
            );
        }
    }
}
