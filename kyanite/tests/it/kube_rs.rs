//! The kube crate's watch runtime, over restarts and over compaction.

use std::collections::BTreeMap;
use std::pin::pin;

use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{
    Api, ListParams, ObjectMeta, Patch, PatchParams, PostParams, WatchEvent, WatchParams,
};
use kube::runtime::reflector::{self, Store};
use kube::runtime::{WatchStreamExt, watcher};
use serde_json::{Value, json};

use crate::harness::{Server, ServerOptions, eventually, eventually_async};

fn config_map(name: &str, value: &str) -> ConfigMap {
    ConfigMap {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        },
        data: Some(BTreeMap::from([("value".to_owned(), value.to_owned())])),
        ..ConfigMap::default()
    }
}

fn api(server: &Server) -> Api<ConfigMap> {
    Api::namespaced(server.client(), "default")
}

/// A reflector that keeps running on the server's runtime.
fn start_reflector(server: &Server, config: watcher::Config) -> Store<ConfigMap> {
    let (store, writer) = reflector::store();
    let stream = watcher(api(server), config)
        .default_backoff()
        .reflect(writer);
    server.block_on(async {
        tokio::spawn(async move {
            let mut stream = pin!(stream);
            while stream.next().await.is_some() {}
        });
    });
    store
}

/// What the reflector knows, as name -> value.
fn known(store: &Store<ConfigMap>) -> BTreeMap<String, String> {
    let entry = |object: &ConfigMap| {
        let value = object
            .data
            .as_ref()
            .and_then(|data| data.get("value"))
            .cloned();
        Some((object.metadata.name.clone()?, value?))
    };
    store
        .state()
        .iter()
        .filter_map(|object| entry(object))
        .collect()
}

#[track_caller]
fn wait_until_known(store: &Store<ConfigMap>, wanted: &[(&str, &str)]) {
    let wanted: BTreeMap<String, String> = wanted
        .iter()
        .map(|(k, v)| (k.to_string(), v.to_string()))
        .collect();
    eventually("the reflector agrees with the server", || {
        let seen = known(store);
        if seen == wanted {
            Ok(())
        } else {
            Err(format!("{seen:?}, wanted {wanted:?}"))
        }
    });
}

#[test]
fn a_reflector_survives_the_server_being_killed_and_started_again() {
    let mut server = Server::start();
    let store = start_reflector(&server, watcher::Config::default());
    let create = |server: &Server, name: &str, value: &str| {
        server
            .block_on(api(server).create(&PostParams::default(), &config_map(name, value)))
            .unwrap()
    };
    create(&server, "before", "1");
    create(&server, "doomed", "1");
    wait_until_known(&store, &[("before", "1"), ("doomed", "1")]);
    for round in ["2", "3"] {
        server.kill();
        server.start_again();
        let change = Patch::Merge(json!({"data": {"value": round}}));
        server
            .block_on(api(&server).patch("before", &PatchParams::default(), &change))
            .unwrap();
        create(&server, &format!("after-{round}"), "new");
    }
    server
        .block_on(api(&server).delete("doomed", &Default::default()))
        .unwrap();
    wait_until_known(
        &store,
        &[("before", "3"), ("after-2", "new"), ("after-3", "new")],
    );
}

#[test]
fn a_watch_from_before_a_kill_goes_on_without_losing_or_repeating_events() {
    let mut server = Server::start();
    let create = |server: &Server, name: &str| {
        let (api, object) = (api(server), config_map(name, "x"));
        let created = server
            .block_on(api.create(&PostParams::default(), &object))
            .unwrap();
        created.metadata.resource_version.unwrap()
    };
    let seen = create(&server, "first");
    create(&server, "second");
    server.kill();
    server.start_again();
    create(&server, "third");
    let names = server.block_on(names_added_since(&api(&server), &seen, 2));
    assert_eq!(names, ["second", "third"]);
}

/// The names of the next `count` objects that are added after a version.
async fn names_added_since(api: &Api<ConfigMap>, version: &str, count: usize) -> Vec<String> {
    let mut events = pin!(api.watch(&WatchParams::default(), version).await.unwrap());
    let mut names = Vec::new();
    while names.len() < count {
        match events.try_next().await.unwrap().expect("the watch goes on") {
            WatchEvent::Added(object) => names.extend(object.metadata.name),
            WatchEvent::Bookmark(_) => {}
            other => panic!("unexpected {other:?}"),
        }
    }
    names
}

#[test]
fn acknowledged_writes_survive_a_kill() {
    let mut server = Server::start();
    for round in 0..3 {
        let names: Vec<String> = (0..40).map(|n| format!("r{round}-{n}")).collect();
        server.block_on(async {
            let api = api(&server);
            let creations = names.iter().map(|name| {
                let api = api.clone();
                async move {
                    api.create(&PostParams::default(), &config_map(name, "kept"))
                        .await
                        .unwrap()
                }
            });
            futures::future::join_all(creations).await;
        });
        server.kill();
        server.start_again();
        let listed = server
            .block_on(api(&server).list(&ListParams::default()))
            .unwrap();
        let kept = listed
            .items
            .iter()
            .filter_map(|item| item.metadata.name.as_deref());
        let kept: std::collections::HashSet<&str> = kept.collect();
        assert!(
            names.iter().all(|name| kept.contains(name.as_str())),
            "round {round} lost something of {names:?}"
        );
    }
}

fn compacting_server() -> Server {
    Server::start_with(ServerOptions {
        flags: vec!["--compaction-interval", "200ms"],
    })
}

/// Writes until the server answers a watch from `old` with 410, and gives that answer's status.
async fn wait_until_compacted(server: &Server, old: &str) -> Value {
    let api = api(server);
    let path = format!(
        "/api/v1/namespaces/default/configmaps?watch=1&timeoutSeconds=1&resourceVersion={old}"
    );
    let mut count = 0_u32;
    eventually_async("the old revision is compacted", async || {
        count += 1;
        let change = Patch::Merge(json!({"data": {"value": count.to_string()}}));
        api.patch("busy", &PatchParams::default(), &change)
            .await
            .map_err(|error| error.to_string())?;
        let request = http::Request::get(&path)
            .body(Vec::new())
            .map_err(|error| error.to_string())?;
        let text = server.client().request_text(request).await;
        let text = match text {
            Ok(text) => text,
            Err(kube::Error::Api(status)) => {
                serde_json::to_string(&status).map_err(|error| error.to_string())?
            }
            Err(other) => return Err(other.to_string()),
        };
        status_410(&text).ok_or(text)
    })
    .await
}

/// The status inside an ERROR event, or a plain one, when it says 410.
fn status_410(text: &str) -> Option<Value> {
    let first: Value = serde_json::from_str(text.lines().next()?).ok()?;
    let status = if first["type"] == "ERROR" {
        first["object"].clone()
    } else {
        first
    };
    (status["code"] == 410).then_some(status)
}

#[test]
fn a_watch_from_a_compacted_revision_is_told_so() {
    let server = compacting_server();
    server.block_on(async {
        let created = api(&server)
            .create(&PostParams::default(), &config_map("busy", "0"))
            .await
            .unwrap();
        let status =
            wait_until_compacted(&server, &created.metadata.resource_version.unwrap()).await;
        assert_eq!(status["reason"], "Expired", "{status}");
        assert!(
            status["message"]
                .as_str()
                .unwrap()
                .contains("too old resource version"),
            "{status}"
        );
    });
}

#[test]
fn a_list_at_a_compacted_revision_and_its_continuation_are_told_so() {
    let server = compacting_server();
    server.block_on(async {
        let api = api(&server);
        for name in ["a", "b", "busy"] {
            api.create(&PostParams::default(), &config_map(name, "0")).await.unwrap();
        }
        let page = api.list(&ListParams::default().limit(1)).await.unwrap();
        let (version, token) = (page.metadata.resource_version.unwrap(), page.metadata.continue_.unwrap());
        wait_until_compacted(&server, &version).await;
        let refusal = api.list(&ListParams::default().limit(1).continue_token(&token)).await.unwrap_err();
        let kube::Error::Api(status) = refusal else { panic!("{refusal}") };
        assert_eq!((status.code, status.reason.as_str()), (410, "Expired"));
        let fresh = status.details.is_some() || status.metadata.is_some();
        assert!(fresh || status.message.contains("expired"), "{status:?}");
        let path = format!(
            "/api/v1/namespaces/default/configmaps?limit=1&resourceVersion={version}&resourceVersionMatch=Exact"
        );
        let (code, body) = crate::harness::exchange(&server.client(), http::Request::get(path).body(vec![]).unwrap())
            .await
            .unwrap();
        assert_eq!(code, 410, "{body}");
    });
}

#[test]
fn a_reflector_that_reconnects_often_stays_right_while_history_is_compacted() {
    let server = compacting_server();
    let store = start_reflector(&server, watcher::Config::default().timeout(1));
    server.block_on(async {
        let created = api(&server)
            .create(&PostParams::default(), &config_map("busy", "0"))
            .await
            .unwrap();
        wait_until_compacted(&server, &created.metadata.resource_version.unwrap()).await;
        let last = Patch::Merge(json!({"data": {"value": "last"}}));
        api(&server)
            .patch("busy", &PatchParams::default(), &last)
            .await
            .unwrap();
        api(&server)
            .create(&PostParams::default(), &config_map("late", "1"))
            .await
            .unwrap();
    });
    wait_until_known(&store, &[("busy", "last"), ("late", "1")]);
}

#[test]
fn a_streaming_list_ends_with_a_bookmark_and_goes_on_as_a_watch() {
    let server = Server::start();
    let store = start_reflector(&server, watcher::Config::default().streaming_lists());
    server.block_on(async {
        for name in ["a", "b"] {
            api(&server)
                .create(&PostParams::default(), &config_map(name, "1"))
                .await
                .unwrap();
        }
    });
    wait_until_known(&store, &[("a", "1"), ("b", "1")]);
}

#[test]
fn a_quiet_watch_gets_bookmarks() {
    let server = Server::start();
    server.block_on(async {
        let path = "/api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=true&sendInitialEvents=true\
                    &resourceVersionMatch=NotOlderThan&timeoutSeconds=1";
        let text = server.client().request_text(http::Request::get(path).body(vec![]).unwrap()).await.unwrap();
        let mut events = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let bookmark = events.find(|event| event["type"] == "BOOKMARK").expect("a bookmark");
        assert_eq!(bookmark["object"]["metadata"]["annotations"]["k8s.io/initial-events-end"], "true", "{bookmark}");
        assert_eq!(bookmark["object"]["kind"], "ConfigMap");
    });
}

#[test]
fn a_bookmark_holds_the_newest_revision_although_only_other_kinds_changed() {
    let server = Server::start_alone();
    server.block_on(async {
        api(&server).create(&PostParams::default(), &config_map("cm", "0")).await.unwrap();
        // Two seconds before a watch ends, and every minute.
        let path = "/api/v1/namespaces/default/configmaps?watch=1&allowWatchBookmarks=true&timeoutSeconds=4";
        let request = http::Request::get(path).body(vec![]).unwrap();
        let mut events = pin!(server.client().request_events::<ConfigMap>(request).await.unwrap());
        let first = events.try_next().await.unwrap();
        assert!(matches!(first, Some(WatchEvent::Added(_))), "{first:?}");
        let secrets: Api<Secret> = Api::namespaced(server.client(), "default");
        let secret: Secret = serde_json::from_value(json!({"metadata": {"name": "s"}})).unwrap();
        let secret = secrets.create(&PostParams::default(), &secret).await.unwrap();
        let Some(WatchEvent::Bookmark(bookmark)) = events.try_next().await.unwrap() else {
            panic!("no bookmark came");
        };
        let revision = |text: &str| text.parse::<u64>().unwrap();
        let written = revision(&secret.metadata.resource_version.unwrap());
        let told = revision(&bookmark.metadata.resource_version);
        assert!(told >= written, "bookmark of {told}, written was {written}");
    });
}

#[test]
fn two_writers_with_the_same_version_cannot_both_win() {
    let server = Server::start();
    server.block_on(async {
        let api = api(&server);
        let start = api.create(&PostParams::default(), &config_map("cm", "0")).await.unwrap();
        let writers = (0..8).map(|n| {
            let (api, mut object) = (api.clone(), start.clone());
            object.data = Some(BTreeMap::from([("value".to_owned(), format!("writer {n}"))]));
            async move { api.replace("cm", &PostParams::default(), &object).await }
        });
        let results = futures::future::join_all(writers).await;
        let won = results.iter().filter(|result| result.is_ok()).count();
        let lost = |result: &Result<_, kube::Error>| matches!(result, Err(kube::Error::Api(status)) if status.code == 409);
        assert_eq!((won, results.iter().filter(|result| lost(result)).count()), (1, 7));
    });
}
