//! Somebody who asks: a client with credentials of the test's choice, and assertions on the answers.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::Kubeconfig;
use serde_json::{Value, json};

use super::Server;
use super::server::client_of;

/// What somebody shows at the door.
#[derive(Clone)]
pub(crate) enum Credentials {
    Nothing,
    Token(String),
    /// A certificate and its key, both PEM.
    Certificate(String, String),
}

/// Somebody with credentials, in front of one server.
pub(crate) struct Person<'s> {
    server: &'s Server,
    client: kube::Client,
    headers: Vec<(String, String)>,
}

impl Server {
    /// Somebody with these credentials.
    pub(crate) fn person(&self, credentials: Credentials) -> Person<'_> {
        let kubeconfig = self.kubeconfig_of(&credentials);
        Person {
            server: self,
            client: self.block_on(client_of(&kubeconfig)),
            headers: Vec::new(),
        }
    }

    /// The administrator.
    pub(crate) fn admin(&self) -> Person<'_> {
        Person {
            server: self,
            client: self.client(),
            headers: Vec::new(),
        }
    }

    /// The holder of a bearer token.
    pub(crate) fn bearer(&self, token: impl Into<String>) -> Person<'_> {
        self.person(Credentials::Token(token.into()))
    }

    /// A client with these credentials, on the runtime that asks for it.
    pub(crate) async fn client_with(&self, credentials: &Credentials) -> kube::Client {
        client_of(&self.kubeconfig_of(credentials)).await
    }

    /// A kubeconfig of this server with these credentials.
    fn kubeconfig_of(&self, credentials: &Credentials) -> Kubeconfig {
        let mut kubeconfig =
            Kubeconfig::read_from(self.kubeconfig()).expect("the server wrote its kubeconfig");
        let user = match credentials {
            Credentials::Nothing => json!({}),
            Credentials::Token(token) => json!({"token": token}),
            Credentials::Certificate(certificate, key) => json!({
                "client-certificate-data": STANDARD.encode(certificate),
                "client-key-data": STANDARD.encode(key),
            }),
        };
        for named in &mut kubeconfig.auth_infos {
            let user = serde_json::from_value(user.clone()).expect("a user of a kubeconfig");
            named.auth_info = Some(user);
        }
        kubeconfig
    }
}

impl Person<'_> {
    /// The same, with one more header on every request.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The client underneath, for use inside [`Server::block_on`].
    pub(crate) fn client(&self) -> kube::Client {
        self.client.clone()
    }

    pub(crate) fn get(&self, path: &str) -> Answer {
        self.ask("GET", path, "application/json", &Value::Null)
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Answer {
        self.ask("POST", path, "application/json", body)
    }

    pub(crate) fn put(&self, path: &str, body: &Value) -> Answer {
        self.ask("PUT", path, "application/json", body)
    }

    /// A merge patch.
    pub(crate) fn patch(&self, path: &str, body: &Value) -> Answer {
        self.ask("PATCH", path, "application/merge-patch+json", body)
    }

    /// Deletes at once, without grace.
    pub(crate) fn delete(&self, path: &str) -> Answer {
        let options = json!({"gracePeriodSeconds": 0});
        self.ask("DELETE", path, "application/json", &options)
    }

    /// Who the server takes this person for: `SelfSubjectReview`.
    pub(crate) fn whoami(&self) -> Answer {
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
        self.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", &review)
    }

    fn ask(&self, method: &str, path: &str, content_type: &str, body: &Value) -> Answer {
        let bytes = match body {
            Value::Null => Vec::new(),
            body => body.to_string().into_bytes(),
        };
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header("content-type", content_type);
        for (name, value) in &self.headers {
            request = request.header(name, value);
        }
        let request = request.body(Body::from(bytes)).expect("a legal request");
        self.server.block_on(async {
            let response = self.client.send(request).await;
            let response = response.unwrap_or_else(|e| panic!("{method} {path}: {e}"));
            let (parts, body) = response.into_parts();
            let body = body.collect().await.expect("a whole body").to_bytes();
            let text = String::from_utf8_lossy(&body).into_owned();
            Answer {
                asked: format!("{method} {path}"),
                code: parts.status.as_u16(),
                body: serde_json::from_str(&text).unwrap_or(Value::String(text)),
            }
        })
    }
}

/// What the server said. The assertions return something to go on with.
#[derive(Debug)]
pub(crate) struct Answer {
    asked: String,
    pub(crate) code: u16,
    /// JSON, or the text as a JSON string.
    pub(crate) body: Value,
}

impl Answer {
    /// Done; gives the object.
    #[track_caller]
    pub(crate) fn ok(self) -> Value {
        let is_done = (200..300).contains(&self.code);
        assert!(is_done, "{}: {} {:#}", self.asked, self.code, self.body);
        self.body
    }

    /// A Status of this code and reason with exactly this message.
    #[track_caller]
    pub(crate) fn is(self, code: u16, reason: &str, message: &str) -> Value {
        let Self { asked, body, .. } = self;
        assert_eq!(self.code, code, "{asked}: {body:#}");
        assert_eq!(body["message"], message, "{asked}");
        assert_eq!(body["reason"], reason, "{asked}");
        let rest = ["kind", "apiVersion", "status", "code"].map(|field| body[field].clone());
        assert_eq!(
            rest,
            [json!("Status"), json!("v1"), json!("Failure"), json!(code)],
            "{asked}"
        );
        body
    }

    /// 403 with exactly this message.
    #[track_caller]
    pub(crate) fn forbidden(self, message: &str) -> Value {
        self.is(403, "Forbidden", message)
    }

    /// 401, which says nothing about why.
    #[track_caller]
    pub(crate) fn unauthorized(self) {
        let asked = self.asked.clone();
        let body = self.is(401, "Unauthorized", "Unauthorized");
        let whole = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "Unauthorized", "reason": "Unauthorized", "code": 401});
        assert_eq!(body, whole, "{asked}");
    }
}
