#![allow(clippy::unwrap_used, reason = "tests")]
use proptest::prelude::*;

use super::*;

fn resource(kind: &str, namespaced: bool) -> Arc<Resource> {
    Arc::new(Resource {
        group: String::new(),
        version: "v1".into(),
        kind: kind.into(),
        plural: format!("{}s", kind.to_lowercase()),
        namespaced,
    })
}

/// A thing of namespace `ns`; its name is its uid.
fn thing(uid: &str, owners: &[&str], stage: Stage) -> Seen {
    Seen {
        uid: Uid::from(uid),
        resource: resource("Thing", true),
        namespace: "ns".into(),
        name: uid.into(),
        version: "1".into(),
        owners: owners.iter().map(|owner| reference(owner, true)).collect(),
        stage,
        wish: Propagation::Background,
    }
}

fn reference(uid: &str, blocks: bool) -> Owner {
    Owner {
        uid: Uid::from(uid),
        api_version: "v1".into(),
        kind: "Thing".into(),
        name: uid.into(),
        blocks,
    }
}

fn graph(things: &[Seen]) -> Graph {
    let mut graph = Graph::default();
    things
        .iter()
        .for_each(|thing| drop(graph.see(thing.clone())));
    graph
}

fn uid(text: &str) -> Uid {
    Uid::from(text)
}

fn texts(uids: &[Uid]) -> Vec<&str> {
    uids.iter().map(|uid| &**uid).collect()
}

#[test]
fn dependents_go_when_their_only_owner_has_gone() {
    let mut graph = graph(&[
        thing("owner", &[], Stage::Alive),
        thing("child", &["owner"], Stage::Alive),
    ]);
    assert_eq!(graph.decide(&uid("child")), Verdict::Keep);
    assert_eq!(texts(&graph.lose(&uid("owner")).look_at), ["child"]);
    let verdict = graph.decide(&uid("child"));
    assert!(matches!(
        verdict,
        Verdict::Delete {
            how: Propagation::Background,
            unblock: false,
            ..
        }
    ));
    graph.lose(&uid("child"));
    assert_eq!(graph.len(), 0, "nothing is left behind");
}

#[test]
fn an_owner_that_nobody_has_seen_is_asked_for_first() {
    let mut graph = Graph::default();
    let then = graph.see(thing("child", &["unseen"], Stage::Alive));
    assert_eq!(texts(&then.look_at), ["child"]);
    let Verdict::Ask { owner, namespace } = graph.decide(&uid("child")) else {
        panic!("not asked");
    };
    assert_eq!((&*owner.uid, namespace.as_str()), ("unseen", "ns"));
    assert_eq!(texts(&graph.miss(&owner.uid).look_at), ["child"]);
    assert!(matches!(
        graph.decide(&uid("child")),
        Verdict::Delete { .. }
    ));
    // Another one that names it later need not ask.
    assert_eq!(
        texts(&graph.see(thing("other", &["unseen"], Stage::Alive)).look_at),
        ["other"]
    );
    assert!(matches!(
        graph.decide(&uid("other")),
        Verdict::Delete { .. }
    ));
}

#[test]
fn one_solid_owner_is_enough_and_the_others_are_struck_out() {
    let mut graph = graph(&[
        thing("solid", &[], Stage::Alive),
        thing("gone", &[], Stage::Alive),
        thing("waiting", &[], Stage::AwaitingDependents),
        thing("child", &["solid", "gone", "waiting"], Stage::Alive),
    ]);
    graph.lose(&uid("gone"));
    let Verdict::Unlink { owners, .. } = graph.decide(&uid("child")) else {
        panic!("not unlinked");
    };
    assert_eq!(texts(&owners), ["gone", "waiting"]);
}

#[test]
fn foreground_deletion_goes_from_the_leaves_up() {
    let mut graph = graph(&[
        thing("root", &[], Stage::Alive),
        thing("branch", &["root"], Stage::Alive),
        thing("leaf", &["branch"], Stage::Alive),
    ]);
    let then = graph.see(thing("root", &[], Stage::AwaitingDependents));
    assert_eq!(texts(&then.look_at), ["branch", "root"]);
    assert_eq!(
        graph.decide(&uid("root")),
        Verdict::Await(vec![uid("branch")])
    );
    let verdict = graph.decide(&uid("branch"));
    assert!(matches!(
        verdict,
        Verdict::Delete {
            how: Propagation::Foreground,
            unblock: false,
            ..
        }
    ));
    graph.see(thing("branch", &["root"], Stage::AwaitingDependents));
    assert_eq!(graph.decide(&uid("root")), Verdict::Await(vec![]));
    let verdict = graph.decide(&uid("leaf"));
    assert!(matches!(
        verdict,
        Verdict::Delete {
            how: Propagation::Background,
            ..
        }
    ));
    assert_eq!(texts(&graph.lose(&uid("leaf")).look_at), ["branch"]);
    assert!(matches!(
        graph.decide(&uid("branch")),
        Verdict::Finish {
            finalizer: FOREGROUND,
            ..
        }
    ));
    assert_eq!(texts(&graph.lose(&uid("branch")).look_at), ["root"]);
    assert!(matches!(graph.decide(&uid("root")), Verdict::Finish { .. }));
}

#[test]
fn only_dependents_that_block_hold_up_their_owner() {
    let mut child = thing("child", &[], Stage::Alive);
    child.owners = vec![reference("owner", false)];
    let mut graph = graph(&[
        thing("owner", &[], Stage::AwaitingDependents),
        child.clone(),
    ]);
    assert!(matches!(
        graph.decide(&uid("owner")),
        Verdict::Finish { .. }
    ));
    child.owners = vec![reference("owner", true)];
    graph.see(child.clone());
    assert!(matches!(graph.decide(&uid("owner")), Verdict::Await(_)));
    child.owners = vec![reference("owner", false)];
    let then = graph.see(child);
    assert!(
        texts(&then.look_at).contains(&"owner"),
        "it is free to go now"
    );
}

#[test]
fn a_circle_does_not_block_itself() {
    let mut graph = graph(&[
        thing("a", &["b"], Stage::AwaitingDependents),
        thing("b", &["a"], Stage::Alive),
    ]);
    // `b` waits for `a`, which waits for `b`: the references stop blocking before `b` is deleted.
    let verdict = graph.decide(&uid("b"));
    assert!(matches!(
        verdict,
        Verdict::Delete {
            how: Propagation::Foreground,
            unblock: true,
            ..
        }
    ));
    let mut b = thing("b", &[], Stage::AwaitingDependents);
    b.owners = vec![reference("a", false)];
    graph.see(b);
    assert!(matches!(graph.decide(&uid("a")), Verdict::Finish { .. }));
}

#[test]
fn orphans_are_let_go_before_their_owner() {
    let graph = graph(&[
        thing("owner", &[], Stage::AwaitingOrphans),
        thing("child", &["owner"], Stage::Alive),
    ]);
    let Verdict::Orphan { dependents, .. } = graph.decide(&uid("owner")) else {
        panic!("not orphaned");
    };
    assert_eq!(dependents.len(), 1);
    assert_eq!(
        graph.decide(&uid("child")),
        Verdict::Keep,
        "it has an owner still"
    );
}

#[test]
fn an_owner_in_another_namespace_is_a_mistake_and_counts_for_nothing() {
    let mut stranger = thing("stranger", &["owner"], Stage::Alive);
    stranger.namespace = "elsewhere".into();
    for owner_first in [true, false] {
        let mut graph = Graph::default();
        let mut seen = [thing("owner", &[], Stage::Alive), stranger.clone()];
        if !owner_first {
            seen.reverse();
        }
        let then: Vec<Consequences> = seen.into_iter().map(|seen| graph.see(seen)).collect();
        let mistakes: usize = then.iter().map(|then| then.mistakes.len()).sum();
        assert_eq!(mistakes, 1, "owner first: {owner_first}");
        assert!(matches!(
            graph.decide(&uid("stranger")),
            Verdict::Delete { .. }
        ));
    }
}

#[test]
fn an_object_of_the_cluster_with_an_owner_in_a_namespace_stays() {
    let mut wide = thing("wide", &["owner"], Stage::Alive);
    wide.namespace = String::new();
    wide.resource = resource("Wide", false);
    let graph = graph(&[thing("owner", &[], Stage::Alive), wide]);
    assert_eq!(graph.decide(&uid("wide")), Verdict::Keep);
}

#[test]
fn an_owner_of_the_cluster_may_own_anywhere() {
    let mut wide = thing("wide", &[], Stage::Alive);
    wide.namespace = String::new();
    wide.resource = resource("Thing", false);
    let graph = graph(&[wide, thing("child", &["wide"], Stage::Alive)]);
    assert_eq!(graph.decide(&uid("child")), Verdict::Keep);
}

#[test]
fn what_is_being_deleted_is_left_alone() {
    let mut graph = graph(&[
        thing("owner", &[], Stage::Alive),
        thing("child", &["owner"], Stage::Deleting),
    ]);
    graph.lose(&uid("owner"));
    assert_eq!(graph.decide(&uid("child")), Verdict::Keep);
}

/// What is done in the end, whatever order things are seen in: objects by whether they live.
fn survivors(order: &[usize], things: &[Seen], gone: &[usize]) -> Vec<String> {
    let mut graph = Graph::default();
    let mut queue: Vec<Uid> = Vec::new();
    for index in order {
        queue.extend(graph.see(things[*index].clone()).look_at);
    }
    for index in gone {
        queue.extend(graph.lose(&things[*index].uid).look_at);
    }
    while let Some(next) = queue.pop() {
        match graph.decide(&next) {
            Verdict::Delete { object, .. } => queue.extend(graph.lose(&object.uid).look_at),
            Verdict::Ask { owner, .. } => {
                queue.extend(graph.miss(&owner.uid).look_at);
                queue.push(next);
            }
            Verdict::Unlink { mut object, owners } => {
                object.owners.retain(|owner| !owners.contains(&owner.uid));
                queue.extend(graph.see(object).look_at);
            }
            _ => {}
        }
    }
    let mut left: Vec<String> = things
        .iter()
        .filter(|thing| {
            graph
                .nodes
                .get(&thing.uid)
                .is_some_and(|node| node.seen.is_some())
        })
        .map(|thing| thing.uid.to_string())
        .collect();
    left.sort();
    left
}

proptest! {
    #[test]
    fn the_outcome_does_not_depend_on_the_order_of_events(
        parents in prop::collection::vec(prop::collection::vec(0_usize..12, 0..3), 1..12),
        gone in prop::collection::vec(0_usize..12, 0..4),
        seed in any::<u64>(),
    ) {
        let count = parents.len();
        // Owners are made before their dependents, so there are no circles; some never existed.
        let things: Vec<Seen> = parents
            .iter()
            .enumerate()
            .map(|(index, owners)| {
                let names: Vec<String> = owners
                    .iter()
                    .map(|owner| if index == 0 { "never".into() } else { format!("t{}", owner % index) })
                    .collect();
                let mut names: Vec<&str> = names.iter().map(String::as_str).collect();
                names.dedup();
                thing(&format!("t{index}"), &names, Stage::Alive)
            })
            .collect();
        let gone: Vec<usize> = gone.into_iter().filter(|index| *index < count).collect();
        let forward: Vec<usize> = (0..count).collect();
        let mut shuffled = forward.clone();
        let mut state = seed;
        for index in (1..count).rev() {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            shuffled.swap(index, usize::try_from(state >> 33).unwrap() % (index + 1));
        }
        prop_assert_eq!(
            survivors(&forward, &things, &gone),
            survivors(&shuffled, &things, &gone)
        );
    }
}
