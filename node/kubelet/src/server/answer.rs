//! Answers: texts, objects, and streams of bytes that come as they come.

use bytes::Bytes;
use futures::stream;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use tokio::sync::mpsc;

/// What a body may fail with.
pub(super) type Broken = Box<dyn std::error::Error + Send + Sync>;
/// Bodies of answers.
pub(super) type Body = UnsyncBoxBody<Bytes, Broken>;
/// Answers.
pub(super) type Answer = Response<Body>;

/// A body that is there.
pub(super) fn whole(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into())
        .map_err(|never| match never {})
        .boxed_unsync()
}

/// A body of another server.
pub(super) fn passed(body: Incoming) -> Body {
    body.map_err(Into::into).boxed_unsync()
}

/// A body that somebody still writes.
pub(super) fn coming(from: mpsc::Receiver<Bytes>) -> Body {
    let frames = stream::unfold(from, |mut from| async move {
        let bytes = from.recv().await?;
        Some((Ok(Frame::data(bytes)), from))
    });
    StreamBody::new(frames).boxed_unsync()
}

/// An answer of a type.
pub(super) fn of_type(kind: &'static str, body: Body) -> Answer {
    let mut answer = Response::new(body);
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

/// Plain text.
pub(super) fn text(code: StatusCode, text: impl Into<String>) -> Answer {
    let mut answer = of_type("text/plain; charset=utf-8", whole(text.into()));
    *answer.status_mut() = code;
    answer
}

/// JSON.
pub(super) fn json(value: &impl serde::Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(bytes) => of_type("application/json", whole(bytes)),
        Err(error) => text(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
    }
}

/// Metrics.
pub(super) fn metrics(lines: String) -> Answer {
    of_type("text/plain; version=0.0.4; charset=utf-8", whole(lines))
}
