//! Why a token request is refused, in the shape of a Status.

use crate::tokens::keys::KeyError;

const GROUP: &str = "authentication.k8s.io";
const KIND: &str = "TokenRequest";

/// Everything a Status needs: code, reason, message and details.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// HTTP status code.
    pub code: u16,
    /// `reason` of the Status.
    pub reason: &'static str,
    /// `message` of the Status.
    pub message: String,
    /// `details`, where the Status has any.
    pub details: Option<Box<Details>>,
}

/// What a refusal is about.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Details {
    /// Name of the object.
    pub name: String,
    /// Its group.
    pub group: &'static str,
    /// Its kind, or its plural where the object was not found.
    pub kind: String,
    /// Causes: reason, message and field.
    pub causes: Vec<(&'static str, String, &'static str)>,
}

impl Details {
    fn of(name: &str, group: &'static str, kind: &str) -> Details {
        Details {
            name: name.into(),
            group,
            kind: kind.into(),
            causes: Vec::new(),
        }
    }
}

impl Refusal {
    fn plain(code: u16, reason: &'static str, message: String) -> Refusal {
        Refusal {
            code,
            reason,
            message,
            details: None,
        }
    }

    pub(super) fn not_found(plural: &str, name: &str) -> Refusal {
        let details = Some(Box::new(Details::of(name, "", plural)));
        Refusal {
            details,
            ..Refusal::plain(404, "NotFound", format!("{plural} {name:?} not found"))
        }
    }

    pub(super) fn bad_lifetime(seconds: i64, detail: &str) -> Refusal {
        Refusal::invalid("", "spec.expirationSeconds", &seconds.to_string(), detail)
    }

    fn invalid(name: &str, field: &'static str, value: &str, detail: &str) -> Refusal {
        let cause = format!("Invalid value: {value}: {detail}");
        let message = format!("{KIND}.{GROUP} {name:?} is invalid: {field}: {cause}");
        Refusal {
            details: Some(Box::new(Details {
                causes: vec![("FieldValueInvalid", cause, field)],
                ..Details::of(name, GROUP, KIND)
            })),
            ..Refusal::plain(422, "Invalid", message)
        }
    }

    /// The pod runs as somebody else.
    pub(super) fn other_pod(account: &str) -> Refusal {
        let message = format!(
            "cannot bind token for serviceaccount {account:?} to pod running with different serviceaccount name."
        );
        Refusal::plain(400, "BadRequest", message)
    }

    pub(super) fn unbindable(api_version: &str, kind: &str) -> Refusal {
        let (group, version) = match api_version.split('/').collect::<Vec<_>>()[..] {
            [group, version] => (group, version),
            [version] => ("", version),
            _ => ("", ""),
        };
        let message = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
        Refusal::plain(400, "BadRequest", message)
    }

    /// The service account is another of that name.
    pub(super) fn other_account(name: &str, asked: &str, found: &str) -> Refusal {
        let why = format!(
            "the UID in the token request ({asked}) does not match the UID of the service account ({found})"
        );
        Refusal::conflict(GROUP, KIND, name, &why)
    }

    /// The bound object is another of that name.
    pub(super) fn other_object(kind: &str, name: &str, asked: &str) -> Refusal {
        let why = format!(
            "the UID in the bound object reference ({asked}) does not match the UID in record. The object might \
             have been deleted and then recreated"
        );
        Refusal::conflict("", kind, name, &why)
    }

    fn conflict(group: &'static str, kind: &str, name: &str, why: &str) -> Refusal {
        let dot = if group.is_empty() { "" } else { "." };
        let message =
            format!("Operation cannot be fulfilled on {kind}{dot}{group} {name:?}: {why}");
        let details = Some(Box::new(Details::of(name, group, kind)));
        Refusal {
            details,
            ..Refusal::plain(409, "Conflict", message)
        }
    }

    pub(super) fn internal(why: &KeyError) -> Refusal {
        let cause = format!("failed to generate token: {why}");
        let message = format!("Internal error occurred: {cause}");
        Refusal {
            details: Some(Box::new(Details {
                causes: vec![("", cause, "")],
                ..Details::default()
            })),
            ..Refusal::plain(500, "InternalError", message)
        }
    }
}

/// Refuses a body that names something other than the address does.
pub(super) fn same(
    field: &str,
    what: &str,
    found: &str,
    wanted: &str,
    name: &str,
) -> Result<(), Refusal> {
    if found.is_empty() || found == wanted {
        return Ok(());
    }
    let path = if field == "name" {
        "metadata.name"
    } else {
        "metadata.namespace"
    };
    let detail = format!("must match the {what} if specified");
    Err(Refusal::invalid(name, path, &format!("{found:?}"), &detail))
}
