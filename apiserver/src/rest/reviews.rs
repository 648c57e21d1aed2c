//! Reviews: what they must say before they are answered.

use kinds::resources::Resource;
use serde_json::Value;

use super::{Api, Call};
use crate::codec;
use crate::status::{ApiError, Result};

impl Api {
    /// Reads the review in a request's body, as its owner sent it, and refuses one that asks nothing.
    pub(super) fn read_review(&self, call: &Call, warnings: &mut Vec<String>) -> Result<Value> {
        let options = call.write_options()?;
        let mut review = codec::object(
            &call.headers,
            &call.body,
            call.expected(),
            options.field_validation,
            warnings,
        )?;
        settle_namespace(call, &mut review)?;
        self.track(call, &options, "", None, &mut review);
        check(call.resource, &review)?;
        Ok(review)
    }
}

fn settle_namespace(call: &Call, review: &mut Value) -> Result<()> {
    let Some(metadata) = review["metadata"].as_object_mut() else {
        return Ok(());
    };
    if !call.resource.namespaced {
        metadata.remove("namespace");
        return Ok(());
    }
    let said = metadata.get("namespace").and_then(Value::as_str);
    if said.is_some_and(|said| !said.is_empty() && said != call.namespace()) {
        return Err(ApiError::bad_request(
            "the namespace of the provided object does not match the namespace sent on the request",
        ));
    }
    metadata.insert("namespace".into(), call.namespace().into());
    Ok(())
}

fn check(resource: &Resource, review: &Value) -> Result<()> {
    let missing = |field: &str| {
        review["spec"][field]
            .as_str()
            .unwrap_or_default()
            .is_empty()
    };
    match resource.kind {
        "TokenReview" if missing("token") => Err(ApiError::bad_request(
            "token is required for TokenReview in authentication",
        )),
        "SelfSubjectRulesReview" if missing("namespace") => {
            Err(ApiError::bad_request("no namespace on request"))
        }
        _ => {
            let errors = kinds::validation::create(resource, review);
            // Upstream says neither kind nor name of a review here.
            match errors.is_empty() {
                true => Ok(()),
                false => Err(ApiError::invalid(resource.gv.group, "", "", &errors)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_review_that_asks_nothing_is_refused() {
        let cases = [
            (
                "authentication.k8s.io",
                "tokenreviews",
                400,
                "token is required for TokenReview in authentication",
            ),
            (
                "authorization.k8s.io",
                "selfsubjectrulesreviews",
                400,
                "no namespace on request",
            ),
            (
                "authorization.k8s.io",
                "selfsubjectaccessreviews",
                422,
                ".authorization.k8s.io \"\" is invalid: spec.resourceAttributes: Invalid value: null: \
                 exactly one of nonResourceAttributes or resourceAttributes must be specified",
            ),
        ];
        for (group, plural, code, message) in cases {
            let resource = kinds::resources::find(group, "v1", plural).expect("exists");
            let error = check(resource, &json!({"metadata": {}, "spec": {}})).expect_err(plural);
            assert_eq!(
                (error.code.as_u16(), error.message.as_str()),
                (code, message)
            );
        }
    }
}
