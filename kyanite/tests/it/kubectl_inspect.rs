//! `kubectl describe`, `explain`, and the commands that show what the server offers.

use crate::harness::Kubectl;

const DEPLOYMENT: &str = r#"
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, labels: {app: web}}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers:
      - name: server
        image: registry.example/server:1.0
        ports: [{containerPort: 8080}]
        resources: {requests: {cpu: 100m, memory: 64Mi}}
"#;

const SERVICE: &str = r#"
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
"#;

const NODE: &str = r#"
apiVersion: v1
kind: Node
metadata: {name: node-1, labels: {kubernetes.io/hostname: node-1}}
spec: {taints: [{key: dedicated, value: web, effect: NoSchedule}]}
"#;

const POD_ON_NODE: &str = r#"
apiVersion: v1
kind: Pod
metadata: {name: worker, labels: {app: worker}}
spec:
  nodeName: node-1
  containers:
  - name: main
    image: registry.example/worker:1.0
    env: [{name: MODE, value: fast}]
    resources: {requests: {cpu: 250m}}
"#;

#[test]
fn describe_tells_the_story_of_each_kind() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    for document in [DEPLOYMENT, SERVICE, NODE, POD_ON_NODE] {
        kubectl.create(document);
    }
    kubectl
        .run("create configmap settings --from-literal=colour=red")
        .ok();
    kubectl
        .run("create secret generic token --from-literal=key=value")
        .ok();
    // Columns are as wide as the widest line needs, so white space is not part of the contract.
    let stories: [(&str, &[&str]); 7] = [
        (
            "pod worker",
            &[
                "Name: worker",
                "Node: node-1/",
                "MODE: fast",
                "cpu: 250m",
                "QoS Class: Burstable",
            ],
        ),
        (
            "deployment web",
            &[
                "Replicas: 2 desired",
                "StrategyType: RollingUpdate",
                "Selector: app=web",
                "cpu: 100m",
            ],
        ),
        (
            "service web",
            &[
                "Type: ClusterIP",
                "Port: http 80/TCP",
                "TargetPort: 8080/TCP",
                "Selector: app=web",
            ],
        ),
        (
            "node node-1",
            &["Taints: dedicated=web:NoSchedule", "default worker 250m"],
        ),
        ("configmap settings", &["colour: ---- red"]),
        ("secret token", &["Type: Opaque", "key: 5 bytes"]),
        ("namespace default", &["Name: default", "Status: Active"]),
    ];
    for (what, lines) in stories {
        let described = kubectl.run(&format!("describe {what}")).ok();
        let words = described
            .stdout
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ");
        for line in lines {
            assert!(words.contains(line), "no {line:?} in {described}");
        }
    }
}

#[test]
fn describe_shows_the_events_of_an_object() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.create(POD_ON_NODE);
    let uid = kubectl
        .run("get pod worker -o jsonpath={.metadata.uid}")
        .ok()
        .stdout;
    kubectl.create(&format!(
        "{{apiVersion: v1, kind: Event, metadata: {{name: worker.1}}, type: Warning, reason: Pulled, \
         message: the image was late, involvedObject: {{apiVersion: v1, kind: Pod, namespace: default, \
         name: worker, uid: {uid}}}, source: {{component: tester}}, count: 1, \
         firstTimestamp: '2026-01-01T00:00:00Z', lastTimestamp: '2026-01-01T00:00:00Z'}}"
    ));
    kubectl
        .run("describe pod worker")
        .ok()
        .prints("Warning  Pulled")
        .prints("the image was late");
    kubectl
        .run("get events")
        .ok()
        .has_columns("LAST SEEN|TYPE|REASON|OBJECT|MESSAGE");
    kubectl
        .run("events --for pod/worker")
        .ok()
        .prints("the image was late");
}

#[test]
fn explain_reads_the_schema_of_any_field() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let fields = [
        ("pod", "KIND:       Pod", "spec\t<PodSpec>"),
        (
            "pod.spec.containers",
            "FIELD: containers <[]Container>",
            "image\t<string>",
        ),
        ("deployment", "GROUP:      apps", "spec\t<DeploymentSpec>"),
        (
            "deployment.spec.strategy.rollingUpdate.maxSurge",
            "FIELD: maxSurge <IntOrString>",
            "VERSION:    v1",
        ),
        (
            "service.spec.type",
            "FIELD: type <string>",
            "KIND:       Service",
        ),
    ];
    for (path, first, second) in fields {
        kubectl
            .run(&format!("explain {path}"))
            .ok()
            .prints(first)
            .prints(second);
    }
    let refusal = kubectl.run("explain pod.spec.wings").exits_with(1);
    refusal.complains(r#"field "wings" does not exist"#);
}

#[test]
fn explain_recursive_walks_the_whole_tree() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let tree = kubectl.run("explain cronjob --recursive").ok();
    let deep = tree
        .prints("jobTemplate\t<JobTemplateSpec>")
        .prints("terminationGracePeriodSeconds\t<integer>");
    assert!(deep.stdout.lines().count() > 500, "{deep}");
}

#[test]
fn the_api_can_be_discovered() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let versions = kubectl.run("api-versions").ok();
    for version in [
        "v1",
        "apps/v1",
        "batch/v1",
        "coordination.k8s.io/v1",
        "rbac.authorization.k8s.io/v1",
    ] {
        assert!(
            versions.stdout.lines().any(|line| line == version),
            "no {version} in {versions}"
        );
    }
    let resources = kubectl
        .run("api-resources")
        .ok()
        .has_columns("NAME|SHORTNAMES|APIVERSION|NAMESPACED|KIND");
    assert_eq!(
        resources.row("deployments")[1..],
        ["deploy", "apps/v1", "true", "Deployment"]
    );
    assert_eq!(resources.row("nodes")[1..], ["no", "v1", "false", "Node"]);
    assert_eq!(
        resources.row("leases")[1..],
        ["coordination.k8s.io/v1", "true", "Lease"]
    );
    kubectl
        .run("api-resources --api-group=batch -o name")
        .ok()
        .prints_only("cronjobs.batch\njobs.batch");
    kubectl.run("get all").ok();
    kubectl.run("get po,svc,cm,deploy,rs,sts,ds,no,ns,sa,pv,pvc,ev,hpa,cj,ing,netpol,pdb,sc,pc,quota,limits").ok();
}

#[test]
fn version_and_cluster_info_name_the_server() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let version = kubectl.run("version -o json").ok().json();
    assert_eq!(version["serverVersion"]["major"], "1");
    assert_eq!(version["serverVersion"]["minor"], "36");
    let info = kubectl.run("cluster-info").ok();
    info.prints(&format!(
        "is running at https://127.0.0.1:{}",
        kubectl.server.port()
    ));
}

#[test]
fn health_endpoints_answer_and_itemise() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    for path in ["/healthz", "/livez", "/readyz"] {
        kubectl
            .run(&format!("get --raw {path}"))
            .ok()
            .prints_only("ok");
        kubectl
            .run(&format!("get --raw {path}?verbose"))
            .ok()
            .prints("[+]ping ok")
            .prints("check passed");
    }
    kubectl.run("get --raw /metrics").ok().prints("# TYPE");
}
