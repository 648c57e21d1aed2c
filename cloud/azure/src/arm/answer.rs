//! What an answer means: done, to be tried again, or refused.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method, Response, StatusCode};
use serde_json::Value;

use crate::{CloudConfig, Error};

/// The longest wait between two tries.
const LONGEST: Duration = Duration::from_secs(60);
/// How long a gate stays closed if Azure does not say.
const USUAL_THROTTLE: Duration = Duration::from_secs(10);

/// How often and when requests are tried again.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Backoff {
    /// How often.
    pub retries: u32,
    /// The first wait.
    pub first: Duration,
    /// How it grows.
    pub exponent: f64,
    /// How much of it is chance.
    pub jitter: f64,
}

impl Backoff {
    /// As the configuration says, where it says so.
    pub(super) fn of(config: &CloudConfig) -> Backoff {
        match config.cloud_provider_backoff {
            true => Backoff {
                retries: config.cloud_provider_backoff_retries,
                first: Duration::from_secs(config.cloud_provider_backoff_duration),
                exponent: config.cloud_provider_backoff_exponent,
                jitter: config.cloud_provider_backoff_jitter,
            },
            false => Backoff {
                retries: 3,
                first: Duration::from_secs(1),
                exponent: 2.0,
                jitter: 0.3,
            },
        }
    }

    /// The wait before a further try; `chance` is between 0 and 1.
    fn wait(&self, attempt: u32, chance: f64) -> Duration {
        let growth = self
            .exponent
            .powi(i32::try_from(attempt).unwrap_or(i32::MAX));
        let seconds = self.first.as_secs_f64() * growth * (1.0 + self.jitter * chance);
        Duration::from_secs_f64(seconds.min(LONGEST.as_secs_f64()))
    }
}

/// What follows.
#[derive(Debug)]
pub(super) enum Next {
    Answer(Response<Bytes>),
    Again { after: Duration },
    NewToken,
    Throttled { after: Duration },
    Refused(Error),
}

/// How long an answer asks to be left alone.
pub(super) fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let number = |name: &str| headers.get(name)?.to_str().ok()?.trim().parse::<u64>().ok();
    let milliseconds = number("retry-after-ms").or_else(|| number("x-ms-retry-after-ms"));
    milliseconds
        .map(Duration::from_millis)
        .or_else(|| number("retry-after").map(Duration::from_secs))
}

/// Decides what an outcome means for the request; `attempt` counts from 0.
pub(super) fn judge(
    method: &Method,
    path: &str,
    outcome: Result<Response<Bytes>, Error>,
    attempt: u32,
    backoff: Backoff,
    chance: f64,
) -> Next {
    let is_last = attempt >= backoff.retries;
    let answer = match outcome {
        Ok(answer) => answer,
        // Nobody knows whether a POST arrived.
        Err(error @ Error::Unreachable(_)) if !is_last && *method != Method::POST => {
            tracing::debug!(%error, "will be tried again");
            let after = backoff.wait(attempt, chance);
            return Next::Again { after };
        }
        Err(error) => return Next::Refused(error),
    };
    let status = answer.status();
    if status.is_success() {
        return Next::Answer(answer);
    }
    let told = retry_after(answer.headers());
    match status.as_u16() {
        401 if attempt == 0 => Next::NewToken,
        429 if !is_last => Next::Throttled {
            after: told.unwrap_or(USUAL_THROTTLE),
        },
        429 => Next::Refused(Error::Throttled {
            what: path.to_owned(),
            after: told.unwrap_or(USUAL_THROTTLE),
        }),
        408 | 500 | 502 | 503 | 504 if !is_last && told.is_none_or(|told| told <= LONGEST) => {
            Next::Again {
                after: told.unwrap_or_else(|| backoff.wait(attempt, chance)),
            }
        }
        _ => Next::Refused(refusal(method, path, status, answer.body())),
    }
}

fn refusal(method: &Method, path: &str, status: StatusCode, body: &[u8]) -> Error {
    let (code, message) = words(&serde_json::from_slice(body).unwrap_or_default());
    Error::Refused {
        method: method.to_string(),
        path: path.to_owned(),
        status: status.as_u16(),
        code: if code.is_empty() {
            status.canonical_reason().unwrap_or("Unknown").to_owned()
        } else {
            code
        },
        message,
    }
}

/// Code and message of an error, with the most exact code of its details in front of their sentence.
pub(super) fn words(body: &Value) -> (String, String) {
    let error = match &body["error"] {
        Value::Null => body,
        error => error,
    };
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (code, mut message) = (text(&error["code"]), text(&error["message"]));
    let detail = &error["details"][0];
    if let Some(more) = detail["code"].as_str() {
        message = format!("{message} ({more}: {})", text(&detail["message"]));
    }
    (code, message)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const BACKOFF: Backoff = Backoff {
        retries: 3,
        first: Duration::from_secs(1),
        exponent: 2.0,
        jitter: 0.5,
    };

    fn judged(method: &Method, status: u16, header: (&str, &str), attempt: u32) -> String {
        let body = r#"{"error":{"code":"C","message":"m","details":[{"code":"D","message":"d"}]}}"#;
        let answer = Response::builder()
            .status(status)
            .header(header.0, header.1);
        let answer = answer.body(Bytes::from(body)).unwrap();
        match judge(method, "/p", Ok(answer), attempt, BACKOFF, 0.0) {
            Next::Answer(_) => "answer".into(),
            Next::Again { after } => format!("again after {}", after.as_millis()),
            Next::NewToken => "new token".into(),
            Next::Throttled { after } => format!("throttled {}", after.as_millis()),
            Next::Refused(error) => error.to_string(),
        }
    }

    #[test]
    fn answers_and_what_follows() {
        let refused = |status| format!("GET /p was refused with {status}: C: m (D: d)");
        let cases = [
            (200, ("x", ""), 0, "answer".to_owned()),
            (201, ("x", ""), 0, "answer".to_owned()),
            (404, ("x", ""), 0, refused(404)),
            (412, ("x", ""), 0, refused(412)),
            (401, ("x", ""), 0, "new token".to_owned()),
            (401, ("x", ""), 1, refused(401)),
            (429, ("retry-after", "7"), 0, "throttled 7000".to_owned()),
            (429, ("retry-after-ms", "70"), 0, "throttled 70".to_owned()),
            (503, ("x", ""), 0, "again after 1000".to_owned()),
            (503, ("x", ""), 2, "again after 4000".to_owned()),
            (503, ("retry-after", "9"), 0, "again after 9000".to_owned()),
            (503, ("retry-after", "900"), 0, refused(503)),
            (500, ("x", ""), 3, refused(500)),
        ];
        for (status, header, attempt, expected) in cases {
            let got = judged(&Method::GET, status, header, attempt);
            assert_eq!(got, expected, "{status} {header:?} {attempt}");
        }
    }

    #[test]
    fn a_post_that_may_have_arrived_is_not_repeated() {
        let lost = || {
            Err(Error::Unreachable(wire::client::Unreachable {
                server: "s".into(),
                cause: "c".into(),
            }))
        };
        let judge = |method| judge(&method, "/p", lost(), 0, BACKOFF, 0.0);
        assert!(matches!(judge(Method::PUT), Next::Again { .. }));
        assert!(matches!(judge(Method::POST), Next::Refused(_)));
    }

    #[test]
    fn waits_grow_up_to_a_minute() {
        let waits = [0, 1, 2, 10].map(|attempt| BACKOFF.wait(attempt, 1.0).as_millis());
        assert_eq!(waits, [1500, 3000, 6000, 60_000]);
    }
}
