//! How far a rollout may go over and under the number of replicas.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::super::fractions::{Rounding, scaled};

/// The numbers a rollout keeps to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    pub(super) replicas: i32,
    pub(super) surge: i32,
    pub(super) unavailable: i32,
}

impl Limits {
    /// Upstream's `ResolveFenceposts`, `MaxSurge` and `MaxUnavailable`.
    pub(super) fn of(deployment: &Deployment) -> Limits {
        let spec = deployment.spec.as_ref();
        let replicas = spec.and_then(|spec| spec.replicas).unwrap_or(1);
        let strategy = spec.and_then(|spec| spec.strategy.as_ref());
        let rolling = strategy.filter(|s| s.type_.as_deref() != Some("Recreate"));
        let Some(rolling) = rolling else {
            return Limits {
                replicas,
                surge: 0,
                unavailable: 0,
            };
        };
        let update = rolling.rolling_update.as_ref();
        let number = |value: Option<&IntOrString>, rounding| {
            value
                .and_then(|value| scaled(value, replicas, rounding))
                .unwrap_or(0)
        };
        let surge = number(update.and_then(|u| u.max_surge.as_ref()), Rounding::Up);
        let down = number(
            update.and_then(|u| u.max_unavailable.as_ref()),
            Rounding::Down,
        );
        // With neither, nothing could ever move.
        let down = if surge == 0 && down == 0 { 1 } else { down };
        Limits {
            replicas,
            surge,
            unavailable: down.min(replicas),
        }
    }

    /// The most pods there may be.
    pub(super) fn most(self) -> i32 {
        self.replicas + self.surge
    }

    /// The fewest pods that must be available.
    pub(super) fn fewest(self) -> i32 {
        self.replicas - self.unavailable
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn limits_are_upstreams() {
        for (strategy, replicas, surge, unavailable) in [
            (
                json!({ "maxSurge": "25%", "maxUnavailable": "25%" }),
                10,
                3,
                2,
            ),
            (
                json!({ "maxSurge": "25%", "maxUnavailable": "25%" }),
                1,
                1,
                0,
            ),
            (json!({ "maxSurge": 0, "maxUnavailable": "10%" }), 3, 0, 1),
            (json!({ "maxSurge": 1, "maxUnavailable": 9 }), 3, 1, 3),
            (json!({ "maxSurge": 2, "maxUnavailable": 1 }), 0, 2, 0),
        ] {
            let deployment = json!({ "spec": { "replicas": replicas, "selector": {}, "template": {},
                "strategy": { "type": "RollingUpdate", "rollingUpdate": strategy } } });
            let limits = Limits::of(&serde_json::from_value(deployment).unwrap());
            assert_eq!(
                limits,
                Limits {
                    replicas,
                    surge,
                    unavailable
                },
                "{strategy}"
            );
        }
    }
}
