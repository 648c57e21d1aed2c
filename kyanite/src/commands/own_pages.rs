//! What a role that runs alone tells about itself at its secure port: health, metrics and the like, as upstream's.
//!
//! Health is for everybody. The rest is for whom the API server says so: a certificate or a bearer token (TokenReview)
//! tells who asks, and it is asked whether they may see the page (SubjectAccessReview). Roles in `kyanite up` have no port of
//! their own: what they count is on the API server's page.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use access::User;
use access::certificates::Authorities;
use client_runtime::Connection;
use http::StatusCode;
use http::header::AUTHORIZATION;
use http::request::Parts;
use jiff::Timestamp;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::PostParams;
use kube::{Api, Client};
use probes::process::Process;
use probes::secure::{self, Page, Shown};
use probes::{METRICS, TEXT, text_response, zpages};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use wire::tls::{Clients, Policy, Reloading, ServerFiles};

use super::serve;
use crate::cli::SecurePort;
use crate::exit::{Code, Failure, Result};
use crate::pki;

/// What anybody may ask (upstream's `--authorization-always-allow-paths`).
const FOR_ALL: [&str; 3] = ["/healthz", "/readyz", "/livez"];

/// A role's pages.
pub(super) struct OwnPages {
    /// Upstream's name of the role.
    pub(super) component: &'static str,
    /// Its port, unless flags name another.
    pub(super) port: u16,
    /// What it counts.
    pub(super) measured: fn(&mut Registry),
    /// How the API server is reached.
    pub(super) kubeconfig: PathBuf,
}

impl OwnPages {
    /// Opens the port. What it gives serves until it is dropped; nothing where the port is 0.
    pub(super) async fn open(self, flags: &SecurePort) -> Result<impl Future<Output = ()> + use<>> {
        let opened = match flags.secure_port.unwrap_or(self.port) {
            0 => None,
            port => Some(serve::listen(SocketAddr::new(flags.bind_address, port)).await?),
        };
        let tls = opened.as_ref().map(|_| tls(flags)).transpose()?;
        let agent = "kyanite-pages";
        let named = flags.authentication_kubeconfig.clone();
        let connection = Connection::Kubeconfig(named.unwrap_or(self.kubeconfig));
        let client = client_runtime::client(&connection, agent).await;
        let client = client.map_err(|error| unreachable(&error))?;
        let mut registry = Registry::default();
        let process = Process::register(&mut registry, &::apiserver::build());
        (self.measured)(&mut registry);
        let pages = Arc::new(Pages {
            component: self.component,
            registry,
            process,
            client,
            client_ca: flags.client_ca_file.clone(),
        });
        let handler: secure::Handler = Arc::new(move |request| {
            let pages = Arc::clone(&pages);
            Box::pin(async move { pages.answer(&request).await })
        });
        Ok(serve_all(opened.zip(tls), handler))
    }
}

fn unreachable(error: &client_runtime::Error) -> Failure {
    let code = match error {
        client_runtime::Error::File { .. } => Code::Usage,
        _ => Code::Unavailable,
    };
    Failure::new(code, error.to_string())
}

async fn serve_all(opened: Option<(TcpListener, Arc<Reloading>)>, handler: secure::Handler) {
    match opened {
        Some((listener, tls)) => secure::serve(listener, tls, handler).await,
        None => std::future::pending().await,
    }
}

fn tls(flags: &SecurePort) -> Result<Arc<Reloading>> {
    let pair = match (&flags.tls_cert_file, &flags.tls_private_key_file) {
        (Some(cert), Some(key)) => (cert.clone(), key.clone()),
        _ => self_signed(flags.bind_address, flags.cert_dir.clone())?,
    };
    let files = ServerFiles {
        cert: pair.0,
        key: pair.1,
        clients: Clients::AnyHolder,
        policy: Policy::default(),
    };
    let tls = Reloading::new(files, b"http/1.1");
    Ok(Arc::new(
        tls.map_err(|e| Failure::new(Code::Failure, e.to_string()))?,
    ))
}

// Upstream keeps one in memory where no directory is named; here it is made anew at each start.
fn self_signed(address: IpAddr, directory: Option<PathBuf>) -> Result<(PathBuf, PathBuf)> {
    let directory = directory.unwrap_or_else(|| {
        std::env::temp_dir().join(format!("kyanite-pages-{}", std::process::id()))
    });
    let names = pki::ServerNames::new(pki::hostname().as_deref(), &[serve::reachable(address)]);
    let pair = pki::self_signed(&directory, &names, std::time::SystemTime::now())?;
    Ok((pair.cert, pair.key))
}

struct Pages {
    component: &'static str,
    registry: Registry,
    process: Process,
    client: Client,
    client_ca: Option<PathBuf>,
}

impl Pages {
    async fn answer(&self, request: &Parts) -> Page {
        let path = request.uri.path();
        if FOR_ALL.contains(&path) {
            return text_response(StatusCode::OK, TEXT, "ok".to_owned());
        }
        match self.may_see(request).await {
            Ok(()) => self.page(path),
            Err((code, why)) => text_response(code, TEXT, why),
        }
    }

    fn page(&self, path: &str) -> Page {
        let build = ::apiserver::build();
        let (kind, text) = match path {
            "/metrics" => (METRICS, self.metrics()),
            "/metrics/slis" => {
                let checks = ["healthz", "livez", "readyz"].map(|kind| ("ping", kind, true));
                (TEXT, zpages::indicators(&checks))
            }
            "/statusz" => {
                let release = (build.major, build.minor);
                (
                    TEXT,
                    zpages::status(self.component, &build.git_version, release),
                )
            }
            "/flagz" => (
                TEXT,
                zpages::flags(self.component, std::env::args().skip(1)),
            ),
            _ => {
                return text_response(StatusCode::NOT_FOUND, TEXT, "404 page not found".to_owned());
            }
        };
        text_response(StatusCode::OK, kind, text)
    }

    fn metrics(&self) -> String {
        self.process.measure();
        let mut text = String::new();
        encode(&mut text, &self.registry).expect("writing to memory cannot fail");
        text
    }

    async fn may_see(&self, request: &Parts) -> std::result::Result<(), (StatusCode, String)> {
        let unanswered = |error: kube::Error| {
            tracing::warn!(%error, "the API server was not there to say who may see a page");
            (
                StatusCode::INTERNAL_SERVER_ERROR,
                "Internal Server Error".to_owned(),
            )
        };
        let nobody = || (StatusCode::UNAUTHORIZED, "Unauthorized".to_owned());
        let shown = request.extensions.get::<Shown>();
        let user = match (shown.filter(|shown| !shown.0.is_empty()), bearer(request)) {
            (Some(shown), _) => self.holder(shown).await.ok_or_else(nobody)?,
            (None, Some(token)) => {
                let found = self.who(token).await.map_err(unanswered)?;
                found.ok_or_else(nobody)?
            }
            (None, None) => anonymous(),
        };
        let path = request.uri.path();
        let review = review(&user, request.method.as_str(), path);
        let api: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let answer = api.create(&PostParams::default(), &review).await;
        let allowed = answer
            .map_err(unanswered)?
            .status
            .is_some_and(|status| status.allowed);
        match allowed {
            true => Ok(()),
            false => Err((StatusCode::FORBIDDEN, forbidden(&user, request, path))),
        }
    }

    /// Who a certificate names, if an authority that counts has signed it.
    async fn holder(&self, shown: &Shown) -> Option<UserInfo> {
        let authorities = self
            .authorities()
            .await
            .inspect_err(|why| tracing::warn!(why, "client certificates cannot be judged"));
        let user = authorities.ok()?.authenticate(&shown.0, Timestamp::now())?;
        user.inspect_err(|why| tracing::warn!(%why, "a certificate was refused"))
            .ok()
            .map(named)
    }

    // Read for every request, so that they may change; nobody asks often.
    async fn authorities(&self) -> std::result::Result<Authorities, String> {
        let bundle = match &self.client_ca {
            Some(file) => {
                std::fs::read(file).map_err(|why| format!("{}: {why}", file.display()))?
            }
            None => {
                let api: Api<ConfigMap> = Api::namespaced(self.client.clone(), "kube-system");
                let map = api.get("extension-apiserver-authentication").await;
                let data = map.map_err(|why| why.to_string())?.data.unwrap_or_default();
                let bundle = data
                    .get("client-ca-file")
                    .ok_or("the API server names no authority")?;
                bundle.clone().into_bytes()
            }
        };
        Authorities::from_pem(&bundle).map_err(|why| why.to_string())
    }

    async fn who(&self, token: &str) -> std::result::Result<Option<UserInfo>, kube::Error> {
        let review = TokenReview {
            spec: TokenReviewSpec {
                token: token.to_owned(),
                ..TokenReviewSpec::default()
            },
            ..TokenReview::default()
        };
        let api: Api<TokenReview> = Api::all(self.client.clone());
        let status = api.create(&PostParams::default(), &review).await?.status;
        let status = status.unwrap_or_default();
        Ok(status.user.filter(|_| status.authenticated == Some(true)))
    }
}

fn bearer(request: &Parts) -> Option<&str> {
    let header = request.headers.get(AUTHORIZATION)?.to_str().ok()?;
    let (scheme, token) = header.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

// As upstream, whoever has proved who they are is in this group.
fn named(user: User) -> UserInfo {
    let groups = user
        .groups
        .into_iter()
        .chain(["system:authenticated".to_owned()]);
    UserInfo {
        username: Some(user.name),
        uid: Some(user.uid).filter(|uid| !uid.is_empty()),
        groups: Some(groups.collect()),
        extra: Some(user.extra),
    }
}

fn anonymous() -> UserInfo {
    UserInfo {
        username: Some("system:anonymous".to_owned()),
        groups: Some(vec!["system:unauthenticated".to_owned()]),
        ..UserInfo::default()
    }
}

fn review(user: &UserInfo, method: &str, path: &str) -> SubjectAccessReview {
    SubjectAccessReview {
        spec: SubjectAccessReviewSpec {
            user: user.username.clone(),
            uid: user.uid.clone(),
            groups: user.groups.clone(),
            extra: user.extra.clone(),
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some(method.to_lowercase()),
            }),
            ..SubjectAccessReviewSpec::default()
        },
        ..SubjectAccessReview::default()
    }
}

fn forbidden(user: &UserInfo, request: &Parts, path: &str) -> String {
    let name = user.username.as_deref().unwrap_or_default();
    let verb = request.method.as_str().to_lowercase();
    format!("forbidden: User {name:?} cannot {verb} path {path:?}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_bearer_token_names_somebody() {
        let request = |header: &str| {
            let request = http::Request::get("/metrics").header(AUTHORIZATION, header);
            request.body(()).expect("a legal request").into_parts().0
        };
        assert_eq!(bearer(&request("Bearer abc")), Some("abc"));
        assert_eq!(bearer(&request("bearer  abc ")), Some("abc"));
        assert_eq!(bearer(&request("Basic abc")), None);
        let refused = forbidden(&anonymous(), &request("x"), "/metrics");
        let expected = "forbidden: User \"system:anonymous\" cannot get path \"/metrics\"";
        assert_eq!(refused, expected);
    }
}
