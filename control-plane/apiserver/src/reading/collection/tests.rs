use super::*;
use kinds::resources;
use store::KeyValue;

fn put(key: &str, revision: u64) -> Event {
    let value = Bytes::from(format!(
        r#"{{"kind":"ConfigMap","apiVersion":"v1","metadata":{{"name":"{key}","n":{revision}}}}}"#
    ));
    let key = format!("/registry/configmaps/{key}");
    let current = KeyValue {
        key: key.clone(),
        value,
        create_revision: revision,
        mod_revision: revision,
    };
    Event {
        key,
        revision,
        current: Some(current),
        previous: None,
    }
}

fn collection() -> Collection {
    Collection::new(
        Arc::clone(resources::find("", "v1", "configmaps").expect("exists")),
        Vec::new(),
    )
}

#[test]
fn a_cursor_sees_every_later_change_once() {
    let collection = collection();
    collection.apply(&put("a/x", 2));
    collection.apply(&put("a/y", 3));
    let mut cursor = collection.cursor_after(2, Topic::All).expect("in the ring");
    collection.apply(&put("a/x", 4));
    let seen: Vec<_> = collection
        .read_changes(&mut cursor, 10)
        .expect("kept")
        .iter()
        .map(|c| c.revision)
        .collect();
    assert_eq!(seen, [3, 4]);
    assert!(
        collection
            .read_changes(&mut cursor, 10)
            .expect("kept")
            .is_empty()
    );
}

#[test]
fn a_reader_that_fell_behind_the_ring_is_told() {
    let collection = collection();
    let mut cursor = collection.cursor_after(0, Topic::All).expect("empty");
    for revision in 2..(RING_ENTRIES as u64 + 10) {
        collection.apply(&put("a/x", revision));
    }
    assert!(collection.read_changes(&mut cursor, 10).is_err());
    assert!(collection.cursor_after(3, Topic::All).is_err());
    assert!(
        collection
            .cursor_after(RING_ENTRIES as u64, Topic::All)
            .is_ok()
    );
}

#[test]
fn only_concerned_topics_are_woken() {
    let collection = collection();
    let x = collection
        .cursor_after(0, Topic::Object("a/x".into()))
        .expect("empty");
    let b = collection
        .cursor_after(0, Topic::Namespace("b".into()))
        .expect("empty");
    collection.apply(&put("a/x", 2));
    assert!(x.wake.has_changed().expect("alive"));
    assert!(!b.wake.has_changed().expect("alive"));
}

#[test]
fn pages_follow_key_order() {
    let collection = collection();
    for (i, key) in ["a/x", "a/y", "b/z"].iter().enumerate() {
        collection.apply(&put(key, i as u64 + 2));
    }
    assert_eq!(collection.objects("", None).objects.len(), 3);
    let rest = collection.objects("", Some("a/y"));
    assert_eq!((rest.objects.len(), &*rest.objects[0].0), (1, "b/z"));
    assert_eq!(collection.objects("a/", None).objects.len(), 2);
    assert_eq!(rest.revision, 4);
}
