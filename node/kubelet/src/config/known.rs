//! Which fields a `KubeletConfiguration` has: all that upstream's of 1.36 has, heeded here or not. A field that is not
//! among them is a mistake, and whoever made it wants to know.

use serde_json::Value;

/// Paths of fields. `[]` is each of a list, `{}` a map whose keys are free.
const FIELDS: &str = "
apiVersion kind
enableServer staticPodPath podLogsDir syncFrequency fileCheckFrequency httpCheckFrequency
staticPodURL staticPodURLHeader{} address port readOnlyPort
tlsCertFile tlsPrivateKeyFile tlsCipherSuites tlsCurvePreferences tlsMinVersion
rotateCertificates serverTLSBootstrap
authentication.x509.clientCAFile
authentication.webhook.enabled authentication.webhook.cacheTTL
authentication.anonymous.enabled
authorization.mode
authorization.webhook.cacheAuthorizedTTL authorization.webhook.cacheUnauthorizedTTL
registryPullQPS registryBurst imagePullCredentialsVerificationPolicy preloadedImagesVerificationAllowlist
eventRecordQPS eventBurst enableDebuggingHandlers enableContentionProfiling
healthzPort healthzBindAddress oomScoreAdj clusterDomain clusterDNS streamingConnectionIdleTimeout
nodeStatusUpdateFrequency nodeStatusReportFrequency nodeLeaseDurationSeconds
imageMinimumGCAge imageMaximumGCAge imageGCHighThresholdPercent imageGCLowThresholdPercent
volumeStatsAggPeriod kubeletCgroups systemCgroups cgroupRoot cgroupsPerQOS cgroupDriver
cpuManagerPolicy singleProcessOOMKill cpuManagerPolicyOptions{} cpuManagerReconcilePeriod memoryManagerPolicy
topologyManagerPolicy topologyManagerScope topologyManagerPolicyOptions{} qosReserved{}
runtimeRequestTimeout hairpinMode maxPods podCIDR podPidsLimit resolvConf runOnce
cpuCFSQuota cpuCFSQuotaPeriod nodeStatusMaxImages maxOpenFiles contentType kubeAPIQPS kubeAPIBurst
serializeImagePulls maxParallelImagePulls
evictionHard{} evictionSoft{} evictionSoftGracePeriod{} evictionPressureTransitionPeriod
evictionMaxPodGracePeriod evictionMinimumReclaim{} mergeDefaultEvictionSettings
podsPerCore enableControllerAttachDetach protectKernelDefaults
makeIPTablesUtilChains iptablesMasqueradeBit iptablesDropBit
featureGates{} failSwapOn memorySwap.swapBehavior
containerLogMaxSize containerLogMaxFiles containerLogMaxWorkers containerLogMonitorInterval
configMapAndSecretChangeDetectionStrategy
systemReserved{} kubeReserved{} reservedSystemCPUs showHiddenMetricsForVersion
systemReservedCgroup kubeReservedCgroup enforceNodeAllocatable allowedUnsafeSysctls
volumePluginDir providerID kernelMemcgNotification
logging.format logging.flushFrequency logging.verbosity
logging.vmodule[].filePattern logging.vmodule[].verbosity
logging.options.text.splitStream logging.options.text.infoBufferSize
logging.options.json.splitStream logging.options.json.infoBufferSize
enableSystemLogHandler enableSystemLogQuery
shutdownGracePeriod shutdownGracePeriodCriticalPods
shutdownGracePeriodByPodPriority[].priority shutdownGracePeriodByPodPriority[].shutdownGracePeriodSeconds
crashLoopBackOff.maxContainerRestartPeriod
reservedMemory[].numaNode reservedMemory[].limits{}
enableProfilingHandler enableDebugFlagsHandler seccompDefault memoryThrottlingFactor memoryReservationPolicy
registerWithTaints[].key registerWithTaints[].value registerWithTaints[].effect registerWithTaints[].timeAdded
registerNode tracing.endpoint tracing.samplingRatePerMillion localStorageCapacityIsolation
containerRuntimeEndpoint imageServiceEndpoint failCgroupV1 userNamespaces.idsPerPod
";

/// What is wrong with a file's fields, in upstream's words for it: not a `KubeletConfiguration`, or fields that it
/// does not have.
pub(super) fn check(value: &Value) -> Result<(), String> {
    let text = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("apiVersion"), text("kind"));
    if (version, kind) != ("kubelet.config.k8s.io/v1beta1", "KubeletConfiguration") {
        return Err(format!(
            "it is apiVersion {version:?}, kind {kind:?}; hint: a kubelet reads kubelet.config.k8s.io/v1beta1, \
             kind KubeletConfiguration"
        ));
    }
    let mut unknown = Vec::new();
    walk(value, "", "", &mut unknown);
    let unknown: Vec<String> = unknown
        .iter()
        .map(|path| format!("unknown field {path:?}"))
        .collect();
    match unknown.is_empty() {
        true => Ok(()),
        false => Err(format!("strict decoding error: {}", unknown.join(", "))),
    }
}

/// `shape` is the path as the table has it, `path` as people read it.
fn walk(value: &Value, shape: &str, path: &str, unknown: &mut Vec<String>) {
    let joined = |above: &str, name: &str| match above {
        "" => name.to_owned(),
        above => format!("{above}.{name}"),
    };
    match value {
        Value::Object(fields) => {
            for (name, inner) in fields {
                let (shape, path) = (joined(shape, name), joined(path, name));
                let free = format!("{shape}{{}}");
                let mut known = FIELDS.split_whitespace();
                if known.any(|field| field == shape || field == free) {
                    continue;
                }
                let below = [format!("{shape}."), format!("{shape}[]")];
                let mut known = FIELDS.split_whitespace();
                if known.any(|field| below.iter().any(|start| field.starts_with(start))) {
                    walk(inner, &shape, &path, unknown);
                } else {
                    unknown.push(path);
                }
            }
        }
        Value::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                walk(
                    inner,
                    &format!("{shape}[]"),
                    &format!("{path}[{at}]"),
                    unknown,
                );
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KubeletConfiguration;
    use serde_json::json;

    #[test]
    fn what_is_no_field_is_named_with_its_path() {
        let cases = [
            (
                json!({"maxPods": 1, "cpuManagerPolicyOptions": {"any": "x"}}),
                "",
            ),
            (json!({"maxPod": 1}), "unknown field \"maxPod\""),
            (
                json!({"authentication": {"anonymous": {"enable": true}}}),
                "unknown field \"authentication.anonymous.enable\"",
            ),
            (
                json!({"registerWithTaints": [{"key": "k"}, {"keys": "k"}], "MaxPods": 3}),
                "unknown field \"MaxPods\", unknown field \"registerWithTaints[1].keys\"",
            ),
            (json!({"evictionHard": {"memory.available": "1Mi"}}), ""),
        ];
        for (mut value, wrong) in cases {
            value["apiVersion"] = json!("kubelet.config.k8s.io/v1beta1");
            value["kind"] = json!("KubeletConfiguration");
            let found = check(&value).err().unwrap_or_default();
            let found = found.trim_start_matches("strict decoding error: ");
            assert_eq!(found, wrong);
        }
        let error =
            check(&json!({"apiVersion": "v1", "kind": "Pod"})).expect_err("no configuration");
        assert!(error.contains("kind \"Pod\""), "{error}");
    }

    #[test]
    fn every_field_that_is_heeded_is_known() {
        let mut value = serde_json::to_value(KubeletConfiguration::default()).expect("an object");
        value["apiVersion"] = json!("kubelet.config.k8s.io/v1beta1");
        value["kind"] = json!("KubeletConfiguration");
        value["registerWithTaints"] = json!([{"key": "", "value": "", "effect": ""}]);
        assert_eq!(check(&value), Ok(()));
    }
}
