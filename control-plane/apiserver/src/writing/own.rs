//! Writes that the server makes by itself, by the same way as everybody's.

use std::sync::Arc;

use access::User;
use bytes::Bytes;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Method};
use kinds::resources::Resource;
use serde_json::Value;

use crate::api::Api;
use crate::call::{Call, text};
use crate::door::request::{Query, ResourcePath};
use crate::status::{ApiError, Result};
use crate::writing::admission::Warnings;

/// Writes an object of a cluster-scoped resource, or what hangs below it. Where it names a resourceVersion it must
/// still be the one that was read.
pub(crate) async fn write(
    api: &Api,
    resource: &Arc<Resource>,
    method: Method,
    subresource: &str,
    object: &Value,
) -> Result<()> {
    let body = match method {
        Method::DELETE => Vec::new(),
        _ => serde_json::to_vec(object).map_err(ApiError::internal)?,
    };
    let headers = [
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (USER_AGENT, HeaderValue::from_static("kube-apiserver")),
    ];
    let named = method != Method::POST;
    let call = Call {
        resource: Arc::clone(resource),
        path: ResourcePath {
            group: resource.gv.group.into(),
            version: resource.gv.version.into(),
            resource: resource.plural.into(),
            name: named.then(|| text(object, "name").to_owned()),
            subresource: (!subresource.is_empty()).then(|| subresource.into()),
            ..ResourcePath::default()
        },
        method,
        query: Query::default(),
        headers: HeaderMap::from_iter(headers),
        body: Bytes::from(body),
        user: Arc::new(User {
            name: "system:apiserver".into(),
            groups: vec!["system:masters".into(), "system:authenticated".into()],
            ..User::default()
        }),
        warnings: Warnings::default(),
        trail: None,
    };
    api.call(&call).await.map(drop)
}
