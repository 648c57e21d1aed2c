//! Whole manifests through normal form, defaults and validation, as the API server does it.

use serde_json::{Value, json};

/// A web service as people write them: probes, volumes, affinity, limits, a sidecar.
const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: shop, labels: {app.kubernetes.io/name: web}}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  strategy: {type: RollingUpdate, rollingUpdate: {maxSurge: 1, maxUnavailable: 0}}
  template:
    metadata:
      labels: {app: web}
      annotations: {prometheus.io/scrape: "true"}
    spec:
      serviceAccountName: web
      securityContext: {runAsNonRoot: true, fsGroup: 2000, seccompProfile: {type: RuntimeDefault}}
      initContainers:
      - {name: migrate, image: "registry.example.com/shop/web:1.4", args: [migrate]}
      - name: proxy
        image: envoyproxy/envoy:v1.30
        restartPolicy: Always
        startupProbe: {tcpSocket: {port: 9901}}
      containers:
      - name: web
        image: registry.example.com/shop/web:1.4
        ports: [{name: http, containerPort: 8080}, {name: metrics, containerPort: 9090}]
        env:
        - {name: POD_IP, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        - {name: PASSWORD, valueFrom: {secretKeyRef: {name: db, key: password}}}
        - {name: CPUS, valueFrom: {resourceFieldRef: {resource: limits.cpu}}}
        envFrom: [{configMapRef: {name: web}}]
        resources: {requests: {cpu: 100m, memory: 128Mi}, limits: {cpu: 1, memory: 256Mi}}
        livenessProbe: {httpGet: {path: /healthz, port: http}, initialDelaySeconds: 5}
        readinessProbe: {httpGet: {path: /ready, port: 8080}, successThreshold: 2}
        lifecycle: {preStop: {sleep: {seconds: 5}}}
        securityContext: {allowPrivilegeEscalation: false, capabilities: {drop: [ALL]}}
        volumeMounts:
        - {name: config, mountPath: /etc/web, readOnly: true}
        - {name: tmp, mountPath: /tmp, subPath: web}
      volumes:
      - {name: config, configMap: {name: web, items: [{key: web.yaml, path: web.yaml}]}}
      - {name: tmp, emptyDir: {medium: Memory, sizeLimit: 64Mi}}
      affinity:
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            podAffinityTerm: {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: web}}}
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: ScheduleAnyway, labelSelector: {matchLabels: {app: web}}}
      tolerations: [{key: dedicated, operator: Equal, value: shop, effect: NoSchedule}]
"#;

const POD: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: toolbox, namespace: default}
spec:
  hostNetwork: true
  dnsPolicy: ClusterFirstWithHostNet
  nodeSelector: {kubernetes.io/os: linux}
  os: {name: linux}
  containers:
  - name: shell
    image: busybox
    command: [sleep, infinity]
    stdin: true
    ports: [{containerPort: 10250}]
    securityContext: {privileged: true}
    volumeMounts: [{name: root, mountPath: /host, mountPropagation: Bidirectional}]
  volumes: [{name: root, hostPath: {path: /}}]
"#;

const STATEFUL_SET: &str = r#"
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db, namespace: shop}
spec:
  serviceName: db
  replicas: 3
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec:
      terminationGracePeriodSeconds: 60
      containers:
      - name: postgres
        image: postgres:17
        ports: [{containerPort: 5432, name: postgres}]
        volumeMounts: [{name: data, mountPath: /var/lib/postgresql}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], storageClassName: managed-csi, resources: {requests: {storage: 10Gi}}}
"#;

const DAEMON_SET: &str = r#"
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent, namespace: kube-system}
spec:
  selector: {matchLabels: {app: agent}}
  updateStrategy: {rollingUpdate: {maxUnavailable: 10%}}
  template:
    metadata: {labels: {app: agent}}
    spec:
      priorityClassName: system-node-critical
      tolerations: [{operator: Exists}]
      containers:
      - {name: agent, image: "agent:v2", volumeMounts: [{name: run, mountPath: /run}]}
      volumes: [{name: run, hostPath: {path: /run, type: Directory}}]
"#;

const JOB: &str = r#"
apiVersion: batch/v1
kind: Job
metadata: {name: import, namespace: shop, uid: 5f0c}
spec:
  completions: 10
  parallelism: 3
  completionMode: Indexed
  backoffLimitPerIndex: 1
  ttlSecondsAfterFinished: 100
  podFailurePolicy:
    rules: [{action: FailIndex, onExitCodes: {operator: In, values: [1, 42]}}]
  selector: {matchLabels: {batch.kubernetes.io/controller-uid: 5f0c}}
  template:
    metadata:
      labels:
        controller-uid: 5f0c
        batch.kubernetes.io/controller-uid: 5f0c
        job-name: import
        batch.kubernetes.io/job-name: import
    spec:
      restartPolicy: Never
      containers: [{name: import, image: "import:1"}]
"#;

const CRON_JOB: &str = r#"
apiVersion: batch/v1
kind: CronJob
metadata: {name: report, namespace: shop}
spec:
  schedule: "15 3 * * mon-fri"
  timeZone: UTC
  concurrencyPolicy: Forbid
  jobTemplate:
    spec:
      template:
        spec:
          restartPolicy: OnFailure
          containers: [{name: report, image: "report:1"}]
"#;

fn built_in(resource: &kinds::resources::Resource) -> objects::schema::TypeRef {
    resource.ty.built_in().expect("a type of the table")
}

fn decoded(manifest: &str) -> (&'static kinds::resources::Resource, Value) {
    let value = objects::yaml::parse(manifest.as_bytes())
        .expect("good YAML")
        .value;
    let text = |name: &str| value[name].as_str().expect("a text").to_owned();
    let (api_version, kind) = (text("apiVersion"), text("kind"));
    let (group, version) = api_version.split_once('/').unwrap_or(("", &api_version));
    let resource = kinds::resources::find_kind(group, version, &kind).expect("a served kind");
    let normalized =
        objects::normalize::normalize(built_in(resource), value).expect("a good object");
    assert_eq!(normalized.unknown, Vec::<String>::new());
    let mut object = normalized.value;
    kinds::defaults::apply(built_in(resource), &mut object);
    (resource, object)
}

#[test]
fn good_manifests_have_no_errors() {
    for manifest in [DEPLOYMENT, POD, STATEFUL_SET, DAEMON_SET, JOB, CRON_JOB] {
        let (resource, object) = decoded(manifest);
        let errors = kinds::validation::create(resource, &object);
        assert_eq!(errors.0, Vec::new(), "{}", resource.kind);
        let errors = kinds::validation::update(resource, &object, &object, "");
        assert_eq!(errors.0, Vec::new(), "update of {}", resource.kind);
        let errors = kinds::validation::update(resource, &object, &object, "status");
        assert_eq!(errors.0, Vec::new(), "status of {}", resource.kind);
    }
}

#[test]
fn defaults_keep_the_normal_form() {
    for manifest in [DEPLOYMENT, POD, STATEFUL_SET, DAEMON_SET, JOB, CRON_JOB] {
        let (resource, object) = decoded(manifest);
        let again =
            objects::normalize::normalize(built_in(resource), object.clone()).expect("still good");
        assert_eq!(again.value, object, "{}", resource.kind);
    }
}

#[test]
fn a_privileged_pod_gets_what_kubectl_shows() {
    let (_, pod) = decoded(POD);
    assert_eq!(
        pod["spec"],
        json!({
            "hostNetwork": true, "dnsPolicy": "ClusterFirstWithHostNet",
            "nodeSelector": {"kubernetes.io/os": "linux"}, "os": {"name": "linux"},
            "enableServiceLinks": true, "restartPolicy": "Always",
            "schedulerName": "default-scheduler", "securityContext": {},
            "terminationGracePeriodSeconds": 30,
            "containers": [{
                "name": "shell", "image": "busybox", "imagePullPolicy": "Always",
                "command": ["sleep", "infinity"], "stdin": true, "resources": {},
                "ports": [{"containerPort": 10250, "hostPort": 10250, "protocol": "TCP"}],
                "securityContext": {"privileged": true},
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "volumeMounts": [
                    {"name": "root", "mountPath": "/host", "mountPropagation": "Bidirectional"}
                ]
            }],
            "volumes": [{"name": "root", "hostPath": {"path": "/", "type": ""}}]
        })
    );
}

#[test]
fn every_problem_of_a_bad_pod_is_told_at_once() {
    let (resource, mut pod) = decoded(POD);
    let container = &mut pod["spec"]["containers"][0];
    container["name"] = json!("Shell");
    container["image"] = json!("");
    container["securityContext"] = json!({});
    container["volumeMounts"][0]["name"] = json!("missing");
    pod["spec"]["restartPolicy"] = json!("Sometimes");
    let errors = kinds::validation::create(resource, &pod);
    let fields: Vec<&str> = errors.0.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(
        fields,
        [
            "spec.containers[0].name",
            "spec.containers[0].image",
            "spec.containers[0].volumeMounts[0].name",
            "spec.containers[0].volumeMounts.mountPropagation",
            "spec.restartPolicy",
        ]
    );
}
