//! `pods/log`: what a kubelet has of a container's output, passed on as it comes.

use http::header::{CONTENT_TYPE, HOST, HeaderValue};
use http::{HeaderMap, Method, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;

use super::{Luggage, forward, streams, unchecked};
use crate::api::Api;
use crate::call::Call;
use crate::connection::response_body::Body;
use crate::connection::websocket;
use crate::status::{ApiError, Result};

/// What is read of a kubelet's complaint.
const LONGEST_COMPLAINT: usize = 50_000;

impl Api {
    pub(super) async fn log(&self, call: &Call, luggage: Luggage) -> Result<Response<Body>> {
        streams::check_log_options(call.path.name(), &call.query)?;
        let pod = self
            .object("pods", call.path.namespace(), call.path.name())
            .await?;
        let path = streams::path("log", &pod, &call.query)?;
        let node = pod["spec"]["nodeName"].as_str().unwrap_or_default();
        if node.is_empty() {
            return Ok(empty(StatusCode::NO_CONTENT));
        }
        let kubelet = self.kubelet(node).await?;
        let place = match call.query.flag("insecureSkipTLSVerifyBackend") {
            true => unchecked(kubelet),
            false => kubelet,
        };
        let url = format!("{}://{}{path}", place.scheme(), place.authority());
        let failed = |why: String| ApiError::plain(format!("Get \"{url}\": {why}"));
        let mut headers = HeaderMap::new();
        let host = HeaderValue::from_str(&place.authority()).map_err(|e| failed(e.to_string()))?;
        headers.insert(HOST, host);
        let request = forward::request(&Method::GET, &path, headers, forward::nothing())?;
        let response = forward::send(&self.outbound, &place, request)
            .await
            .map_err(failed)?;
        let code = response.status();
        if code.is_redirection() {
            return Err(failed("redirects forbidden".into()));
        }
        if !(200..=206).contains(&code.as_u16()) {
            return Err(complaint(code, call.path.name(), response.into_body()).await);
        }
        if websocket::is_asked_for(&call.headers) {
            let stop = self.shutdown.clone();
            return websocket::send_log(&call.headers, response.into_body(), luggage.upgrade, stop);
        }
        let mut answer = empty(StatusCode::OK).map(|_| Body::Passed(response.into_body()));
        let kind = HeaderValue::from_static("text/plain");
        answer.headers_mut().insert(CONTENT_TYPE, kind);
        Ok(answer)
    }
}

fn empty(code: StatusCode) -> Response<Body> {
    let mut response = Response::new(Body::from(""));
    *response.status_mut() = code;
    response
}

async fn complaint(code: StatusCode, name: &str, body: Incoming) -> ApiError {
    let text = match Limited::new(body, LONGEST_COMPLAINT).collect().await {
        Ok(whole) => String::from_utf8_lossy(&whole.to_bytes()).into_owned(),
        Err(error) => return ApiError::internal(error),
    };
    translated(code, name, text)
}

// Upstream's words for what another server answers (`GenericHttpResponseChecker`).
fn translated(code: StatusCode, name: &str, text: String) -> ApiError {
    let (reason, message) = match code.as_u16() {
        400 => return ApiError::bad_request(text),
        500 => return ApiError::internal(text),
        401 => ("Unauthorized", "the server has asked for the client to provide credentials".into()),
        403 => ("Forbidden", text),
        404 => ("NotFound", "the server could not find the requested resource".into()),
        405 => ("MethodNotAllowed", "the server does not allow this method on the requested resource".into()),
        409 => ("Conflict", "the server reported a conflict".into()),
        429 => ("TooManyRequests", "the server has received too many requests and has asked us to try again later".into()),
        503 => ("ServiceUnavailable", "the server is currently unable to handle the request".into()),
        504 => ("Timeout", "the server was unable to return a response in the time allotted, but may still be processing the request".into()),
        501.. => ("InternalError", format!("an error on the server ({text:?}) has prevented the request from succeeding")),
        code => ("", format!("the server responded with the status code {code} but did not return more information")),
    };
    let message = format!("{message} ( pods/log {name})");
    ApiError::answer(code, reason, message, Some((name, "", "pods/log")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complaints_of_kubelets_are_told_in_upstreams_words() {
        let cases = [
            (400, "no log yet", "no log yet"),
            (500, "oh", "Internal error occurred: oh"),
            (403, "no", "no ( pods/log p)"),
            (
                404,
                "x",
                "the server could not find the requested resource ( pods/log p)",
            ),
            (
                502,
                "x",
                "an error on the server (\"x\") has prevented the request from succeeding ( pods/log p)",
            ),
            (
                418,
                "x",
                "the server responded with the status code 418 but did not return more information ( pods/log p)",
            ),
        ];
        for (code, text, message) in cases {
            let status = StatusCode::from_u16(code).expect("a code");
            let error = translated(status, "p", text.into());
            assert_eq!((error.code, &*error.message), (status, message));
        }
    }
}
