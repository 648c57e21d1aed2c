//! Nobody grants what they do not hold: writes of roles and bindings.
//!
//! A role may be written by who holds all its rules, or has the verb `escalate` on it; a binding by who holds
//! all rules of its role, or has the verb `bind` on that role (upstream's policy-based storage).

use access::rbac::{Kind, Write, WriteRefusal};
use serde_json::Value;

use crate::call::Call;
use crate::door::authorization::Authorizer;
use crate::settings::AuthorizationMode;
use crate::status::{ApiError, Result};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Refuses a role or binding that would give more than its writer has.
pub(crate) fn check(
    authorizer: &Authorizer,
    call: &Call,
    new: &Value,
    old: Option<&Value>,
) -> Result<()> {
    let concerned = call.resource.gv.group == GROUP && authorizer.has(AuthorizationMode::Rbac);
    let Some(kind) = Kind::of_resource(call.resource.plural).filter(|_| concerned) else {
        return Ok(());
    };
    let write = Write {
        user: &call.user,
        kind,
        namespace: call.path.namespace(),
        path_name: call.path.name(),
        object: new,
        old,
    };
    let allows = |asked: &access::Attributes| authorizer.decide(asked).is_allowed();
    let name = new["metadata"]["name"].as_str().unwrap_or_default();
    let checked = authorizer.rbac.check_write(&write, &allows);
    checked.map_err(|refusal| match refusal {
        WriteRefusal::Forbidden(why) => ApiError::forbidden(&call.resource, name, &why),
        WriteRefusal::NotFound(role) => ApiError::not_found(&call.resource, &role),
        WriteRefusal::Internal(why) => ApiError::internal(why),
    })
}
