//! What AKS does with a cluster, by the real az and kubectl: pools that come, grow, change, are upgraded and go; a cluster
//! that stops and starts; machines that vanish from under their nodes. Needs root, containerd, kubectl and az; skipped,
//! loudly, without.

use std::time::Instant;

use harness::eventually;
use serde_json::{Value, json};

use crate::azure::Person;

const IMAGE: &str = "kyanite.local/demo:1";

/// A cluster of az's, seen with its own credentials.
struct Cluster<'p> {
    person: &'p Person,
    file: String,
}

impl<'p> Cluster<'p> {
    fn of(person: &'p Person, group: &str, name: &str) -> Cluster<'p> {
        let file = person.home.path().join(format!("{name}.kubeconfig"));
        let file = file.to_string_lossy().into_owned();
        person.ok(&format!(
            "aks get-credentials -g {group} -n {name} -f {file} --overwrite-existing"
        ));
        Cluster { person, file }
    }

    fn kubectl(&self, words: &str) -> Result<String, String> {
        let file = &self.file;
        self.person
            .home
            .kubectl(&format!("--kubeconfig {file} {words}"))
    }

    fn ok(&self, words: &str) -> String {
        let said = self.kubectl(words);
        said.unwrap_or_else(|said| panic!("kubectl {words}: {said}"))
    }

    fn nodes(&self, selector: &str) -> Vec<Value> {
        let list = self.ok(&format!("get nodes -l {selector} -o json"));
        let list: Value = serde_json::from_str(&list).expect("JSON");
        list["items"].as_array().cloned().unwrap_or_default()
    }

    fn pool(&self, name: &str) -> Vec<Value> {
        self.nodes(&format!("agentpool={name}"))
    }

    /// Applies objects from a file: az and kubectl get their words split at blanks.
    fn apply(&self, object: &Value) {
        let path = self.person.home.path().join("object.json");
        std::fs::write(&path, object.to_string()).expect("a file");
        self.ok(&format!("apply -f {}", path.display()));
    }

    fn runs(&self, deployment: &str) {
        self.ok(&format!(
            "rollout status deployment/{deployment} --timeout=240s"
        ));
    }
}

fn deployment(name: &str, replicas: u64, spec: Value) -> Value {
    let mut pod = json!({"containers": [{"name": "demo", "image": IMAGE}], "terminationGracePeriodSeconds": 1});
    for (field, value) in spec.as_object().into_iter().flatten() {
        pod[field] = value.clone();
    }
    json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": {"replicas": replicas,
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}}, "spec": pod}}})
}

fn taints(node: &Value) -> Vec<String> {
    let all = node["spec"]["taints"].as_array().into_iter().flatten();
    all.filter_map(|taint| taint["key"].as_str().map(str::to_owned))
        .collect()
}

/// Those that nobody but a pool gives.
fn own_taints(node: &Value) -> Vec<String> {
    let mut all = taints(node);
    all.retain(|key| !key.starts_with("node.kubernetes.io/"));
    all.sort();
    all
}

/// How long something took, for whoever reads the log.
#[expect(clippy::print_stderr, reason = "a figure for whoever asks for it")]
fn timed<T>(what: &str, work: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let done = work();
    eprintln!(
        "MEASURED: {what} took {:.1} s",
        begun.elapsed().as_secs_f64()
    );
    done
}

#[test]
fn az_adds_scales_changes_upgrades_stops_starts_and_deletes() {
    let Some(person) = Person::new() else { return };
    person
        .home
        .kyanite("up --port 0 --nodes 0")
        .expect("it comes up");
    person.ok("group create -n g -l eastus");
    timed("az aks create with two nodes", || {
        person.ok("aks create -g g -n c --no-ssh-key -c 2 -s Standard_D2s_v5")
    });
    let cluster = Cluster::of(&person, "g", "c");
    let nodes = cluster.pool("nodepool1");
    assert_eq!(nodes.len(), 2);
    for node in &nodes {
        let id = node["spec"]["providerID"].as_str().unwrap_or_default();
        assert!(id.starts_with("azure:///subscriptions/"), "{id}");
        assert!(
            id.contains("/virtualMachineScaleSets/aks-nodepool1-"),
            "{id}"
        );
        let labels = &node["metadata"]["labels"];
        assert_eq!(labels["topology.kubernetes.io/region"], "eastus");
        assert_eq!(
            labels["node.kubernetes.io/instance-type"],
            "Standard_D2s_v5"
        );
        assert_eq!(labels["kubernetes.azure.com/cluster"], "MC_g_c_eastus");
        assert_eq!(own_taints(node), Vec::<String>::new());
    }

    // A pool of its own, with labels, taints and a machine for spot prices.
    person.ok(
        "aks nodepool add -g g --cluster-name c -n spot -c 1 -s Standard_D2s_v5 --priority Spot --labels team=blue \
         --node-taints a=b:NoSchedule --max-pods 30",
    );
    let spot = cluster.pool("spot").remove(0);
    assert_eq!(spot["metadata"]["labels"]["team"], "blue");
    assert_eq!(spot["status"]["capacity"]["pods"], "30");
    let spots = "kubernetes.azure.com/scalesetpriority";
    assert_eq!(own_taints(&spot), ["a", spots]);
    person.ok("aks nodepool update -g g --cluster-name c -n spot --labels team=red --node-taints c=d:NoExecute");
    let same = cluster.pool("spot").remove(0);
    assert_eq!(
        same["metadata"]["uid"], spot["metadata"]["uid"],
        "no node is made anew for that"
    );
    assert_eq!(same["metadata"]["labels"]["team"], "red");
    assert_eq!(own_taints(&same), ["c", spots]);

    // To nothing and back, and a third node in the first pool.
    person.ok("aks nodepool scale -g g --cluster-name c -n spot -c 0");
    assert_eq!(cluster.pool("spot").len(), 0);
    person.ok("aks scale -g g -n c --nodepool-name spot -c 1");
    assert_eq!(cluster.pool("spot").len(), 1);
    timed("a third node by az aks nodepool scale", || {
        person.ok("aks nodepool scale -g g --cluster-name c -n nodepool1 -c 3")
    });
    person.ok("aks nodepool delete -g g --cluster-name c -n spot");
    assert_eq!(cluster.pool("spot").len(), 0);
    person.ok("aks nodepool scale -g g --cluster-name c -n nodepool1 -c 2");

    // Who asks for what is not done here is told so, before anything is made.
    let refused = person
        .az("aks nodepool add -g g --cluster-name c -n more -c 1 --enable-cluster-autoscaler --min-count 1 --max-count 2")
        .unwrap_err();
    assert!(refused.contains("enableAutoScaling"), "{refused}");

    // An upgrade that a budget blocks fails, and says what blocks it; the pool is as it was.
    cluster.apply(&deployment("web", 1, json!({})));
    cluster.apply(&json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web-pdb"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}));
    cluster.runs("web");
    let image = "aks nodepool show -g g --cluster-name c -n nodepool1 --query nodeImageVersion";
    let before = person.ok(image);
    let old = cluster.pool("nodepool1");
    person.ok("aks nodepool update -g g --cluster-name c -n nodepool1 --drain-timeout 1");
    let failed = person
        .az("aks nodepool upgrade -g g --cluster-name c -n nodepool1 --node-image-only")
        .unwrap_err();
    assert!(failed.contains("UpgradeFailed"), "{failed}");
    assert!(
        failed.contains("default/web-pdb blocked pod default/web-"),
        "{failed}"
    );
    let state = "aks nodepool show -g g --cluster-name c -n nodepool1 --query provisioningState";
    assert_eq!(person.ok(state), "Failed");
    let nodes = cluster.pool("nodepool1");
    assert_eq!(nodes.len(), 2, "nobody stands in for others any longer");
    assert!(
        nodes
            .iter()
            .all(|node| node["spec"]["unschedulable"].is_null())
    );

    // Without it every node is made anew, and the application runs on.
    cluster.ok("delete pdb web-pdb");
    timed("an upgrade of two nodes", || {
        person.ok("aks nodepool upgrade -g g --cluster-name c -n nodepool1 --node-image-only")
    });
    assert_eq!(person.ok(state), "Succeeded");
    let after = person.ok(image);
    assert_ne!(before, after);
    let upgraded = cluster.pool("nodepool1");
    assert_eq!(upgraded.len(), 2);
    for node in &upgraded {
        let label = &node["metadata"]["labels"]["kubernetes.azure.com/node-image-version"];
        assert_eq!(*label, after);
        let same = (old.iter()).any(|old| old["metadata"]["uid"] == node["metadata"]["uid"]);
        assert!(!same, "{} is the old node", node["metadata"]["name"]);
    }
    cluster.runs("web");

    let said = person.ok("aks command invoke -g g -n c --command id;kubectl${IFS}get${IFS}pods");
    assert_eq!(said["exitCode"], 0, "{said}");
    assert!(
        said["logs"]
            .as_str()
            .is_some_and(|logs| logs.contains("web-")),
        "{said}"
    );

    person.ok("aks stop -g g -n c");
    assert!(cluster.kubectl("get nodes").is_err());
    let stopped = person
        .az("aks nodepool scale -g g --cluster-name c -n nodepool1 -c 1")
        .unwrap_err();
    assert!(stopped.contains("stopped"), "{stopped}");
    person.ok("aks start -g g -n c");
    eventually("its pods are back", || {
        cluster.kubectl("rollout status deployment/web --timeout=5s")
    });
    assert_eq!(cluster.pool("nodepool1").len(), 2);

    person.ok("aks rotate-certs -g g -n c -y");
    assert!(
        cluster.kubectl("get nodes").is_err(),
        "nobody believes the old authority"
    );
    let cluster = Cluster::of(&person, "g", "c");
    eventually("its pods are back", || {
        cluster.kubectl("rollout status deployment/web --timeout=5s")
    });

    person.ok("aks delete -g g -n c -y");
    assert_eq!(person.home.entries("clusters"), Vec::<String>::new());
    person.home.kyanite("down --purge").expect("it goes down");
    assert_eq!(person.home.mounts(), Vec::<String>::new());
}

#[test]
fn nodes_follow_their_machines_in_the_cluster_that_up_made() {
    let Some(person) = Person::new() else { return };
    person
        .home
        .kyanite("up --port 0 --nodes 2")
        .expect("it comes up");
    let cluster = Cluster::of(&person, "kyanite", "kyanite");
    let nodes = cluster.pool("nodepool1");
    assert_eq!(nodes.len(), 2);
    let group = "MC_kyanite_kyanite_local";
    let set = person.ok(&format!("vmss list -g {group} --query [0].name"));
    let set = set.as_str().expect("a scale set").to_owned();
    let name = |number: u8| format!("{set}00000{number}");
    let shuts = |number: u8| {
        let node = cluster.ok(&format!("get node {} -o json", name(number)));
        let node: Value = serde_json::from_str(&node).expect("JSON");
        taints(&node).contains(&"node.cloudprovider.kubernetes.io/shutdown".to_owned())
    };
    let is = |wanted: bool| {
        eventually("its node is marked as its machine is", || {
            match shuts(1) == wanted {
                true => Ok(()),
                false => Err(format!("marked: {}", !wanted)),
            }
        });
    };
    person.ok(&format!(
        "vmss deallocate -g {group} -n {set} --instance-ids 1"
    ));
    is(true);
    person.ok(&format!("vmss start -g {group} -n {set} --instance-ids 1"));
    is(false);

    // Gone from the cloud, gone from the cluster, and from this host.
    timed("a node going with its machine", || {
        person.ok(&format!(
            "vmss delete-instances -g {group} -n {set} --instance-ids 1"
        ));
        eventually("its node goes", || {
            match cluster.kubectl(&format!("get node {}", name(1))) {
                Ok(said) => Err(said),
                Err(_) => Ok(()),
            }
        });
    });
    assert!(!person.home.entries("machines/machines").contains(&name(1)));

    // One more by `up`: known to the cloud at once, with a number that nobody had before.
    person.home.kyanite("up --nodes 2").expect("another one");
    let nodes = cluster.pool("nodepool1");
    let names: Vec<&str> = nodes
        .iter()
        .filter_map(|node| node["metadata"]["name"].as_str())
        .collect();
    assert_eq!(names, [name(0), name(2)]);
    for node in &nodes {
        assert!(node["spec"]["providerID"].is_string(), "{node}");
    }
    // And by az, through the same API.
    person.ok("aks nodepool scale -g kyanite --cluster-name kyanite -n nodepool1 -c 1");
    assert_eq!(cluster.pool("nodepool1").len(), 1);
    person.home.kyanite("down --purge").expect("it goes down");
    assert_eq!(person.home.mounts(), Vec::<String>::new());
}

#[test]
fn a_cluster_is_deleted_while_it_is_made_and_a_cloud_that_is_killed_goes_on_with_a_pool() {
    let Some(person) = Person::new() else { return };
    person
        .home
        .kyanite("up --port 0 --nodes 0")
        .expect("it comes up");
    person.ok("group create -n g -l eastus");
    person.ok("aks create -g g -n early --no-ssh-key -c 1 -s Standard_D2s_v5 --no-wait");
    person.ok("aks delete -g g -n early -y");
    assert_eq!(person.home.entries("clusters"), Vec::<String>::new());

    person.ok("aks create -g g -n c --no-ssh-key -c 1 -s Standard_D2s_v5");
    person.ok("aks nodepool add -g g --cluster-name c -n more -c 1 -s Standard_D2s_v5 --no-wait");
    eventually("its machine is being made", || {
        let cluster = person.home.entries("clusters").remove(0);
        match person
            .home
            .entries(&format!("clusters/{cluster}/machines/machines"))
            .len()
        {
            2 => Ok(()),
            other => Err(format!("{other} machines")),
        }
    });
    let status = person.home.kyanite("status -o json").expect("a status");
    let status: Value = serde_json::from_str(&status).expect("JSON");
    harness::said(std::process::Command::new("kill").args(["-9", &status["pid"].to_string()]))
        .expect("it is killed");
    person
        .home
        .kyanite("up --port 0")
        .expect("it comes up again");
    eventually("the pool is made", || {
        let state = person
            .az("aks nodepool show -g g --cluster-name c -n more --query provisioningState")?;
        match state == "Succeeded" {
            true => Ok(()),
            false => Err(state.to_string()),
        }
    });
    assert_eq!(Cluster::of(&person, "g", "c").pool("more").len(), 1);
    person.ok("aks delete -g g -n c -y");
    person.home.kyanite("down --purge").expect("it goes down");
    assert_eq!(person.home.mounts(), Vec::<String>::new());
}
