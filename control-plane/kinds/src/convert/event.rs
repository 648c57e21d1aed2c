//! core/v1 Event and events.k8s.io/v1 Event: the same object under other field names
//! (`pkg/apis/events/v1/conversion.go`).

use serde_json::Value;

/// Field in core, field in events.k8s.io.
const RENAMES: [(&str, &str); 7] = [
    ("involvedObject", "regarding"),
    ("message", "note"),
    ("source", "deprecatedSource"),
    ("firstTimestamp", "deprecatedFirstTimestamp"),
    ("lastTimestamp", "deprecatedLastTimestamp"),
    ("count", "deprecatedCount"),
    ("reportingComponent", "reportingController"),
];

pub(super) fn to_events(event: &mut Value) {
    rename(event, RENAMES.into_iter());
    // Core shows who reported even where it says nothing; events.k8s.io leaves that out.
    if let Some(event) = event.as_object_mut() {
        event.retain(|name, value| !(name.starts_with("reporting") && value == ""));
    }
}

pub(super) fn to_core(event: &mut Value) {
    rename(
        event,
        RENAMES.into_iter().map(|(core, events)| (events, core)),
    );
}

fn rename(event: &mut Value, names: impl Iterator<Item = (&'static str, &'static str)>) {
    let Some(event) = event.as_object_mut() else {
        return;
    };
    for (from, to) in names {
        if let Some(value) = event.remove(from) {
            event.insert(to.to_owned(), value);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::convert::{CORE, EVENTS, convert};

    #[test]
    fn events_change_names_and_come_back() {
        let core = json!({
            "apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "web"}, "reason": "Started", "message": "Started container web",
            "source": {"component": "kubelet", "host": "n1"}, "firstTimestamp": "2026-01-01T00:00:00Z",
            "lastTimestamp": "2026-01-01T00:01:00Z", "count": 2, "type": "Normal", "eventTime": null,
            "reportingComponent": "kubelet", "reportingInstance": "n1", "action": "Start",
        });
        let mut event = core.clone();
        assert!(convert(&mut event, CORE, EVENTS, "Event"));
        assert_eq!(
            event,
            json!({
                "apiVersion": "events.k8s.io/v1", "kind": "Event", "metadata": {"name": "web.1", "namespace": "default"},
                "regarding": {"kind": "Pod", "name": "web"}, "reason": "Started", "note": "Started container web",
                "deprecatedSource": {"component": "kubelet", "host": "n1"},
                "deprecatedFirstTimestamp": "2026-01-01T00:00:00Z", "deprecatedLastTimestamp": "2026-01-01T00:01:00Z",
                "deprecatedCount": 2, "type": "Normal", "eventTime": null,
                "reportingController": "kubelet", "reportingInstance": "n1", "action": "Start",
            })
        );
        assert!(convert(&mut event, EVENTS, CORE, "Event"));
        assert_eq!(event, core);
    }
}
