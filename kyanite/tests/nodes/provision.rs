//! From custom data to a node, and what is said when it does not get there.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use harness::eventually;
use serde_json::{Value, json};

use crate::site::{IMAGE, IMAGE_ARCHIVE, Image, Site};

// No scheduler runs here, so the pod names its node; no pod network, so it uses the machine's.
fn pod(node: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "once"},
        "spec": {"nodeName": node, "restartPolicy": "Never", "hostNetwork": true, "automountServiceAccountToken": false,
            "containers": [{"name": "once", "image": IMAGE, "imagePullPolicy": "Never",
                "command": ["/busybox", "hostname"]}]},
    })
}

#[test]
fn a_blank_machine_becomes_a_node() {
    let Some(site) = Site::open() else { return };
    site.boot("joins", &site.config(), "write-files", Image::Complete);
    let (code, result) = site.provision_wait("joins");
    assert_eq!((code, &result["ExitCode"]), (0, &json!("0")), "{result:#}");
    for unit in ["aks-node-controller", "containerd", "kubelet"] {
        assert_eq!(
            site.run("joins", &format!("systemctl is-active {unit}"))
                .as_deref(),
            Ok("active\n"),
            "{unit}"
        );
    }
    let node = eventually("the node registers", || node_of(&site, "joins"));
    assert_eq!(node["metadata"]["labels"]["agentpool"], "pool1");
    assert_eq!(node["status"]["addresses"][0]["address"], "10.88.0.4");
    let id = site.run("joins", "cat /etc/machine-id").expect("an id");
    assert_eq!(node["status"]["nodeInfo"]["machineID"], id.trim());

    let import = format!("ctr --namespace k8s.io images import {IMAGE_ARCHIVE}");
    site.run("joins", &import).expect("an image");
    eventually("a pod can be made", || site.create(&pod("joins")));
    eventually("the pod has ended well", || {
        let phase = ["get", "pod", "once", "-o", "jsonpath={.status.phase}"];
        match site.kubectl(&phase)? {
            phase if phase == "Succeeded" => Ok(()),
            _ => Err(site.kubectl(&["describe", "pod", "once"])?),
        }
    });
    let log = site.run("joins", "cat /var/log/pods/default_once_*/once/0.log");
    assert!(
        log.as_ref().is_ok_and(|log| log.contains("stdout F joins")),
        "{log:?}"
    );

    let before = &node["status"]["nodeInfo"]["bootID"];
    site.run("joins", "systemctl reboot").expect("it reboots");
    eventually("the node is back after a restart", || {
        let now = &node_of(&site, "joins")?["status"]["nodeInfo"]["bootID"];
        let inside = site.run("joins", "cat /proc/sys/kernel/random/boot_id")?;
        match now != before && *now == inside.trim() {
            true => Ok(()),
            false => Err(format!("{now}, and {inside} inside")),
        }
    });
}

fn node_of(site: &Site, name: &str) -> Result<Value, String> {
    let text = site.kubectl(&["get", "node", name, "-o", "json"])?;
    serde_json::from_str(&text).map_err(|e| e.to_string())
}

#[test]
fn the_boothook_starts_it_without_the_unit() {
    let Some(site) = Site::open() else { return };
    site.boot("hooked", &site.config(), "boothook", Image::Complete);
    let (code, result) = site.provision_wait("hooked");
    assert_eq!((code, &result["ExitCode"]), (0, &json!("0")), "{result:#}");
    let not_done = site.run("hooked", "cat /var/log/cloud-init.log");
    assert_eq!(
        not_done.as_deref(),
        Ok(""),
        "all of the custom data is understood"
    );
    eventually("the node registers", || {
        site.kubectl(&["get", "node", "hooked"])
    });
}

fn fails(site: &Site, name: &str, config: &Value, image: Image, code: &str, words: &[&str]) {
    site.boot(name, config, "write-files", image);
    let (exit, result) = site.provision_wait(name);
    assert_eq!((exit, &result["ExitCode"]), (1, &json!(code)), "{result:#}");
    let error = result["Error"].as_str().unwrap_or_default();
    for word in words {
        assert!(error.contains(word), "{word}: {error}");
    }
    let unit = site.run(
        name,
        "systemctl show --property=Result --value aks-node-controller",
    );
    assert_eq!(unit.as_deref(), Ok("exit-code\n"));
}

#[test]
fn a_ca_that_is_not_the_clusters_is_said_at_once() {
    let Some(site) = Site::open() else { return };
    let key = rcgen::KeyPair::generate().expect("a key");
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("parameters");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let other = params.self_signed(&key).expect("a CA").pem();
    let mut config = site.config();
    config["kubernetes_ca_cert"] = json!(STANDARD.encode(other));
    fails(
        &site,
        "wrong-ca",
        &config,
        Image::Complete,
        "51",
        &["certificate"],
    );
    assert!(
        site.kubectl(&["get", "node", "wrong-ca"]).is_err(),
        "it did not join"
    );
}

#[test]
fn an_api_server_that_is_dead_and_a_kubelet_that_is_missing_have_their_codes() {
    let Some(mut site) = Site::open() else { return };
    let mut config = site.config();
    config["kubernetes_version"] = json!("");
    fails(
        &site,
        "no-kubelet",
        &config,
        Image::WithoutKubelet,
        "204",
        &["kubelet"],
    );

    let mut config = site.config();
    config["cse_timeout"] = json!(30);
    site.stop_server();
    site.remove("no-kubelet");
    fails(
        &site,
        "no-server",
        &config,
        Image::Complete,
        "51",
        &["kubernetes.default.svc"],
    );
}
