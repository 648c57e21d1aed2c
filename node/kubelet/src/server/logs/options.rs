//! What a client wants of a log (`v1.PodLogOptions`). Pure.

use jiff::{SignedDuration, Timestamp};

use crate::server::query::Query;

/// Whose lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Source {
    #[default]
    All,
    Stdout,
    Stderr,
}

/// The options of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::server) struct Options {
    pub(super) follow: bool,
    pub(super) previous: bool,
    pub(super) timestamps: bool,
    pub(super) tail: Option<u64>,
    pub(super) limit: Option<u64>,
    pub(super) since_seconds: Option<i64>,
    pub(super) since_time: Option<Timestamp>,
    pub(super) source: Source,
}

/// Why options are refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::server) enum Refused {
    /// 400.
    Undecodable,
    /// 422.
    Invalid,
}

impl Options {
    /// Reads and checks the options.
    pub(in crate::server) fn read(query: &Query) -> Result<Options, Refused> {
        let number = |name| query.number::<i64>(name).map_err(|()| Refused::Undecodable);
        let at_least = |least: i64, found: Option<i64>| match found {
            Some(found) if found < least => Err(Refused::Invalid),
            found => Ok(found.map(i64::unsigned_abs)),
        };
        let since_time = query.get("sinceTime").filter(|text| !text.is_empty());
        let since_time = since_time.map(|text| text.parse().map_err(|_| Refused::Undecodable));
        let since_seconds = number("sinceSeconds")?;
        let since_time = since_time.transpose()?;
        if since_seconds.is_some_and(|s| s < 1) || (since_seconds.is_some() && since_time.is_some())
        {
            return Err(Refused::Invalid);
        }
        Ok(Options {
            follow: query.flag("follow"),
            previous: query.flag("previous"),
            timestamps: query.flag("timestamps"),
            tail: at_least(0, tail(query)?)?,
            limit: at_least(1, number("limitBytes")?)?,
            since_seconds,
            since_time,
            source: source(query.get("stream"))?,
        })
    }

    /// Whether the container before the newest is meant.
    pub(in crate::server) fn is_previous(&self) -> bool {
        self.previous
    }

    /// The time before which lines are left out.
    pub(super) fn since(&self, now: Timestamp) -> Option<Timestamp> {
        let ago = self
            .since_seconds
            .map(|s| now - SignedDuration::from_secs(s));
        ago.or(self.since_time)
    }
}

// `tail` is the name of old clients; anything but a number means all.
fn tail(query: &Query) -> Result<Option<i64>, Refused> {
    match query.get("tail").filter(|text| !text.is_empty()) {
        Some("all") => Ok(None),
        Some(text) => Ok(text.parse().ok()),
        None => query.number("tailLines").map_err(|()| Refused::Undecodable),
    }
}

fn source(asked: Option<&str>) -> Result<Source, Refused> {
    match asked {
        None | Some("" | "All") => Ok(Source::All),
        Some("Stdout") => Ok(Source::Stdout),
        Some("Stderr") => Ok(Source::Stderr),
        Some(_) => Err(Refused::Invalid),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn options_are_read_and_checked() {
        let none = Options::default();
        for (query, wanted) in [
            ("", Ok(none.clone())),
            (
                "follow=true&tailLines=3&timestamps=true",
                Ok(Options {
                    follow: true,
                    tail: Some(3),
                    timestamps: true,
                    ..none.clone()
                }),
            ),
            ("tail=all", Ok(none.clone())),
            (
                "tail=7&tailLines=3",
                Ok(Options {
                    tail: Some(7),
                    ..none.clone()
                }),
            ),
            (
                "limitBytes=10&previous=true",
                Ok(Options {
                    limit: Some(10),
                    previous: true,
                    ..none.clone()
                }),
            ),
            (
                "sinceTime=2026-11-18T00%3A00%3A00Z",
                Ok(Options {
                    since_time: Some("2026-11-18T00:00:00Z".parse().unwrap()),
                    ..none.clone()
                }),
            ),
            (
                "stream=Stderr",
                Ok(Options {
                    source: Source::Stderr,
                    ..none
                }),
            ),
            ("stream=stderr", Err(Refused::Invalid)),
            ("tailLines=-1", Err(Refused::Invalid)),
            ("limitBytes=0", Err(Refused::Invalid)),
            ("sinceSeconds=0", Err(Refused::Invalid)),
            (
                "sinceSeconds=5&sinceTime=2026-11-18T00%3A00%3A00Z",
                Err(Refused::Invalid),
            ),
            ("tailLines=x", Err(Refused::Undecodable)),
            ("sinceTime=x", Err(Refused::Undecodable)),
        ] {
            assert_eq!(Options::read(&Query::parse(Some(query))), wanted, "{query}");
        }
    }
}
