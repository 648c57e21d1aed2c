//! Who asked for a certificate.

use serde_json::{Value, json};

use crate::call::Call;

/// A certificate request carries who asked for it, whatever the client wrote there.
pub(crate) fn stamp_requester(call: &Call, object: &mut Value) {
    if call.resource.kind != "CertificateSigningRequest" {
        return;
    }
    let Some(spec) = object["spec"].as_object_mut() else {
        return;
    };
    let user = &call.user;
    let fields = [
        ("username", json!(user.name), user.name.is_empty()),
        ("uid", json!(user.uid), user.uid.is_empty()),
        ("groups", json!(user.groups), user.groups.is_empty()),
        ("extra", json!(user.extra), user.extra.is_empty()),
    ];
    for (field, value, is_empty) in fields {
        match is_empty {
            true => spec.remove(field),
            false => spec.insert(field.into(), value),
        };
    }
}
