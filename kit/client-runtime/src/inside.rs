//! A client of the API server of the same process.

use std::path::Path;
use std::task::{Context, Poll};

use futures::FutureExt as _;
use futures::future::BoxFuture;
use http::header::USER_AGENT;
use http::{HeaderValue, Request, Response};
use http_body_util::BodyExt as _;
use kube::Client;
use kube::client::{Body, ClientBuilder};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tower_service::Service;

use crate::Error;
use crate::connection::{Answers, Inside, Said};

/// A client with the certificate of this file, or one without any.
pub(crate) fn client(
    server: &dyn Inside,
    cert: Option<&Path>,
    agent: &'static str,
) -> Result<Client, Error> {
    let chain = cert.map(certificates).transpose()?.unwrap_or_default();
    let service = Here {
        answers: server.caller(chain),
        agent: HeaderValue::from_static(agent),
    };
    Ok(ClientBuilder::new(service, "default").build())
}

/// The certificates of a file.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    CertificateDer::pem_file_iter(path)
        .and_then(Iterator::collect)
        .map_err(|e| Error::file("read", path, &e))
}

struct Here {
    answers: Answers,
    agent: HeaderValue,
}

impl Service<Request<Body>> for Here {
    type Response = Response<Said>;
    type Error = kube::Error;
    type Future = BoxFuture<'static, kube::Result<Response<Said>>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<kube::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (answers, agent) = (self.answers.clone(), self.agent.clone());
        async move {
            let (mut head, body) = request.into_parts();
            head.headers.insert(USER_AGENT, agent);
            let body = body.collect().await?.to_bytes();
            Ok(answers(Request::from_parts(head, body)).await)
        }
        .boxed()
    }
}
