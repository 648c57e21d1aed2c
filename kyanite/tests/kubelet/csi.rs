//! Volumes of a CSI driver, from its registration to its last mount: with a claim and without, attached by others, grown,
//! measured, and taken down although the driver and the kubelet fail meanwhile.

use harness::eventually;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::driver::{Driver, NAME};
use crate::place::Place;
use crate::{READY, expect, pod, shell};

fn holds(place: &Place, what: &str, arguments: &[&str], wanted: &str) {
    eventually(what, || {
        let found = place.kubectl(arguments)?;
        if found == wanted {
            Ok(())
        } else {
            Err(format!("it is {found:?}"))
        }
    });
}

fn called(driver: &Driver, wanted: &[&str]) {
    eventually(&format!("the driver is asked {wanted:?}"), || {
        let calls = driver.calls();
        if calls == wanted {
            Ok(())
        } else {
            Err(format!("{calls:?}"))
        }
    });
}

fn said(place: &Place, words: &str) {
    eventually(&format!("an event says {words}"), || {
        let failed = "--field-selector=reason=FailedMount";
        let said = place.kubectl(&["get", "events", failed, "-ojsonpath={.items[*].message}"])?;
        if said.contains(words) {
            Ok(())
        } else {
            Err(said)
        }
    });
}

#[test]
fn volumes_of_a_driver_come_and_go_with_pods_whatever_fails() {
    let Some(mut place) = Place::open() else {
        return;
    };
    place.start_kubelet();
    let driver = Driver::start(&place.root());
    let drivers = "-ojsonpath={.spec.drivers[*]['name','nodeID','allocatable.count']}";
    let registered = format!("{NAME} node-id 7");
    holds(
        &place,
        "the driver is announced",
        &["get", "csinode", "node1", drivers],
        &registered,
    );
    called(&driver, &["NotifyRegistrationStatus true"]);
    driver.forget();
    make_objects(&place);
    mounts_when_it_is_attached(&place, &driver);
    is_measured_and_grows(&place, &driver);
    goes_whatever_fails(&mut place, &driver);
    driver.unregister();
    holds(
        &place,
        "the driver is gone",
        &["get", "csinode", "node1", drivers],
        "",
    );
}

fn make_objects(place: &Place) {
    place.create(
        &json!({"apiVersion": "storage.k8s.io/v1", "kind": "CSIDriver", "metadata": {"name": NAME},
        "spec": {"attachRequired": true, "podInfoOnMount": true, "fsGroupPolicy": "File",
            "volumeLifecycleModes": ["Persistent", "Ephemeral"]}}),
    );
    place.create(
        &json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "claim"},
        "spec": {"accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "disk",
            "resources": {"requests": {"storage": "1Gi"}}}}),
    );
    let uid = place
        .kubectl(&["get", "pvc", "claim", "-ojsonpath={.metadata.uid}"])
        .expect("a claim");
    place.create(&json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "disk"},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "claimRef": {"namespace": "default", "name": "claim", "uid": uid},
            "csi": {"driver": NAME, "volumeHandle": "handle"}}}));
    let bound = json!({"status": {"phase": "Bound", "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteOnce"]}});
    change(place, &["pvc", "claim", "--subresource=status"], &bound);
}

fn change(place: &Place, what: &[&str], patch: &Value) {
    let patch = patch.to_string();
    let words = ["patch"].iter().chain(what).copied();
    let words: Vec<&str> = words.chain(["--type=merge", "--patch", &patch]).collect();
    place.kubectl(&words).expect("it can be changed");
}

fn mounts_when_it_is_attached(place: &Place, driver: &Driver) {
    let mut containers =
        shell("echo kept > /data/file; echo own > /own/file; exec /busybox sleep 100000");
    containers[0]["volumeMounts"] =
        json!([{"name": "data", "mountPath": "/data"}, {"name": "own", "mountPath": "/own"}]);
    let volumes = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}},
        {"name": "own", "csi": {"driver": NAME}}]);
    place.create(&pod(
        "stores",
        json!({"containers": containers, "volumes": volumes,
        "securityContext": {"fsGroup": 1234}}),
    ));
    let in_use = [
        "get",
        "node",
        "node1",
        "-ojsonpath={.status.volumesInUse[*]}",
    ];
    let unique = format!("kubernetes.io/csi/{NAME}^handle");
    holds(place, "the volume is in use", &in_use, &unique);
    assert!(
        driver
            .calls()
            .iter()
            .all(|call| !call.starts_with("NodeStage")),
        "not before it is attached"
    );
    driver.refuse("NodeStageVolume", 1);
    let digest = Sha256::digest(format!("handle{NAME}node1"));
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    let attachment = format!("csi-{digest}");
    place.create(&json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment",
        "metadata": {"name": attachment},
        "spec": {"attacher": NAME, "nodeName": "node1", "source": {"persistentVolumeName": "disk"}}}));
    let attached = json!({"status": {"attached": true, "attachmentMetadata": {"lun": "3"}}});
    change(
        place,
        &["volumeattachment", &attachment, "--subresource=status"],
        &attached,
    );
    said(
        place,
        "MountVolume.MountDevice failed for volume \"disk\" : rpc error: code = Internal desc = NodeStageVolume does not want to",
    );
    expect(place, "stores", READY, "True");
    let mut calls = driver.calls();
    // The volume of the pod's own does not wait for the other.
    calls.retain(|call| !call.contains("inline"));
    assert_eq!(
        calls,
        [
            "NodeStageVolume refused",
            "NodeStageVolume handle {\"lun\": \"3\"}",
            "NodePublishVolume handle for stores"
        ]
    );
    let staged = place.root().join("plugins/kubernetes.io/csi").join(NAME);
    let digest: String = Sha256::digest("handle")
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let file = staged.join(digest).join("globalmount/file");
    eventually("the container writes to the volume", || {
        std::fs::read_to_string(&file).map_err(|error| error.to_string())
    });
    let group = std::os::unix::fs::MetadataExt::gid(&std::fs::metadata(&file).expect("a file"));
    assert_eq!(group, 1234, "the directory's group is its files'");
}

fn is_measured_and_grows(place: &Place, driver: &Driver) {
    driver.forget();
    eventually("the summary has the volume", || {
        let text = place.kubectl(&["get", "--raw", "/api/v1/nodes/node1/proxy/stats/summary"])?;
        let summary: Value = serde_json::from_str(&text).map_err(|error| error.to_string())?;
        let pods = summary["pods"].as_array().cloned().unwrap_or_default();
        let mut volumes = pods
            .iter()
            .flat_map(|pod| pod["volume"].as_array().cloned().unwrap_or_default());
        let found = volumes.find(|volume| volume["pvcRef"]["name"] == "claim");
        match found {
            Some(volume) if volume["usedBytes"] == 400 && volume["capacityBytes"] == 1000 => Ok(()),
            other => Err(format!("{other:?}")),
        }
    });
    let metrics = place
        .kubectl(&["get", "--raw", "/api/v1/nodes/node1/proxy/metrics"])
        .expect("metrics");
    let line = "kubelet_volume_stats_used_bytes{namespace=\"default\",persistentvolumeclaim=\"claim\"} 400";
    assert!(metrics.contains(line), "{metrics}");
    change(
        place,
        &["pv", "disk"],
        &json!({"spec": {"capacity": {"storage": "2Gi"}}}),
    );
    // Whatever changes in a pod gives it a turn; without, it has one each minute.
    place
        .kubectl(&["annotate", "pod", "stores", "look=now"])
        .expect("it can be annotated");
    called(driver, &["NodeExpandVolume handle 2147483648"]);
    let size = [
        "get",
        "pvc",
        "claim",
        "-ojsonpath={.status.capacity.storage}",
    ];
    holds(place, "the claim knows its size", &size, "2Gi");
}

fn goes_whatever_fails(place: &mut Place, driver: &Driver) {
    place.kill_kubelet();
    place.start_kubelet();
    driver.forget();
    driver.refuse("NodeUnpublishVolume", 1);
    driver.refuse("NodeUnstageVolume", 1);
    place.delete("stores");
    let calls = driver.calls();
    let of = |word: &str| calls.iter().filter(|call| call.starts_with(word)).count();
    assert_eq!(
        calls.last().map(String::as_str),
        Some("NodeUnstageVolume handle"),
        "{calls:?}"
    );
    assert_eq!(
        (
            of("NodeUnpublishVolume refused"),
            of("NodeUnstageVolume refused")
        ),
        (1, 1),
        "{calls:?}"
    );
    let mounts = std::fs::read_to_string("/proc/self/mounts").expect("mounts");
    let root = place.root().display().to_string();
    let left: Vec<&str> = mounts.lines().filter(|line| line.contains(&root)).collect();
    assert!(left.is_empty(), "{left:?}");
    let in_use = ["get", "node", "node1", "-ojsonpath={.status.volumesInUse}"];
    holds(place, "nothing is in use", &in_use, "");
}
