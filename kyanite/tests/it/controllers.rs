//! The controllers of `kyanite up`, seen through kubectl: certificates from request to use, what every
//! namespace gets, aggregated roles, tokens that end.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rcgen::{CertificateParams, DnType, KeyPair};

use super::harness::{Kubectl, eventually};

/// A key and the PEM text of a request for it.
fn request_for(common_name: &str, organisation: &str) -> (KeyPair, String) {
    let key = KeyPair::generate().expect("a key can be made");
    let mut params = CertificateParams::default();
    let name = &mut params.distinguished_name;
    name.push(DnType::CommonName, common_name);
    name.push(DnType::OrganizationName, organisation);
    let request = params.serialize_request(&key).expect("the key signs");
    (key, request.pem().expect("PEM can hold it"))
}

fn document(name: &str, signer: &str, usages: &str, pem: &str) -> String {
    format!(
        "apiVersion: certificates.k8s.io/v1\nkind: CertificateSigningRequest\nmetadata: {{name: {name}}}\n\
         spec: {{signerName: {signer}, usages: [{usages}], request: {}}}\n",
        STANDARD.encode(pem)
    )
}

const CLIENT: &str = "kubernetes.io/kube-apiserver-client";

/// Waits for a field of an object to hold something.
fn filled(kubectl: &Kubectl, object: &str, path: &str) -> String {
    eventually(&format!("{path} of {object}"), || {
        let got = kubectl.run(&format!("get {object} -o jsonpath={{{path}}}"));
        match got.stdout.trim() {
            "" => Err(format!("{got}")),
            text => Ok(text.to_owned()),
        }
    })
}

#[test]
fn an_approved_request_becomes_a_certificate_that_opens_the_door() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    let (key, pem) = request_for("jane", "developers");
    kubectl.create(&document("jane", CLIENT, "client auth", &pem));
    kubectl
        .run("certificate approve jane")
        .ok()
        .prints("jane approved");
    let certificate = filled(&kubectl, "csr/jane", ".status.certificate");
    kubectl.run("get csr jane").ok().prints("Approved,Issued");
    let home = kubectl.server.home();
    let certificate = STANDARD.decode(certificate).expect("base64");
    std::fs::write(home.join("jane.crt"), certificate).expect("the directory is ours");
    std::fs::write(home.join("jane.key"), key.serialize_pem()).expect("the directory is ours");
    let files = (home.join("jane.crt"), home.join("jane.key"));
    let (crt, key) = (files.0.display().to_string(), files.1.display().to_string());
    kubectl
        .args(&[
            "config",
            "set-credentials",
            "jane",
            "--client-certificate",
            &crt,
            "--client-key",
            &key,
        ])
        .ok();
    kubectl
        .run("auth whoami --user jane -o json")
        .ok()
        .prints("\"username\": \"jane\"")
        .prints("\"developers\"");
}

#[test]
fn a_denied_request_gets_no_certificate() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    let (_, pem) = request_for("mallory", "developers");
    kubectl.create(&document("denied", CLIENT, "client auth", &pem));
    kubectl.run("certificate deny denied").ok();
    // One that is approved later is signed by then, so the denied one has been passed over.
    kubectl.create(&document("after", CLIENT, "client auth", &pem));
    kubectl.run("certificate approve after").ok();
    filled(&kubectl, "csr/after", ".status.certificate");
    assert_eq!(kubectl.field("csr/denied", ".status.certificate"), "");
    kubectl.run("get csr denied").ok().prints("Denied");
}

#[test]
fn a_request_its_signer_cannot_sign_fails_with_the_reason() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    let (_, pem) = request_for("jane", "system:nodes");
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    kubectl.create(&document(
        "wrong",
        signer,
        "digital signature, client auth",
        &pem,
    ));
    kubectl.run("certificate approve wrong").ok();
    let message = filled(
        &kubectl,
        "csr/wrong",
        ".status.conditions[?(@.type==\"Failed\")].message",
    );
    assert_eq!(
        message,
        "subject common name does not begin with system:node:"
    );
    kubectl.run("get csr wrong").ok().prints("Approved,Failed");
}

#[test]
fn every_namespace_gets_its_account_and_the_ca_and_gets_them_back() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.run("create namespace team").ok();
    let uid = filled(&kubectl, "-n team sa/default", ".metadata.uid");
    let bundle = filled(&kubectl, "-n team cm/kube-root-ca.crt", ".data.ca\\.crt");
    assert!(
        bundle.starts_with("-----BEGIN CERTIFICATE-----"),
        "{bundle}"
    );
    kubectl.run("-n team delete sa default").ok();
    eventually("the account is made anew", || {
        match kubectl
            .run("-n team get sa default -o jsonpath={.metadata.uid}")
            .stdout
        {
            new if !new.is_empty() && new != uid => Ok(()),
            other => Err(other),
        }
    });
    kubectl
        .args(&[
            "-n",
            "team",
            "patch",
            "cm",
            "kube-root-ca.crt",
            "-p",
            r#"{"data":{"ca.crt":"forged"}}"#,
        ])
        .ok();
    eventually("the bundle is repaired", || {
        match kubectl.field("-n team cm/kube-root-ca.crt", ".data.ca\\.crt") {
            text if text.trim() == bundle => Ok(()),
            other => Err(other),
        }
    });
}

#[test]
fn an_aggregated_role_has_the_rules_of_those_it_selects() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.create(
        "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: whole}\n\
         aggregationRule: {clusterRoleSelectors: [{matchLabels: {part-of: whole}}]}\n\
         ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\n\
         metadata: {name: part, labels: {part-of: whole}}\n\
         rules: [{apiGroups: [''], resources: [pods], verbs: [get]}]\n",
    );
    let resource = filled(&kubectl, "clusterrole/whole", ".rules[0].resources[0]");
    assert_eq!(resource, "pods");
    kubectl.run("delete clusterrole part").ok();
    eventually("the rule goes with its role", || {
        match kubectl.field("clusterrole/whole", ".rules").as_str() {
            "" | "[]" => Ok(()),
            other => Err(other.to_owned()),
        }
    });
}

#[test]
fn a_bootstrap_token_goes_when_it_ends() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    let token = |id: &str, end: &str| {
        format!(
            "apiVersion: v1\nkind: Secret\nmetadata: {{name: bootstrap-token-{id}, namespace: kube-system}}\n\
             type: bootstrap.kubernetes.io/token\n\
             stringData: {{token-id: {id}, token-secret: 0123456789abcdef, expiration: '{end}'}}\n"
        )
    };
    kubectl.create(&token("stays0", "2100-01-01T00:00:00Z"));
    kubectl.create(&token("ended0", "2020-01-01T00:00:00Z"));
    eventually("the ended token goes", || {
        let got = kubectl.run("-n kube-system get secret bootstrap-token-ended0");
        match got.stderr.contains("NotFound") {
            true => Ok(()),
            false => Err(format!("{got}")),
        }
    });
    kubectl
        .run("-n kube-system get secret bootstrap-token-stays0")
        .ok();
}

#[test]
fn a_token_secret_is_filled_and_goes_with_its_account() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.run("create sa robot").ok();
    kubectl.create(
        "apiVersion: v1\nkind: Secret\nmetadata: {name: robot-token, annotations: \
         {kubernetes.io/service-account.name: robot}}\ntype: kubernetes.io/service-account-token\n",
    );
    let token = filled(&kubectl, "secret/robot-token", ".data.token");
    assert_eq!(
        kubectl.field("secret/robot-token", ".data.namespace"),
        STANDARD.encode("default")
    );
    assert_ne!(kubectl.field("secret/robot-token", ".data.ca\\.crt"), "");
    let token = String::from_utf8(STANDARD.decode(token).expect("base64")).expect("a JWT");
    kubectl
        .args(&["config", "set-credentials", "robot", "--token", &token])
        .ok();
    kubectl
        .run("auth whoami --user robot")
        .ok()
        .prints("system:serviceaccount:default:robot");
    kubectl.run("delete sa robot").ok();
    eventually("the secret goes", || {
        let got = kubectl.run("get secret robot-token");
        match got.stderr.contains("NotFound") {
            true => Ok(()),
            false => Err(format!("{got}")),
        }
    });
}

/// Waits for an object to be there no more.
fn gone(kubectl: &Kubectl, object: &str) {
    eventually(&format!("{object} goes"), || {
        let got = kubectl.run(&format!("get {object}"));
        match got.stderr.contains("NotFound") {
            true => Ok(()),
            false => Err(format!("{got}")),
        }
    });
}

#[test]
fn a_claim_in_use_goes_when_its_pod_is_gone() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    filled(&kubectl, "sa/default", ".metadata.uid");
    let claim = |name: &str| {
        format!(
            "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {{name: {name}}}\n\
             spec: {{accessModes: [ReadWriteOnce], resources: {{requests: {{storage: 1Gi}}}}}}\n"
        )
    };
    kubectl.create(&claim("used"));
    kubectl.create(&claim("unused"));
    kubectl.create(
        "apiVersion: v1\nkind: Pod\nmetadata: {name: user}\nspec:\n  nodeName: somewhere\n  \
         containers: [{name: c, image: i}]\n  \
         volumes: [{name: v, persistentVolumeClaim: {claimName: used}}]\n",
    );
    kubectl.run("delete pvc used --wait=false").ok();
    // A claim deleted later is gone by then, so the used one has been passed over.
    kubectl.run("delete pvc unused").ok();
    assert_eq!(
        kubectl.field("pvc/used", ".metadata.finalizers[*]"),
        "kubernetes.io/pvc-protection"
    );
    kubectl.run("delete pod user --grace-period=0 --force").ok();
    gone(&kubectl, "pvc/used");
}

#[test]
fn volumes_and_their_classes_go_when_nothing_has_them() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.create(
        "apiVersion: storage.k8s.io/v1\nkind: VolumeAttributesClass\nmetadata: {name: gold}\n\
         driverName: example.com\nparameters: {a: b}\n---\n\
         apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: disk}\nspec:\n  \
         accessModes: [ReadWriteOnce]\n  capacity: {storage: 1Gi}\n  \
         volumeAttributesClassName: gold\n  csi: {driver: example.com, volumeHandle: h}\n",
    );
    kubectl
        .run("delete volumeattributesclass gold --wait=false")
        .ok();
    kubectl.run("get volumeattributesclass gold").ok();
    kubectl.run("delete pv disk").ok();
    gone(&kubectl, "volumeattributesclass/gold");
}

#[test]
fn a_deleted_namespace_takes_along_what_is_in_it() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.run("create namespace team").ok();
    filled(&kubectl, "-n team sa/default", ".metadata.uid");
    kubectl.run("-n team create configmap settings").ok();
    kubectl.run("-n team create deployment web --image i").ok();
    kubectl.run("-n team run pod --image i").ok();
    kubectl.create(
        "apiVersion: v1\nkind: PersistentVolumeClaim\nmetadata: {name: data, namespace: team}\n\
         spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}\n",
    );
    kubectl.run("delete namespace team --timeout=30s").ok();
    kubectl.run("create namespace team").ok();
    kubectl
        .run("-n team get configmap,deployment,pod,pvc -o name")
        .ok()
        .prints_no("settings")
        .prints_no("web")
        .prints_no("pod/")
        .prints_no("data");
}

#[test]
fn a_namespace_tells_what_holds_it_and_goes_when_that_is_gone() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl.run("create namespace team").ok();
    kubectl.create(
        "apiVersion: v1\nkind: ConfigMap\n\
         metadata: {name: held, namespace: team, finalizers: [example.com/hold]}\n",
    );
    kubectl.run("delete namespace team --wait=false").ok();
    let reason = |kind: &str| format!(".status.conditions[?(@.type==\"{kind}\")].message");
    assert_eq!(
        filled(&kubectl, "ns/team", &reason("NamespaceFinalizersRemaining")),
        "Some content in the namespace has finalizers remaining: example.com/hold in 1 resource instances"
    );
    assert_eq!(
        filled(&kubectl, "ns/team", &reason("NamespaceContentRemaining")),
        "Some resources are remaining: configmaps. has 1 resource instances"
    );
    let none = r#"{"metadata":{"finalizers":null}}"#;
    kubectl
        .args(&["-n", "team", "patch", "cm", "held", "-p", none])
        .ok();
    gone(&kubectl, "namespace/team");
}
