//! What is counted of encryption, under upstream's names.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::kms::hash;

/// Into the store or out of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Direction {
    ToStorage,
    FromStorage,
}

impl Direction {
    fn as_str(self) -> &'static str {
        match self {
            Direction::ToStorage => "to_storage",
            Direction::FromStorage => "from_storage",
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Operation {
    resource: String,
    transformation_type: &'static str,
    transformer_prefix: String,
    status: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Transformation {
    transformation_type: &'static str,
    transformer_prefix: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Call {
    provider_name: String,
    method_name: &'static str,
    grpc_status_code: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Used {
    transformation_type: &'static str,
    provider_name: String,
    key_id_hash: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Named {
    provider_name: String,
    key_id_hash: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Provider {
    provider_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Invalid {
    provider_name: String,
    error: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    status: &'static str,
}

type Histograms<L> = Family<L, Histogram, fn() -> Histogram>;

/// All of them.
#[derive(Debug, Clone)]
pub struct Meters {
    operations: Family<Operation, Counter>,
    durations: Histograms<Transformation>,
    key_makings: Histogram,
    key_failures: Counter,
    misses: Counter,
    calls: Histograms<Call>,
    used: Family<Used, Counter>,
    used_at: Family<Used, Gauge>,
    named_at: Family<Named, Gauge>,
    invalid: Family<Invalid, Counter>,
    seeds: Family<Provider, Gauge>,
    reloads: Family<Outcome, Counter>,
    reloaded_at: Family<Outcome, Gauge>,
}

impl Default for Meters {
    fn default() -> Meters {
        // Upstream's steps: 5 µs doubled, and 0.1 ms doubled for calls.
        let fast = || Histogram::new(exponential_buckets(5e-6, 2.0, 25));
        let slow = || Histogram::new(exponential_buckets(0.0001, 2.0, 19));
        Meters {
            operations: Family::default(),
            durations: Family::new_with_constructor(fast),
            key_makings: fast(),
            key_failures: Counter::default(),
            misses: Counter::default(),
            calls: Family::new_with_constructor(slow),
            used: Family::default(),
            used_at: Family::default(),
            named_at: Family::default(),
            invalid: Family::default(),
            seeds: Family::default(),
            reloads: Family::default(),
            reloaded_at: Family::default(),
        }
    }
}

/// Adds a family to a page.
type Add = fn(&Meters, &mut Registry, &'static str, &'static str);

macro_rules! family {
    ($name:literal, $help:literal, $field:ident) => {
        ($name, $help, |m, r, name, help| {
            r.register(name, help, m.$field.clone());
        })
    };
}

/// Counters get their `_total` from the format.
const FAMILIES: [(&str, &str, Add); 13] = [
    family!(
        "apiserver_storage_transformation_operations",
        "Values encrypted and decrypted",
        operations
    ),
    family!(
        "apiserver_storage_transformation_duration_seconds",
        "Latency of encryption and decryption",
        durations
    ),
    family!(
        "apiserver_storage_data_key_generation_duration_seconds",
        "Latency of making a seed",
        key_makings
    ),
    family!(
        "apiserver_storage_data_key_generation_failures",
        "Seeds that could not be made",
        key_failures
    ),
    family!(
        "apiserver_storage_envelope_transformation_cache_misses",
        "Seeds that had to be asked for",
        misses
    ),
    family!(
        "apiserver_envelope_encryption_kms_operations_latency_seconds",
        "Latency of key management services",
        calls
    ),
    family!(
        "apiserver_envelope_encryption_key_id_hash",
        "Values by the key they are encrypted with",
        used
    ),
    family!(
        "apiserver_envelope_encryption_key_id_hash_last_timestamp_seconds",
        "When a key was used last",
        used_at
    ),
    family!(
        "apiserver_envelope_encryption_key_id_hash_status_last_timestamp_seconds",
        "When a service named a key last",
        named_at
    ),
    family!(
        "apiserver_envelope_encryption_invalid_key_id_from_status",
        "Names of keys that cannot be used",
        invalid
    ),
    family!(
        "apiserver_envelope_encryption_dek_source_cache_size",
        "Seeds that are open",
        seeds
    ),
    family!(
        "apiserver_encryption_config_controller_automatic_reloads",
        "Times the configuration was read again",
        reloads
    ),
    family!(
        "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds",
        "When the configuration was read again last",
        reloaded_at
    ),
];

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
    })
}

impl Meters {
    /// Adds them to a page.
    pub fn register(&self, registry: &mut Registry) {
        for (name, help, add) in FAMILIES {
            add(self, registry, name, help);
        }
    }

    pub(crate) fn transformed(
        &self,
        (group, plural): (&str, &str),
        direction: Direction,
        prefix: &str,
        took: Duration,
        good: bool,
    ) {
        let (transformation_type, transformer_prefix) = (direction.as_str(), prefix.to_owned());
        let resource = match group {
            "" => plural.to_owned(),
            group => format!("{plural}.{group}"),
        };
        let labels = Operation {
            resource,
            transformation_type,
            transformer_prefix: transformer_prefix.clone(),
            status: if good { "OK" } else { "Internal" },
        };
        self.operations.get_or_create(&labels).inc();
        let labels = Transformation {
            transformation_type,
            transformer_prefix,
        };
        let latency = took.as_secs_f64();
        self.durations.get_or_create(&labels).observe(latency);
    }

    pub(crate) fn key_made(&self, took: Duration, good: bool) {
        self.key_makings.observe(took.as_secs_f64());
        if !good {
            self.key_failures.inc();
        }
    }

    pub(crate) fn cache_missed(&self) {
        self.misses.inc();
    }

    pub(crate) fn kms_call(
        &self,
        provider: &str,
        method_name: &'static str,
        code: tonic::Code,
        took: Duration,
    ) {
        let labels = Call {
            provider_name: provider.to_owned(),
            method_name,
            grpc_status_code: match code {
                tonic::Code::Ok => "OK".to_owned(),
                other => format!("{other:?}"),
            },
        };
        self.calls
            .get_or_create(&labels)
            .observe(took.as_secs_f64());
    }

    pub(crate) fn key_used(&self, direction: Direction, provider: &str, key_id: &str) {
        let labels = Used {
            transformation_type: direction.as_str(),
            provider_name: provider.to_owned(),
            key_id_hash: hash(key_id),
        };
        self.used.get_or_create(&labels).inc();
        self.used_at.get_or_create(&labels).set(now());
    }

    pub(crate) fn key_of_status(&self, provider: &str, key_id: &str) {
        let labels = Named {
            provider_name: provider.to_owned(),
            key_id_hash: hash(key_id),
        };
        self.named_at.get_or_create(&labels).set(now());
    }

    pub(crate) fn invalid_key_id(&self, provider: &str, why: &str) {
        let labels = Invalid {
            provider_name: provider.to_owned(),
            error: if why.ends_with("empty") {
                "empty"
            } else {
                "too_long"
            },
        };
        self.invalid.get_or_create(&labels).inc();
    }

    pub(crate) fn seeds_open(&self, provider: &str, count: usize) {
        let labels = Provider {
            provider_name: provider.to_owned(),
        };
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        self.seeds.get_or_create(&labels).set(count);
    }

    pub(crate) fn reloaded(&self, good: bool) {
        let labels = Outcome {
            status: if good { "success" } else { "failure" },
        };
        self.reloads.get_or_create(&labels).inc();
        self.reloaded_at.get_or_create(&labels).set(now());
    }
}
