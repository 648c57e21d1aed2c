//! Custom resources from their definition to their end, as kubectl sees them.

use crate::harness::{Kubectl, eventually};

const DEFINITION: &str = r#"
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: lanterns.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: lanterns, singular: lantern, kind: Lantern, shortNames: [lt], categories: [lights]}
  versions:
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas}
    selectableFields: [{jsonPath: .spec.color}]
    additionalPrinterColumns:
    - {name: Color, type: string, jsonPath: .spec.color}
    - {name: Lit, type: integer, jsonPath: .spec.replicas}
    schema:
      openAPIV3Schema:
        type: object
        description: A lantern shows the way.
        properties:
          spec:
            type: object
            required: [color]
            properties:
              color: {type: string, description: What light it gives., enum: [red, green]}
              replicas: {type: integer, minimum: 0, default: 2}
              lamps:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items:
                  type: object
                  required: [name]
                  properties: {name: {type: string}, watts: {type: integer}}
          status:
            type: object
            properties: {replicas: {type: integer}}
  - name: v1alpha1
    served: true
    storage: false
    deprecated: true
    schema:
      openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}
"#;

fn lantern(name: &str, spec: &str) -> String {
    format!(
        "{{apiVersion: example.com/v1, kind: Lantern, metadata: {{name: {name}}}, spec: {{{spec}}}}}\n"
    )
}

fn defined() -> Option<Kubectl> {
    let kubectl = Kubectl::without_workloads()?;
    kubectl.with_input("apply -f -", DEFINITION).ok();
    kubectl
        .run("wait --for=condition=Established --timeout=30s crd/lanterns.example.com")
        .ok();
    Some(kubectl)
}

#[test]
fn a_definition_brings_a_resource_that_kubectl_can_use() {
    let Some(kubectl) = defined() else {
        return;
    };
    kubectl
        .run("api-resources --api-group=example.com")
        .ok()
        .prints("lanterns");
    kubectl.create(&lantern("hall", "color: red"));
    kubectl.run("get lt").ok().has_columns("NAME|COLOR|LIT");
    assert_eq!(
        kubectl.run("get lights").ok().row("hall"),
        ["hall", "red", "2"]
    );
    assert_eq!(kubectl.field("lantern hall", ".metadata.generation"), "1");
    kubectl
        .run("get lanterns.v1alpha1.example.com hall -o yaml")
        .ok()
        .prints("apiVersion: example.com/v1alpha1");
    kubectl
        .args(&[
            "patch",
            "lantern",
            "hall",
            "--type=merge",
            "-p",
            r#"{"spec":{"color":"green"}}"#,
        ])
        .ok();
    assert_eq!(kubectl.field("lantern hall", ".metadata.generation"), "2");
    kubectl
        .run("get lanterns --field-selector spec.color=green -o name")
        .ok()
        .prints("hall");
    kubectl
        .run("get lanterns --field-selector spec.color=red -o name")
        .ok()
        .prints_only("");
    kubectl.run("delete lantern hall").ok();
    kubectl
        .run("get lanterns")
        .ok()
        .complains("No resources found");
}

#[test]
fn objects_are_judged_by_their_schema() {
    let Some(kubectl) = defined() else {
        return;
    };
    let create = |spec: &str| kubectl.with_input("create -f -", &lantern("bad", spec));
    create("color: blue")
        .exits_with(1)
        .complains("spec.color: Unsupported value: \"blue\": supported values: \"red\", \"green\"");
    create("replicas: 1")
        .exits_with(1)
        .complains("spec.color: Required value");
    create("color: red, replicas: -1")
        .exits_with(1)
        .complains("spec.replicas in body should be greater than or equal to 0");
    create("color: red, size: 3")
        .exits_with(1)
        .complains("unknown field \"spec.size\"");
    kubectl
        .with_input(
            "create --validate=false -f -",
            &lantern("odd", "color: red, size: 3"),
        )
        .ok();
    assert_eq!(kubectl.field("lantern odd", ".spec.size"), "");
}

#[test]
fn an_explanation_comes_from_the_schema() {
    let Some(kubectl) = defined() else {
        return;
    };
    kubectl
        .run("explain lantern")
        .ok()
        .prints("A lantern shows the way.");
    kubectl
        .run("explain lantern.spec.color")
        .ok()
        .prints("What light it gives.");
    kubectl
        .run("get --raw /openapi/v2")
        .ok()
        .prints("com.example.v1.Lantern");
}

#[test]
fn status_and_scale_have_endpoints_of_their_own() {
    let Some(kubectl) = defined() else {
        return;
    };
    kubectl.create(&lantern("hall", "color: red"));
    kubectl.run("scale lantern hall --replicas=5").ok();
    assert_eq!(kubectl.field("lantern hall", ".spec.replicas"), "5");
    kubectl
        .args(&[
            "patch",
            "lantern",
            "hall",
            "--subresource=status",
            "--type=merge",
            "-p",
            r#"{"status":{"replicas":4},"spec":{"color":"green"}}"#,
        ])
        .ok();
    assert_eq!(kubectl.field("lantern hall", ".status.replicas"), "4");
    assert_eq!(kubectl.field("lantern hall", ".spec.color"), "red");
    kubectl
        .run("get --raw /apis/example.com/v1/namespaces/default/lanterns/hall/scale")
        .ok()
        .prints("\"replicas\":5");
}

#[test]
fn keyed_lists_belong_to_several_appliers() {
    let Some(kubectl) = defined() else {
        return;
    };
    let apply = |manager: &str, spec: &str| {
        let words = format!("apply --server-side --field-manager={manager} -f -");
        kubectl.with_input(&words, &lantern("hall", spec)).ok()
    };
    apply("one", "color: red, lamps: [{name: a, watts: 1}]");
    apply("two", "color: red, lamps: [{name: b, watts: 2}]");
    assert_eq!(kubectl.field("lantern hall", ".spec.lamps[*].name"), "a b");
    apply("one", "color: red");
    assert_eq!(kubectl.field("lantern hall", ".spec.lamps[*].name"), "b");
}

#[test]
fn a_definition_takes_its_instances_along_and_can_come_back() {
    let Some(kubectl) = defined() else {
        return;
    };
    kubectl.create(&lantern("hall", "color: red"));
    kubectl.run("delete crd lanterns.example.com").ok();
    kubectl.run("get lanterns").exits_with(1);
    kubectl.with_input("apply -f -", DEFINITION).ok();
    eventually("the resource is served again, empty", || {
        let list = kubectl.run("get --raw /apis/example.com/v1/lanterns");
        match list.stdout.contains("\"items\":[]") {
            true => Ok(()),
            false => Err(list.stdout.clone()),
        }
    });
}

#[test]
fn schemas_that_are_not_structural_are_refused() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let broken = DEFINITION.replace("color: {type: string, ", "color: {");
    kubectl
        .with_input("create -f -", &broken)
        .exits_with(1)
        .complains(
            "properties[color].type: Required value: must not be empty for specified object fields",
        );
}

#[test]
fn the_protobuf_form_of_openapi_has_custom_resources_too() {
    let Some(kubectl) = defined() else {
        return;
    };
    // This is the form that this printer of kubectl reads.
    kubectl
        .run("explain lantern.spec.color --output=plaintext-openapiv2")
        .ok()
        .prints("What light it gives.");
    kubectl
        .run("explain pod.spec.nodeName --output=plaintext-openapiv2")
        .ok()
        .prints("nodeName");
}

#[test]
fn rules_that_may_cost_too_much_are_refused_with_their_definition() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let lamps = |bounds: &str| {
        let rule = format!(
            "lamps:\n                {bounds}x-kubernetes-validations: [{{rule: 'self.all(x, self.all(y, x.name == y.name))'}}]"
        );
        DEFINITION.replace("lamps:", &rule)
    };
    kubectl
        .with_input("create -f -", &lamps(""))
        .exits_with(1)
        .complains("estimated rule cost exceeds budget by factor of more than 100x (try simplifying the rule")
        .complains("estimated rule cost total for entire OpenAPIv3 schema exceeds budget");
    let bounded = lamps("maxItems: 10\n                ").replace(
        "{name: {type: string}, watts",
        "{name: {type: string, maxLength: 20}, watts",
    );
    kubectl.with_input("create -f -", &bounded).ok();
}
