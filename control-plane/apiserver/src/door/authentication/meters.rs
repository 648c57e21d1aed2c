//! What is counted of authentication's configuration, under upstream's names.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    status: &'static str,
}

/// All of them.
#[derive(Debug, Clone, Default)]
pub(crate) struct Meters {
    reloads: Family<Outcome, Counter>,
    reloaded_at: Family<Outcome, Gauge>,
}

impl Meters {
    /// Adds them to a page.
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "apiserver_authentication_config_controller_automatic_reloads",
            "Times the configuration was read again",
            self.reloads.clone(),
        );
        registry.register(
            "apiserver_authentication_config_controller_automatic_reload_last_timestamp_seconds",
            "When the configuration was read again last",
            self.reloaded_at.clone(),
        );
    }

    pub(super) fn reloaded(&self, good: bool) {
        let labels = Outcome {
            status: if good { "success" } else { "failure" },
        };
        self.reloads.get_or_create(&labels).inc();
        let now = jiff::Timestamp::now().as_second();
        self.reloaded_at.get_or_create(&labels).set(now);
    }
}
