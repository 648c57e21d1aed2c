//! The gate a request passes: classification, then a seat or a wait for one.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use access::Attributes;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::defaults;
use crate::level::Level;
use crate::schema::Schema;
use crate::turns::{Arrival, Slot, Turns};

/// The kinds that configure the gate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// FlowSchema.
    Schema,
    /// PriorityLevelConfiguration.
    Level,
}

/// What a request was found to be.
#[derive(Debug, Clone)]
pub struct Class {
    /// The schema's name.
    pub schema: Arc<str>,
    /// The schema's uid.
    pub schema_uid: Arc<str>,
    /// The level's name.
    pub level: Arc<str>,
    /// The level's uid.
    pub level_uid: Arc<str>,
    exempt: bool,
    flow: u64,
}

/// Why a request got no seat: upstream's `reason` label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// No seat, and the level does not queue.
    ConcurrencyLimit,
    /// The flow's queues are full.
    QueueFull,
    /// It waited as long as it may.
    TimeOut,
}

impl Refused {
    /// The reason as metrics name it.
    pub fn as_str(self) -> &'static str {
        match self {
            Refused::ConcurrencyLimit => "concurrency-limit",
            Refused::QueueFull => "queue-full",
            Refused::TimeOut => "time-out",
        }
    }
}

/// Seats, the configuration, and who waits.
#[derive(Debug)]
pub struct Gate {
    config: RwLock<Arc<Config>>,
    busy: Mutex<Busy>,
}

#[derive(Debug, Default, Clone)]
struct Config {
    levels: BTreeMap<String, Level>,
    /// In the order they are tried.
    schemas: Vec<Schema>,
}

#[derive(Debug)]
struct Busy {
    turns: Turns,
    waiting: HashMap<u64, oneshot::Sender<()>>,
    next_id: u64,
}

impl Gate {
    /// A gate with upstream's default configuration, until objects say otherwise.
    pub fn new(seats: u32) -> Gate {
        let gate = Gate {
            config: RwLock::default(),
            busy: Mutex::new(Busy {
                turns: Turns::new(seats),
                waiting: HashMap::new(),
                next_id: 0,
            }),
        };
        gate.change(|config| {
            for (plural, object) in defaults::objects() {
                config.put(Kind::of(plural), &object);
            }
        });
        gate
    }

    /// Takes over a change of the configuration. The mandatory objects fall back to their defaults when
    /// somebody deletes them.
    pub fn apply(&self, kind: Kind, name: &str, object: Option<&Value>) {
        self.change(|config| match object {
            Some(object) => config.put(kind, object),
            None => config.remove(kind, name),
        });
    }

    /// Which level and flow a request belongs to.
    pub fn classify(&self, attributes: &Attributes<'_>) -> Class {
        let config = self.config();
        let found = config
            .schemas
            .iter()
            .filter_map(|schema| Some((schema, config.levels.get(&*schema.level)?)))
            .find(|(schema, _)| schema.matches(attributes));
        match found {
            Some((schema, level)) => Class {
                schema: schema.name.clone(),
                schema_uid: schema.uid.clone(),
                level: level.name.clone(),
                level_uid: level.uid.clone(),
                exempt: level.limits.is_none(),
                flow: schema.flow(attributes),
            },
            // `catch-all` matches every user there is; this is for requests without a group at all.
            None => Class {
                schema: "catch-all".into(),
                schema_uid: "".into(),
                level: "catch-all".into(),
                level_uid: "".into(),
                exempt: false,
                flow: 0,
            },
        }
    }

    /// Waits for seats, at most for `patience`.
    pub async fn enter(
        self: &Arc<Self>,
        class: &Class,
        seats: u32,
        patience: Duration,
    ) -> Result<Seat, Refused> {
        if class.exempt {
            return Ok(Seat { held: None });
        }
        let (wake, turn) = oneshot::channel();
        let Some((claim, arrival)) = self.arrive(class, seats, wake) else {
            return Ok(Seat { held: None });
        };
        match arrival {
            Arrival::Seated => {}
            Arrival::NoSeat => return Err(Refused::ConcurrencyLimit),
            Arrival::QueueFull => return Err(Refused::QueueFull),
            Arrival::Queued(queue) => {
                let mut place = Place {
                    gate: self,
                    claim,
                    queue,
                    kept: true,
                };
                let called = tokio::time::timeout(patience, turn).await;
                if !matches!(called, Ok(Ok(()))) {
                    return Err(Refused::TimeOut);
                }
                place.kept = false;
            }
        }
        Ok(Seat {
            held: Some((Arc::clone(self), claim)),
        })
    }

    /// Level, seats in use, requests waiting.
    pub fn counts(&self) -> Vec<(Arc<str>, u32, usize)> {
        lock(&self.busy).turns.counts()
    }

    fn arrive(
        &self,
        class: &Class,
        seats: u32,
        wake: oneshot::Sender<()>,
    ) -> Option<(Claim, Arrival)> {
        let mut busy = lock(&self.busy);
        let slot = busy.turns.slot(&class.level)?;
        let claim = Claim {
            slot,
            seats: busy.turns.fit(slot, seats),
            id: busy.next_id,
        };
        busy.next_id += 1;
        let arrival = busy.turns.arrive(slot, class.flow, claim.seats, claim.id);
        if matches!(arrival, Arrival::Queued(_)) {
            busy.waiting.insert(claim.id, wake);
        }
        Some((claim, arrival))
    }

    fn leave(&self, claim: Claim) {
        let mut busy = lock(&self.busy);
        busy.turns.leave(claim.slot, claim.seats);
        busy.call(claim.slot);
    }

    fn change(&self, change: impl FnOnce(&mut Config)) {
        let mut config = Config::clone(&self.config());
        change(&mut config);
        config.schemas.sort_by(|a, b| a.rank().cmp(&b.rank()));
        let mut busy = lock(&self.busy);
        busy.turns.configure(config.levels.values());
        busy.call(0);
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(config);
    }

    fn config(&self) -> Arc<Config> {
        Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Kind {
    fn of(plural: &str) -> Kind {
        match plural {
            "flowschemas" => Kind::Schema,
            _ => Kind::Level,
        }
    }
}

impl Config {
    fn put(&mut self, kind: Kind, object: &Value) {
        match kind {
            Kind::Level => {
                let level = Level::read(object);
                self.levels.insert(level.name.to_string(), level);
            }
            Kind::Schema => {
                let schema = Schema::read(object);
                self.schemas.retain(|s| s.name != schema.name);
                self.schemas.push(schema);
            }
        }
    }

    fn remove(&mut self, kind: Kind, name: &str) {
        match kind {
            Kind::Level => drop(self.levels.remove(name)),
            Kind::Schema => self.schemas.retain(|s| &*s.name != name),
        }
        let mandatory = defaults::objects().into_iter().find(|(plural, object)| {
            let is_mandatory = matches!(name, "exempt" | "catch-all");
            is_mandatory && Kind::of(plural) == kind && object["metadata"]["name"] == name
        });
        if let Some((_, object)) = mandatory {
            self.put(kind, &object);
        }
    }
}

impl Busy {
    // Calls everybody for whom there is room now.
    fn call(&mut self, first: Slot) {
        while let Some(id) = self.turns.next(first) {
            // Whoever has gone meanwhile gives the seat back in `Place::drop`.
            if let Some(wake) = self.waiting.remove(&id) {
                let _ = wake.send(());
            }
        }
    }
}

/// What one request asked for.
#[derive(Debug, Clone, Copy)]
struct Claim {
    slot: Slot,
    seats: u32,
    id: u64,
}

/// Seats held until dropped.
#[derive(Debug)]
pub struct Seat {
    held: Option<(Arc<Gate>, Claim)>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some((gate, claim)) = self.held.take() {
            gate.leave(claim);
        }
    }
}

/// A place in a queue; leaving it early, for whatever reason, gives it up.
struct Place<'a> {
    gate: &'a Gate,
    claim: Claim,
    queue: usize,
    kept: bool,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if !self.kept {
            return;
        }
        let mut busy = lock(&self.gate.busy);
        busy.waiting.remove(&self.claim.id);
        let waited = busy
            .turns
            .give_up(self.claim.slot, self.queue, self.claim.id);
        drop(busy);
        if !waited {
            // It was its turn, and it has just left.
            self.gate.leave(self.claim);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use access::{ResourceTarget, Target, User};
    use serde_json::json;

    use super::*;

    fn user(name: &str, groups: &[&str]) -> User {
        User {
            name: name.into(),
            groups: groups.iter().map(|g| (*g).to_owned()).collect(),
            ..User::default()
        }
    }

    fn on<'a>(
        user: &'a User,
        verb: &'a str,
        group: &'a str,
        resource: &'a str,
        namespace: &'a str,
    ) -> Attributes<'a> {
        let target = ResourceTarget {
            namespace,
            group,
            resource,
            ..ResourceTarget::default()
        };
        Attributes {
            user,
            verb,
            target: Target::Resource(target),
        }
    }

    #[test]
    fn requests_go_where_upstream_sends_them() {
        let gate = Gate::new(600);
        let all = "system:authenticated";
        let node = user("system:node:a", &["system:nodes", all]);
        let admin = user("admin", &["system:masters", all]);
        let manager = user("system:kube-controller-manager", &[all]);
        let dns = user(
            "system:serviceaccount:kube-system:dns",
            &["system:serviceaccounts", all],
        );
        let app = user(
            "system:serviceaccount:web:app",
            &["system:serviceaccounts", all],
        );
        let alice = user("alice", &[all]);
        let cases = [
            (on(&admin, "list", "", "pods", ""), "exempt", "exempt"),
            (
                on(
                    &node,
                    "update",
                    "coordination.k8s.io",
                    "leases",
                    "kube-node-lease",
                ),
                "system-node-high",
                "node-high",
            ),
            (
                on(&node, "get", "", "nodes", ""),
                "system-node-high",
                "node-high",
            ),
            (on(&node, "list", "", "pods", ""), "system-nodes", "system"),
            (
                on(
                    &manager,
                    "update",
                    "coordination.k8s.io",
                    "leases",
                    "kube-system",
                ),
                "system-leader-election",
                "leader-election",
            ),
            (
                on(&manager, "list", "", "pods", ""),
                "kube-controller-manager",
                "workload-high",
            ),
            (
                on(&dns, "list", "", "pods", ""),
                "kube-system-service-accounts",
                "workload-high",
            ),
            (
                on(&app, "list", "", "pods", ""),
                "service-accounts",
                "workload-low",
            ),
            (
                on(&alice, "list", "", "pods", "x"),
                "global-default",
                "global-default",
            ),
        ];
        for (attributes, schema, level) in cases {
            let class = gate.classify(&attributes);
            assert_eq!(
                (&*class.schema, &*class.level),
                (schema, level),
                "{attributes:?}"
            );
        }
        let probe = User::anonymous();
        let attributes = Attributes {
            user: &probe,
            verb: "get",
            target: Target::Path("/readyz"),
        };
        assert_eq!(&*gate.classify(&attributes).schema, "probes");
    }

    #[test]
    fn a_changed_schema_counts_at_once_and_a_mandatory_one_comes_back() {
        let gate = Gate::new(600);
        let alice = user("alice", &["system:authenticated"]);
        let rules = json!([{"subjects": [{"kind": "User", "user": {"name": "alice"}}], "resourceRules": [
            {"verbs": ["list"], "apiGroups": [""], "resources": ["pods"], "namespaces": ["x"]}]}]);
        let schema = json!({"metadata": {"name": "a", "uid": "u"}, "spec": {"matchingPrecedence": 3, "rules": rules,
            "priorityLevelConfiguration": {"name": "exempt"}}});
        gate.apply(Kind::Schema, "a", Some(&schema));
        let class = |namespace| gate.classify(&on(&alice, "list", "", "pods", namespace));
        assert_eq!(&*class("x").schema_uid, "u");
        assert_eq!(&*class("y").schema, "global-default");
        gate.apply(Kind::Schema, "a", None);
        gate.apply(Kind::Schema, "global-default", None);
        gate.apply(Kind::Schema, "catch-all", None);
        assert_eq!(&*class("x").schema, "catch-all");
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_gets_the_seat_or_an_end() {
        let gate = Arc::new(Gate::new(1));
        let alice = user("alice", &["system:authenticated"]);
        let class = gate.classify(&on(&alice, "list", "", "pods", "x"));
        let mut held = Vec::new();
        let patience = Duration::from_secs(15);
        // global-default's seat and those other levels lend.
        while let Ok(Ok(seat)) =
            tokio::time::timeout(Duration::from_secs(1), gate.enter(&class, 1, patience)).await
        {
            held.push(seat);
        }
        assert!(!held.is_empty());
        let waits = tokio::spawn({
            let (gate, class) = (Arc::clone(&gate), class.clone());
            async move { gate.enter(&class, 1, patience).await.map(drop) }
        });
        tokio::task::yield_now().await;
        held.pop();
        assert_eq!(waits.await.unwrap(), Ok(()));
        let _again = gate.enter(&class, 1, patience).await.unwrap();
        assert_eq!(
            gate.enter(&class, 1, patience).await.unwrap_err(),
            Refused::TimeOut
        );
        drop(held);
        drop(_again);
        assert!(
            gate.counts()
                .iter()
                .all(|(_, used, waiting)| *used == 0 && *waiting == 0)
        );
    }
}
