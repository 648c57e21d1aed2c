//! Who acts: requests in the name of one controller.
//!
//! All actors share one connection pool. An actor with an account of its own adds that account's
//! token to each request; the token is asked for at the first one and renewed before it ends.

use std::sync::Arc;
use std::time::Duration;

use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderValue, Method, Request, StatusCode};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Resource;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request as Writer;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::worker::SyncError;

/// Where upstream keeps the accounts of its controllers.
const ACCOUNTS_NAMESPACE: &str = "kube-system";
/// Upstream's `defaultExpirationSeconds`; a fifth of it is left when the token is renewed.
const TOKEN_SECONDS: i64 = 3600;
const RENEW_AFTER: Duration = Duration::from_secs(2880);

/// A typed object of the API.
pub trait Object: Resource<DynamicType = ()> + Serialize + DeserializeOwned {}
impl<T: Resource<DynamicType = ()> + Serialize + DeserializeOwned> Object for T {}

/// What a request may give.
pub type Answer<T> = Result<T, SyncError>;

/// Somebody who sends requests.
#[derive(Clone)]
pub struct Actor {
    client: kube::Client,
    account: Option<Arc<Account>>,
}

impl Actor {
    /// Acts as whoever the client's credentials say.
    pub fn of_client(client: kube::Client) -> Actor {
        Actor {
            client,
            account: None,
        }
    }

    /// Acts as a service account of kube-system; `bare` is a client without credentials.
    pub fn of_account(bare: kube::Client, root: Actor, name: &'static str) -> Actor {
        let account = Account {
            name,
            root,
            token: Mutex::new(None),
        };
        Actor {
            client: bare,
            account: Some(Arc::new(account)),
        }
    }

    /// Reads an object; none if it is not there.
    pub async fn get<K: Object>(&self, namespace: &str, name: &str) -> Answer<Option<K>> {
        let request = writer::<K>(namespace).get(name, &kube::api::GetParams::default())?;
        match self.send(request).await {
            Err(SyncError::Api(error)) if is(&error, StatusCode::NOT_FOUND) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Creates an object; an empty namespace is cluster scope.
    pub async fn create<K: Object>(&self, namespace: &str, object: &K) -> Answer<K> {
        let request = writer::<K>(namespace).create(&PostParams::default(), body(object)?)?;
        self.send(request).await
    }

    /// Replaces an object that was read.
    pub async fn replace<K: Object>(&self, object: &K) -> Answer<K> {
        let (namespace, name) = place(object);
        let request =
            writer::<K>(namespace).replace(name, &PostParams::default(), body(object)?)?;
        self.send(request).await
    }

    /// Replaces a subresource of an object that was read, such as `status`.
    pub async fn replace_part<K: Object>(&self, part: &str, object: &K) -> Answer<K> {
        let (namespace, name) = place(object);
        let params = PostParams::default();
        let request =
            writer::<K>(namespace).replace_subresource(part, name, &params, body(object)?)?;
        self.send(request).await
    }

    /// Applies fields as a manager that takes them from whoever has them.
    pub async fn apply<K: Object>(&self, name: &str, manager: &str, fields: &Value) -> Answer<K> {
        let params = PatchParams::apply(manager).force();
        let request = writer::<K>("").patch(name, &params, &Patch::Apply(fields))?;
        self.send(request).await
    }

    /// Changes an object, or with a `part` a subresource of it such as `status`.
    pub async fn patch<K: Object>(
        &self,
        (namespace, name): (&str, &str),
        part: Option<&str>,
        patch: &Patch<Value>,
    ) -> Answer<K> {
        let (writer, params) = (writer::<K>(namespace), PatchParams::default());
        let request = match part {
            Some(part) => writer.patch_subresource(part, name, &params, patch)?,
            None => writer.patch(name, &params, patch)?,
        };
        self.send(request).await
    }

    /// Creates what is not an object of its own, such as a pod's `binding` or `eviction`.
    pub async fn create_part<K: Object>(
        &self,
        (namespace, name): (&str, &str),
        part: &str,
        object: &impl Serialize,
    ) -> Answer<Value> {
        let params = PostParams::default();
        let request =
            writer::<K>(namespace).create_subresource(part, name, &params, body(object)?)?;
        self.send(request).await
    }

    /// Every object of a kind in a namespace, as it is now.
    pub async fn list<K: Object + Clone>(&self, namespace: &str) -> Answer<Vec<K>> {
        let request = writer::<K>(namespace).list(&kube::api::ListParams::default())?;
        let list: kube::api::ObjectList<K> = self.send(request).await?;
        Ok(list.items)
    }

    /// Reads an object with every field it has, those we do not know included.
    pub async fn read(&self, path: &str) -> Answer<Option<Value>> {
        self.read_as(path, "application/json").await
    }

    /// Reads a path in the form that is asked for.
    pub async fn read_as(&self, path: &str, accept: &'static str) -> Answer<Option<Value>> {
        let mut request = request(Method::GET, path, Vec::new())?;
        let accept = HeaderValue::from_static(accept);
        request.headers_mut().insert(ACCEPT, accept);
        match self.send(request).await {
            Err(SyncError::Api(error)) if is(&error, StatusCode::NOT_FOUND) => Ok(None),
            other => other.map(Some),
        }
    }

    /// Deletes what is at a path, an object or all of a collection; what depends on it goes later.
    /// Gives the answer, or nothing where nothing takes deletes.
    pub async fn delete_at(&self, path: &str) -> Answer<Option<Value>> {
        let options = serde_json::json!({ "apiVersion": "v1", "kind": "DeleteOptions",
            "propagationPolicy": "Background" });
        let request = request(Method::DELETE, path, body(&options)?)?;
        match self.send::<Value>(request).await {
            Err(SyncError::Api(error))
                if is(&error, StatusCode::NOT_FOUND)
                    || is(&error, StatusCode::METHOD_NOT_ALLOWED) =>
            {
                Ok(None)
            }
            other => other.map(Some),
        }
    }

    /// Deletes the object at a path as the options say.
    pub async fn delete_as(&self, path: &str, options: &Value) -> Answer<()> {
        let request = request(Method::DELETE, path, body(options)?)?;
        self.send::<Value>(request).await.map(drop)
    }

    /// Changes the object at a path, whatever its kind.
    pub async fn patch_at(&self, path: &str, patch: &Patch<Value>) -> Answer<()> {
        let (form, patch) = match patch {
            Patch::Strategic(patch) => ("application/strategic-merge-patch+json", patch),
            Patch::Merge(patch) => ("application/merge-patch+json", patch),
            _ => return Err(SyncError::Other("only merging patches go by path".into())),
        };
        let mut request = request(Method::PATCH, path, body(patch)?)?;
        let form = HeaderValue::from_static(form);
        request.headers_mut().insert(CONTENT_TYPE, form);
        self.send::<Value>(request).await.map(drop)
    }

    /// Replaces an object that was read.
    pub async fn write(&self, path: &str, object: &Value) -> Answer<Value> {
        self.send(request(Method::PUT, path, body(object)?)?).await
    }

    /// Deletes an object if it is still the one with this uid; one that has gone is fine.
    pub async fn delete<K: Object>(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
    ) -> Answer<()> {
        self.delete_with::<K>(namespace, name, uid, DeleteParams::default())
            .await
    }

    /// As [`Actor::delete`], with a grace period or a propagation policy.
    pub async fn delete_with<K: Object>(
        &self,
        namespace: &str,
        name: &str,
        uid: Option<&str>,
        mut params: DeleteParams,
    ) -> Answer<()> {
        params.preconditions = uid.map(|uid| Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        });
        let request = writer::<K>(namespace).delete(name, &params)?;
        match self.send::<Value>(request).await {
            Err(SyncError::Api(error))
                if is(&error, StatusCode::NOT_FOUND) || is(&error, StatusCode::CONFLICT) =>
            {
                Ok(())
            }
            other => other.map(drop),
        }
    }

    async fn send<T: DeserializeOwned>(&self, request: Request<Vec<u8>>) -> Answer<T> {
        let Some(account) = &self.account else {
            return Ok(self.client.request(request).await?);
        };
        let first = with_token(&request, account.token().await?);
        match self.client.request(first).await {
            // The token may have died before its time, with a key that was rotated.
            Err(error) if is(&error, StatusCode::UNAUTHORIZED) => {
                account.forget().await;
                let second = with_token(&request, account.token().await?);
                Ok(self.client.request(second).await?)
            }
            other => Ok(other?),
        }
    }
}

fn writer<K: Object>(namespace: &str) -> Writer {
    let namespace = (!namespace.is_empty()).then_some(namespace);
    Writer::new(K::url_path(&(), namespace))
}

/// Where an object is.
pub fn path_of<K: Object>(namespace: &str, name: &str) -> String {
    let namespace = (!namespace.is_empty()).then_some(namespace);
    format!("{}/{name}", K::url_path(&(), namespace))
}

fn request(method: Method, path: &str, body: Vec<u8>) -> Answer<Request<Vec<u8>>> {
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(CONTENT_TYPE, "application/json");
    request
        .body(body)
        .map_err(|error| SyncError::Other(error.to_string()))
}

fn place(object: &impl Object) -> (&str, &str) {
    let meta = object.meta();
    (
        meta.namespace.as_deref().unwrap_or_default(),
        meta.name.as_deref().unwrap_or_default(),
    )
}

fn body(object: &impl Serialize) -> Result<Vec<u8>, kube::core::request::Error> {
    serde_json::to_vec(object).map_err(kube::core::request::Error::SerializeBody)
}

fn with_token(request: &Request<Vec<u8>>, token: HeaderValue) -> Request<Vec<u8>> {
    let mut request = request.clone();
    request.headers_mut().insert(AUTHORIZATION, token);
    request
}

/// Whether an answer was this refusal.
pub fn is(error: &kube::Error, code: StatusCode) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == code.as_u16())
}

/// Whether a write failed because the object is not (or no longer) as we believed: the watch will
/// tell, and bring the key back.
pub fn is_outdated(error: &SyncError) -> bool {
    matches!(error, SyncError::Api(error)
        if is(error, StatusCode::CONFLICT) || is(error, StatusCode::NOT_FOUND))
}

/// Whether a create failed because the namespace is gone or going (upstream's
/// `NamespaceTerminatingCause`).
pub fn is_namespace_ending(error: &SyncError) -> bool {
    let SyncError::Api(kube::Error::Api(status)) = error else {
        return false;
    };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == StatusCode::NOT_FOUND.as_u16()
        || causes
            .map(|cause| cause.reason.as_str())
            .any(|reason| reason == "NamespaceTerminating")
}

/// A service account we act as.
struct Account {
    name: &'static str,
    root: Actor,
    token: Mutex<Option<Token>>,
}

struct Token {
    header: HeaderValue,
    renew_at: Instant,
}

impl Account {
    async fn token(&self) -> Answer<HeaderValue> {
        let mut token = self.token.lock().await;
        if let Some(token) = token.as_ref()
            && Instant::now() < token.renew_at
        {
            return Ok(token.header.clone());
        }
        // Boxed, because sending is what asks for a token.
        let header = Box::pin(self.request_token()).await?;
        *token = Some(Token {
            header: header.clone(),
            renew_at: Instant::now() + RENEW_AFTER,
        });
        Ok(header)
    }

    async fn forget(&self) {
        *self.token.lock().await = None;
    }

    async fn request_token(&self) -> Answer<HeaderValue> {
        self.ensure_account().await?;
        let wish = TokenRequest {
            spec: Some(TokenRequestSpec {
                expiration_seconds: Some(TOKEN_SECONDS),
                ..TokenRequestSpec::default()
            }),
            ..TokenRequest::default()
        };
        let params = PostParams::default();
        let request = writer::<ServiceAccount>(ACCOUNTS_NAMESPACE).create_subresource(
            "token",
            self.name,
            &params,
            body(&wish)?,
        )?;
        let answer: TokenRequest = self.root.send(request).await?;
        let token = answer.status.and_then(|s| s.token).unwrap_or_default();
        let mut header = HeaderValue::try_from(format!("Bearer {token}")).map_err(|_| {
            SyncError::Other(format!("the API server gave no token for {}", self.name))
        })?;
        header.set_sensitive(true);
        Ok(header)
    }

    // As upstream's `getOrCreateServiceAccount`.
    async fn ensure_account(&self) -> Answer<()> {
        let found = self
            .root
            .get::<ServiceAccount>(ACCOUNTS_NAMESPACE, self.name)
            .await?;
        if found.is_some() {
            return Ok(());
        }
        let mut account = ServiceAccount::default();
        account.metadata.name = Some(self.name.to_owned());
        account.metadata.namespace = Some(ACCOUNTS_NAMESPACE.to_owned());
        match self.root.create(ACCOUNTS_NAMESPACE, &account).await {
            Err(SyncError::Api(error)) if is(&error, StatusCode::CONFLICT) => Ok(()),
            other => other.map(drop),
        }
    }
}
