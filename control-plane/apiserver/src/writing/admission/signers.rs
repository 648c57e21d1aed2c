//! CertificateApproval, CertificateSigning and CertificateSubjectRestriction: who may say yes to a
//! certificate, who may make it, and for whom nobody may.

use access::{Attributes as Question, ResourceTarget, Target};
use futures::FutureExt as _;
use serde_json::Value;

use super::shape::text;
use super::{Attributes, Operation, Plugin, certificate_request};
use crate::api::Api;
use crate::status::Result;

const GROUP: &str = "certificates.k8s.io";
const REQUESTS: &str = "certificatesigningrequests";
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const MASTERS: &str = "system:masters";

/// The row of CertificateApproval.
pub(super) const APPROVAL: Plugin = Plugin {
    name: "CertificateApproval",
    handles: |attributes| is_update(attributes, "approval"),
    mutate: None,
    validate: Some(|api, attributes, _| ask(api, attributes, "approve").boxed()),
};

/// The row of CertificateSigning.
pub(super) const SIGNING: Plugin = Plugin {
    name: "CertificateSigning",
    handles: |attributes| is_update(attributes, "status"),
    mutate: None,
    validate: Some(|api, attributes, new| sign(api, attributes, new).boxed()),
};

/// The row of CertificateSubjectRestriction.
pub(super) const SUBJECT: Plugin = Plugin {
    name: "CertificateSubjectRestriction",
    handles: |attributes| {
        attributes.operation == Operation::Create && attributes.is_main(GROUP, REQUESTS)
    },
    mutate: None,
    validate: Some(|_, attributes, request| {
        let decision = request.map_or(Ok(()), check_subject);
        let outcome = decision.map_err(|why| attributes.forbid(request, &why));
        std::future::ready(outcome).boxed()
    }),
};

fn is_update(attributes: &Attributes<'_>, subresource: &str) -> bool {
    attributes.operation == Operation::Update
        && attributes.subresource == subresource
        && attributes.is(GROUP, REQUESTS)
}

async fn sign(api: &Api, attributes: &Attributes<'_>, new: Option<&Value>) -> Result<()> {
    match (attributes.old, new) {
        (Some(old), Some(new)) if !is_signed(old, new) => Ok(()),
        _ => ask(api, attributes, "sign").await,
    }
}

fn is_signed(old: &Value, new: &Value) -> bool {
    let fields = ["certificate", "conditions"];
    fields
        .iter()
        .any(|field| old["status"][field] != new["status"][field])
}

// The old object is asked for its signer: the new one is the client's word.
async fn ask(api: &Api, attributes: &Attributes<'_>, verb: &str) -> Result<()> {
    let old = attributes.old.unwrap_or(&Value::Null);
    let signer = text(&old["spec"]["signerName"]);
    for name in [signer, &whole_domain(signer)] {
        let question = Question {
            user: attributes.user(),
            verb,
            target: Target::Resource(ResourceTarget {
                group: GROUP,
                version: "*",
                resource: "signers",
                name,
                ..ResourceTarget::default()
            }),
        };
        if api.authorizer.decide(&question).is_allowed() {
            return Ok(());
        }
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(attributes.forbid(Some(old), &why))
}

// A permission may be given for all signers of a domain.
fn whole_domain(signer: &str) -> String {
    let domain = signer.split_once('/').map_or(signer, |(domain, _)| domain);
    format!("{domain}/*")
}

// Nobody gets the group that bypasses every check through the API.
fn check_subject(request: &Value) -> Result<(), String> {
    let spec = &request["spec"];
    if spec["signerName"] != CLIENT_SIGNER {
        return Ok(());
    }
    let subject = certificate_request::subject(text(&spec["request"]))
        .map_err(|why| format!("failed to parse CSR: {why}"))?;
    match subject.organizations.iter().any(|o| o == MASTERS) {
        true => Err(format!(
            "use of {CLIENT_SIGNER} signer with {MASTERS} group is not allowed"
        )),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::certificate_request::samples;
    use super::*;
    use serde_json::json;

    #[test]
    fn nobody_asks_for_the_masters_group() {
        let request = |signer: &str, request: &str| json!({"spec": {"signerName": signer, "request": request}});
        for (object, refusal) in [
            (request(CLIENT_SIGNER, samples::NODE), None),
            (request("example.com/own", samples::MASTERS), None),
            (
                request(CLIENT_SIGNER, samples::MASTERS),
                Some(
                    "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
                ),
            ),
            (
                request(CLIENT_SIGNER, "AAAA"),
                Some("failed to parse CSR: PEM block type must be CERTIFICATE REQUEST"),
            ),
        ] {
            assert_eq!(check_subject(&object).err().as_deref(), refusal);
        }
    }

    #[test]
    fn a_permission_can_cover_a_domain() {
        assert_eq!(
            whole_domain("kubernetes.io/kubelet-serving"),
            "kubernetes.io/*"
        );
        assert_eq!(whole_domain("example.com/a/b"), "example.com/*");
    }

    #[test]
    fn only_a_certificate_or_a_condition_is_a_signature() {
        let status = |certificate: &str, note: &str| json!({"status": {"certificate": certificate, "note": note}});
        assert!(!is_signed(&status("a", "x"), &status("a", "y")));
        assert!(is_signed(&status("a", "x"), &status("b", "x")));
        assert!(is_signed(
            &json!({}),
            &json!({"status": {"conditions": [{"type": "Failed"}]}})
        ));
    }
}
