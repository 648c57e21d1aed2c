//! Nobody makes more of themselves than they are: by roles, bindings, sums of roles, other people's names and
//! certificate requests.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::harness::{Answer, Forger, Person, Server, certificate_request};

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const CSRS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";

fn of_default(resource: &str) -> String {
    format!("{RBAC}/namespaces/default/{resource}")
}

fn of_cluster(resource: &str) -> String {
    format!("{RBAC}/{resource}")
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({"apiGroups": [group], "resources": [resource], "verbs": verbs})
}

/// Gives a user a cluster role of these rules.
fn grant(server: &Server, user: &str, name: &str, rules: Value) {
    let role = json!({"metadata": {"name": name}, "rules": rules});
    server.admin().post(&of_cluster("clusterroles"), &role).ok();
    let binding = binding(name, "ClusterRole", name, user);
    server
        .admin()
        .post(&of_cluster("clusterrolebindings"), &binding)
        .ok();
}

fn binding(name: &str, kind: &str, role: &str, user: &str) -> Value {
    let group = "rbac.authorization.k8s.io";
    json!({"metadata": {"name": name}, "roleRef": {"apiGroup": group, "kind": kind, "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}]})
}

/// Jane, with a certificate of her own.
fn jane(server: &Server) -> Person<'_> {
    server.person(Forger::of(server, "ca").client("jane", &[]))
}

/// Jane may write roles and bindings of all kinds, and read pods; that is all.
fn role_maker(server: &Server) -> Person<'_> {
    let verbs = ["create", "update", "patch", "get"];
    let rbac = "rbac.authorization.k8s.io";
    let mut rules = vec![rule("", "pods", &["get"])];
    let resources = [
        "roles",
        "clusterroles",
        "rolebindings",
        "clusterrolebindings",
    ];
    rules.extend(resources.map(|resource| rule(rbac, resource, &verbs)));
    grant(server, "jane", "role-maker", json!(rules));
    jane(server)
}

/// Refused for granting what is not held.
#[track_caller]
fn grants_too_much(answer: Answer, what: &str, missing: &[&str]) {
    answer.forbidden(&format!(
        "{what} is forbidden: user \"jane\" (groups=[\"system:authenticated\"]) is attempting to grant RBAC \
         permissions not currently held:\n{}",
        missing.join("\n")
    ));
}

const SECRETS: &str = "{APIGroups:[\"\"], Resources:[\"secrets\"], Verbs:[\"get\"]}";
const EVERYTHING: [&str; 2] = [
    "{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}",
    "{NonResourceURLs:[\"*\"], Verbs:[\"*\"]}",
];

#[test]
fn roles_hold_no_more_than_their_maker() {
    let server = Server::start();
    let jane = role_maker(&server);
    for (collection, kind) in [
        (of_default("roles"), "roles.rbac.authorization.k8s.io"),
        (
            of_cluster("clusterroles"),
            "clusterroles.rbac.authorization.k8s.io",
        ),
    ] {
        let role = |name: &str, resource: &str| json!({"metadata": {"name": name}, "rules": [rule("", resource, &["get"])]});
        let refused = jane.post(&collection, &role("more", "secrets"));
        grants_too_much(refused, &format!("{kind} \"more\""), &[SECRETS]);
        jane.post(&collection, &role("same", "pods")).ok();
        let same = format!("{collection}/same");
        let changed = json!({"rules": [rule("", "secrets", &["get"])]});
        grants_too_much(
            jane.patch(&same, &changed),
            &format!("{kind} \"same\""),
            &[SECRETS],
        );
        grants_too_much(
            jane.put(&same, &role("same", "secrets")),
            &format!("{kind} \"same\""),
            &[SECRETS],
        );
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        jane.patch(&same, &label).ok();
    }
    // What is collected into `edit` is granted to everybody who has that.
    let part = json!({"metadata": {"name": "part", "labels":
            {"rbac.authorization.k8s.io/aggregate-to-edit": "true"}},
        "rules": [rule("", "secrets", &["get"])]});
    grants_too_much(
        jane.post(&of_cluster("clusterroles"), &part),
        "clusterroles.rbac.authorization.k8s.io \"part\"",
        &[SECRETS],
    );
    let sum = json!({"metadata": {"name": "sum"}, "rules": [], "aggregationRule":
        {"clusterRoleSelectors": [{"matchLabels": {"kubernetes.io/bootstrapping": "rbac-defaults"}}]}});
    jane.post(&of_cluster("clusterroles"), &sum).forbidden(
        "clusterroles.rbac.authorization.k8s.io \"sum\" is forbidden: must have cluster-admin privileges to use \
         the aggregationRule",
    );
    let admin_role = format!("{}/cluster-admin", of_cluster("clusterroles"));
    let patch = json!({"aggregationRule": {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}});
    let same = format!("{}/same", of_cluster("clusterroles"));
    jane.patch(&same, &patch).forbidden(
        "clusterroles.rbac.authorization.k8s.io \"same\" is forbidden: must have cluster-admin privileges to use \
         the aggregationRule",
    );
    // Nothing of it is lost on the administrator, and `escalate` lifts it.
    server.admin().get(&admin_role).ok();
    let rbac = "rbac.authorization.k8s.io";
    let escalate = json!([rule(rbac, "roles", &["escalate"])]);
    grant(&server, "jane", "escalator", escalate);
    let more = json!({"metadata": {"name": "more"}, "rules": [rule("", "secrets", &["get"])]});
    jane.post(&of_default("roles"), &more).ok();
    let refused = jane.post(&of_cluster("clusterroles"), &more);
    grants_too_much(
        refused,
        "clusterroles.rbac.authorization.k8s.io \"more\"",
        &[SECRETS],
    );
}

#[test]
fn bindings_give_no_more_than_their_maker_has() {
    let server = Server::start();
    let jane = role_maker(&server);
    let kinds = [
        (
            of_default("rolebindings"),
            "rolebindings.rbac.authorization.k8s.io",
        ),
        (
            of_cluster("clusterrolebindings"),
            "clusterrolebindings.rbac.authorization.k8s.io",
        ),
    ];
    for (collection, kind) in &kinds {
        let all = binding("all", "ClusterRole", "cluster-admin", "jane");
        let refused = jane.post(collection, &all);
        grants_too_much(refused, &format!("{kind} \"all\""), &EVERYTHING);
        let own = binding("own", "ClusterRole", "role-maker", "bob");
        jane.post(collection, &own).ok();
    }
    let role = json!({"metadata": {"name": "secrets"}, "rules": [rule("", "secrets", &["get"])]});
    server.admin().post(&of_default("roles"), &role).ok();
    let local = binding("local", "Role", "secrets", "jane");
    let refused = jane.post(&of_default("rolebindings"), &local);
    grants_too_much(
        refused,
        "rolebindings.rbac.authorization.k8s.io \"local\"",
        &[SECRETS],
    );
    // Joining those who have a role already is the same.
    let path = format!("{}/cluster-admin", of_cluster("clusterrolebindings"));
    let joined = json!({"subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User",
        "name": "jane"}]});
    grants_too_much(
        jane.patch(&path, &joined),
        "clusterrolebindings.rbac.authorization.k8s.io \"cluster-admin\"",
        &EVERYTHING,
    );
    jane.get("/api/v1/namespaces/default/secrets/s").forbidden(
        "secrets \"s\" is forbidden: User \"jane\" cannot get resource \"secrets\" in API group \"\" in the \
         namespace \"default\"",
    );
    let mut bind = rule("rbac.authorization.k8s.io", "clusterroles", &["bind"]);
    bind["resourceNames"] = json!(["view"]);
    grant(&server, "jane", "binder", json!([bind]));
    let view = binding("view", "ClusterRole", "view", "bob");
    jane.post(&of_default("rolebindings"), &view).ok();
    let other = binding("other", "ClusterRole", "system:kube-scheduler", "bob");
    let refused = jane.post(&of_default("rolebindings"), &other);
    assert_eq!(refused.code, 403, "{refused:?}");
}

#[test]
fn nobody_speaks_for_others_without_leave() {
    let server = Server::start();
    let user = |name: &str| jane(&server).with("Impersonate-User", name);
    // The first of the modes that could have allowed it is the one that is told.
    let refused = |person: Person<'_>, mode: &str| {
        person.whoami().forbidden(&format!(
            "selfsubjectreviews.authentication.k8s.io is forbidden: User \"jane\" cannot \
             impersonate-on:{mode}:create resource \"selfsubjectreviews\" in API group \
             \"authentication.k8s.io\" at the cluster scope"
        ));
    };
    let (anybody, account, node) = ("user-info", "serviceaccount", "arbitrary-node");
    refused(user("bob"), anybody);
    refused(user("system:admin"), anybody);
    let controller = "system:serviceaccount:kube-system:namespace-controller";
    refused(user(controller), account);
    refused(user("system:node:a"), node);
    // Leave to be bob is no leave to be anybody else, nor to add anything to him.
    let mut bob = rule("", "users", &["impersonate"]);
    bob["resourceNames"] = json!(["bob"]);
    grant(&server, "jane", "be-bob", json!([bob]));
    let me = user("bob").whoami().ok();
    assert_eq!(
        me["status"]["userInfo"],
        json!({"username": "bob", "groups": ["system:authenticated"]})
    );
    let add = |name: &str, value: &str| user("bob").with(&format!("Impersonate-{name}"), value);
    refused(user("alice"), anybody);
    refused(add("Group", "system:masters"), anybody);
    refused(add("Uid", "1"), anybody);
    refused(add("Extra-Scope", "all"), anybody);
    let nameless = jane(&server).with("Impersonate-Group", "system:masters");
    let answer = nameless.whoami();
    assert_eq!(answer.code, 400, "{answer:?}");
    let authentication = "authentication.k8s.io";
    let rules = json!([
        rule("", "groups", &["impersonate"]),
        rule("", "serviceaccounts", &["impersonate"]),
        rule(authentication, "uids", &["impersonate"]),
        rule(authentication, "userextras/scope", &["impersonate"]),
    ]);
    grant(&server, "jane", "be-more", rules);
    let whole = add("Group", "developers")
        .with("Impersonate-Uid", "1")
        .with("Impersonate-Extra-Scope", "all");
    assert_eq!(
        whole.whoami().ok()["status"]["userInfo"],
        json!({"username": "bob", "uid": "1", "groups": ["developers", "system:authenticated"],
            "extra": {"scope": ["all"]}})
    );
    refused(add("Extra-Other", "all"), anybody);
    let robot = user("system:serviceaccount:team:robot").whoami().ok();
    assert_eq!(
        robot["status"]["userInfo"]["groups"],
        json!([
            "system:serviceaccounts",
            "system:serviceaccounts:team",
            "system:authenticated"
        ])
    );
    refused(user("system:node:a"), node);
    // What the impersonated may not do, the impersonator does not do in their name.
    user("bob").get("/api/v1/nodes").forbidden(
        "nodes is forbidden: User \"bob\" cannot list resource \"nodes\" in API group \"\" at the cluster scope",
    );
}

#[test]
fn leave_to_speak_for_somebody_can_be_for_one_deed_only() {
    let server = Server::start();
    let mut bob = rule("authentication.k8s.io", "users", &["impersonate:user-info"]);
    bob["resourceNames"] = json!(["bob"]);
    let listing = rule("", "pods", &["impersonate-on:user-info:list"]);
    grant(&server, "jane", "list-as-bob", json!([bob, listing]));
    let list = json!([rule("", "pods", &["list", "get"])]);
    grant(&server, "bob", "list", list);
    let as_bob = jane(&server).with("Impersonate-User", "bob");
    as_bob.get("/api/v1/namespaces/default/pods").ok();
    as_bob.get("/api/v1/namespaces/default/pods/p").forbidden(
        "pods \"p\" is forbidden: User \"jane\" cannot impersonate-on:user-info:get resource \"pods\" in API \
         group \"\" in the namespace \"default\"",
    );
    jane(&server)
        .get("/api/v1/namespaces/default/pods")
        .forbidden(
            "pods is forbidden: User \"jane\" cannot list resource \"pods\" in API group \"\" in the namespace \
             \"default\"",
        );
}

fn csr(name: &str, signer: &str, pem: &str) -> Value {
    json!({"apiVersion": "certificates.k8s.io/v1", "kind": "CertificateSigningRequest",
        "metadata": {"name": name},
        "spec": {"signerName": signer, "usages": ["client auth"], "request": STANDARD.encode(pem)}})
}

#[test]
fn certificates_are_approved_and_signed_by_those_who_may() {
    let server = Server::start();
    let group = "certificates.k8s.io";
    let requests = "certificatesigningrequests";
    let rules = json!([
        rule(group, requests, &["create", "get"]),
        rule(group, &format!("{requests}/approval"), &["update"]),
        rule(group, &format!("{requests}/status"), &["update"]),
    ]);
    grant(&server, "jane", "requester", rules);
    let jane = jane(&server);
    let (_, masters) = certificate_request("jane", &["developers", "system:masters"]);
    jane.post(
        CSRS,
        &csr("masters", "kubernetes.io/kube-apiserver-client", &masters),
    )
    .forbidden(
        "certificatesigningrequests.certificates.k8s.io \"masters\" is forbidden: use of \
         kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed",
    );
    let (_, pem) = certificate_request("bob", &[]);
    let mut made = jane.post(CSRS, &csr("r", "example.com/signer", &pem)).ok();
    made["status"]["conditions"] =
        json!([{"type": "Approved", "status": "True", "reason": "r", "message": "m"}]);
    let approval = format!("{CSRS}/r/approval");
    jane.put(&approval, &made).forbidden(
        "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to approve requests \
         with signerName \"example.com/signer\"",
    );
    let mut approve = rule(group, "signers", &["approve"]);
    approve["resourceNames"] = json!(["example.com/*"]);
    grant(&server, "jane", "approver", json!([approve]));
    let mut approved = jane.put(&approval, &made).ok();
    let certificate = std::fs::read(server.home().join("data/pki/ca.crt")).unwrap();
    approved["status"]["certificate"] = json!(STANDARD.encode(certificate));
    let status = format!("{CSRS}/r/status");
    jane.put(&status, &approved).forbidden(
        "certificatesigningrequests.certificates.k8s.io \"r\" is forbidden: user not permitted to sign requests \
         with signerName \"example.com/signer\"",
    );
    let mut sign = rule(group, "signers", &["sign"]);
    sign["resourceNames"] = json!(["example.com/signer"]);
    grant(&server, "jane", "signer", json!([sign]));
    let signed = jane.put(&status, &approved).ok();
    assert_eq!(
        signed["status"]["certificate"],
        approved["status"]["certificate"]
    );
}
