//! Who owns whom, and what follows from it.

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};

use super::resources::Resource;

/// Deletion waits for the dependents.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Dependents are to live on without their owner.
pub(super) const ORPHAN: &str = "orphan";
/// Owners that are known to be gone, at most; those that are forgotten are asked for again.
const ABSENT: usize = 5_000;

/// Which object, for ever.
pub(super) type Uid = Arc<str>;

/// What is seen of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) uid: Uid,
    pub(super) resource: Arc<Resource>,
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) version: String,
    pub(super) owners: Vec<Owner>,
    pub(super) stage: Stage,
    /// What its finalizers say about its dependents, for when it is deleted.
    pub(super) wish: Propagation,
}

/// An owner, as an object names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: Uid,
    pub(super) api_version: String,
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) blocks: bool,
}

/// Whether an object is being deleted, and what it waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Stage {
    /// It lives.
    #[default]
    Alive,
    /// It is deleted and waits for others than us.
    Deleting,
    /// It is deleted once its dependents are.
    AwaitingDependents,
    /// It is deleted once its dependents no longer name it.
    AwaitingOrphans,
}

impl Seen {
    pub(super) fn of(resource: &Arc<Resource>, meta: ObjectMeta) -> Option<Seen> {
        let (stage, wish) = (stage(&meta), wish(&meta));
        let owners = meta.owner_references.unwrap_or_default();
        Some(Seen {
            uid: Uid::from(meta.uid?),
            resource: Arc::clone(resource),
            namespace: meta.namespace.unwrap_or_default(),
            name: meta.name.unwrap_or_default(),
            version: meta.resource_version.unwrap_or_default(),
            owners: owners.into_iter().map(Owner::of).collect(),
            stage,
            wish,
        })
    }
}

fn stage(meta: &ObjectMeta) -> Stage {
    match (meta.deletion_timestamp.is_some(), wish(meta)) {
        (false, _) => Stage::Alive,
        (true, Propagation::Orphan) => Stage::AwaitingOrphans,
        (true, Propagation::Foreground) => Stage::AwaitingDependents,
        (true, Propagation::Background) => Stage::Deleting,
    }
}

fn wish(meta: &ObjectMeta) -> Propagation {
    let has = |wanted: &str| meta.finalizers.iter().flatten().any(|f| f == wanted);
    match (has(ORPHAN), has(FOREGROUND)) {
        (true, _) => Propagation::Orphan,
        (false, true) => Propagation::Foreground,
        (false, false) => Propagation::Background,
    }
}

impl Owner {
    fn of(reference: OwnerReference) -> Owner {
        Owner {
            uid: Uid::from(reference.uid),
            api_version: reference.api_version,
            kind: reference.kind,
            name: reference.name,
            blocks: reference.block_owner_deletion == Some(true),
        }
    }
}

#[derive(Debug)]
struct Node {
    /// None for an owner that was only heard of.
    seen: Option<Seen>,
    dependents: BTreeSet<Uid>,
}

/// How dependents of a deleted object fare.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Propagation {
    /// They go first.
    Foreground,
    /// They go later.
    Background,
    /// They stay.
    Orphan,
}

/// What is to be done about an object.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Verdict {
    /// Nothing.
    Keep,
    /// Nobody has seen this owner: ask whether it is there, in the namespace of the one that named it.
    Ask { owner: Owner, namespace: String },
    /// The object names owners that are gone, next to one that is not.
    Unlink { object: Seen, owners: Vec<Uid> },
    /// It goes. Where it is part of a circle it must not block its owners any more.
    Delete {
        object: Seen,
        how: Propagation,
        unblock: bool,
    },
    /// Nothing holds up its deletion any more.
    Finish {
        object: Seen,
        finalizer: &'static str,
    },
    /// Its deletion waits for these: each is to be looked at.
    Await(Vec<Uid>),
    /// These are to be made independent of it.
    Orphan { object: Seen, dependents: Vec<Seen> },
}

/// A reference to an owner in another namespace, which cannot be.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Mistake {
    pub(super) object: Seen,
    pub(super) owner: Owner,
}

/// What a change asks for.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Consequences {
    /// Objects to decide about.
    pub(super) look_at: Vec<Uid>,
    /// References to be reported.
    pub(super) mistakes: Vec<Mistake>,
}

/// Everything that was seen.
#[derive(Debug, Default)]
pub(super) struct Graph {
    nodes: HashMap<Uid, Node>,
    absent: Absent,
}

/// Owners that are known to be gone; a uid never returns.
#[derive(Debug, Default)]
struct Absent {
    known: HashSet<Uid>,
    order: VecDeque<Uid>,
}

impl Absent {
    fn add(&mut self, uid: Uid) {
        if self.known.insert(Arc::clone(&uid)) {
            self.order.push_back(uid);
        }
        if self.order.len() > ABSENT
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
    }
}

impl Graph {
    /// An object is there, or has changed.
    pub(super) fn see(&mut self, seen: Seen) -> Consequences {
        let mut then = Consequences::default();
        let uid = Arc::clone(&seen.uid);
        let before = self.nodes.get_mut(&uid).and_then(|node| node.seen.take());
        let known = before.as_ref().map_or(&[][..], |before| &before.owners);
        if known != seen.owners {
            self.unlink(&uid, known, &seen.owners, &mut then);
            self.link(&uid, &seen, known, &mut then);
        }
        let was = before.as_ref().map(|before| before.stage);
        if was != Some(seen.stage) {
            self.enter(&uid, seen.stage, &mut then);
        }
        let is_new = before.is_none();
        let node = self.node(&uid);
        node.seen = Some(seen);
        if is_new && !node.dependents.is_empty() {
            then.mistakes = self.misplaced_dependents(&uid);
        }
        then
    }

    /// An object is gone.
    pub(super) fn lose(&mut self, uid: &Uid) -> Consequences {
        let mut then = Consequences::default();
        let Some(node) = self.nodes.remove(uid) else {
            return then;
        };
        self.absent.add(Arc::clone(uid));
        for owner in node.seen.iter().flat_map(|seen| &seen.owners) {
            if let Some(known) = self.nodes.get_mut(&owner.uid) {
                known.dependents.remove(uid);
                if known.stage() == Stage::AwaitingDependents {
                    then.look_at.push(Arc::clone(&owner.uid));
                }
                self.drop_if_idle(&owner.uid);
            }
        }
        then.look_at.extend(node.dependents);
        then
    }

    /// An owner was asked for and is not there. Its dependents are to be looked at.
    pub(super) fn miss(&mut self, owner: &Uid) -> Consequences {
        if self
            .nodes
            .get(owner)
            .is_some_and(|node| node.seen.is_some())
        {
            return Consequences::default();
        }
        self.absent.add(Arc::clone(owner));
        let dependents = self.nodes.remove(owner).map(|node| node.dependents);
        Consequences {
            look_at: dependents.into_iter().flatten().collect(),
            mistakes: Vec::new(),
        }
    }

    /// What is to be done about an object.
    pub(super) fn decide(&self, uid: &Uid) -> Verdict {
        let Some(object) = self.nodes.get(uid).and_then(|node| node.seen.as_ref()) else {
            return Verdict::Keep;
        };
        match object.stage {
            Stage::Alive => self.decide_by_owners(object),
            Stage::Deleting => Verdict::Keep,
            Stage::AwaitingOrphans => Verdict::Orphan {
                object: object.clone(),
                dependents: self.seen_dependents(uid).cloned().collect(),
            },
            Stage::AwaitingDependents => self.decide_by_dependents(object),
        }
    }

    /// Everything that was seen of a resource.
    pub(super) fn of_resource(&self, resource: &Resource) -> Vec<Uid> {
        let seen = self.nodes.values().filter_map(|node| node.seen.as_ref());
        let seen = seen.filter(|seen| *seen.resource == *resource);
        seen.map(|seen| Arc::clone(&seen.uid)).collect()
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    fn node(&mut self, uid: &Uid) -> &mut Node {
        self.nodes.entry(Arc::clone(uid)).or_insert_with(|| Node {
            seen: None,
            dependents: BTreeSet::new(),
        })
    }

    fn seen_dependents(&self, uid: &Uid) -> impl Iterator<Item = &Seen> {
        let dependents = self
            .nodes
            .get(uid)
            .into_iter()
            .flat_map(|node| &node.dependents);
        dependents.filter_map(|uid| self.nodes.get(uid)?.seen.as_ref())
    }

    // Owners that are no longer named, or no longer blocked, may be free to go.
    fn unlink(&mut self, uid: &Uid, before: &[Owner], after: &[Owner], then: &mut Consequences) {
        for owner in before {
            let now = after.iter().find(|now| now.uid == owner.uid);
            let is_freed = owner.blocks && !now.is_some_and(|now| now.blocks);
            let Some(node) = self.nodes.get_mut(&owner.uid) else {
                continue;
            };
            if now.is_none() {
                node.dependents.remove(uid);
            }
            if (is_freed || now.is_none()) && node.stage() == Stage::AwaitingDependents {
                then.look_at.push(Arc::clone(&owner.uid));
            }
            self.drop_if_idle(&owner.uid);
        }
        if before.iter().any(|old| !after.contains(old)) {
            then.look_at.push(Arc::clone(uid));
        }
    }

    fn link(&mut self, uid: &Uid, seen: &Seen, before: &[Owner], then: &mut Consequences) {
        for owner in &seen.owners {
            if before.iter().any(|old| old.uid == owner.uid) {
                continue;
            }
            let node = self.node(&owner.uid);
            node.dependents.insert(Arc::clone(uid));
            let is_trouble = match &node.seen {
                None => true,
                Some(known) if is_misplaced(seen, owner, known) => {
                    then.mistakes.push(Mistake {
                        object: seen.clone(),
                        owner: owner.clone(),
                    });
                    true
                }
                Some(known) => known.stage != Stage::Alive,
            };
            if is_trouble {
                then.look_at.push(Arc::clone(uid));
            }
        }
    }

    fn enter(&mut self, uid: &Uid, stage: Stage, then: &mut Consequences) {
        match stage {
            Stage::Alive | Stage::Deleting => {}
            Stage::AwaitingOrphans => then.look_at.push(Arc::clone(uid)),
            Stage::AwaitingDependents => {
                let dependents = self.node(uid).dependents.iter().cloned();
                then.look_at.extend(dependents);
                then.look_at.push(Arc::clone(uid));
            }
        }
    }

    // An owner that turns up in another place than its dependents believed.
    fn misplaced_dependents(&self, uid: &Uid) -> Vec<Mistake> {
        let Some(owner) = self.nodes.get(uid).and_then(|node| node.seen.as_ref()) else {
            return Vec::new();
        };
        let named = self.seen_dependents(uid).flat_map(|object| {
            let references = object.owners.iter().filter(|named| named.uid == *uid);
            references.map(move |named| (object, named))
        });
        named
            .filter(|(object, named)| is_misplaced(object, named, owner))
            .map(|(object, named)| Mistake {
                object: object.clone(),
                owner: named.clone(),
            })
            .collect()
    }

    fn drop_if_idle(&mut self, uid: &Uid) {
        let is_idle = |node: &Node| node.seen.is_none() && node.dependents.is_empty();
        if self.nodes.get(uid).is_some_and(is_idle) {
            self.nodes.remove(uid);
        }
    }

    // Upstream's `attemptToDeleteItem`: one solid owner is enough to live.
    fn decide_by_owners(&self, object: &Seen) -> Verdict {
        let (mut solid, mut awaiting, mut gone) = (false, Vec::new(), Vec::new());
        for owner in &object.owners {
            match self.fate(object, owner) {
                Fate::Solid => solid = true,
                Fate::Awaiting => awaiting.push(Arc::clone(&owner.uid)),
                Fate::Gone => gone.push(Arc::clone(&owner.uid)),
                Fate::Unseen => {
                    return Verdict::Ask {
                        owner: owner.clone(),
                        namespace: object.namespace.clone(),
                    };
                }
            }
        }
        let has_dependents = self
            .nodes
            .get(&object.uid)
            .is_some_and(|node| !node.dependents.is_empty());
        match (solid, awaiting.is_empty(), gone.is_empty()) {
            (true, true, true) | (false, true, true) => Verdict::Keep,
            (true, _, _) => {
                gone.extend(awaiting);
                Verdict::Unlink {
                    object: object.clone(),
                    owners: gone,
                }
            }
            (false, false, _) if has_dependents => Verdict::Delete {
                object: object.clone(),
                how: Propagation::Foreground,
                unblock: self
                    .seen_dependents(&object.uid)
                    .any(|dependent| dependent.stage == Stage::AwaitingDependents),
            },
            (false, _, _) => Verdict::Delete {
                object: object.clone(),
                how: object.wish,
                unblock: false,
            },
        }
    }

    fn fate(&self, object: &Seen, owner: &Owner) -> Fate {
        let known = self
            .nodes
            .get(&owner.uid)
            .and_then(|node| node.seen.as_ref());
        match known {
            // Where it is said to be there is nothing, though something with this uid is elsewhere.
            Some(known) if is_misplaced(object, owner, known) => Fate::of_misplaced(object, known),
            Some(known) if known.stage == Stage::AwaitingDependents => Fate::Awaiting,
            Some(_) => Fate::Solid,
            None if self.absent.known.contains(&owner.uid) => Fate::Gone,
            None => Fate::Unseen,
        }
    }

    fn decide_by_dependents(&self, object: &Seen) -> Verdict {
        let blocks = |dependent: &&Seen| {
            let mut owners = dependent.owners.iter();
            owners.any(|owner| owner.uid == object.uid && owner.blocks)
        };
        let mut blocking = self.seen_dependents(&object.uid).filter(blocks).peekable();
        if blocking.peek().is_none() {
            return Verdict::Finish {
                object: object.clone(),
                finalizer: FOREGROUND,
            };
        }
        let alive = blocking.filter(|dependent| dependent.stage != Stage::AwaitingDependents);
        Verdict::Await(alive.map(|dependent| Arc::clone(&dependent.uid)).collect())
    }
}

impl Node {
    fn stage(&self) -> Stage {
        self.seen.as_ref().map_or(Stage::Alive, |seen| seen.stage)
    }
}

enum Fate {
    Solid,
    Awaiting,
    Gone,
    Unseen,
}

impl Fate {
    // A cluster-scoped object cannot name an owner in a namespace: there is no telling, so it stays.
    fn of_misplaced(object: &Seen, known: &Seen) -> Fate {
        match object.namespace.is_empty() && !known.namespace.is_empty() {
            true => Fate::Solid,
            false => Fate::Gone,
        }
    }
}

// An owner is in the namespace of its dependent, or in none; and it is what it is said to be.
fn is_misplaced(object: &Seen, named: &Owner, owner: &Seen) -> bool {
    let is_elsewhere = !owner.namespace.is_empty() && owner.namespace != object.namespace;
    is_elsewhere || named.name != owner.name || named.kind != owner.resource.kind
}

#[cfg(test)]
mod tests;
