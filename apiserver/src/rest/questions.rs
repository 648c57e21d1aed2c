//! Reviews and tokens: questions about access that clients POST.

use kinds::resources::GroupVersion;
use serde_json::{Value, json};

use super::{Api, Call, Reply};
use crate::reviews;
use crate::status::{ApiError, Result};

impl Api {
    /// Who am I.
    pub(super) async fn self_review(&self, call: &Call) -> Result<Value> {
        let mut review = self.decode_review(call).await?;
        review["metadata"] = json!({"creationTimestamp": self.clock.seconds()});
        review["status"] = json!({"userInfo": reviews::user_info(&call.user)});
        Ok(review)
    }

    /// Whose token is this.
    pub(super) async fn token_review(&self, call: &Call) -> Result<Value> {
        let mut review = self.decode_review(call).await?;
        review["status"] = json!({"user": {}, "error": "this server issues no tokens"});
        Ok(review)
    }

    /// May they.
    pub(super) async fn access_review(&self, call: &Call) -> Result<Value> {
        let mut review = self.decode_review(call).await?;
        super::as_invalid(
            call.resource,
            &review,
            kinds::validation::create(call.resource, &review),
        )?;
        let (authorizer, spec) = (&self.authorizer, &review["spec"]);
        review["status"] = match call.resource.kind {
            "SelfSubjectRulesReview" => reviews::rules(authorizer, &call.user, spec)?,
            "SelfSubjectAccessReview" => reviews::access(authorizer, &call.user, spec),
            _ => reviews::access(authorizer, &reviews::subject(spec), spec),
        };
        Ok(review)
    }

    // A review is an object that is POSTed like any other, and admitted like any other.
    async fn decode_review(&self, call: &Call) -> Result<Value> {
        let mut review = self.decode_as(call, call.resource.gv, call.resource.kind)?;
        self.mutate_posted(call, &mut review).await?;
        self.validate_posted(call, &review).await?;
        Ok(review)
    }

    /// POST serviceaccounts/{name}/token.
    pub(super) async fn issue_token(&self, call: &Call) -> Result<Reply> {
        let gv = GroupVersion {
            group: "authentication.k8s.io",
            version: "v1",
        };
        let mut request = self.decode_as(call, gv, "TokenRequest")?;
        self.mutate_posted(call, &mut request).await?;
        self.validate_posted(call, &request).await?;
        Err(ApiError::unavailable(
            "this server issues no service account tokens: it has no signing key",
        ))
    }
}
