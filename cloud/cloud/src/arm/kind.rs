//! What a type of resource is: a row of a table.

use std::collections::HashMap;
use std::sync::LazyLock;

use serde_json::Value;

use super::document::Document;
use super::fault::Fault;
use super::id::Id;
use crate::providers;
use crate::turn::Turn;

/// What a resource of a type may belong to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum At {
    Group,
    /// An extension: of anything, even of the tenant.
    Anywhere,
}

/// How a write or a removal goes on after the first answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Goes {
    /// It is done.
    AtOnce,
    /// `Azure-AsyncOperation`.
    Async,
    /// `Azure-AsyncOperation` and `Location`.
    Both,
    /// `Location`, and an empty answer until then.
    Location,
}

/// How a type marks its versions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tag {
    None,
    /// `W/"<guid>"`, of the network.
    Weak,
    /// `"<n>"`, of scale sets and machines.
    Number,
    /// A GUID in `eTag`, of clusters.
    Upper,
    /// A GUID in `etag`, in quotes, of what the rest does.
    Quoted,
}

/// A resource that is about to be written.
pub(crate) struct Draft<'d> {
    pub(crate) id: &'d Id,
    pub(crate) kind: &'static Kind,
    pub(crate) before: Option<&'d Document>,
    /// What will be kept: what was asked for, completed.
    pub(crate) body: Value,
    /// What no client sees.
    pub(crate) hidden: Value,
    /// How long the operation takes, and what it says meanwhile.
    pub(crate) phases: Vec<(u64, String)>,
    pub(crate) milliseconds: u64,
    /// The word for what goes on, where it is not the type's own.
    pub(crate) state: Option<&'static str>,
}

impl Draft<'_> {
    pub(crate) fn properties(&mut self) -> &mut Value {
        &mut self.body["properties"]
    }

    pub(crate) fn is_new(&self) -> bool {
        self.before.is_none()
    }

    /// A property as it was before.
    pub(crate) fn was(&self, pointer: &str) -> Value {
        let found = self.before.and_then(|before| before.body.pointer(pointer));
        found.cloned().unwrap_or_default()
    }
}

/// Decides what is special about a write; may change the draft and stage whatever follows.
pub(crate) type Decide = fn(&mut Turn<'_>, &mut Draft<'_>) -> Result<(), Fault>;
/// What follows from what an operation leads to.
pub(crate) type Finish = fn(&mut Turn<'_>, &mut Document);
/// Whether a resource may go, and what goes with it.
pub(crate) type Leave = fn(&mut Turn<'_>, &Id, &Document) -> Result<(), Fault>;

/// A type of resource.
#[derive(Debug)]
pub(crate) struct Kind {
    /// `Microsoft.Network/virtualNetworks`; children have longer names.
    pub(crate) name: &'static str,
    pub(crate) at: At,
    /// The statuses of a write that made and of one that changed something.
    pub(crate) put: (u16, u16),
    pub(crate) write: Goes,
    pub(crate) delete: Goes,
    pub(crate) tag: Tag,
    /// How long operations take at a pace of 1.
    pub(crate) milliseconds: u64,
    /// What `provisioningState` says while a new one is made and while one is changed.
    pub(crate) states: (&'static str, &'static str),
    /// The words of an operation's address.
    pub(crate) operations: (&'static str, &'static str),
    /// Whether a write keeps what it does not mention.
    pub(crate) sparse: bool,
    pub(crate) has_location: bool,
    /// Pointers to what must be there.
    pub(crate) required: &'static [&'static str],
    /// Pointers to what clients cannot set.
    pub(crate) read_only: &'static [&'static str],
    /// Paths to ids of other resources; `[]` goes through an array.
    pub(crate) references: &'static [&'static str],
    /// What is filled in, as JSON.
    pub(crate) defaults: &'static str,
    /// For a child that lives inside its parent: the field of the parent's properties.
    pub(crate) within: Option<&'static str>,
    /// Whether its elements there have no `properties` of their own.
    pub(crate) flat: bool,
    /// Whether references to it keep it from being removed.
    pub(crate) guarded: bool,
    /// Fields that show who refers to it: (field, what the referring id contains, many or one).
    pub(crate) shows: &'static [(&'static str, &'static str, bool)],
    /// Longest name.
    pub(crate) longest: usize,
    pub(crate) decide: Option<Decide>,
    pub(crate) finish: Option<Finish>,
    /// What follows when an operation has come to its end, well or not, and the states say so.
    pub(crate) settled: Option<Finish>,
    pub(crate) leave: Option<Leave>,
    /// Whether errors of the provider come without the `error` around them.
    pub(crate) flat_errors: bool,
}

/// A type that does nothing special: rows begin with it.
pub(crate) const PLAIN: Kind = Kind {
    name: "",
    at: At::Group,
    put: (201, 200),
    write: Goes::AtOnce,
    delete: Goes::AtOnce,
    tag: Tag::None,
    milliseconds: 0,
    states: ("Creating", "Updating"),
    operations: ("operations", "operationResults"),
    sparse: false,
    has_location: true,
    required: &[],
    read_only: &[],
    references: &[],
    defaults: "{}",
    within: None,
    flat: false,
    guarded: false,
    shows: &[],
    longest: 260,
    decide: None,
    finish: None,
    settled: None,
    leave: None,
    flat_errors: false,
};

/// A row that says nothing but its name.
pub(crate) const fn only(name: &'static str, shape: Kind) -> Kind {
    Kind { name, ..shape }
}

impl Kind {
    /// The type's own name without its provider, such as `virtualNetworks/subnets`.
    pub(crate) fn path(&self) -> &'static str {
        self.name.split_once('/').map_or("", |(_, path)| path)
    }

    pub(crate) fn namespace(&self) -> &'static str {
        self.name
            .split_once('/')
            .map_or(self.name, |(namespace, _)| namespace)
    }

    /// The last part of its name, such as `subnets`.
    pub(crate) fn collection(&self) -> &'static str {
        self.name.rsplit('/').next().unwrap_or(self.name)
    }

    /// The children that live inside it.
    pub(crate) fn inner(&'static self) -> impl Iterator<Item = &'static Kind> {
        let depth = self.name.matches('/').count() + 1;
        all().filter(move |kind| {
            kind.within.is_some()
                && kind.name.matches('/').count() == depth
                && kind
                    .name
                    .strip_prefix(self.name)
                    .is_some_and(|rest| rest.starts_with('/'))
        })
    }
}

/// Every type.
pub(crate) fn all() -> impl Iterator<Item = &'static Kind> {
    providers::PROVIDERS
        .iter()
        .flat_map(|provider| provider.kinds.iter().copied().flatten())
}

static BY_NAME: LazyLock<HashMap<String, &'static Kind>> =
    LazyLock::new(|| all().map(|kind| (kind.name.to_lowercase(), kind)).collect());

/// The type of a name, in any case.
pub(crate) fn named(name: &str) -> Option<&'static Kind> {
    BY_NAME.get(&name.to_lowercase()).copied()
}
