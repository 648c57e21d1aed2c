//! The bootstrap policy: roles and bindings, reconciled at every start.

use access::policy::{self, Reconciled};
use futures::future::try_join_all;
use serde_json::Value;
use store::{Change, Expect};

use super::{complete, resource};
use crate::api::Api;
use crate::settings::AuthorizationMode;
use crate::status::Result;

const GROUP: &str = "rbac.authorization.k8s.io";

/// Brings every role and binding of the policy up to date, where RBAC decides at all.
pub(super) async fn reconcile(api: &Api) -> Result<()> {
    if !api.authorizer.has(AuthorizationMode::Rbac) {
        return Ok(());
    }
    let objects = policy::objects();
    try_join_all(objects.iter().map(|wanted| reconcile_one(api, wanted))).await?;
    Ok(())
}

async fn reconcile_one(api: &Api, wanted: &Value) -> Result<()> {
    let plural = match wanted["kind"].as_str() {
        Some("ClusterRole") => "clusterroles",
        Some("ClusterRoleBinding") => "clusterrolebindings",
        Some("Role") => "roles",
        _ => "rolebindings",
    };
    let resource = resource(GROUP, plural)?;
    let collection = api.collection(resource)?;
    let part = |field: &str| wanted["metadata"][field].as_str().unwrap_or_default();
    let key = collection.key(part("namespace"), part("name"));
    let existing = api.fetch(&collection, &key).await?;
    let (expect, object) =
        match policy::reconcile(existing.as_ref().map(|e| e.value()).as_ref(), wanted) {
            Reconciled::Unchanged => return Ok(()),
            Reconciled::Create => (Expect::Absent, complete(api, resource, wanted.clone())),
            Reconciled::Update(object) => (expected(&existing), object),
            // A binding's role cannot be changed in place: it is a new object from here on.
            Reconciled::Recreate(object) => (expected(&existing), complete(api, resource, object)),
        };
    let value = collection.form.encode(&object);
    // Another server may have been quicker; its policy is as good as ours.
    api.commit(&collection, &key, expect, Change::Put { value, ttl: None })
        .await?;
    Ok(())
}

fn expected(existing: &Option<crate::reading::stored::Stored>) -> Expect {
    match existing {
        Some(stored) => Expect::Modified(stored.revision),
        None => Expect::Absent,
    }
}
