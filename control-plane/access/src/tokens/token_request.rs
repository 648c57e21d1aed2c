//! `POST serviceaccounts/{name}/token`: what is checked, and what is answered.
//!
//! Two steps, because validating admission stands between them: [`TokenRequests::prepare`] fills in and checks the
//! request, [`TokenRequests::issue`] looks at the object it is bound to and signs.

mod refusal;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::Objects;
use super::claims::shifted;
use super::service_account::{Binding, Grant, Issuer, Ref, credential_id};
pub use refusal::{Details, Refusal};

const SHORTEST: i64 = 10 * 60;
const LONGEST: i64 = 1 << 32;
const DEFAULT: i64 = 60 * 60;

/// What the projected token volumes of pods ask for; clients older than bound tokens never reload theirs, so such
/// a token is made to last.
const EXTENDABLE: i64 = 60 * 60 + 7;
const EXTENDED: i64 = 365 * 24 * 60 * 60;

/// Answers token requests.
#[derive(Debug)]
pub struct TokenRequests {
    /// Who signs.
    pub issuer: Issuer,
    /// Audiences of this API server: the default, and the only ones whose tokens are made to last.
    pub api_audiences: Vec<String>,
    /// Longest lifetime given, if it is limited.
    pub max_seconds: Option<i64>,
    /// Whether pods' tokens are made to last; on by default.
    pub extend: bool,
}

/// A request with everything filled in and every static check passed.
#[derive(Debug, Clone)]
pub struct Prepared {
    object: Value,
    account: Ref,
    namespace: String,
}

impl Prepared {
    /// The TokenRequest as validating admission should see it.
    pub fn object(&self) -> &Value {
        &self.object
    }
}

/// The answer.
#[derive(Clone)]
pub struct Issued {
    /// The TokenRequest with its status; holds the token.
    pub object: Value,
    /// Sentences for Warning headers.
    pub warnings: Vec<String>,
    /// Value of the audit annotation `authentication.kubernetes.io/issued-credential-id`.
    pub credential_id: String,
}

impl TokenRequests {
    /// Checks the body of a request for a service account's token and fills in what it left out.
    pub fn prepare(
        &self,
        namespace: &str,
        name: &str,
        body: &Value,
        now: Timestamp,
        objects: &dyn Objects,
    ) -> Result<Prepared, Refusal> {
        let text = |field: &str| body["metadata"][field].as_str().unwrap_or_default();
        refusal::same("name", "service account name", text("name"), name, name)?;
        refusal::same(
            "namespace",
            "service account namespace",
            text("namespace"),
            namespace,
            name,
        )?;
        let account = objects.get("", "serviceaccounts", namespace, name);
        let account = account.ok_or_else(|| Refusal::not_found("serviceaccounts", name))?;
        let account = reference(&account, name);
        if !text("uid").is_empty() && text("uid") != account.uid {
            return Err(Refusal::other_account(name, text("uid"), &account.uid));
        }
        let object = self.filled_in(namespace, &account, body, now);
        check_lifetime(seconds(&object))?;
        Ok(Prepared {
            object,
            account,
            namespace: namespace.into(),
        })
    }

    fn filled_in(&self, namespace: &str, account: &Ref, body: &Value, now: Timestamp) -> Value {
        let mut metadata = body["metadata"].as_object().cloned().unwrap_or_default();
        metadata.insert("name".into(), json!(account.name));
        metadata.insert("namespace".into(), json!(namespace));
        metadata.insert("uid".into(), json!(account.uid));
        metadata.insert("creationTimestamp".into(), json!(rfc3339(now)));
        let mut spec = body["spec"].as_object().cloned().unwrap_or_default();
        if spec
            .get("audiences")
            .and_then(Value::as_array)
            .is_none_or(Vec::is_empty)
        {
            spec.insert("audiences".into(), json!(self.api_audiences));
        }
        if spec.get("expirationSeconds").is_none_or(Value::is_null) {
            spec.insert("expirationSeconds".into(), json!(DEFAULT));
        }
        json!({
            "kind": "TokenRequest",
            "apiVersion": "authentication.k8s.io/v1",
            "metadata": metadata,
            "spec": spec,
            "status": {"token": "", "expirationTimestamp": null},
        })
    }

    /// Signs a token; `id` must be new and unguessable.
    pub fn issue(
        &self,
        prepared: Prepared,
        id: String,
        now: Timestamp,
        objects: &dyn Objects,
    ) -> Result<Issued, Refusal> {
        let Prepared {
            mut object,
            account,
            namespace,
        } = prepared;
        let binding = binding(
            &namespace,
            &account.name,
            &object["spec"]["boundObjectRef"],
            objects,
        )?;
        let (asked, warnings) = self.shortened(seconds(&object));
        object["spec"]["expirationSeconds"] = json!(asked);
        let audiences = strings(&object["spec"]["audiences"]);
        let lasting = self.extend
            && matches!(binding, Binding::Pod { .. })
            && asked == EXTENDABLE
            && audiences
                .iter()
                .all(|audience| self.api_audiences.contains(audience));
        let (seconds, warn_after) = if lasting {
            (EXTENDED, Some(asked))
        } else {
            (asked, None)
        };
        let credential_id = credential_id(&id);
        let grant = Grant {
            namespace,
            account,
            audiences,
            seconds,
            warn_after,
            binding,
            id,
        };
        let token = self
            .issuer
            .issue(&grant, now)
            .map_err(|why| Refusal::internal(&why))?;
        let expires = shifted(now, SignedDuration::from_secs(asked));
        object["status"] = json!({"token": token, "expirationTimestamp": rfc3339(expires)});
        Ok(Issued {
            object,
            warnings,
            credential_id,
        })
    }

    fn shortened(&self, asked: i64) -> (i64, Vec<String>) {
        match self.max_seconds {
            Some(most) if most > 0 && asked > most => (
                most,
                vec![format!(
                    "requested expiration of {asked} seconds shortened to {most} seconds"
                )],
            ),
            _ => (asked, Vec::new()),
        }
    }
}

fn check_lifetime(seconds: i64) -> Result<(), Refusal> {
    if seconds < SHORTEST {
        return Err(Refusal::bad_lifetime(
            seconds,
            "may not specify a duration less than 10 minutes",
        ));
    }
    if seconds > LONGEST {
        return Err(Refusal::bad_lifetime(
            seconds,
            "may not specify a duration larger than 2^32 seconds",
        ));
    }
    Ok(())
}

/// What the request binds the token to, if that is there and is what the request thinks it is.
fn binding(
    namespace: &str,
    account: &str,
    wanted: &Value,
    objects: &dyn Objects,
) -> Result<Binding, Refusal> {
    if wanted.is_null() {
        return Ok(Binding::Account);
    }
    let text = |field: &str| wanted[field].as_str().unwrap_or_default();
    let (kind, name) = (text("kind"), text("name"));
    let (plural, namespace) = match (group(text("apiVersion")), kind) {
        ("", "Pod") => ("pods", namespace),
        ("", "Secret") => ("secrets", namespace),
        ("", "Node") => ("nodes", ""),
        _ => return Err(Refusal::unbindable(text("apiVersion"), kind)),
    };
    let object = objects
        .get("", plural, namespace, name)
        .ok_or_else(|| Refusal::not_found(plural, name))?;
    if kind == "Pod" && object["spec"]["serviceAccountName"] != account {
        return Err(Refusal::other_pod(account));
    }
    let found = reference(&object, name);
    if !text("uid").is_empty() && text("uid") != found.uid {
        return Err(Refusal::other_object(kind, name, text("uid")));
    }
    Ok(match kind {
        "Pod" => Binding::Pod {
            pod: found,
            node: node_of(&object, objects),
        },
        "Secret" => Binding::Secret(found),
        _ => Binding::Node(found),
    })
}

/// The node of a pod; only its name where there is no such node.
fn node_of(pod: &Value, objects: &dyn Objects) -> Option<Ref> {
    let name = pod["spec"]["nodeName"]
        .as_str()
        .filter(|name| !name.is_empty())?;
    let node = objects.get("", "nodes", "", name).unwrap_or_default();
    Some(reference(&node, name))
}

fn reference(object: &Value, name: &str) -> Ref {
    Ref {
        name: name.into(),
        uid: object["metadata"]["uid"]
            .as_str()
            .unwrap_or_default()
            .into(),
    }
}

/// The group of an apiVersion; upstream takes one it cannot read for the core group.
fn group(api_version: &str) -> &str {
    match api_version.split('/').collect::<Vec<_>>()[..] {
        [group, _] => group,
        _ => "",
    }
}

fn seconds(object: &Value) -> i64 {
    object["spec"]["expirationSeconds"]
        .as_i64()
        .unwrap_or_default()
}

fn strings(list: &Value) -> Vec<String> {
    let items = list.as_array().into_iter().flatten();
    items
        .filter_map(|item| item.as_str().map(str::to_owned))
        .collect()
}

/// A time as Kubernetes writes it: whole seconds, UTC.
fn rfc3339(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

#[cfg(test)]
mod tests;
