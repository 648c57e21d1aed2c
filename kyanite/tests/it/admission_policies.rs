//! Admission policies, as kubectl's user meets them: in force as soon as their creation is answered.

use crate::harness::{Kubectl, eventually};

const RULES: &str = r#""matchConstraints":{"resourceRules":[{"apiGroups":["apps"],"apiVersions":["v1"],
    "operations":["CREATE","UPDATE"],"resources":["deployments"]}]}"#;

fn policy(kind: &str, name: &str, spec: &str) -> String {
    format!(
        r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"{kind}","metadata":{{"name":"{name}"}},
            "spec":{{{RULES},{spec}}}}}"#
    )
}

fn binding(kind: &str, name: &str, more: &str) -> String {
    format!(
        r#"{{"apiVersion":"admissionregistration.k8s.io/v1","kind":"{kind}Binding","metadata":{{"name":"{name}"}},
            "spec":{{"policyName":"{name}"{more}}}}}"#
    )
}

#[test]
fn a_policy_denies_warns_and_lets_go() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let kind = "ValidatingAdmissionPolicy";
    let spec = r#""variables":[{"name":"n","expression":"object.spec.replicas"}],
        "validations":[{"expression":"variables.n > 1","messageExpression":"'wants more than ' + string(variables.n)"}]"#;
    kubectl.create(&policy(kind, "few", spec)).ok();
    kubectl.run("create deployment before --image=i").ok();
    let deny = r#","validationActions":["Deny"],
        "matchResources":{"namespaceSelector":{"matchExpressions":[{"key":"free","operator":"DoesNotExist"}]}}"#;
    kubectl.create(&binding(kind, "few", deny)).ok();
    kubectl
        .run("create deployment web --image=i")
        .exits_with(1)
        .complains(
            "deployments.apps \"web\" is forbidden: ValidatingAdmissionPolicy 'few' with binding 'few' denied \
             request: wants more than 1",
        );
    kubectl
        .run("create deployment web --image=i --replicas=2")
        .ok();
    kubectl.run("scale deployment web --replicas=1").ok();
    kubectl.run("create namespace open").ok();
    kubectl.run("label namespace open free=yes").ok();
    kubectl.run("-n open create deployment web --image=i").ok();
    kubectl
        .args(&[
            "patch",
            "validatingadmissionpolicybinding",
            "few",
            "--type=merge",
            r#"-p={"spec":{"validationActions":["Warn"]}}"#,
        ])
        .ok();
    kubectl
        .run("create deployment told --image=i")
        .ok()
        .complains(
            "Warning: Validation failed for ValidatingAdmissionPolicy 'few' with binding 'few'",
        );
    kubectl
        .run("delete validatingadmissionpolicybinding few")
        .ok();
    kubectl
        .run("create deployment quiet --image=i")
        .ok()
        .prints_no("Warning");
}

#[test]
fn expressions_that_cannot_be_compiled_are_refused() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let spec = r#""validations":[{"expression":"object.spec.replicas >"}]"#;
    kubectl
        .with_input("create -f -", &policy("ValidatingAdmissionPolicy", "bad", spec))
        .exits_with(1)
        .complains("spec.validations[0].expression: Invalid value: \"object.spec.replicas >\": compilation failed");
    let spec = r#""validations":[{"expression":"1 + 1"}]"#;
    kubectl
        .with_input(
            "create -f -",
            &policy("ValidatingAdmissionPolicy", "bad", spec),
        )
        .exits_with(1)
        .complains("must evaluate to bool but got int");
}

#[test]
fn parameters_and_the_authorizer_are_there_for_policies() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let kind = "ValidatingAdmissionPolicy";
    let spec = r#""paramKind":{"apiVersion":"v1","kind":"ConfigMap"},
        "validations":[{"expression":"object.spec.replicas <= int(params.data.most) || authorizer.group('').resource('pods').check('nothing').allowed() == false && request.userInfo.username == 'x' && request.namespace == 'default'","message":"too many","reason":"Forbidden"}]"#;
    kubectl.create(&policy(kind, "most", spec)).ok();
    let more = r#","validationActions":["Deny"],"paramRef":{"name":"limits","namespace":"default","parameterNotFoundAction":"Deny"}"#;
    kubectl.create(&binding(kind, "most", more)).ok();
    kubectl
        .run("create deployment web --image=i")
        .exits_with(1)
        .complains("no params found for policy binding with `Deny` parameterNotFoundAction");
    kubectl
        .run("create configmap limits --from-literal=most=2")
        .ok();
    kubectl
        .run("create deployment web --image=i --replicas=2")
        .ok();
    kubectl
        .run("create deployment more --image=i --replicas=3")
        .exits_with(1)
        .complains("denied request: too many");
}

#[test]
fn a_mutating_policy_changes_what_is_created() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let kind = "MutatingAdmissionPolicy";
    let spec = r#""reinvocationPolicy":"IfNeeded","mutations":[
        {"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{spec: Object.spec{replicas: 7}}"}},
        {"patchType":"JSONPatch","jsonPatch":{"expression":"[JSONPatch{op: 'add', path: '/metadata/labels/' + jsonpatch.escapeKey('a/b'), value: 'c'}]"}}]"#;
    kubectl.create(&policy(kind, "seven", spec)).ok();
    kubectl.create(&binding(kind, "seven", "")).ok();
    kubectl.run("create deployment web --image=i").ok();
    assert_eq!(kubectl.field("deployment/web", ".spec.replicas"), "7");
    assert_eq!(kubectl.field("deployment/web", ".metadata.labels.a/b"), "c");
}

#[test]
fn a_policys_status_says_what_does_not_fit_the_types_it_is_about() {
    let Some(kubectl) = Kubectl::without_workloads() else {
        return;
    };
    let kind = "ValidatingAdmissionPolicy";
    let wrong = r#""validations":[{"expression":"object.spec.replicas > 1"},{"expression":"object.spec.nope == 'x'"}]"#;
    kubectl.create(&policy(kind, "wrong", wrong)).ok();
    let warning = ".status.typeChecking.expressionWarnings[0]";
    eventually("the status is written", || {
        kubectl.field(&format!("{kind}/wrong"), ".status.observedGeneration") == "1"
    });
    assert_eq!(
        kubectl.field(&format!("{kind}/wrong"), &format!("{warning}.fieldRef")),
        "spec.validations[1].expression"
    );
    let said = kubectl.field(&format!("{kind}/wrong"), &format!("{warning}.warning"));
    assert!(
        said.starts_with("apps/v1, Kind=Deployment: ERROR: <input>:1:12: undefined field 'nope'"),
        "{said}"
    );
    kubectl
        .args(&[
            "patch",
            kind,
            "wrong",
            "--type=json",
            r#"-p=[{"op":"remove","path":"/spec/validations/1"}]"#,
        ])
        .ok();
    eventually("what is mended is not warned of any more", || {
        kubectl.field(&format!("{kind}/wrong"), ".status.observedGeneration") == "2"
            && kubectl
                .field(&format!("{kind}/wrong"), &format!("{warning}.fieldRef"))
                .is_empty()
    });
}
