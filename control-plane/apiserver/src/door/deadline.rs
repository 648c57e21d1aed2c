//! How long a request may take: `?timeout=`, in Go's notation, as far as the server's own limit.

use std::time::Duration;

use kube_kit::duration::go;

use crate::door::request::Query;
use crate::status::{ApiError, Result};

/// What the client asks for, if it asks; zero and less mean that it does not.
pub(crate) fn asked(query: &Query) -> Result<Option<Duration>> {
    let Some(text) = query.get("timeout") else {
        return Ok(None);
    };
    let nanos = go::parse(text).map_err(|why| {
        ApiError::bad_request(format!(
            "invalid timeout specified in the request URL - {why}"
        ))
    })?;
    let asked = u64::try_from(nanos).ok().filter(|nanos| *nanos > 0);
    Ok(asked.map(Duration::from_nanos))
}

/// Refuses a request that asks for a time that is none. What runs for long by its nature is not asked.
pub(crate) fn check(uri: &http::Uri) -> Result<()> {
    const LONG_RUNNING: [&str; 5] = ["attach", "exec", "log", "portforward", "proxy"];
    let Some(text) = uri.query().filter(|text| text.contains("timeout=")) else {
        return Ok(());
    };
    let query = Query::parse(Some(text));
    let path = crate::door::request::parse_path(uri.path()).unwrap_or_default();
    let subresource = path.subresource.as_deref().unwrap_or_default();
    let lasts = path.legacy_watch || query.flag("watch") || LONG_RUNNING.contains(&subresource);
    match lasts {
        true => Ok(()),
        false => asked(&query).map(|_| ()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> std::result::Result<Option<Duration>, String> {
        asked(&Query::parse(Some(&format!("timeout={text}")))).map_err(|e| e.message)
    }

    #[test]
    fn durations_are_gos() {
        let cases = [
            ("", None),
            ("0", None),
            ("-1s", None),
            ("5s", Some(5_000)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            (".5s", Some(500)),
            ("250ms", Some(250)),
        ];
        for (text, millis) in cases {
            assert_eq!(of(text), Ok(millis.map(Duration::from_millis)), "{text}");
        }
    }

    #[test]
    fn what_lasts_is_not_asked() {
        for (uri, refused) in [
            ("/api/v1/pods?timeout=x", true),
            ("/version?timeout=x", true),
            ("/api/v1/pods?watch=1&timeout=x", false),
            ("/api/v1/namespaces/n/pods/p/log?timeout=x", false),
        ] {
            let uri: http::Uri = uri.parse().expect("a URI");
            assert_eq!(check(&uri).is_err(), refused, "{uri}");
        }
    }

    #[test]
    fn refusals_are_in_gos_words() {
        let cases = [
            ("abc", "invalid duration \"abc\""),
            ("5", "missing unit in duration \"5\""),
            ("5x", "unknown unit \"x\" in duration \"5x\""),
            ("-", "invalid duration \"-\""),
            ("9999999999h", "invalid duration \"9999999999h\""),
        ];
        for (text, why) in cases {
            let message = format!("invalid timeout specified in the request URL - time: {why}");
            assert_eq!(of(text), Err(message), "{text}");
        }
    }
}
