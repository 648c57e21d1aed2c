//! Answers as HTTP has them: codes, headers, warnings.

use http::header::{ACCEPT_ENCODING, CONTENT_TYPE, RETRY_AFTER, X_CONTENT_TYPE_OPTIONS};
use http::{HeaderMap, HeaderValue, Response, StatusCode};

use crate::call::Reply;
use crate::connection::response_body::Body;
use crate::reading::negotiate::{self, Accepted};
use crate::reading::view;
use crate::status::ApiError;

pub(super) fn response(reply: Reply) -> Response<Body> {
    let mut response = Response::new(reply.body);
    *response.status_mut() = reply.code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.content_type));
    warn(headers, &reply.warnings);
    response
}

pub(super) fn warn(headers: &mut HeaderMap, warnings: &[String]) {
    for text in limited(warnings) {
        if let Ok(value) = HeaderValue::from_str(&format!("299 - {}", quoted(&text))) {
            headers.append(http::header::WARNING, value);
        }
    }
}

// Upstream sends at most 4 KiB of warnings, cut to 256 characters each beyond that.
fn limited(warnings: &[String]) -> Vec<String> {
    let total: usize = warnings.iter().map(|w| w.chars().count()).sum();
    let mut room = 4096_usize;
    let mut out = Vec::new();
    for warning in warnings {
        let text: String = if total > 4096 {
            warning.chars().take(256).collect()
        } else {
            warning.clone()
        };
        let Some(rest) = room.checked_sub(text.chars().count()) else {
            break;
        };
        room = rest;
        out.push(text);
    }
    out
}

fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars().filter(|c| !c.is_control()) {
        if c == '"' || c == '\\' {
            out.push('\\');
        }
        out.push(c);
    }
    out.push('"');
    out
}

pub(super) fn error_response(
    error: &ApiError,
    headers: &HeaderMap,
    pretty: Option<&str>,
) -> Response<Body> {
    let accepted = negotiate::accept(headers, pretty, negotiate::Offer::Objects)
        .ok()
        .filter(|accepted| accepted.shape == negotiate::Shape::Object)
        .unwrap_or(Accepted::JSON);
    let mut response = Response::new(Body::from(view::encode(&error.to_value(), accepted)));
    *response.status_mut() = error.code;
    response.extensions_mut().insert(error.clone());
    let out = response.headers_mut();
    out.insert(
        CONTENT_TYPE,
        HeaderValue::from_static(accepted.format.media_type()),
    );
    if let Some(seconds) = error.retry_after {
        out.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    response
}

pub(super) fn accepts_gzip(headers: &HeaderMap) -> bool {
    let text = headers
        .get(ACCEPT_ENCODING)
        .and_then(|v| v.to_str().ok())
        .unwrap_or_default();
    text.split(',').any(|part| {
        part.split(';')
            .next()
            .is_some_and(|name| name.trim() == "gzip")
    })
}

/// What upstream's HTTP layer answers where nothing is registered.
pub(crate) fn not_found_page() -> Response<Body> {
    text_page(
        StatusCode::NOT_FOUND,
        "text/plain; charset=utf-8",
        "404 page not found\n",
    )
}

pub(crate) fn text_page(
    code: StatusCode,
    content_type: &'static str,
    body: impl Into<Body>,
) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = code;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    if content_type.starts_with("text/plain") {
        headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warnings_are_quoted_and_bounded() {
        assert_eq!(quoted("unknown field \"a\""), "\"unknown field \\\"a\\\"\"");
        let many = vec!["x".repeat(1000); 100];
        // As many as there is room for: 4096 characters, of each warning 256.
        assert_eq!(limited(&many), vec!["x".repeat(256); 16]);
        assert_eq!(limited(&many[..4]), many[..4]);
    }
}
