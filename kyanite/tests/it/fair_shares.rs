//! One greedy user gets their share and no more: nodes and other users are answered all the while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures::{StreamExt as _, TryStreamExt as _};
use http::Request;
use http_body_util::BodyExt as _;
use kube::client::Body;
use serde_json::{Value, json};

use crate::harness::{Credentials, Forger, Server, call, eventually};

/// More than the greedy one's queues (six of fifty) and all the seats of the level hold.
const AT_ONCE: usize = 450;
/// Five seats for each list.
const OBJECTS: usize = 500;
/// How long the others may take for all they have to do, behind a backlog that never ends. In one line with it
/// they would take many times as long.
const DEADLINE: Duration = Duration::from_secs(60);
const LEASES: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
/// Everything is looked at and nothing is sent, so that this process is not what slows the crowd down.
const LIST: &str = "/api/v1/namespaces/default/configmaps?labelSelector=no%3Dmatch";

/// What the greedy one has seen so far.
#[derive(Default)]
struct Seen {
    done: AtomicBool,
    answered: AtomicUsize,
    refused: AtomicUsize,
    /// Refusals without a word about when to come back.
    rude: AtomicUsize,
    other: AtomicUsize,
}

impl Seen {
    fn of(&self, counter: &AtomicUsize) -> usize {
        counter.load(Ordering::SeqCst)
    }
}

/// Lists everything again and again until told to stop.
async fn list_and_list(client: kube::Client, seen: Arc<Seen>) {
    while !seen.done.load(Ordering::SeqCst) {
        let request = Request::get(LIST).body(Body::empty()).expect("legal");
        let Ok(response) = client.send(request).await else {
            seen.other.fetch_add(1, Ordering::SeqCst);
            continue;
        };
        let retry_after = response.headers().get("retry-after").cloned();
        let counter = match response.status().as_u16() {
            200 => &seen.answered,
            429 => &seen.refused,
            _ => &seen.other,
        };
        if response.status() == 429 && retry_after.is_none_or(|v| v != "1") {
            seen.rude.fetch_add(1, Ordering::SeqCst);
        }
        counter.fetch_add(1, Ordering::SeqCst);
        let _ = response.into_body().collect().await;
    }
}

/// Objects worth listing, and leave for two users to read them.
fn fill(server: &Server) {
    let admin = server.admin();
    server.block_on(async {
        let text = "x".repeat(2048);
        let create = async |index: usize| {
            let map = json!({"metadata": {"name": format!("m{index}")}, "data": {"text": text}});
            call(
                &admin.client(),
                ("POST", MAPS),
                "application/json",
                Some(&map),
            )
            .await
        };
        let made = futures::stream::iter(0..OBJECTS)
            .map(create)
            .buffer_unordered(50);
        let made: Vec<_> = made.try_collect().await.expect("answers");
        assert!(made.iter().all(|(code, _)| *code == 201));
    });
    let group = "rbac.authorization.k8s.io";
    let rbac = format!("/apis/{group}/v1/clusterroles");
    let role = json!({"metadata": {"name": "readers"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]}]});
    admin.post(&rbac, &role).ok();
    let binding = json!({"metadata": {"name": "readers"},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "readers"},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": "readers"}]});
    admin
        .post(&format!("/apis/{group}/v1/clusterrolebindings"), &binding)
        .ok();
    admin
        .post("/api/v1/nodes", &json!({"metadata": {"name": "a"}}))
        .ok();
    admin
        .post(
            LEASES,
            &json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "a"}}),
        )
        .ok();
}

/// Ten renewals of a node's lease and ten reads of another user, one after the other.
async fn others_at_work(node: kube::Client, reader: kube::Client) {
    let renewal = json!({"spec": {"renewTime": "2030-01-01T00:00:00.000000Z"}});
    let merge = "application/merge-patch+json";
    for round in 0..10 {
        let renewed = call(
            &node,
            ("PATCH", &format!("{LEASES}/a")),
            merge,
            Some(&renewal),
        )
        .await;
        assert_eq!(renewed.expect("an answer").0, 200, "renewal {round}");
        let path = format!("{MAPS}/m{round}");
        let read = call(&reader, ("GET", &path), "application/json", None::<&Value>).await;
        assert_eq!(read.expect("an answer").0, 200, "read {round}");
    }
}

/// Does [`others_at_work`] on a runtime of its own, so that the crowd in this process cannot be what keeps them
/// waiting. Gives whether they were done in time.
fn others_in_time(server: &Server, node: &Credentials, reader: &Credentials) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be made");
    runtime.block_on(async {
        let (node, reader) = (
            server.client_with(node).await,
            server.client_with(reader).await,
        );
        let work = others_at_work(node, reader);
        tokio::time::timeout(DEADLINE, work).await.is_ok()
    })
}

#[test]
fn a_greedy_user_keeps_neither_nodes_nor_others_waiting() {
    let server = Server::start();
    fill(&server);
    let forger = Forger::of(&server, "ca");
    let greedy = server
        .person(forger.client("greedy", &["readers"]))
        .client();
    let reader = forger.client("modest", &["readers"]);
    let node = forger.client("system:node:a", &["system:nodes"]);
    let seen = Arc::new(Seen::default());
    let crowd = || tokio::spawn(list_and_list(greedy.clone(), Arc::clone(&seen)));
    let tasks: Vec<_> = server.block_on(async { (0..AT_ONCE).map(|_| crowd()).collect() });
    eventually("the greedy one is refused", || {
        match seen.of(&seen.refused) {
            0 => Err(format!("{} answered", seen.of(&seen.answered))),
            _ => Ok(()),
        }
    });
    let in_time = others_in_time(&server, &node, &reader);
    seen.done.store(true, Ordering::SeqCst);
    server.block_on(async {
        for task in tasks {
            task.await.unwrap();
        }
    });
    assert!(in_time, "the others were kept waiting");
    assert!(
        seen.of(&seen.answered) > 0,
        "the greedy one has a share too"
    );
    assert_eq!(seen.of(&seen.rude), 0, "refusals without Retry-After: 1");
    assert_eq!(
        seen.of(&seen.other),
        0,
        "answers that are neither 200 nor 429"
    );
}
