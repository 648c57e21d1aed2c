//! Approves the client certificates of nodes: the first for who may bootstrap one, the renewal for the
//! node itself. Who may is asked of the API server by SubjectAccessReview.

use std::sync::Arc;

use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;

use crate::Manager;
use crate::csr::request::Request;
use crate::csr::signers::{Signer, check_kubelet_client};
use crate::csr::{self, ACCOUNT};
use client_runtime::Actor;
use client_runtime::enqueue_changes;
use client_runtime::{Cache, ObjectKey};
use client_runtime::{End, Queue};
use client_runtime::{SyncError, Synced};

/// A kind of request that may be approved, and what its sender must be allowed to create for that.
#[derive(Debug, PartialEq, Eq)]
struct Recognised {
    subresource: &'static str,
    message: &'static str,
}

const RENEWAL: Recognised = Recognised {
    subresource: "selfnodeclient",
    message: "Auto approving self kubelet client certificate after SubjectAccessReview.",
};
const FIRST: Recognised = Recognised {
    subresource: "nodeclient",
    message: "Auto approving kubelet client certificate after SubjectAccessReview.",
};

/// Starts the controller.
pub(crate) fn start(manager: &mut Manager, name: &'static str) {
    let requests = manager.whole::<CertificateSigningRequest>();
    let queue = Arc::new(Queue::new());
    enqueue_changes(&requests, &queue);
    let actor = manager.act_as(ACCOUNT);
    manager.start_work(name, queue, 5, [requests.completion()], move |key| {
        sync(requests.clone(), actor.clone(), key)
    });
}

async fn sync(requests: Cache<CertificateSigningRequest>, actor: Actor, key: ObjectKey) -> Synced {
    let Some(request) = requests.get(&key) else {
        return Ok(End::Done);
    };
    let recognised = recognise(&request).map_err(SyncError::Other)?;
    for kind in recognised {
        let review = actor.create("", &review(&request, kind)).await?;
        if review.status.is_some_and(|status| status.allowed) {
            actor
                .replace_part("approval", &csr::approved(&request, kind.message))
                .await?;
            tracing::info!(request = key.name, kind.subresource, "approved");
            return Ok(End::Done);
        }
    }
    let tried: Vec<&str> = recognised.iter().map(|kind| kind.subresource).collect();
    match tried.is_empty() {
        true => Ok(End::Done),
        false => Err(SyncError::NotYet(format!(
            "recognized csr {:?} as {tried:?} but subject access review was not approved",
            key.name
        ))),
    }
}

/// As what an undecided request may be approved, in the order they are tried.
fn recognise(request: &CertificateSigningRequest) -> Result<&'static [Recognised], String> {
    const RENEWAL_OR_FIRST: [Recognised; 2] = [RENEWAL, FIRST];
    if csr::is_decided(request)
        || Signer::named(&request.spec.signer_name) != Some(Signer::KubeletClient)
    {
        return Ok(&[]);
    }
    let parsed = Request::parse(&request.spec.request.0)?;
    if check_kubelet_client(&parsed, &csr::usages(request)).is_err() {
        return Ok(&[]);
    }
    let asks_for_itself = request.spec.username.as_deref() == Some(parsed.subject.common_name());
    Ok(match asks_for_itself {
        true => &RENEWAL_OR_FIRST,
        false => &RENEWAL_OR_FIRST[1..],
    })
}

fn review(request: &CertificateSigningRequest, kind: &Recognised) -> SubjectAccessReview {
    let spec = &request.spec;
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: spec.username.clone(),
            uid: spec.uid.clone(),
            groups: spec.groups.clone(),
            extra: spec.extra.clone(),
            resource_attributes: Some(ResourceAttributes {
                group: Some("certificates.k8s.io".into()),
                resource: Some("certificatesigningrequests".into()),
                verb: Some("create".into()),
                subresource: Some(kind.subresource.into()),
                version: Some("*".into()),
                ..ResourceAttributes::default()
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use crate::csr::testing::Wish;
    use k8s_openapi::ByteString;

    fn request(wish: &Wish, user: &str) -> CertificateSigningRequest {
        let mut request = CertificateSigningRequest::default();
        request.spec.request = ByteString(wish.pem().into_bytes());
        request.spec.signer_name = "kubernetes.io/kube-apiserver-client-kubelet".into();
        request.spec.usages = Some(vec!["digital signature".into(), "client auth".into()]);
        request.spec.username = Some(user.into());
        request.spec.groups = Some(vec!["g".into()]);
        request
    }

    fn node() -> Wish {
        Wish::of("system:node:a").organisations(&["system:nodes"])
    }

    fn kinds(request: &CertificateSigningRequest) -> Vec<&'static str> {
        recognise(request)
            .unwrap()
            .iter()
            .map(|k| k.subresource)
            .collect()
    }

    #[test]
    fn first_certificates_and_renewals_are_told_apart() {
        assert_eq!(
            kinds(&request(&node(), "system:bootstrap:abcdef")),
            ["nodeclient"]
        );
        assert_eq!(
            kinds(&request(&node(), "system:node:a")),
            ["selfnodeclient", "nodeclient"]
        );
        assert_eq!(kinds(&request(&node(), "system:node:b")), ["nodeclient"]);
    }

    #[test]
    fn anything_else_is_left_to_people() {
        let no_kubelet = Wish::of("jane").organisations(&["system:nodes"]);
        assert!(kinds(&request(&no_kubelet, "jane")).is_empty());
        let mut serving = request(&node(), "system:node:a");
        serving.spec.signer_name = "kubernetes.io/kubelet-serving".into();
        assert!(kinds(&serving).is_empty());
        let mut too_much = request(&node(), "system:node:a");
        too_much.spec.usages = Some(vec!["client auth".into(), "cert sign".into()]);
        assert!(kinds(&too_much).is_empty());
        for decided in ["Approved", "Denied"] {
            let mut request = request(&node(), "system:node:a");
            let mut status = csr::approved(&request, "").status.unwrap();
            status.conditions.as_mut().unwrap()[0].type_ = decided.into();
            request.status = Some(status);
            assert!(kinds(&request).is_empty(), "{decided}");
        }
    }

    #[test]
    fn the_sender_is_asked_about_as_the_server_saw_them() {
        let review = review(&request(&node(), "system:bootstrap:abcdef"), &FIRST);
        assert_eq!(review.spec.user.as_deref(), Some("system:bootstrap:abcdef"));
        assert_eq!(review.spec.groups, Some(vec!["g".into()]));
        let what = review.spec.resource_attributes.unwrap();
        assert_eq!(what.subresource.as_deref(), Some("nodeclient"));
        assert_eq!(what.verb.as_deref(), Some("create"));
    }
}
