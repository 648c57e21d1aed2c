//! Events for the Azure guest agent: one small file each, which it collects and sends on.

use std::path::Path;
use std::sync::atomic::{AtomicI64, Ordering};

use ::steps::host::Host;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use serde_json::json;

use super::log::Level;
use super::paths;

/// Writes event files. Failing to is no reason to fail.
pub(super) struct GuestEvents<'a> {
    host: &'a dyn Host,
    zone: TimeZone,
    /// The number of the last file: names are nanoseconds and must differ.
    last: AtomicI64,
}

impl<'a> GuestEvents<'a> {
    /// Events with times in the machine's own zone, as upstream writes them.
    pub(super) fn new(host: &'a dyn Host) -> GuestEvents<'a> {
        GuestEvents {
            host,
            zone: TimeZone::system(),
            last: AtomicI64::new(0),
        }
    }

    /// Something that began at `start` and ends now.
    pub(super) fn send(&self, task: &str, level: Level, message: &str, start: Timestamp) {
        let end = self.host.now();
        let level = match level {
            Level::Info | Level::Warn => "Informational",
            Level::Error => "Error",
        };
        let event = json!({
            "Timestamp": self.moment(start),
            "OperationId": self.moment(end),
            "Version": "1.23",
            "TaskName": task,
            "EventLevel": level,
            "Message": message,
            "EventPid": "0",
            "EventTid": "0",
        });
        let path = Path::new(paths::EVENTS).join(format!("{}.json", self.number(end)));
        let files = self.host.files();
        let _ = files
            .ensure_directory(Path::new(paths::EVENTS), 0o755)
            .and_then(|()| files.append(&path, format!("{event}\n").as_bytes(), 0o644, false));
    }

    /// What upstream's own events say: the text, and from when to when.
    pub(super) fn send_timed(&self, task: &str, level: Level, text: &str, start: Timestamp) {
        let end = self.host.now();
        let message = format!(
            "{text} | startTime={} endTime={} durationMs={}",
            self.moment(start),
            self.moment(end),
            end.duration_since(start).as_millis()
        );
        self.send(
            &format!("AKS.AKSNodeController.{task}"),
            level,
            &message,
            start,
        );
    }

    fn moment(&self, time: Timestamp) -> String {
        time.to_zoned(self.zone.clone())
            .strftime("%Y-%m-%d %H:%M:%S.%3f")
            .to_string()
    }

    fn number(&self, now: Timestamp) -> i64 {
        let wanted = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX);
        let next = |last: i64| Some(wanted.max(last + 1));
        let last = self
            .last
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        next(last.unwrap_or_default()).unwrap_or(wanted)
    }
}
