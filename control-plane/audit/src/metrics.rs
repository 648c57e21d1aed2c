//! What is counted, under upstream's names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use crate::policy::Level;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct PluginLabel {
    plugin: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct LevelLabel {
    level: &'static str,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Metrics {
    pub(crate) events: Counter,
    pub(crate) rejected: Counter,
    errors: Family<PluginLabel, Counter>,
    levels: Family<LevelLabel, Counter>,
}

/// What a server without an audit log shows: the same families, at nothing, which is what alerts on them are to see.
pub fn register_nothing(registry: &mut Registry) {
    Metrics::default().register(registry);
}

impl Metrics {
    pub(crate) fn count_failed(&self, plugin: &'static str, records: usize) {
        let label = PluginLabel { plugin };
        self.errors.get_or_create(&label).inc_by(records as u64);
    }

    #[cfg(test)]
    pub(crate) fn lost(&self, plugin: &'static str) -> u64 {
        self.errors.get_or_create(&PluginLabel { plugin }).get()
    }

    /// Records are lost: that is counted, and said.
    pub(crate) fn failed(&self, plugin: &'static str, records: usize, why: &dyn std::fmt::Display) {
        self.count_failed(plugin, records);
        tracing::error!(plugin, records, %why, "audit records are lost");
    }

    pub(crate) fn level(&self, level: Level) {
        let level = level.as_str();
        self.levels.get_or_create(&LevelLabel { level }).inc();
    }

    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_audit_event",
            "Audit events that were made",
            self.events.clone(),
        );
        registry.register(
            "apiserver_audit_error",
            "Audit events that could not be kept, by plugin",
            self.errors.clone(),
        );
        registry.register(
            "apiserver_audit_level",
            "Requests by the level at which they are audited",
            self.levels.clone(),
        );
        registry.register(
            "apiserver_audit_requests_rejected",
            "Requests that were refused because they could not be audited",
            self.rejected.clone(),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_a_log_the_families_are_there() {
        let (mut registry, mut text) = (Registry::default(), String::new());
        register_nothing(&mut registry);
        prometheus_client::encoding::text::encode(&mut text, &registry).expect("memory");
        assert!(text.contains("apiserver_audit_event_total 0"), "{text}");
    }
}
