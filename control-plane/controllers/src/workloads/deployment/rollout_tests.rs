//! Rollouts, with replicas that come and go as they please.

use k8s_openapi::api::apps::v1::ReplicaSetStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::*;

/// A deployment and its sets, changed as a cluster would.
struct World {
    deployment: Deployment,
    sets: Vec<ReplicaSet>,
    now: i64,
    seed: u64,
}

impl World {
    fn new(replicas: i32, strategy: Value) -> World {
        let deployment = json!({ "metadata": { "name": "web", "namespace": "default", "uid": "d", "generation": 1 },
            "spec": { "replicas": replicas, "selector": { "matchLabels": { "app": "web" } }, "strategy": strategy,
                "progressDeadlineSeconds": 600, "revisionHistoryLimit": 2,
                "template": { "metadata": { "labels": { "app": "web" } }, "spec": { "containers": [{ "name": "c", "image": "1" }] } } } });
        World {
            deployment: serde_json::from_value(deployment).unwrap(),
            sets: Vec::new(),
            now: 1000,
            seed: 1,
        }
    }

    fn random(&mut self, below: u64) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.seed >> 33) % below
    }

    fn change(&mut self, change: impl Fn(&mut k8s_openapi::api::apps::v1::DeploymentSpec)) {
        change(self.deployment.spec.as_mut().unwrap());
        *self.deployment.metadata.generation.as_mut().unwrap() += 1;
    }

    fn image(&mut self, image: &str) {
        self.change(|spec| {
            spec.template.spec.as_mut().unwrap().containers[0].image = Some(image.into());
        });
    }

    fn sync(&mut self) -> bool {
        self.now += 1;
        let sets: Vec<&ReplicaSet> = self.sets.iter().collect();
        let now = Timestamp::from_second(self.now).unwrap();
        let decided = decide(&Observed {
            deployment: &self.deployment,
            sets: &sets,
            pods: &[],
            now,
        });
        let has_changed = !decided.actions.is_empty();
        for action in decided.actions {
            match action {
                Action::Create { mut set, then } => {
                    set.metadata.uid = set.metadata.name.clone();
                    set.metadata.creation_timestamp = Some(Time(now));
                    set.metadata.generation = Some(1);
                    self.sets.push(*set);
                    self.deployment = *then;
                }
                Action::Update { set, .. } => {
                    let place = self
                        .sets
                        .iter()
                        .position(|known| known.metadata.uid == set.metadata.uid);
                    self.sets[place.unwrap()] = *set;
                }
                Action::Delete { uid, .. } => self
                    .sets
                    .retain(|set| set.metadata.uid.as_deref() != Some(uid.as_str())),
                Action::Write(deployment) => self.deployment = *deployment,
            }
        }
        has_changed
    }

    /// One replica of some set comes, goes, or becomes available.
    fn live(&mut self) -> bool {
        let count = self.sets.len() as u64;
        let place = if count == 0 {
            return false;
        } else {
            self.random(count) as usize
        };
        let set = &mut self.sets[place];
        let wanted = replicas(set);
        let status = set.status.get_or_insert_with(ReplicaSetStatus::default);
        let before = status.clone();
        status.observed_generation = Some(1);
        let available = status.available_replicas.unwrap_or(0);
        if status.replicas > wanted {
            status.replicas -= 1;
            status.available_replicas = Some(available.min(status.replicas));
        } else if status.replicas < wanted {
            status.replicas += 1;
        } else if available < wanted {
            status.available_replicas = Some(available + 1);
        }
        *status != before
    }

    fn settle(&mut self) {
        for _ in 0..800 {
            if self.random(2) == 0 {
                self.live();
            } else {
                self.sync();
            }
        }
        for _ in 0..200 {
            self.live();
            self.sync();
        }
        assert!(
            !self.sync(),
            "it never comes to rest: {:?}",
            self.deployment.status
        );
    }

    fn sizes(&self) -> Vec<i32> {
        let mut sizes: Vec<i32> = self
            .sets
            .iter()
            .map(replicas)
            .filter(|size| *size > 0)
            .collect();
        sizes.sort_unstable();
        sizes
    }

    fn reason(&self) -> String {
        let conditions = self
            .deployment
            .status
            .as_ref()
            .and_then(|s| s.conditions.as_ref())
            .unwrap();
        let progressing = conditions
            .iter()
            .find(|c| c.type_ == "Progressing")
            .unwrap();
        progressing.reason.clone().unwrap()
    }
}

fn strategies() -> [Value; 4] {
    [
        json!({ "type": "Recreate" }),
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": "25%", "maxUnavailable": "25%" } }),
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 1, "maxUnavailable": 0 } }),
        json!({ "type": "RollingUpdate", "rollingUpdate": { "maxSurge": 0, "maxUnavailable": 1 } }),
    ]
}

#[test]
fn whatever_changes_when_the_end_is_the_same() {
    for seed in 0..8 {
        for strategy in strategies() {
            let mut world = World::new(4, strategy.clone());
            world.seed = seed;
            for image in ["1", "2", "3", "1"] {
                world.image(image);
                for _ in 0..world.random(40) {
                    world.live();
                    world.sync();
                }
                if world.random(3) == 0 {
                    let size = i32::try_from(world.random(9)).unwrap();
                    world.change(|spec| spec.replicas = Some(size));
                }
            }
            world.change(|spec| spec.replicas = Some(5));
            world.settle();
            assert_eq!(world.sizes(), [5], "seed {seed} {strategy}");
            assert_eq!(world.reason(), "NewReplicaSetAvailable");
            let status = world.deployment.status.clone().unwrap();
            assert_eq!(
                (status.available_replicas, status.unavailable_replicas),
                (Some(5), None)
            );
            assert!(world.sets.len() <= 3, "history has its limit");
        }
    }
}

#[test]
fn a_rolling_update_keeps_enough_available_throughout() {
    for seed in 0..8 {
        for strategy in &strategies()[1..] {
            let mut world = World::new(6, strategy.clone());
            world.seed = seed;
            world.settle();
            let limits = Limits::of(&world.deployment);
            world.image("2");
            for _ in 0..400 {
                if world.random(2) == 0 {
                    world.live();
                } else {
                    world.sync();
                }
                let available: i32 = world
                    .sets
                    .iter()
                    .map(|set| sets::available(set).min(replicas(set)))
                    .sum();
                let total: i32 = world.sets.iter().map(replicas).sum();
                assert!(
                    available >= limits.fewest() && total <= limits.most(),
                    "seed {seed} {strategy}"
                );
            }
        }
    }
}

#[test]
fn a_rollout_that_stands_still_times_out_and_a_pause_stops_it() {
    let mut world = World::new(2, strategies()[1].clone());
    world.sync();
    assert_eq!(world.reason(), "NewReplicaSetCreated");
    world.now += 700;
    world.sync();
    assert_eq!(world.reason(), "ProgressDeadlineExceeded");
    world.settle();
    assert_eq!(
        world.reason(),
        "NewReplicaSetAvailable",
        "it went on after all"
    );
    world.change(|spec| spec.paused = Some(true));
    world.image("2");
    world.settle();
    assert_eq!(
        (world.sets.len(), world.reason().as_str()),
        (1, "DeploymentPaused")
    );
    world.change(|spec| spec.paused = Some(false));
    world.settle();
    assert_eq!((world.sets.len(), world.sizes()), (2, vec![2]));
}

#[test]
fn going_back_makes_the_old_set_the_new_one_with_the_next_revision() {
    let mut world = World::new(2, strategies()[1].clone());
    world.settle();
    world.image("2");
    world.settle();
    world.image("1");
    world.settle();
    let revisions: Vec<i64> = world
        .sets
        .iter()
        .map(|set| sets::revision(&set.metadata))
        .collect();
    assert_eq!(revisions, [3, 2]);
    assert_eq!(sets::revision(&world.deployment.metadata), 3);
}
