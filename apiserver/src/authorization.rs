//! May they: the question that handlers and admission plugins ask.

use std::sync::Arc;

use access::{Attributes, Decision};
use futures::future::BoxFuture;

/// What answers the question.
pub trait Authorize: std::fmt::Debug + Send + Sync {
    /// Decides on one question.
    fn authorize<'a>(&'a self, attributes: &'a Attributes<'a>) -> BoxFuture<'a, Decision>;
}

/// The server's authorizer, whatever it is made of.
#[derive(Debug, Clone)]
pub struct Authorizer(Arc<dyn Authorize>);

impl Authorizer {
    /// An authorizer over something that decides.
    pub fn new(authorize: Arc<dyn Authorize>) -> Authorizer {
        Authorizer(authorize)
    }

    /// Lets everybody do everything.
    pub fn always_allow() -> Authorizer {
        Authorizer(Arc::new(AlwaysAllow))
    }

    /// Decides on one question.
    pub async fn authorize(&self, attributes: &Attributes<'_>) -> Decision {
        self.0.authorize(attributes).await
    }
}

#[derive(Debug)]
struct AlwaysAllow;

impl Authorize for AlwaysAllow {
    fn authorize<'a>(&'a self, _: &'a Attributes<'a>) -> BoxFuture<'a, Decision> {
        Box::pin(std::future::ready(Decision::Allow(String::new())))
    }
}
