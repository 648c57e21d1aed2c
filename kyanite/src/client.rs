//! The API as admin: for commands and for what a start adds to a cluster.

use std::path::PathBuf;

use client_runtime::Connection;
use http::{Method, Request};
use serde_json::Value;

use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};

/// The type of server-side apply; JSON is YAML too.
const APPLY: &str = "application/apply-patch+yaml";

const MERGE: &str = "application/merge-patch+json";

/// A client with a data directory's kubeconfig.
pub(crate) struct Client(kube::Client);

impl Client {
    /// A client that there is already, of a role.
    pub(crate) fn of(client: kube::Client) -> Client {
        Client(client)
    }

    /// The client of a running server's admin.
    pub(crate) async fn of_running(dir: &DataDir) -> Result<Client> {
        if dir.running()?.is_none() {
            return Err(Failure::new(Code::Unavailable, "kyanite is not running")
                .hint("start it with `kyanite up`"));
        }
        Client::connect(dir).await
    }

    /// The client of the admin, whether the server runs or not.
    pub(crate) async fn connect(dir: &DataDir) -> Result<Client> {
        Client::of_file(dir.kubeconfig()).await
    }

    /// The client that a kubeconfig describes.
    pub(crate) async fn of_file(kubeconfig: PathBuf) -> Result<Client> {
        let connection = Connection::Kubeconfig(kubeconfig);
        let client = client_runtime::client(&connection, "kyanite").await;
        let client = client.map_err(|e| Failure::new(Code::Failure, e.to_string()))?;
        Ok(Client(client))
    }

    /// Reads an object or a list.
    pub(crate) async fn get(&self, path: &str) -> Result<Value> {
        self.call(Method::GET, path, None).await
    }

    /// Reads text, such as a log.
    pub(crate) async fn get_text(&self, path: &str) -> Result<String> {
        let request = Request::get(path).body(Vec::new());
        let request = request
            .map_err(|e| Failure::new(Code::Usage, format!("`{path}` cannot be asked for: {e}")))?;
        self.0.request_text(request).await.map_err(failure)
    }

    /// Creates an object in a collection.
    pub(crate) async fn create(&self, collection: &str, object: &Value) -> Result<Value> {
        self.call(Method::POST, collection, Some(object)).await
    }

    /// Makes an object as these fields say, whether it is there or not; other fields stay as they are.
    pub(crate) async fn apply(&self, path: &str, fields: &Value) -> Result<Value> {
        let path = format!("{path}?fieldManager=kyanite&force=true");
        self.send(Method::PATCH, &path, APPLY, Some(fields)).await
    }

    /// Changes fields of an object; null takes one away.
    pub(crate) async fn merge(&self, path: &str, fields: &Value) -> Result<Value> {
        self.send(Method::PATCH, path, MERGE, Some(fields)).await
    }

    /// Deletes an object.
    pub(crate) async fn delete(&self, path: &str) -> Result<Value> {
        self.call(Method::DELETE, path, None).await
    }

    async fn call(&self, method: Method, path: &str, body: Option<&Value>) -> Result<Value> {
        self.send(method, path, "application/json", body).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        content_type: &str,
        body: Option<&Value>,
    ) -> Result<Value> {
        let bytes = body.map_or_else(Vec::new, |body| body.to_string().into_bytes());
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type)
            .body(bytes)
            .map_err(|e| Failure::new(Code::Usage, format!("`{path}` cannot be asked for: {e}")))?;
        self.0.request(request).await.map_err(failure)
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the shape map_err wants")]
fn failure(error: kube::Error) -> Failure {
    let kube::Error::Api(status) = &error else {
        return Failure::new(
            Code::Unavailable,
            format!("the server does not answer: {error}"),
        )
        .hint("look at its log, or at `kyanite status`");
    };
    let code = match status.code {
        401 | 403 => Code::Permission,
        404 => Code::NotFound,
        // An eviction that a budget does not allow is in the way of another.
        409 | 429 => Code::Conflict,
        503 => Code::Unavailable,
        _ => Code::Failure,
    };
    Failure::new(code, status.message.clone())
}
