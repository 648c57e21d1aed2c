//! A node and the certificates it asks for.

use super::{Refusal, Request};
use crate::writing::admission::shape::text;
use crate::writing::admission::{Operation, certificate_request};

/// Signers whose certificates speak for a node.
const NODE_SIGNERS: [&str; 2] = [
    "kubernetes.io/kubelet-serving",
    "kubernetes.io/kube-apiserver-client-kubelet",
];

/// A node asks for certificates in its own name only; the rest is the signer's to check.
pub(super) fn admit(request: &Request<'_>) -> Result<(), Refusal> {
    let spec = &request.object["spec"];
    if request.attributes.operation != Operation::Create
        || !NODE_SIGNERS.contains(&text(&spec["signerName"]))
    {
        return Ok(());
    }
    let subject = certificate_request::subject(text(&spec["request"]))
        .map_err(|why| format!("unable to parse csr: {why}"))?;
    let wanted = format!("{}{}", super::NODE_USER, request.node);
    match subject.common_name == wanted {
        true => Ok(()),
        false => Err(format!("can only create a node CSR with CN={wanted}")),
    }
}
