//! Jobs and their pods, changed as a cluster would.

use serde_json::{Value, json};

use super::super::super::pod_view::Exit;
use super::*;

/// A job and its pods, changed as a cluster would.
struct World {
    job: Job,
    pods: Vec<Arc<PodView>>,
    made: usize,
    now: i64,
    seed: u64,
}

impl World {
    fn new(spec: &Value) -> World {
        let mut whole = json!({ "template": { "spec": { "restartPolicy": "Never", "containers": [] } },
            "completions": 1, "parallelism": 1, "backoffLimit": 6 });
        for (key, value) in spec.as_object().unwrap() {
            whole[key] = value.clone();
        }
        let job = json!({ "metadata": { "name": "j", "namespace": "default" }, "spec": whole });
        World {
            job: serde_json::from_value(job).unwrap(),
            pods: Vec::new(),
            made: 0,
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

    /// Decides and carries out; what is asked for may be lost on the way, as when a process dies.
    fn sync(&mut self, dies_after: u64) {
        if is_finished(&self.job) {
            return;
        }
        let decided = decide(
            &self.job,
            &self.pods,
            true,
            Timestamp::from_second(self.now).unwrap(),
        );
        if dies_after == 0 {
            return;
        }
        for index in decided.create {
            self.made += 1;
            self.pods.push(Arc::new(PodView {
                name: format!("p{}", self.made),
                uid: format!("u{}", self.made),
                index,
                is_tracked: true,
                ..PodView::default()
            }));
        }
        for pod in decided.drop {
            self.pods.retain(|known| known.uid != pod.uid);
        }
        for pod in decided.end {
            self.change(&pod.uid, |pod| pod.is_deleted = true);
        }
        if dies_after == 1 {
            return;
        }
        self.job.status = decided.status.or(self.job.status.take());
        if dies_after == 2 {
            return;
        }
        for pod in decided.settle {
            self.change(&pod.uid, |pod| pod.is_tracked = false);
        }
        self.pods.retain(|pod| pod.is_tracked || !pod.is_deleted);
    }

    fn change(&mut self, uid: &str, change: impl Fn(&mut PodView)) {
        for pod in self.pods.iter_mut().filter(|pod| pod.uid == uid) {
            change(Arc::make_mut(pod));
        }
    }

    fn finish(&mut self, phase: Phase, code: i32) {
        let active = self
            .pods
            .iter()
            .find(|pod| pod.is_active())
            .map(|pod| pod.uid.clone());
        let Some(uid) = active else {
            return;
        };
        self.change(&uid, |pod| {
            pod.phase = phase;
            pod.exits = vec![Exit {
                container: "c".into(),
                code,
                at: None,
            }];
        });
    }

    fn status(&self) -> JobStatus {
        self.job.status.clone().unwrap_or_default()
    }

    fn end(&self) -> Option<(String, String)> {
        let end = ended_at(&self.job)?;
        Some((end.type_.clone(), end.reason.clone().unwrap_or_default()))
    }
}

#[test]
fn every_pod_is_counted_once_whatever_dies_when() {
    for seed in 0..200 {
        let indexed = seed % 2 == 0;
        let mode = if indexed { "Indexed" } else { "NonIndexed" };
        let mut world = World::new(
            &json!({ "completions": 7, "parallelism": 3, "backoffLimit": 1000, "completionMode": mode }),
        );
        world.seed = seed;
        let (mut rounds, mut failed) = (0, 0);
        while world.end().is_none() {
            let dies_after = world.random(5);
            world.sync(dies_after);
            if world.random(2) == 0 {
                let fails = world.random(4) == 0;
                let before = world
                    .pods
                    .iter()
                    .filter(|pod| pod.phase == Phase::Failed)
                    .count();
                world.finish(
                    if fails {
                        Phase::Failed
                    } else {
                        Phase::Succeeded
                    },
                    1,
                );
                failed += world
                    .pods
                    .iter()
                    .filter(|pod| pod.phase == Phase::Failed)
                    .count()
                    - before;
            }
            rounds += 1;
            assert!(rounds < 2000, "it never ends: {:?}", world.status());
        }
        let status = world.status();
        assert_eq!(world.end().unwrap().0, "Complete");
        let succeeded = world
            .pods
            .iter()
            .filter(|pod| pod.phase == Phase::Succeeded)
            .count();
        assert!(status.succeeded.unwrap_or(0) >= 7);
        if !indexed {
            assert_eq!(
                usize::try_from(status.succeeded.unwrap()).unwrap(),
                succeeded
            );
        } else {
            assert_eq!(status.completed_indexes.as_deref(), Some("0-6"));
            assert_eq!(status.succeeded, Some(7));
        }
        assert_eq!(
            usize::try_from(status.failed.unwrap_or(0)).unwrap(),
            failed,
            "seed {seed}"
        );
        assert_eq!(
            status.uncounted_terminated_pods,
            Some(UncountedTerminatedPods::default())
        );
        assert!(status.active.is_none());
    }
}

#[test]
fn jobs_fail_for_upstreams_reasons() {
    for (spec, failures, code, later, reason) in [
        (
            json!({ "backoffLimit": 1 }),
            2,
            1,
            0,
            "BackoffLimitExceeded",
        ),
        (
            json!({ "activeDeadlineSeconds": 30 }),
            0,
            1,
            60,
            "DeadlineExceeded",
        ),
        (
            json!({ "podFailurePolicy": { "rules": [{ "action": "FailJob", "onExitCodes": { "operator": "In", "values": [42] } }] } }),
            1,
            42,
            0,
            "PodFailurePolicy",
        ),
        (
            json!({ "completionMode": "Indexed", "completions": 2, "backoffLimitPerIndex": 0, "maxFailedIndexes": 0, "backoffLimit": 100 }),
            1,
            1,
            0,
            "MaxFailedIndexesExceeded",
        ),
        (
            json!({ "completionMode": "Indexed", "completions": 1, "backoffLimitPerIndex": 0, "backoffLimit": 100 }),
            1,
            1,
            0,
            "FailedIndexes",
        ),
    ] {
        let mut world = World::new(&spec);
        world.sync(9);
        for _ in 0..failures {
            world.finish(Phase::Failed, code);
            (0..3).for_each(|_| world.sync(9));
        }
        world.now += later;
        (0..5).for_each(|_| world.sync(9));
        assert_eq!(
            world.end(),
            Some(("Failed".into(), reason.into())),
            "{spec}"
        );
        let targets = world.status().conditions.unwrap_or_default();
        assert!(
            targets.iter().any(|c| c.type_ == FAILURE_TARGET),
            "said before it ended"
        );
    }
}

#[test]
fn a_suspended_job_has_no_pods_and_starts_anew() {
    let mut world = World::new(&json!({ "parallelism": 2, "completions": 4 }));
    world.sync(9);
    assert_eq!(world.pods.len(), 2);
    assert!(world.status().start_time.is_some());
    world.job.spec.as_mut().unwrap().suspend = Some(true);
    (0..2).for_each(|_| world.sync(9));
    assert!(world.pods.is_empty());
    assert_eq!(
        (world.status().start_time, world.status().failed),
        (None, None)
    );
    world.job.spec.as_mut().unwrap().suspend = Some(false);
    world.now += 100;
    world.sync(9);
    assert_eq!(
        world.status().start_time.map(|t| t.0.as_second()),
        Some(1100)
    );
    assert_eq!(world.pods.len(), 2);
}

#[test]
fn ignored_failures_do_not_count_and_success_may_come_early() {
    let mut world = World::new(&json!({ "backoffLimit": 0, "podFailurePolicy": { "rules": [
        { "action": "Ignore", "onExitCodes": { "operator": "In", "values": [7] } }] } }));
    world.sync(9);
    world.finish(Phase::Failed, 7);
    (0..3).for_each(|_| world.sync(9));
    assert_eq!((world.end(), world.status().failed), (None, None));
    let mut world = World::new(
        &json!({ "completionMode": "Indexed", "completions": 5, "parallelism": 5,
        "successPolicy": { "rules": [{ "succeededCount": 1 }] } }),
    );
    world.sync(9);
    world.finish(Phase::Succeeded, 0);
    (0..5).for_each(|_| world.sync(9));
    assert_eq!(
        world.end(),
        Some(("Complete".into(), "SuccessPolicy".into()))
    );
    assert_eq!(world.status().failed, None);
}

#[test]
fn failures_in_a_row_wait_longer() {
    let mut world = World::new(&json!({}));
    for failures in 1..4i64 {
        let at = Some(Timestamp::from_second(world.now).unwrap());
        world.pods.push(Arc::new(PodView {
            uid: failures.to_string(),
            phase: Phase::Failed,
            exits: vec![Exit {
                container: "c".into(),
                code: 1,
                at,
            }],
            ..PodView::default()
        }));
    }
    let decided = decide(
        &world.job,
        &world.pods,
        true,
        Timestamp::from_second(world.now).unwrap(),
    );
    assert!(decided.create.is_empty());
    assert_eq!(
        decided.again_after,
        Some(Duration::from_secs(40)),
        "10 s, doubled twice"
    );
}
