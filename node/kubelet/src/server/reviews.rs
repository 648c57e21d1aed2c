//! TokenReview and SubjectAccessReview by the API server.

use access::User;
use async_trait::async_trait;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};

use super::gate::{Access, Reviews};

/// Asks the API server.
pub struct Webhook {
    client: Client,
    node: String,
}

impl Webhook {
    /// For the node of this name.
    pub fn new(client: Client, node: &str) -> Webhook {
        Webhook {
            client,
            node: node.to_owned(),
        }
    }
}

#[async_trait]
impl Reviews for Webhook {
    async fn token(&self, token: &str) -> Result<Option<User>, String> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await;
        let status = answer
            .map_err(|e| e.to_string())?
            .status
            .unwrap_or_default();
        let user = status.user.filter(|_| status.authenticated == Some(true));
        Ok(user.map(|user| User {
            name: user.username.unwrap_or_default(),
            uid: user.uid.unwrap_or_default(),
            groups: user.groups.unwrap_or_default(),
            extra: user.extra.unwrap_or_default(),
        }))
    }

    async fn access(&self, access: &Access) -> Result<bool, String> {
        let review = SubjectAccessReview {
            spec: SubjectAccessReviewSpec {
                user: Some(access.user.clone()),
                uid: Some(access.uid.clone()),
                groups: Some(access.groups.clone()),
                extra: Some(access.extra.iter().cloned().collect()),
                resource_attributes: Some(ResourceAttributes {
                    verb: Some(access.verb.into()),
                    version: Some("v1".into()),
                    resource: Some("nodes".into()),
                    subresource: Some(access.subresource.into()),
                    name: Some(self.node.clone()),
                    ..ResourceAttributes::default()
                }),
                ..SubjectAccessReviewSpec::default()
            },
            ..SubjectAccessReview::default()
        };
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await;
        let status = answer.map_err(|e| e.to_string())?.status;
        Ok(status.is_some_and(|status| status.allowed))
    }
}
