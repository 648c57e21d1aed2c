//! How a long-running operation goes on: where to ask next, and when it is over.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::Value;

use super::answer::{retry_after, words};

/// Where an operation is asked about.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Place {
    /// `Azure-AsyncOperation` or `Operation-Location`: a document with a status.
    Status(String),
    /// `Location`: 202 until it is over.
    Result(String),
    /// The resource itself, by its `provisioningState`.
    Resource,
}

impl Place {
    /// Its address, where it is not the resource.
    pub(super) fn address(&self) -> Option<&str> {
        match self {
            Place::Status(address) | Place::Result(address) => Some(address),
            Place::Resource => None,
        }
    }
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Step {
    Done,
    Poll {
        place: Place,
        after: Option<Duration>,
    },
    Failed {
        code: String,
        message: String,
    },
}

/// How long to wait before each poll. Most operations are over at once, some take minutes.
#[derive(Debug, Default)]
pub(super) struct Waits(u32);

impl Waits {
    /// The next wait; what Azure asks for counts.
    pub(super) fn next(&mut self, asked_for: Option<Duration>) -> Duration {
        self.0 += 1;
        asked_for.unwrap_or(match self.0 {
            1 => Duration::from_millis(500),
            2 | 3 => Duration::from_secs(1),
            _ => Duration::from_secs(5),
        })
    }
}

fn header(headers: &HeaderMap, name: &str) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    (!value.is_empty()).then(|| value.to_owned())
}

fn document(answer: &Response<Bytes>) -> Value {
    serde_json::from_slice(answer.body()).unwrap_or_default()
}

/// What the first answer of a write means.
pub(super) fn begun(method: &Method, answer: &Response<Bytes>) -> Step {
    let headers = answer.headers();
    let after = retry_after(headers);
    let status = header(headers, "azure-asyncoperation");
    let status = status.or_else(|| header(headers, "operation-location"));
    if let Some(address) = status {
        let place = Place::Status(address);
        return Step::Poll { place, after };
    }
    let is_accepted = answer.status() == StatusCode::ACCEPTED;
    if let Some(address) = header(headers, "location").filter(|_| is_accepted) {
        let place = Place::Result(address);
        return Step::Poll { place, after };
    }
    match *method == Method::PUT {
        true => of_resource(answer),
        false => Step::Done,
    }
}

/// What an answer to a poll means.
pub(super) fn polled(place: Place, answer: &Response<Bytes>) -> Step {
    let after = retry_after(answer.headers());
    match &place {
        Place::Status(_) => {
            let body = document(answer);
            let status = body["status"].as_str().unwrap_or("Succeeded");
            ended(status, &body, place, after)
        }
        Place::Result(_) if answer.status() == StatusCode::ACCEPTED => {
            // It may have moved.
            let moved = header(answer.headers(), "location").map(Place::Result);
            Step::Poll {
                place: moved.unwrap_or(place),
                after,
            }
        }
        Place::Result(_) => Step::Done,
        Place::Resource => of_resource(answer),
    }
}

fn of_resource(answer: &Response<Bytes>) -> Step {
    let body = document(answer);
    let state = body["properties"]["provisioningState"].as_str();
    let after = retry_after(answer.headers());
    ended(state.unwrap_or("Succeeded"), &body, Place::Resource, after)
}

fn ended(status: &str, body: &Value, place: Place, after: Option<Duration>) -> Step {
    match status.to_lowercase().as_str() {
        "succeeded" => Step::Done,
        "failed" | "canceled" | "cancelled" => {
            let (code, message) = words(body);
            Step::Failed {
                code: if code.is_empty() { status.into() } else { code },
                message,
            }
        }
        _ => Step::Poll { place, after },
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> Response<Bytes> {
        let mut answer = Response::builder().status(status);
        for (name, value) in headers {
            answer = answer.header(*name, *value);
        }
        answer.body(Bytes::from(body.to_owned())).unwrap()
    }

    fn poll(place: Place, milliseconds: Option<u64>) -> Step {
        let after = milliseconds.map(Duration::from_millis);
        Step::Poll { place, after }
    }

    #[test]
    fn first_answers() {
        let status = || Place::Status("https://s".into());
        let cases = [
            (
                Method::PUT,
                200,
                vec![],
                r#"{"properties":{"provisioningState":"Succeeded"}}"#,
                Step::Done,
            ),
            (Method::PUT, 200, vec![], "{}", Step::Done),
            (
                Method::PUT,
                201,
                vec![],
                r#"{"properties":{"provisioningState":"Updating"}}"#,
                poll(Place::Resource, None),
            ),
            (
                Method::PUT,
                201,
                vec![("azure-asyncoperation", "https://s"), ("retry-after", "3")],
                r#"{"properties":{"provisioningState":"Succeeded"}}"#,
                poll(status(), Some(3000)),
            ),
            (
                Method::DELETE,
                202,
                vec![
                    ("location", "https://r"),
                    ("azure-asyncoperation", "https://s"),
                ],
                "",
                poll(status(), None),
            ),
            (
                Method::DELETE,
                202,
                vec![("location", "https://r")],
                "",
                poll(Place::Result("https://r".into()), None),
            ),
            (Method::DELETE, 204, vec![], "", Step::Done),
            (Method::POST, 200, vec![], "{}", Step::Done),
        ];
        for (method, code, headers, body, expected) in cases {
            let got = begun(&method, &answer(code, &headers, body));
            assert_eq!(got, expected, "{method} {code} {headers:?}");
        }
    }

    #[test]
    fn polls() {
        let status = || Place::Status("https://s".into());
        let result = || Place::Result("https://r".into());
        let going = polled(
            status(),
            &answer(
                200,
                &[("retry-after-ms", "20")],
                r#"{"status":"InProgress"}"#,
            ),
        );
        assert_eq!(going, poll(status(), Some(20)));
        let done = polled(status(), &answer(200, &[], r#"{"status":"succeeded"}"#));
        assert_eq!(done, Step::Done);
        let failed = r#"{"status":"Failed","error":{"code":"C","message":"m"}}"#;
        let expected = Step::Failed {
            code: "C".into(),
            message: "m".into(),
        };
        assert_eq!(polled(status(), &answer(200, &[], failed)), expected);
        let moved = polled(result(), &answer(202, &[("location", "https://r2")], ""));
        assert_eq!(moved, poll(Place::Result("https://r2".into()), None));
        assert_eq!(polled(result(), &answer(200, &[], "{}")), Step::Done);
    }
}
