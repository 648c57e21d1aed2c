//! Values as Go writes them, and flags as the fields they stand for.

use std::time::Duration;

use kube_kit::duration::go;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Value, json};

use super::Error;

/// A duration that is written as Go writes it: `1h30m`, `10s`, `100ms`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct GoDuration(pub Duration);

impl GoDuration {
    /// So many seconds.
    pub const fn seconds(count: u64) -> Self {
        Self(Duration::from_secs(count))
    }
}

impl<'de> Deserialize<'de> for GoDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let parsed = go::parse_unsigned(&text).map(Self);
        parsed.map_err(|_| {
            serde::de::Error::custom(format!("{text:?} is not a duration such as 10s"))
        })
    }
}

impl Serialize for GoDuration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&go::print(self.0))
    }
}

/// How a flag's text becomes a value.
enum Form {
    Text,
    Number,
    Truth,
    List,
    /// `key=value` pairs.
    Pairs,
    /// `signal<value` pairs.
    Thresholds,
    /// `key=true` pairs.
    Gates,
    /// `key=value:effect` list.
    Taints,
}

/// Flags of upstream that are fields of the file: name, path, form.
const FLAGS: &[(&str, &[&str], Form)] = &[
    ("address", &["address"], Form::Text),
    (
        "allowed-unsafe-sysctls",
        &["allowedUnsafeSysctls"],
        Form::List,
    ),
    (
        "anonymous-auth",
        &["authentication", "anonymous", "enabled"],
        Form::Truth,
    ),
    (
        "authentication-token-webhook",
        &["authentication", "webhook", "enabled"],
        Form::Truth,
    ),
    ("authorization-mode", &["authorization", "mode"], Form::Text),
    ("cgroup-driver", &["cgroupDriver"], Form::Text),
    ("cgroup-root", &["cgroupRoot"], Form::Text),
    ("cgroups-per-qos", &["cgroupsPerQOS"], Form::Truth),
    (
        "client-ca-file",
        &["authentication", "x509", "clientCAFile"],
        Form::Text,
    ),
    ("cluster-dns", &["clusterDNS"], Form::List),
    ("cluster-domain", &["clusterDomain"], Form::Text),
    (
        "container-log-max-files",
        &["containerLogMaxFiles"],
        Form::Number,
    ),
    (
        "container-log-max-size",
        &["containerLogMaxSize"],
        Form::Text,
    ),
    (
        "container-runtime-endpoint",
        &["containerRuntimeEndpoint"],
        Form::Text,
    ),
    ("cpu-cfs-quota", &["cpuCFSQuota"], Form::Truth),
    ("enable-server", &["enableServer"], Form::Truth),
    (
        "enforce-node-allocatable",
        &["enforceNodeAllocatable"],
        Form::List,
    ),
    ("event-qps", &["eventRecordQPS"], Form::Number),
    ("eviction-hard", &["evictionHard"], Form::Thresholds),
    ("eviction-soft", &["evictionSoft"], Form::Thresholds),
    (
        "eviction-soft-grace-period",
        &["evictionSoftGracePeriod"],
        Form::Pairs,
    ),
    (
        "eviction-pressure-transition-period",
        &["evictionPressureTransitionPeriod"],
        Form::Text,
    ),
    ("fail-cgroupv1", &["failCgroupV1"], Form::Truth),
    ("fail-swap-on", &["failSwapOn"], Form::Truth),
    ("feature-gates", &["featureGates"], Form::Gates),
    ("healthz-bind-address", &["healthzBindAddress"], Form::Text),
    ("healthz-port", &["healthzPort"], Form::Number),
    (
        "image-gc-high-threshold",
        &["imageGCHighThresholdPercent"],
        Form::Number,
    ),
    (
        "image-gc-low-threshold",
        &["imageGCLowThresholdPercent"],
        Form::Number,
    ),
    ("kube-reserved", &["kubeReserved"], Form::Pairs),
    ("kube-reserved-cgroup", &["kubeReservedCgroup"], Form::Text),
    ("max-pods", &["maxPods"], Form::Number),
    (
        "node-status-update-frequency",
        &["nodeStatusUpdateFrequency"],
        Form::Text,
    ),
    ("pod-cidr", &["podCIDR"], Form::Text),
    ("pod-manifest-path", &["staticPodPath"], Form::Text),
    ("pod-max-pids", &["podPidsLimit"], Form::Number),
    ("port", &["port"], Form::Number),
    (
        "protect-kernel-defaults",
        &["protectKernelDefaults"],
        Form::Truth,
    ),
    ("provider-id", &["providerID"], Form::Text),
    ("read-only-port", &["readOnlyPort"], Form::Number),
    ("register-node", &["registerNode"], Form::Truth),
    (
        "register-with-taints",
        &["registerWithTaints"],
        Form::Taints,
    ),
    ("resolv-conf", &["resolvConf"], Form::Text),
    ("rotate-certificates", &["rotateCertificates"], Form::Truth),
    (
        "rotate-server-certificates",
        &["serverTLSBootstrap"],
        Form::Truth,
    ),
    (
        "runtime-request-timeout",
        &["runtimeRequestTimeout"],
        Form::Text,
    ),
    ("seccomp-default", &["seccompDefault"], Form::Truth),
    (
        "serialize-image-pulls",
        &["serializeImagePulls"],
        Form::Truth,
    ),
    ("system-reserved", &["systemReserved"], Form::Pairs),
    (
        "system-reserved-cgroup",
        &["systemReservedCgroup"],
        Form::Text,
    ),
    ("sync-frequency", &["syncFrequency"], Form::Text),
    ("tls-cert-file", &["tlsCertFile"], Form::Text),
    ("tls-cipher-suites", &["tlsCipherSuites"], Form::List),
    ("tls-min-version", &["tlsMinVersion"], Form::Text),
    ("tls-private-key-file", &["tlsPrivateKeyFile"], Form::Text),
];

/// Whether a flag is true or false.
pub(super) fn is_truth(name: &str) -> bool {
    FLAGS
        .iter()
        .any(|(flag, _, form)| *flag == name && matches!(form, Form::Truth))
}

/// Puts a flag's value where the file has the field. A flag that is no field is somebody else's or of the past: it is
/// named and passed over, because lists of flags outlive kubelets.
pub(super) fn put_flag(file: &mut Value, name: &str, text: &str) -> Result<(), Error> {
    let Some((_, path, form)) = FLAGS.iter().find(|(flag, ..)| *flag == name) else {
        tracing::warn!("--{name} means nothing to this kubelet");
        return Ok(());
    };
    let wrong = |cause: &str| Error::Flag {
        flag: name.to_owned(),
        value: text.to_owned(),
        cause: cause.to_owned(),
    };
    let value = value_of(form, text).ok_or_else(|| wrong("it has another form"))?;
    let mut place = file;
    for step in *path {
        if !place.is_object() {
            *place = json!({});
        }
        place = &mut place[*step];
    }
    match (place.as_object_mut(), value) {
        // Gates alone are merged key by key.
        (Some(old), Value::Object(new)) if matches!(form, Form::Gates) => old.extend(new),
        (_, value) => *place = value,
    }
    Ok(())
}

fn value_of(form: &Form, text: &str) -> Option<Value> {
    let parts = || {
        text.split(',')
            .map(str::trim)
            .filter(|part| !part.is_empty())
    };
    let pairs = |separator: char| {
        let pair = |part: &str| {
            let (key, value) = part.split_once(separator)?;
            Some((key.to_owned(), Value::from(value)))
        };
        parts()
            .map(pair)
            .collect::<Option<serde_json::Map<_, _>>>()
            .map(Value::Object)
    };
    match form {
        Form::Text => Some(text.into()),
        Form::Number => text.parse::<i64>().ok().map(Into::into),
        Form::Truth => text.parse::<bool>().ok().map(Into::into),
        Form::List => Some(parts().collect::<Vec<_>>().into()),
        Form::Pairs => pairs('='),
        Form::Thresholds => pairs('<'),
        Form::Gates => {
            let gate = |part: &str| {
                let (key, value) = part.split_once('=')?;
                Some((key.to_owned(), Value::from(value.parse::<bool>().ok()?)))
            };
            parts()
                .map(gate)
                .collect::<Option<serde_json::Map<_, _>>>()
                .map(Value::Object)
        }
        Form::Taints => {
            let taint = |part: &str| {
                let (rest, effect) = part.rsplit_once(':')?;
                let (key, value) = rest.split_once('=').unwrap_or((rest, ""));
                Some(json!({"key": key, "value": value, "effect": effect}))
            };
            parts()
                .map(taint)
                .collect::<Option<Vec<_>>>()
                .map(Value::Array)
        }
    }
}
