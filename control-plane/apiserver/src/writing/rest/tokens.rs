//! Service account tokens: made on request, and noted when an old one is used.

use access::tokens::LastUsed;
use access::tokens::token_request::Refusal;
use http::StatusCode;
use kinds::resources::{self, GroupVersion};
use store::{Change, Expect};

use crate::api::Api;
use crate::call::{Call, Reply};
use crate::door::authentication::CacheObjects;
use crate::reading::negotiate::Offer;
use crate::status::{ApiError, Result};

impl Api {
    /// Notes on a token secret the day it was used; the cleaner of old tokens spares it for a year.
    pub(crate) async fn note_use(&self, used: &LastUsed) {
        const LABEL: &str = "kubernetes.io/legacy-token-last-used";
        let secrets = resources::find("", "v1", "secrets").expect("in the table");
        let written = async {
            let collection = self.collection(secrets)?;
            let stored = self
                .must_fetch(secrets, &used.namespace, &used.name)
                .await?;
            let mut secret = stored.value();
            if secret["metadata"]["uid"] != used.uid {
                return Ok(());
            }
            secret["metadata"]["labels"][LABEL] = used.date.as_str().into();
            let (key, value) = (
                collection.key(&used.namespace, &used.name),
                collection.form.encode(&secret),
            );
            let change = Change::Put { value, ttl: None };
            // Whoever changed the secret meanwhile was quicker; the next use notes the day.
            self.commit(&collection, &key, Expect::Modified(stored.revision), change)
                .await
                .map(drop)
        };
        if let Err(error) = written.await {
            tracing::warn!(error = %error.message, secret = used.name, "the use of a token is not noted");
        }
    }

    /// POST serviceaccounts/{name}/token.
    pub(super) async fn issue_token(&self, call: &Call) -> Result<Reply> {
        let view = call.view_of(Offer::Documents)?;
        let options = call.write_options()?;
        let gv = GroupVersion {
            group: "authentication.k8s.io",
            version: "v1",
        };
        let mut request = self.decode_as(call, gv, "TokenRequest")?;
        let keys = self.authenticator.accounts.keys();
        let Some(requests) = &keys.requests else {
            return Err(ApiError::unavailable(
                "this server issues no service account tokens: it has no signing key",
            ));
        };
        self.mutate_posted(call, &mut request).await?;
        let (now, objects) = (self.clock.now(), CacheObjects(&self.cache));
        let prepared = requests
            .prepare(call.namespace(), call.path.name(), &request, now, &objects)
            .map_err(refused)?;
        self.validate_posted(call, prepared.object()).await?;
        let id = uuid::Uuid::new_v4().to_string();
        let issued = requests
            .issue(prepared, id, now, &objects)
            .map_err(refused)?;
        let mut answer = issued.object;
        if options.dry_run {
            answer["status"]["token"] = "".into();
        }
        let body = crate::reading::view::encode(&answer, view.accepted).into();
        Ok(Reply::new(StatusCode::CREATED, &view, body).with_warnings(issued.warnings))
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn refused(refusal: Refusal) -> ApiError {
    let code = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let about = refusal.details.as_deref();
    let details = about.map(|d| (d.name.as_str(), d.group, d.kind.as_str()));
    let error = ApiError::answer(code, refusal.reason, refusal.message.clone(), details);
    let causes = about.into_iter().flat_map(|d| d.causes.clone());
    causes.fold(error, |error, (reason, message, field)| {
        error.cause(reason, message, field)
    })
}
