//! Errors as clients know them: `Status` objects with a code, a reason and details.
//!
//! client-go branches on `reason` and on cause types, never on text, but kubectl prints the text;
//! both follow `apimachinery/pkg/api/errors/errors.go`.

use std::collections::HashSet;

use access::Target;
use http::StatusCode;
use kinds::field::{Errors, MOST_LISTED};
use kinds::resources::Resource;
use serde_json::{Map, Value, json};

/// One cause of a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    /// Machine-readable kind of the cause.
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: String,
    /// The field it concerns, if any.
    pub(crate) field: String,
}

/// A failed request.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    /// HTTP status.
    pub(crate) code: StatusCode,
    /// Machine-readable reason.
    pub(crate) reason: &'static str,
    /// For people.
    pub(crate) message: String,
    /// Seconds after which a retry makes sense.
    pub(crate) retry_after: Option<u32>,
    details: Option<Box<Details>>,
    /// A continue token that resumes an expired list.
    continue_token: Option<Box<str>>,
}

/// What an error is about.
#[derive(Debug, Clone, Default)]
struct Details {
    name: String,
    group: String,
    kind: String,
    causes: Vec<Cause>,
}

/// The result of handling a request.
pub(crate) type Result<T, E = ApiError> = std::result::Result<T, E>;

impl ApiError {
    fn new(code: StatusCode, reason: &'static str, message: impl Into<String>) -> ApiError {
        ApiError {
            code,
            reason,
            message: message.into(),
            retry_after: None,
            details: None,
            continue_token: None,
        }
    }

    fn about(mut self, resource: &Resource, name: &str) -> ApiError {
        let details = self.details_mut();
        details.name = name.to_owned();
        details.group = resource.gv.group.to_owned();
        details.kind = resource.plural.to_owned();
        self
    }

    // Errors that upstream's HTTP layer makes carry details with nothing in them.
    fn with_empty_details(mut self) -> ApiError {
        self.details_mut();
        self
    }

    fn details_mut(&mut self) -> &mut Details {
        self.details.get_or_insert_default()
    }

    fn retry(mut self, seconds: u32) -> ApiError {
        self.retry_after = Some(seconds);
        self.with_empty_details()
    }

    /// Adds a cause.
    pub(crate) fn cause(
        mut self,
        reason: &'static str,
        message: impl Into<String>,
        field: &str,
    ) -> ApiError {
        self.details_mut().causes.push(Cause {
            reason,
            message: message.into(),
            field: field.to_owned(),
        });
        self
    }

    /// 400: the request itself makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::BAD_REQUEST, "BadRequest", message)
    }

    /// 401: no valid credentials.
    pub(crate) fn unauthorized() -> ApiError {
        ApiError::new(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized")
    }

    /// 403: refused for a named object.
    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> ApiError {
        let message = format!("{} {name:?} is forbidden: {why}", resource.qualified());
        ApiError::new(StatusCode::FORBIDDEN, "Forbidden", message).about(resource, name)
    }

    /// An answer that is put together elsewhere: code, reason, message and what it is about (name, group,
    /// kind).
    pub(crate) fn answer(
        code: StatusCode,
        reason: &'static str,
        message: String,
        about: Option<(&str, &str, &str)>,
    ) -> ApiError {
        let mut error = ApiError::new(code, reason, message);
        if let Some((name, group, kind)) = about {
            let details = error.details_mut();
            details.name = name.to_owned();
            details.group = group.to_owned();
            details.kind = kind.to_owned();
        }
        error
    }

    /// 403: this user may not do this, in upstream's sentence.
    pub(crate) fn not_allowed(asked: &access::Attributes<'_>, reason: &str) -> ApiError {
        let (user, verb) = (&asked.user.name, asked.verb);
        let because = match reason {
            "" => String::new(),
            reason => format!(": {reason}"),
        };
        let target = match asked.target {
            Target::Path(path) => {
                let message =
                    format!("forbidden: User {user:?} cannot {verb} path {path:?}{because}");
                return ApiError::new(StatusCode::FORBIDDEN, "Forbidden", message)
                    .with_empty_details();
            }
            Target::Resource(target) => target,
        };
        let slash = if target.subresource.is_empty() {
            ""
        } else {
            "/"
        };
        let resource = format!("{}{slash}{}", target.resource, target.subresource);
        let scope = match target.namespace {
            "" => "at the cluster scope".to_owned(),
            namespace => format!("in the namespace {namespace:?}"),
        };
        let qualified = match target.group {
            "" => target.resource.to_owned(),
            group => format!("{}.{group}", target.resource),
        };
        let named = match target.name {
            "" => qualified,
            name => format!("{qualified} {name:?}"),
        };
        let message = format!(
            "{named} is forbidden: User {user:?} cannot {verb} resource {resource:?} \
             in API group {:?} {scope}{because}",
            target.group
        );
        let mut error = ApiError::new(StatusCode::FORBIDDEN, "Forbidden", message);
        let details = error.details_mut();
        details.name = target.name.to_owned();
        details.group = target.group.to_owned();
        details.kind = target.resource.to_owned();
        error
    }

    /// 404: no such object.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> ApiError {
        let message = format!("{} {name:?} not found", resource.qualified());
        ApiError::new(StatusCode::NOT_FOUND, "NotFound", message).about(resource, name)
    }

    /// 404 for an object that a decision needs; upstream's caches name it in the singular.
    pub(crate) fn not_listed(resource: &Resource, name: &str) -> ApiError {
        let dot = if resource.gv.group.is_empty() {
            ""
        } else {
            "."
        };
        let (singular, group) = (resource.singular, resource.gv.group);
        let message = format!("{singular}{dot}{group} {name:?} not found");
        let mut error =
            ApiError::new(StatusCode::NOT_FOUND, "NotFound", message).about(resource, name);
        error.details_mut().kind = singular.to_owned();
        error
    }

    /// 404: no such path.
    pub(crate) fn no_such_path() -> ApiError {
        let message = "the server could not find the requested resource";
        ApiError::new(StatusCode::NOT_FOUND, "NotFound", message).with_empty_details()
    }

    /// 405: the path exists but not this method.
    pub(crate) fn method_not_allowed() -> ApiError {
        let message = "the server does not allow this method on the requested resource";
        ApiError::new(StatusCode::METHOD_NOT_ALLOWED, "MethodNotAllowed", message)
            .with_empty_details()
    }

    /// 406: no acceptable media type.
    pub(crate) fn not_acceptable(accepted: &str) -> ApiError {
        let message = format!("only the following media types are accepted: {accepted}");
        ApiError::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// 406 of upstream's HTTP layer: the path has no form that the client takes.
    pub(crate) fn no_representation(available: &str) -> ApiError {
        let message = format!("406: Not Acceptable\n\nAvailable representations: {available}");
        ApiError::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message).with_empty_details()
    }

    /// 406: a list asked for as one object's metadata, or the other way round.
    pub(crate) fn wrong_transformation(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::NOT_ACCEPTABLE, "NotAcceptable", message)
    }

    /// 409: create of an existing object.
    pub(crate) fn already_exists(resource: &Resource, name: &str) -> ApiError {
        let message = format!("{} {name:?} already exists", resource.qualified());
        ApiError::new(StatusCode::CONFLICT, "AlreadyExists", message).about(resource, name)
    }

    /// The same with some words before its message.
    pub(crate) fn prefixed(mut self, words: &str) -> ApiError {
        self.message.insert_str(0, words);
        self
    }

    /// 409 after all attempts at a generated name collided.
    pub(crate) fn generated_name_taken(resource: &Resource, name: &str) -> ApiError {
        ApiError::already_exists(resource, name).retry(1)
    }

    /// 409: the object changed meanwhile, or a precondition failed.
    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> ApiError {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            resource.qualified()
        );
        ApiError::new(StatusCode::CONFLICT, "Conflict", message).about(resource, name)
    }

    /// 409 for a precondition of a delete; upstream names the kind here.
    pub(crate) fn precondition_failed(resource: &Resource, name: &str, why: &str) -> ApiError {
        let message = format!(
            "Operation cannot be fulfilled on {} {name:?}: {why}",
            resource.kind
        );
        let mut error =
            ApiError::new(StatusCode::CONFLICT, "Conflict", message).about(resource, name);
        error.details_mut().kind = resource.kind.to_owned();
        error
    }

    /// 409 for a stale resourceVersion.
    pub(crate) fn modified(resource: &Resource, name: &str) -> ApiError {
        ApiError::conflict(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    /// 409 from server-side apply; the causes name managers and fields.
    pub(crate) fn apply_conflict(message: String) -> ApiError {
        ApiError::new(StatusCode::CONFLICT, "Conflict", message)
    }

    /// 410: the resource version or continue token is older than the history kept.
    pub(crate) fn expired(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::GONE, "Expired", message)
    }

    /// Adds the token with which a list can go on, inconsistently, after 410.
    pub(crate) fn with_continue(mut self, token: String) -> ApiError {
        self.continue_token = Some(token.into());
        self
    }

    /// 413: the body or patch is too large.
    pub(crate) fn too_large(message: impl Into<String>) -> ApiError {
        ApiError::new(
            StatusCode::PAYLOAD_TOO_LARGE,
            "RequestEntityTooLarge",
            message,
        )
    }

    /// 415: the body's media type is not understood here.
    pub(crate) fn unsupported_media_type(allowed: &str) -> ApiError {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {allowed}"
        );
        ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
    }

    /// 422: the object is understood and wrong.
    pub(crate) fn invalid(group: &str, kind: &str, name: &str, errors: &Errors) -> ApiError {
        let qualified = if group.is_empty() {
            kind.to_owned()
        } else {
            format!("{kind}.{group}")
        };
        // What nobody reads is not written: an answer must not grow beyond what it answers.
        let listed = &errors.0[..errors.0.len().min(MOST_LISTED)];
        let mut seen = HashSet::new();
        let lines = listed.iter().map(ToString::to_string);
        let mut lines: Vec<String> = lines.filter(|line| seen.insert(line.clone())).collect();
        if listed.len() < errors.0.len() {
            lines.push(format!("and {} more", errors.0.len() - listed.len()));
        }
        let joined = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let message = format!("{qualified} {name:?} is invalid: {joined}");
        let mut error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message);
        let details = error.details_mut();
        details.name = name.to_owned();
        details.group = group.to_owned();
        details.kind = kind.to_owned();
        for e in listed {
            error = error.cause(e.reason.name(), e.message.clone(), &e.field);
        }
        error
    }

    /// 422 without an object behind it (patches, list options).
    pub(crate) fn unprocessable(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message)
    }

    /// 422 for a patch that does not apply; upstream keeps the reason to itself.
    pub(crate) fn patch_rejected() -> ApiError {
        let message = "the server rejected our request due to an error in our request";
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", message).with_empty_details()
    }

    /// 415 for a patch of no known kind.
    /// A strategic merge patch of a custom resource: nothing says how its lists merge.
    pub(crate) fn unsupported_patch() -> ApiError {
        let message = "the body of the request was in an unknown format - accepted media types include: \
             application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";
        ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
    }

    pub(crate) fn unknown_patch_type() -> ApiError {
        let message = "415: Unsupported Media Type";
        ApiError::new(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            "UnsupportedMediaType",
            message,
        )
        .with_empty_details()
    }

    /// 422 for the options of a request.
    pub(crate) fn invalid_option(
        kind: &str,
        reason: &'static str,
        field: &str,
        message: &str,
    ) -> ApiError {
        let text = format!("{kind}.meta.k8s.io \"\" is invalid: {field}: {message}");
        let mut error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "Invalid", text);
        let details = error.details_mut();
        details.group = "meta.k8s.io".into();
        details.kind = kind.into();
        error.cause(reason, message, field)
    }

    /// 429: come back later.
    pub(crate) fn too_many_requests(message: impl Into<String>, seconds: u32) -> ApiError {
        ApiError::new(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", message).retry(seconds)
    }

    /// 500: our fault.
    pub(crate) fn internal(message: impl std::fmt::Display) -> ApiError {
        let text = format!("Internal error occurred: {message}");
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "InternalError", text).cause(
            "",
            message.to_string(),
            "",
        )
    }

    /// 500 whose message is the error's own text, as upstream answers errors without a status.
    pub(crate) fn plain(message: impl Into<String>) -> ApiError {
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "", message)
    }

    /// 503: not now.
    pub(crate) fn unavailable(message: impl Into<String>) -> ApiError {
        ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "ServiceUnavailable",
            message,
        )
        .retry(1)
    }

    /// 504: the request ran out of time.
    pub(crate) fn timeout(message: impl Into<String>) -> ApiError {
        let text = format!("Timeout: {}", message.into());
        ApiError::new(StatusCode::GATEWAY_TIMEOUT, "Timeout", text).with_empty_details()
    }

    /// 504: the resource version asked for has not happened yet.
    pub(crate) fn version_too_large(requested: u64, newest: u64) -> ApiError {
        let message = format!("Too large resource version: {requested}, current: {newest}");
        ApiError::timeout(message.clone())
            .cause("ResourceVersionTooLarge", "Too large resource version", "")
            .retry(1)
    }

    /// The `Status` object.
    pub(crate) fn to_value(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), (**token).into());
        }
        let mut status = json!({
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata,
            "status": "Failure",
            "message": self.message,
            "code": self.code.as_u16(),
        });
        if !self.reason.is_empty() {
            status["reason"] = self.reason.into();
        }
        if let Some(details) = &self.details {
            status["details"] = Value::Object(self.details_value(details));
        }
        status
    }

    fn details_value(&self, about: &Details) -> Map<String, Value> {
        let mut details = Map::new();
        let texts = [
            ("name", &about.name),
            ("group", &about.group),
            ("kind", &about.kind),
        ];
        for (key, text) in texts {
            if !text.is_empty() {
                details.insert(key.into(), text.as_str().into());
            }
        }
        if !about.causes.is_empty() {
            let causes = about.causes.iter().map(cause_value).collect();
            details.insert("causes".into(), Value::Array(causes));
        }
        if let Some(seconds) = self.retry_after {
            details.insert("retryAfterSeconds".into(), seconds.into());
        }
        details
    }
}

fn cause_value(cause: &Cause) -> Value {
    let mut value = Map::new();
    let texts = [
        ("reason", cause.reason),
        ("message", &cause.message),
        ("field", &cause.field),
    ];
    for (key, text) in texts {
        if !text.is_empty() {
            value.insert(key.into(), text.into());
        }
    }
    Value::Object(value)
}

impl From<store::Error> for ApiError {
    fn from(error: store::Error) -> ApiError {
        match error {
            store::Error::Compacted { .. } => {
                ApiError::expired(format!("The provided resource version is too old: {error}"))
            }
            store::Error::TooLarge { .. } => ApiError::too_large(error.to_string()),
            store::Error::Future { requested, newest } => {
                ApiError::version_too_large(requested, newest)
            }
            store::Error::ReadOnly { .. } | store::Error::Unavailable { .. } => {
                ApiError::unavailable(error.to_string())
            }
            other => ApiError::internal(other),
        }
    }
}

/// The `Status` of a success, as deletes answer it.
pub(crate) fn success(resource: &Resource, name: &str, uid: &str) -> Value {
    let mut details = json!({"name": name, "kind": resource.plural});
    if !resource.gv.group.is_empty() {
        details["group"] = resource.gv.group.into();
    }
    if !uid.is_empty() {
        details["uid"] = uid.into();
    }
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Success",
        "details": details,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use kinds::field::Path;

    #[test]
    fn not_found_names_the_qualified_resource() {
        let deployments = kinds::resources::find("apps", "v1", "deployments").expect("exists");
        let status = ApiError::not_found(deployments, "web").to_value();
        assert_eq!(status["message"], "deployments.apps \"web\" not found");
        assert_eq!(
            status["details"],
            json!({"name": "web", "group": "apps", "kind": "deployments"})
        );
        assert_eq!(status["code"], 404);
    }

    #[test]
    fn invalid_lists_every_cause() {
        let mut errors = Errors::default();
        errors.required(&Path::root("a"), "");
        errors.required(&Path::root("b"), "");
        let status = ApiError::invalid("apps", "Deployment", "web", &errors).to_value();
        assert_eq!(
            status["message"],
            "Deployment.apps \"web\" is invalid: [a: Required value, b: Required value]"
        );
        assert_eq!(
            status["details"]["causes"][1]["reason"],
            "FieldValueRequired"
        );
        assert_eq!(status["details"]["causes"][1]["field"], "b");
    }
}
