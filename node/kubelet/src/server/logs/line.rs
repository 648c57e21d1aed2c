//! Lines of log files as container runtimes write them, and what clients see of them. Pure.
//!
//! A line is `<time> <stdout|stderr> <P|F>[:more] <text>`; P says that the program wrote no end of line there.

use jiff::Timestamp;

use super::options::{Options, Source};

/// One line of a log file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line<'a> {
    time: &'a str,
    source: &'a str,
    /// Whether the program's line goes on in the next.
    partial: bool,
    text: &'a [u8],
}

fn parse(line: &[u8]) -> Option<Line<'_>> {
    let mut parts = line.splitn(4, |byte| *byte == b' ');
    let mut word = || std::str::from_utf8(parts.next()?).ok();
    let (time, source, tags) = (word()?, word()?, word()?);
    let known = matches!(source, "stdout" | "stderr") && time.contains('T');
    let line = Line {
        time,
        source,
        partial: tags.split(':').next() == Some("P"),
        text: parts.next()?,
    };
    known.then_some(line)
}

/// Nanoseconds in full, and `Z` for no offset: Go's `2006-01-02T15:04:05.000000000Z07:00`.
fn fixed_width(time: &str) -> String {
    let zone = time.rfind(['Z', '+', '-']).filter(|at| *at > 10);
    let (clock, zone) = time.split_at(zone.unwrap_or(time.len()));
    let (seconds, fraction) = clock.split_once('.').unwrap_or((clock, ""));
    let zone = match zone {
        "+00:00" | "-00:00" | "" => "Z",
        other => other,
    };
    format!("{seconds}.{fraction:0<9}{zone}")
}

/// Turns lines of the file into what the client asked for.
#[derive(Debug)]
pub(super) struct Rendering {
    since: Option<Timestamp>,
    timestamps: bool,
    source: Source,
    /// Bytes that may still be sent.
    left: Option<u64>,
    at_line_start: bool,
}

impl Rendering {
    /// What `options` ask for, at this time.
    pub(super) fn new(options: &Options, now: Timestamp) -> Rendering {
        Rendering {
            since: options.since(now),
            timestamps: options.timestamps,
            source: options.source,
            left: options.limit,
            at_line_start: true,
        }
    }

    /// Whether nothing more may be sent.
    pub(super) fn is_full(&self) -> bool {
        self.left == Some(0)
    }

    /// Adds what is to be sent for one line of the file, which is given without its end. Lines that are none are left
    /// out, as upstream does: the runtime died while it wrote them.
    pub(super) fn add(&mut self, line: &[u8], out: &mut Vec<u8>) {
        let Some(line) = parse(line) else {
            return;
        };
        if !self.wants(&line) {
            return;
        }
        let before = out.len();
        if self.timestamps && self.at_line_start {
            out.extend_from_slice(fixed_width(line.time).as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(line.text);
        if !line.partial {
            out.push(b'\n');
        }
        if !line.text.is_empty() || !line.partial {
            self.at_line_start = !line.partial;
        }
        self.cut(before, out);
    }

    fn wants(&self, line: &Line<'_>) -> bool {
        let of_stream = match self.source {
            Source::All => true,
            Source::Stdout => line.source == "stdout",
            Source::Stderr => line.source == "stderr",
        };
        let recent = self.since.is_none_or(|since| {
            let time = line.time.parse::<Timestamp>();
            time.is_ok_and(|time| time >= since)
        });
        of_stream && recent
    }

    fn cut(&mut self, before: usize, out: &mut Vec<u8>) {
        let Some(left) = &mut self.left else {
            return;
        };
        let added = (out.len() - before) as u64;
        if added > *left {
            out.truncate(before + usize::try_from(*left).unwrap_or(usize::MAX));
        }
        *left = left.saturating_sub(added);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const LOG: &str = "\
2026-11-18T00:00:01.5Z stdout F one
2026-11-18T00:00:02.123456789Z stderr F two
broken
2026-11-18T00:00:03+00:00 stdout P thr
2026-11-18T00:00:04.1+02:00 stdout F:tag ee
2026-11-18T00:00:05Z stdout F 
2026-11-18T00:00:06Z stdout F a b  c";

    fn rendered(options: &Options) -> String {
        let now = "2026-11-18T00:00:10Z".parse().unwrap();
        let mut rendering = Rendering::new(options, now);
        let mut out = Vec::new();
        for line in LOG.split('\n') {
            rendering.add(line.as_bytes(), &mut out);
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn options_choose_what_is_seen_of_a_log() {
        let all = Options::default();
        let cases = [
            (all.clone(), "one\ntwo\nthree\n\na b  c\n"),
            (
                Options {
                    timestamps: true,
                    ..all.clone()
                },
                "2026-11-18T00:00:01.500000000Z one\n2026-11-18T00:00:02.123456789Z two\n2026-11-18T00:00:03.000000000Z three\n2026-11-18T00:00:05.000000000Z \n2026-11-18T00:00:06.000000000Z a b  c\n",
            ),
            (
                Options {
                    source: Source::Stderr,
                    ..all.clone()
                },
                "two\n",
            ),
            (
                Options {
                    source: Source::Stdout,
                    ..all.clone()
                },
                "one\nthree\n\na b  c\n",
            ),
            (
                Options {
                    limit: Some(1),
                    ..all.clone()
                },
                "o",
            ),
            (
                Options {
                    limit: Some(6),
                    ..all.clone()
                },
                "one\ntw",
            ),
            (
                Options {
                    since_seconds: Some(5),
                    ..all.clone()
                },
                "\na b  c\n",
            ),
            (
                Options {
                    since_time: Some("2026-11-18T00:00:06Z".parse().unwrap()),
                    ..all
                },
                "a b  c\n",
            ),
        ];
        for (options, wanted) in cases {
            assert_eq!(rendered(&options), wanted, "{options:?}");
        }
    }
}
