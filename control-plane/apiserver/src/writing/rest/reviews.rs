//! Reviews: questions about access that clients POST, what they must say, and their answers.

use access::tokens::{self, Authenticated, Invalid};
use futures::FutureExt as _;
use futures::future::BoxFuture;
use kinds::resources::Resource;
use konnectivity::server::{NODE_NAME, Node, Reviewed, Reviewer};
use serde_json::{Value, json};

use crate::api::Api;
use crate::call::Call;
use crate::door::access_review;
use crate::door::authentication::CacheObjects;
use crate::status::{ApiError, Result};
use crate::writing::codec;

impl Api {
    /// Who am I.
    pub(super) async fn self_review(
        &self,
        call: &Call,
        warnings: &mut Vec<String>,
    ) -> Result<Value> {
        let mut review = self.decode_review(call, warnings).await?;
        review["metadata"]["creationTimestamp"] = self.clock.seconds().into();
        review["status"] = json!({"userInfo": access_review::user_info(&call.user)});
        Ok(review)
    }

    /// Whose token is this.
    pub(super) async fn token_review(
        &self,
        call: &Call,
        warnings: &mut Vec<String>,
    ) -> Result<Value> {
        let mut review = self.decode_review(call, warnings).await?;
        let token = review["spec"]["token"].as_str().unwrap_or_default();
        let audiences = review["spec"]["audiences"].as_array().into_iter().flatten();
        let wanted: Vec<String> = audiences
            .filter_map(Value::as_str)
            .map(str::to_owned)
            .collect();
        review["status"] = match self.owner(token, &wanted).await {
            Err(why) => json!({"user": {}, "error": why.to_string()}),
            Ok(found) => {
                let user = tokens::with_authenticated_group(found.user);
                json!({"authenticated": true, "user": access_review::user_info(&user), "audiences": found.audiences})
            }
        };
        Ok(review)
    }

    async fn owner(
        &self,
        token: &str,
        wanted: &[String],
    ) -> std::result::Result<Authenticated, Invalid> {
        let objects = CacheObjects(&self.cache);
        self.authenticator
            .token(token, self.clock.now(), wanted, &objects)
            .await
    }

    /// May they.
    pub(super) async fn access_review(
        &self,
        call: &Call,
        warnings: &mut Vec<String>,
    ) -> Result<Value> {
        let mut review = self.decode_review(call, warnings).await?;
        let (authorizer, spec) = (&self.authorizer, &review["spec"]);
        review["status"] = match call.resource.kind {
            "SelfSubjectRulesReview" => access_review::rules(authorizer, &call.user, spec),
            "SelfSubjectAccessReview" => access_review::access(authorizer, &call.user, spec).await,
            _ => access_review::access(authorizer, &access_review::subject(spec), spec).await,
        };
        if call.resource.kind == "SelfSubjectRulesReview" {
            // Upstream answers this one without its question.
            review["metadata"] = json!({});
            review["spec"] = json!({});
        }
        Ok(review)
    }

    // A review is an object that is POSTed like any other, and admitted like any other.
    async fn decode_review(&self, call: &Call, warnings: &mut Vec<String>) -> Result<Value> {
        let mut review = self.read_review(call, warnings)?;
        self.mutate_posted(call, &mut review).await?;
        self.validate_posted(call, &review).await?;
        Ok(review)
    }

    // The review in a request's body, as its owner sent it; one that asks nothing is refused.
    fn read_review(&self, call: &Call, warnings: &mut Vec<String>) -> Result<Value> {
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
        check(&call.resource, &review)?;
        Ok(review)
    }
}

// The konnectivity server in this process asks without a request, and believes nobody more than a client would.
impl Reviewer for Api {
    fn review<'a>(
        &'a self,
        token: &'a str,
        audience: &'a str,
    ) -> BoxFuture<'a, std::result::Result<Reviewed, String>> {
        async move {
            let found = self.owner(token, &[audience.to_owned()]).await;
            let user = found.map_err(|why| format!("lookup failed: {why}"))?.user;
            let node = user.extra.get(NODE_NAME).and_then(|names| names.first());
            Ok(Reviewed {
                node: node.map(|name| self.node_of_agent(name)),
                user: user.name,
            })
        }
        .boxed()
    }
}

impl Api {
    // One that is gone has no addresses, and may claim none.
    fn node_of_agent(&self, name: &str) -> Node {
        let nodes = kinds::resources::find("", "v1", "nodes");
        let collection = nodes.and_then(|nodes| self.cache.collection(nodes));
        let node = collection.and_then(|nodes| nodes.get(name));
        let node = node.map(|node| node.value()).unwrap_or_default();
        let addresses = node["status"]["addresses"].as_array();
        let addresses = addresses.into_iter().flatten();
        let addresses = addresses.filter_map(|one| one["address"].as_str().map(str::to_owned));
        Node {
            name: name.to_owned(),
            addresses: addresses.collect(),
        }
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
