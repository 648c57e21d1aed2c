//! kubectl's ways to create objects, their defaults, and what is refused.

use crate::harness::Kubectl;

#[test]
fn every_create_generator_makes_its_object() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let objects = [
        (
            "namespace team",
            "namespace/team created",
            "namespace team",
            ".status.phase",
            "Active",
        ),
        (
            "deployment web --image=i:1 --replicas=2",
            "deployment.apps/web created",
            "deployment web",
            ".spec.replicas",
            "2",
        ),
        (
            "job once --image=i:1",
            "job.batch/once created",
            "job once",
            ".spec.backoffLimit",
            "6",
        ),
        (
            "configmap cm --from-literal=a=b",
            "configmap/cm created",
            "configmap cm",
            ".data.a",
            "b",
        ),
        (
            "secret generic s --from-literal=a=b",
            "secret/s created",
            "secret s",
            ".data.a",
            "Yg==",
        ),
        (
            "serviceaccount sa",
            "serviceaccount/sa created",
            "serviceaccount sa",
            ".metadata.name",
            "sa",
        ),
        (
            "role r --verb=get --resource=pods",
            "role.rbac.authorization.k8s.io/r created",
            "role r",
            ".rules[0].verbs[0]",
            "get",
        ),
        (
            "rolebinding rb --role=r --serviceaccount=default:sa",
            "rolebinding.rbac.authorization.k8s.io/rb created",
            "rolebinding rb",
            ".subjects[0].name",
            "sa",
        ),
        (
            "quota q --hard=pods=3",
            "resourcequota/q created",
            "quota q",
            ".spec.hard.pods",
            "3",
        ),
        (
            "service nodeport np --tcp=80",
            "service/np created",
            "service np",
            ".spec.type",
            "NodePort",
        ),
        (
            "poddisruptionbudget p --selector=a=b --min-available=1",
            "poddisruptionbudget.policy/p created",
            "pdb p",
            ".spec.minAvailable",
            "1",
        ),
        (
            "priorityclass pc --value=7",
            "priorityclass.scheduling.k8s.io/pc created",
            "priorityclass pc",
            ".value",
            "7",
        ),
        (
            "ingress i --rule=a.example/*=web:80",
            "ingress.networking.k8s.io/i created",
            "ingress i",
            ".spec.rules[0].host",
            "a.example",
        ),
    ];
    for (words, said, what, path, value) in objects {
        kubectl.run(&format!("create {words}")).ok().prints(said);
        assert_eq!(kubectl.field(what, path), value, "{path} of {what}");
    }
    let cron = [
        "create",
        "cronjob",
        "nightly",
        "--image=i:1",
        "--schedule=0 3 * * *",
    ];
    kubectl
        .args(&cron)
        .ok()
        .prints("cronjob.batch/nightly created");
    assert_eq!(
        kubectl.field("cronjob nightly", ".spec.concurrencyPolicy"),
        "Allow"
    );
}

#[test]
fn creating_twice_conflicts() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl.run("create configmap one").ok();
    let again = kubectl.run("create configmap one").exits_with(1);
    again.complains(r#"error: failed to create configmap: configmaps "one" already exists"#);
}

#[test]
fn run_makes_a_pod_with_defaults_filled_in() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl
        .run("run web --image=registry.example/server --port=8080 --env=MODE=fast")
        .ok()
        .prints("pod/web created");
    let defaults = [
        (".spec.restartPolicy", "Always"),
        (".spec.containers[0].imagePullPolicy", "Always"),
        (
            ".spec.containers[0].terminationMessagePath",
            "/dev/termination-log",
        ),
        (".spec.dnsPolicy", "ClusterFirst"),
        (".spec.terminationGracePeriodSeconds", "30"),
        (".spec.schedulerName", "default-scheduler"),
        (".status.phase", "Pending"),
        (".status.qosClass", "BestEffort"),
        (".metadata.labels.run", "web"),
    ];
    for (path, value) in defaults {
        assert_eq!(kubectl.field("pod web", path), value, "{path}");
    }
}

#[test]
fn expose_makes_a_service_with_an_address() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl
        .run("create deployment web --image=i:1 --port=8080")
        .ok();
    kubectl
        .run("expose deployment web --port=80 --target-port=8080")
        .ok()
        .prints("service/web exposed");
    assert_eq!(kubectl.field("service web", ".spec.selector.app"), "web");
    let address = kubectl.field("service web", ".spec.clusterIP");
    assert!(
        address.parse::<std::net::Ipv4Addr>().is_ok(),
        "{address:?} is no address"
    );
    assert_eq!(kubectl.field("service web", ".spec.clusterIPs[0]"), address);
    kubectl
        .run("expose deployment web --name=second --port=81")
        .ok();
    assert_ne!(
        kubectl.field("service second", ".spec.clusterIP"),
        address,
        "two services share an address"
    );
}

#[test]
fn dry_runs_leave_nothing_behind() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    kubectl
        .run("create configmap cm --dry-run=client")
        .ok()
        .prints("configmap/cm created (dry run)");
    let created = kubectl
        .run("create configmap cm --dry-run=server -o json")
        .ok()
        .json();
    assert!(
        created["metadata"]["uid"].is_string(),
        "a server-side dry run fills the object in: {created}"
    );
    kubectl
        .run("get configmap cm")
        .exits_with(1)
        .complains("not found");
    kubectl.run("create configmap real --from-literal=a=b").ok();
    kubectl
        .run("label configmap real dry=yes --dry-run=server")
        .ok()
        .prints("labeled (server dry run)");
    assert_eq!(kubectl.field("configmap real", ".metadata.labels"), "");
    kubectl
        .run("delete configmap real --dry-run=server")
        .ok()
        .prints(r#"configmap "real" deleted"#)
        .prints("(server dry run)");
    kubectl.run("get configmap real").ok();
}

#[test]
fn mistakes_in_documents_are_named() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let deployment = |spec: &str| {
        format!(
            "{{apiVersion: apps/v1, kind: Deployment, metadata: {{name: web}}, spec: {{{spec}}}}}"
        )
    };
    let whole = "selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}}, spec: {containers: [{name: c, image: i}]}}";
    let mistakes = [
        (
            format!("replica: 3, {whole}"),
            r#"strict decoding error: unknown field "spec.replica""#,
        ),
        (
            format!("replicas: -1, {whole}"),
            "spec.replicas: Invalid value: -1: must be greater than or equal to 0",
        ),
        (
            whole.replace("{matchLabels: {a: b}}", "{matchLabels: {a: c}}"),
            "`selector` does not match template `labels`",
        ),
        (
            whole.replace("image: i", "image: ''"),
            "spec.template.spec.containers[0].image: Required value",
        ),
    ];
    for (spec, complaint) in mistakes {
        kubectl
            .with_input("create -f -", &deployment(&spec))
            .exits_with(1)
            .complains(complaint);
    }
    let ignored = deployment(&format!("replica: 3, {whole}"));
    kubectl
        .with_input("create --validate=ignore -f -", &ignored)
        .ok()
        .prints("deployment.apps/web created");
    let warned = ignored.replace("name: web", "name: warned");
    let warning = kubectl
        .with_input("create --validate=warn -f -", &warned)
        .ok();
    warning.complains(r#"Warning: unknown field "spec.replica""#);
}

#[test]
fn generated_names_are_unique() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let document =
        "{apiVersion: v1, kind: ConfigMap, metadata: {generateName: made-, labels: {made: 'yes'}}}";
    let names: std::collections::HashSet<String> = (0..5)
        .map(|_| {
            kubectl
                .with_input("create -f - -o name", document)
                .ok()
                .stdout
        })
        .collect();
    assert_eq!(names.len(), 5, "{names:?}");
    assert!(
        names
            .iter()
            .all(|name| name.trim().len() == "configmap/made-".len() + 5),
        "{names:?}"
    );
}

#[test]
fn nothing_is_created_in_a_namespace_that_is_not_there() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let refusal = kubectl.run("-n nowhere create configmap cm").exits_with(1);
    refusal.complains(r#"namespaces "nowhere" not found"#);
}
