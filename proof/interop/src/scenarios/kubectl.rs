//! What people do with kubectl all day.

use anyhow::{Result, ensure};

use crate::cluster::Cluster;
use crate::kubectl::Kubectl;

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
      containers: [{name: web, image: "example.com/web:1", ports: [{containerPort: 80}]}]
"#;

/// Everything in turn.
pub(crate) fn run(cluster: &mut Cluster<'_>) -> Result<()> {
    let kubectl = &cluster.kubectl;
    creates_and_reads(kubectl)?;
    watches(kubectl)?;
    patches(kubectl)?;
    applies(kubectl)?;
    applies_on_the_server(kubectl)?;
    scales_and_waits(kubectl)?;
    asks_who_may(kubectl)?;
    deletes(kubectl)
}

fn creates_and_reads(kubectl: &Kubectl) -> Result<()> {
    kubectl.run("create configmap settings --from-literal=a=1")?;
    kubectl.expect("get configmap settings", "{.data.a}", "1")?;
    kubectl.refused(
        "create configmap settings --from-literal=a=1",
        "configmaps \"settings\" already exists",
    )?;
    kubectl.refused(
        "get configmap none",
        "(NotFound): configmaps \"none\" not found",
    )?;
    let table = kubectl.run("get configmaps settings")?;
    let columns: Vec<&str> = table
        .lines()
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    ensure!(
        columns == ["NAME", "DATA", "AGE"],
        "columns of get configmaps: {columns:?}"
    );
    kubectl.run("get configmaps -A --chunk-size=1 -o name")?;
    let explained = kubectl.run("explain deployment.spec.strategy")?;
    ensure!(explained.contains("rollingUpdate"), "explain: {explained}");
    let resources = kubectl.run("api-resources --verbs=list -o name")?;
    ensure!(
        resources.lines().any(|name| name == "deployments.apps"),
        "api-resources: {resources}"
    );
    kubectl.run("describe configmap settings").map(drop)
}

fn watches(kubectl: &Kubectl) -> Result<()> {
    let fields = "{.type} {.object.metadata.name} {.object.data.a}";
    let words = "configmaps -l watched=yes --watch";
    kubectl.run("label configmap settings watched=yes")?;
    let mut watching = kubectl.watch("watch", words, fields)?;
    watching.says(&["ADDED settings 1"])?;
    let patch = r#"{"data":{"a":"2"}}"#;
    kubectl.args(&[
        "patch",
        "configmap",
        "settings",
        "--type=merge",
        "-p",
        patch,
    ])?;
    // What leaves the selection is gone for this watch.
    kubectl.run("label configmap settings watched-")?;
    watching.says(&[
        "ADDED settings 1",
        "MODIFIED settings 2",
        "DELETED settings 2",
    ])
}

fn patches(kubectl: &Kubectl) -> Result<()> {
    kubectl.with_input("create -f -", DEPLOYMENT)?;
    for (kind, patch) in [
        (
            "strategic",
            r#"{"spec":{"template":{"spec":{"containers":[{"name":"web","env":[{"name":"A","value":"1"}]}]}}}}"#,
        ),
        ("merge", r#"{"metadata":{"annotations":{"by":"merge"}}}"#),
        (
            "json",
            r#"[{"op":"replace","path":"/spec/replicas","value":3}]"#,
        ),
    ] {
        kubectl.args(&["patch", "deployment", "web", "--type", kind, "-p", patch])?;
    }
    // The strategic patch merged the container by its name: the image is still there.
    kubectl.expect(
        "get deployment web",
        "{.spec.template.spec.containers[*].image}",
        "example.com/web:1",
    )?;
    kubectl.expect(
        "get deployment web",
        "{.spec.template.spec.containers[0].env[0].value}",
        "1",
    )?;
    kubectl.expect("get deployment web", "{.metadata.annotations.by}", "merge")?;
    kubectl.expect("get deployment web", "{.spec.replicas}", "3")?;
    kubectl.run("label deployment web tier=front")?;
    kubectl.expect(
        "get deployments -l tier=front",
        "{.items[*].metadata.name}",
        "web",
    )?;
    kubectl.run("delete deployment web").map(drop)
}

fn applies(kubectl: &Kubectl) -> Result<()> {
    let first = kubectl.with_input("apply -f -", DEPLOYMENT)?;
    ensure!(first.contains("created"), "first apply: {first}");
    let again = kubectl.with_input("apply -f -", DEPLOYMENT)?;
    ensure!(again.contains("unchanged"), "apply of the same: {again}");
    let same = kubectl.diff(DEPLOYMENT)?;
    ensure!(same.is_empty(), "diff of the same: {same}");
    let newer = DEPLOYMENT.replace("web:1", "web:2");
    let differs = kubectl.diff(&newer)?;
    let lines = [
        "-      - image: example.com/web:1",
        "+      - image: example.com/web:2",
    ];
    ensure!(
        lines.iter().all(|line| differs.lines().any(|l| l == *line)),
        "diff of another image: {differs}"
    );
    let dry = kubectl.with_input("apply --dry-run=server -f -", &newer)?;
    ensure!(
        dry.contains("configured (server dry run)"),
        "dry run: {dry}"
    );
    kubectl.expect(
        "get deployment web",
        "{.spec.template.spec.containers[0].image}",
        "example.com/web:1",
    )?;
    kubectl.with_input("apply -f -", &newer)?;
    kubectl.expect(
        "get deployment web",
        "{.spec.template.spec.containers[0].image}",
        "example.com/web:2",
    )?;
    let invalid = DEPLOYMENT.replace("replicas: 2", "replicas: -1");
    let refused = kubectl.with_input("apply -f -", &invalid);
    let said = refused
        .err()
        .map(|error| format!("{error:#}"))
        .unwrap_or_default();
    ensure!(
        said.contains("spec.replicas: Invalid value: -1"),
        "apply of nonsense: {said:?}"
    );
    Ok(())
}

fn applies_on_the_server(kubectl: &Kubectl) -> Result<()> {
    let document = |value: &str| {
        format!(
            "{{apiVersion: v1, kind: ConfigMap, metadata: {{name: shared}}, data: {{k: {value}}}}}"
        )
    };
    kubectl.with_input(
        "apply --server-side --field-manager=one -f -",
        &document("a"),
    )?;
    let conflict = kubectl.with_input(
        "apply --server-side --field-manager=two -f -",
        &document("b"),
    );
    let said = conflict
        .err()
        .map(|error| format!("{error:#}"))
        .unwrap_or_default();
    ensure!(
        said.contains("conflict with \"one\""),
        "apply of another's field: {said:?}"
    );
    kubectl.with_input(
        "apply --server-side --field-manager=two --force-conflicts -f -",
        &document("b"),
    )?;
    kubectl.expect("get configmap shared", "{.data.k}", "b")?;
    kubectl.expect(
        "get configmap shared --show-managed-fields",
        "{.metadata.managedFields[*].manager}",
        "two",
    )
}

fn scales_and_waits(kubectl: &Kubectl) -> Result<()> {
    kubectl.run("scale deployment web --replicas=5")?;
    kubectl.expect("get deployment web", "{.spec.replicas}", "5")?;
    let status = r#"{"status":{"conditions":[{"type":"Available","status":"True"}],"replicas":5}}"#;
    kubectl.args(&[
        "patch",
        "deployment",
        "web",
        "--subresource=status",
        "--type=merge",
        "-p",
        status,
    ])?;
    kubectl.run("wait --for=condition=Available --timeout=20s deployment/web")?;
    kubectl.run("wait --for=jsonpath={.status.replicas}=5 --timeout=20s deployment/web")?;
    kubectl.run("expose deployment web --port=80")?;
    let address = kubectl.run("get service web -o jsonpath={.spec.clusterIP}")?;
    ensure!(
        address.starts_with("10.96."),
        "address of the service: {address:?}"
    );
    Ok(())
}

fn asks_who_may(kubectl: &Kubectl) -> Result<()> {
    kubectl.run("create serviceaccount reader")?;
    kubectl.run("create role reader --verb=get,list --resource=configmaps")?;
    kubectl.run("create rolebinding reader --role=reader --serviceaccount=default:reader")?;
    let reader = "--as=system:serviceaccount:default:reader";
    let may = kubectl.run(&format!("auth can-i list configmaps {reader}"))?;
    ensure!(may.trim() == "yes", "may list: {may:?}");
    kubectl.refused(
        &format!("delete configmap settings {reader}"),
        "cannot delete resource \"configmaps\"",
    )?;
    let token = kubectl.run("create token reader")?;
    let by_token = format!("--token={} get configmap settings -o name", token.trim());
    let named = kubectl.run(&by_token)?;
    ensure!(named.trim() == "configmap/settings", "by token: {named:?}");
    Ok(())
}

fn deletes(kubectl: &Kubectl) -> Result<()> {
    kubectl.run("delete deployment/web service/web configmap/shared --timeout=20s")?;
    kubectl.run("wait --for=delete deployment/web --timeout=20s")?;
    kubectl.run("delete configmaps,roles,rolebindings --all --timeout=20s")?;
    kubectl.refused("get configmap settings", "(NotFound)")
}
