//! `kubectl auth` and `kubectl create token`, and that changes of access are felt by the very next request.

use std::collections::BTreeSet;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::harness::{Forger, Kubectl, Server, eventually, skip};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// One thing that is allowed: resource with group, URL, name, verb; empty where there is none.
type Permission = (String, String, String, String);

/// Every single permission of a rule.
fn permissions(rule: &Value, into: &mut BTreeSet<Permission>) {
    let list = |field: &str| -> Vec<String> {
        let values = rule[field].as_array().into_iter().flatten();
        values.map(|v| v.as_str().unwrap().to_owned()).collect()
    };
    let or_nothing = |values: Vec<String>| match values.is_empty() {
        true => vec![String::new()],
        false => values,
    };
    for verb in list("verbs") {
        for url in list("nonResourceURLs") {
            into.insert((String::new(), url, String::new(), verb.clone()));
        }
        for group in list("apiGroups") {
            for resource in list("resources") {
                for name in or_nothing(list("resourceNames")) {
                    let resource = with_group(&resource, &group);
                    into.insert((resource, String::new(), name, verb.clone()));
                }
            }
        }
    }
}

/// A resource as kubectl shows it: `deployments.apps/scale`.
fn with_group(resource: &str, group: &str) -> String {
    let dotted = |base: &str| match group {
        "" => base.to_owned(),
        group => format!("{base}.{group}"),
    };
    match resource.split_once('/') {
        Some((base, sub)) => format!("{}/{sub}", dotted(base)),
        None => dotted(resource),
    }
}

/// The permissions in the table that `kubectl auth can-i --list` prints.
fn listed(table: &str) -> BTreeSet<Permission> {
    let mut lines = table.lines();
    let header = lines.next().unwrap();
    let starts = ["Non-Resource URLs", "Resource Names", "Verbs"].map(|h| header.find(h).unwrap());
    let mut found = BTreeSet::new();
    for line in lines {
        let list = |text: &str| -> Vec<String> {
            let text = text.trim().trim_matches(['[', ']']);
            let values: Vec<String> = text.split(' ').map(str::to_owned).collect();
            values
        };
        let resource = line[..starts[0]].trim();
        let urls = list(&line[starts[0]..starts[1]]);
        let names = list(&line[starts[1]..starts[2]]);
        for verb in list(&line[starts[2]..]) {
            for (url, name) in urls.iter().flat_map(|u| names.iter().map(move |n| (u, n))) {
                let row = (resource.to_owned(), url.clone(), name.clone(), verb.clone());
                found.insert(row);
            }
        }
    }
    found
}

/// The roles and bindings upstream starts with, as recorded.
struct Policy {
    objects: Vec<Value>,
}

impl Policy {
    fn read() -> Option<Policy> {
        let Some(fixtures) = std::env::var_os("KYANITE_FIXTURES") else {
            skip("KYANITE_FIXTURES not set; no recorded policy to compare with");
            return None;
        };
        let dir = PathBuf::from(fixtures).join("kubernetes-1.36/rbac");
        let files = [
            "cluster-roles",
            "cluster-role-bindings",
            "controller-roles",
            "controller-role-bindings",
            "namespace-roles",
            "namespace-role-bindings",
        ];
        let objects = files.iter().flat_map(|name| {
            let text = std::fs::read_to_string(dir.join(format!("{name}.yaml"))).unwrap();
            let list: Value = serde_saphyr::from_str(&text).unwrap();
            list["items"].as_array().unwrap().clone()
        });
        Some(Policy {
            objects: objects.collect(),
        })
    }

    fn bindings(&self) -> impl Iterator<Item = &Value> {
        let is_binding = |o: &&Value| o["kind"].as_str().unwrap().ends_with("Binding");
        self.objects.iter().filter(is_binding)
    }

    /// Every subject: kind and name; a service account with its namespace, as its user is called.
    fn subjects(&self) -> BTreeSet<(String, String)> {
        let all = self.bindings().flat_map(|b| b["subjects"].as_array());
        all.flatten().map(identity).collect()
    }

    /// What somebody in these groups may do in a namespace.
    fn allowed(&self, user: &str, groups: &[&str], namespace: &str) -> BTreeSet<Permission> {
        let mut found = BTreeSet::new();
        let is_meant = |subject: &Value| match identity(subject) {
            (kind, name) if kind == "Group" => groups.contains(&name.as_str()),
            (_, name) => name == user,
        };
        for binding in self.bindings() {
            let place = &binding["metadata"]["namespace"];
            let is_here = place.is_null() || place == namespace;
            let subjects = binding["subjects"].as_array();
            if !is_here || !subjects.is_some_and(|all| all.iter().any(is_meant)) {
                continue;
            }
            let role = self.role(&binding["roleRef"], place);
            for rule in role["rules"].as_array().into_iter().flatten() {
                permissions(rule, &mut found);
            }
        }
        found
    }

    fn role(&self, reference: &Value, namespace: &Value) -> &Value {
        let found = self.objects.iter().find(|o| {
            o["kind"] == reference["kind"]
                && o["metadata"]["name"] == reference["name"]
                && (o["kind"] == "ClusterRole" || o["metadata"]["namespace"] == *namespace)
        });
        found.unwrap_or_else(|| panic!("no role {reference}"))
    }
}

fn identity(subject: &Value) -> (String, String) {
    let text = |field: &str| subject[field].as_str().unwrap_or_default().to_owned();
    let (kind, name) = (text("kind"), text("name"));
    match kind.as_str() {
        "ServiceAccount" => (
            kind,
            format!("system:serviceaccount:{}:{name}", text("namespace")),
        ),
        _ => (kind, name),
    }
}

/// Waits until `view` has been summed up, which happens after the server is ready.
fn until_view_is_there(kubectl: &Kubectl) {
    eventually("view has rules", || {
        match kubectl.field("clusterrole view", ".rules[0].verbs") {
            rules if rules.is_empty() => Err(rules),
            _ => Ok(()),
        }
    });
}

#[test]
fn every_bootstrap_subject_is_listed_with_what_upstream_gives_it() {
    let Some(policy) = Policy::read() else {
        return;
    };
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    let subjects = policy.subjects();
    assert!(subjects.len() > 40, "{subjects:?}");
    for (kind, name) in subjects {
        let list = "-n kube-system auth can-i --list --as";
        let (words, user, mut groups) = match kind.as_str() {
            "Group" => (
                format!("{list} jane --as-group {name}"),
                "jane",
                vec![name.as_str()],
            ),
            _ => (format!("{list} {name}"), name.as_str(), Vec::new()),
        };
        if kind == "ServiceAccount" {
            groups.push("system:serviceaccounts");
        }
        if name != "system:authenticated" {
            groups.push("system:authenticated");
        }
        if name == "system:unauthenticated" {
            // They may read public pages, but not ask what they may.
            kubectl.run(&words).exits_with(1).complains("Forbidden");
            continue;
        }
        let found = listed(&kubectl.run(&words).ok().stdout);
        let mut expected = policy.allowed(user, &groups, "kube-system");
        if name == "system:serviceaccount:kube-system:certificate-controller" {
            // `up` has one more controller of that account: it approves what kubelets serve with, as a cloud does.
            let signers = "signers.certificates.k8s.io";
            let ours = [signers, "", "kubernetes.io/kubelet-serving", "approve"];
            expected.insert(ours.map(str::to_owned).into());
        }
        let missing: Vec<_> = expected.difference(&found).collect();
        let surplus: Vec<_> = found.difference(&expected).collect();
        assert!(
            missing.is_empty() && surplus.is_empty(),
            "{name}: missing {missing:?}, surplus {surplus:?}"
        );
    }
}

#[test]
fn can_i_says_yes_and_no_and_whoami_says_who() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    kubectl
        .args(&["auth", "can-i", "*", "*"])
        .ok()
        .prints_only("yes");
    let no = |words: &str| {
        let answer = kubectl.run(&format!("auth can-i {words}")).exits_with(1);
        assert!(answer.stdout.starts_with("no"), "{answer}");
    };
    let yes = |words: &str| {
        kubectl
            .run(&format!("auth can-i {words}"))
            .ok()
            .prints("yes");
    };
    no("get pods --as jane");
    yes("create selfsubjectreviews.authentication.k8s.io --as jane");
    yes("get /healthz --as jane");
    no("get /metrics --as jane");
    until_view_is_there(&kubectl);
    kubectl.run("create namespace team").ok();
    kubectl
        .run("-n team create rolebinding viewers --clusterrole=view --group=viewers")
        .ok();
    yes("list pods -n team --as jane --as-group viewers");
    yes("get pods --subresource=log -n team --as jane --as-group viewers");
    no("list pods -n default --as jane --as-group viewers");
    no("list secrets -n team --as jane --as-group viewers");
    no("list pods -A --as jane --as-group viewers");
    no("delete pods -n team --as jane --as-group viewers");
    let me = kubectl
        .run("auth whoami -o json --as jane --as-group viewers --as-uid 7")
        .ok()
        .json();
    assert_eq!(
        me["status"]["userInfo"],
        json!({"username": "jane", "uid": "7", "groups": ["viewers", "system:authenticated"]})
    );
    let me = kubectl.run("auth whoami").ok();
    assert!(me.row("Groups").join(" ").contains("system:authenticated"));
}

#[test]
fn a_created_token_is_its_account_and_no_more() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    until_view_is_there(&kubectl);
    kubectl.run("create sa robot").ok();
    kubectl
        .run("create rolebinding robot --clusterrole=view --serviceaccount=default:robot")
        .ok();
    let made = kubectl.run("create token robot --duration 10m").ok();
    let robot = kubectl.server.bearer(made.stdout.trim());
    robot.get("/api/v1/namespaces/default/pods").ok();
    robot.get("/api/v1/namespaces/kube-system/pods").forbidden(
        "pods is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"pods\" in API group \
         \"\" in the namespace \"kube-system\"",
    );
    let made = kubectl.run("create token robot --audience vault").ok();
    let token = made.stdout.trim().to_owned();
    kubectl.server.bearer(&token).whoami().unauthorized();
    let review = |audiences: Value| {
        let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview",
            "spec": {"token": token, "audiences": audiences}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        kubectl.server.admin().post(path, &body).ok()["status"].clone()
    };
    let status = review(json!(["vault", "bank"]));
    assert_eq!(status["authenticated"], true);
    assert_eq!(status["audiences"], json!(["vault"]));
    assert_eq!(review(json!(["bank"]))["authenticated"], Value::Null);
    kubectl
        .run("create token robot --duration 5m")
        .exits_with(1)
        .complains("may not specify a duration less than 10 minutes");
    kubectl
        .run("create token nobody")
        .exits_with(1)
        .complains("serviceaccounts \"nobody\" not found");
}

#[test]
fn auth_reconcile_adds_what_is_missing_and_takes_away_when_told() {
    let Some(kubectl) = Kubectl::start() else {
        return;
    };
    let policy = |resource: &str, user: &str| {
        format!(
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\nmetadata: {{name: r, namespace: default}}\n\
             rules: [{{apiGroups: [''], resources: [{resource}], verbs: [get]}}]\n\
             ---\napiVersion: rbac.authorization.k8s.io/v1\nkind: RoleBinding\n\
             metadata: {{name: b, namespace: default}}\n\
             roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: r}}\n\
             subjects: [{{apiGroup: rbac.authorization.k8s.io, kind: User, name: {user}}}]\n"
        )
    };
    let can = |user: &str, resource: &str| {
        let asked = kubectl.run(&format!("auth can-i get {resource} --as {user}"));
        asked.stdout.trim() == "yes"
    };
    kubectl
        .with_input("auth reconcile -f -", &policy("pods", "jane"))
        .ok()
        .prints("role.rbac.authorization.k8s.io/r reconciled")
        .prints("rolebinding.rbac.authorization.k8s.io/b reconciled");
    assert!(can("jane", "pods"));
    kubectl
        .with_input("auth reconcile -f -", &policy("secrets", "bob"))
        .ok();
    assert!(can("jane", "pods") && can("jane", "secrets") && can("bob", "pods"));
    let remove = "auth reconcile --remove-extra-permissions --remove-extra-subjects -f -";
    kubectl.with_input(remove, &policy("secrets", "bob")).ok();
    assert!(can("bob", "secrets") && !can("bob", "pods") && !can("jane", "secrets"));
}

/// One way to give Jane, of the group `team`, leave to list pods, and to take it away again.
struct Way {
    collection: String,
    object: Value,
    /// What lets it be, without deleting it.
    emptied: Value,
}

impl Way {
    /// What undoes `emptied`.
    fn full(&self) -> Value {
        let fields = self.emptied.as_object().unwrap().keys();
        let fields = fields.map(|field| (field.clone(), self.object[field].clone()));
        Value::Object(fields.collect())
    }
}

fn ways() -> Vec<Way> {
    let group = "rbac.authorization.k8s.io";
    let local = format!("{RBAC}/namespaces/default");
    let rules = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    let subject = |kind: &str, name: &str| json!([{"apiGroup": group, "kind": kind, "name": name}]);
    let binding = |name: &str, kind: &str, role: &str, subjects: Value| {
        json!({"metadata": {"name": name}, "subjects": subjects,
            "roleRef": {"apiGroup": group, "kind": kind, "name": role}})
    };
    let way = |collection: String, object: Value, emptied: Value| Way {
        collection,
        object,
        emptied,
    };
    let no_subjects = json!({"subjects": []});
    vec![
        way(
            format!("{local}/rolebindings"),
            binding("to-user", "ClusterRole", "lister", subject("User", "jane")),
            no_subjects.clone(),
        ),
        way(
            format!("{RBAC}/clusterrolebindings"),
            binding(
                "to-group",
                "ClusterRole",
                "lister",
                subject("Group", "team"),
            ),
            no_subjects,
        ),
        way(
            format!("{local}/roles"),
            json!({"metadata": {"name": "later"}, "rules": rules}),
            json!({"rules": []}),
        ),
        way(
            format!("{RBAC}/clusterroles"),
            json!({"metadata": {"name": "later"}, "rules": rules}),
            json!({"rules": []}),
        ),
    ]
}

#[test]
fn the_next_request_feels_what_was_granted_and_what_was_revoked() {
    let server = Server::start();
    let admin = server.admin();
    let jane = server.person(Forger::of(&server, "ca").client("jane", &["team"]));
    let lister = json!({"metadata": {"name": "lister"},
        "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]});
    admin.post(&format!("{RBAC}/clusterroles"), &lister).ok();
    // Bindings to roles that come and go.
    let group = "rbac.authorization.k8s.io";
    for kind in ["Role", "ClusterRole"] {
        let waiting = json!({"metadata": {"name": format!("waiting-{}", kind.to_lowercase())},
            "roleRef": {"apiGroup": group, "kind": kind, "name": "later"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": "jane"}]});
        let path = format!("{RBAC}/namespaces/default/rolebindings");
        admin.post(&path, &waiting).ok();
    }
    let may = || jane.get("/api/v1/namespaces/default/pods").code;
    assert_eq!(may(), 403);
    let ways = ways();
    for round in 0..240 {
        let way = &ways[round % ways.len()];
        let name = way.object["metadata"]["name"].as_str().unwrap();
        let path = format!("{}/{name}", way.collection);
        admin.post(&way.collection, &way.object).ok();
        assert_eq!(may(), 200, "round {round}: {name} is there");
        admin.patch(&path, &way.emptied).ok();
        assert_eq!(may(), 403, "round {round}: {name} is empty");
        admin.patch(&path, &way.full()).ok();
        assert_eq!(may(), 200, "round {round}: {name} is full again");
        admin.delete(&path).ok();
        assert_eq!(may(), 403, "round {round}: {name} is gone");
    }
}
