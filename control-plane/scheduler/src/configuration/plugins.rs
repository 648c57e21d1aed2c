//! A profile of a configuration: which plugins, with which weights and arguments.

use serde::de::DeserializeOwned;
use serde_json::Value;

use super::ConfigurationError;
use super::fields::{Fields, wrong};
use crate::profile::{PLUGINS, Plugin, Profile, Strategy};

type Read<T> = Result<T, ConfigurationError>;

/// Where plugins can be switched on and off; `multiPoint` is everywhere.
const POINTS: [&str; 13] = [
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
    "multiPoint",
];

pub(super) fn profile(value: &Value, path: &str) -> Read<Profile> {
    let mut fields = Fields::of(value, path)?;
    let name = fields.text("schedulerName")?;
    let mut profile = Profile::new(name.as_deref().unwrap_or("default-scheduler"));
    profile.percentage = fields.percentage("percentageOfNodesToScore")?;
    if let Some(mut plugins) = fields.object("plugins")? {
        // Everywhere first: single points have the last word.
        for point in POINTS.into_iter().rev() {
            if let Some(set) = plugins.object(point)? {
                switch(&mut profile, point, set)?;
            }
        }
        plugins.done()?;
    }
    for (entry, path) in fields.list("pluginConfig")?.unwrap_or_default() {
        let mut entry = Fields::of(entry, &path)?;
        let name = entry.text("name")?.unwrap_or_default();
        let args = entry.object("args")?;
        if let Some(args) = args {
            arguments(&mut profile, &name, args, &path)?;
        }
        entry.done()?;
    }
    fields.done()?;
    Ok(profile)
}

fn switch(profile: &mut Profile, point: &'static str, mut set: Fields<'_>) -> Read<()> {
    for (value, path) in set.list("disabled")?.unwrap_or_default() {
        let mut plugin = Fields::of(value, &path)?;
        let name = plugin.text("name")?.unwrap_or_default();
        plugin.ignore("weight");
        for entry in PLUGINS.iter().filter(|e| name == "*" || e.name == name) {
            turn(profile, point, entry.plugin, None);
        }
        plugin.done()?;
    }
    for (value, path) in set.list("enabled")?.unwrap_or_default() {
        let mut plugin = Fields::of(value, &path)?;
        let name = plugin.text("name")?.unwrap_or_default();
        let weight = plugin.number("weight")?.filter(|weight| *weight != 0);
        let Some(known) = Plugin::named(&name) else {
            return Err(wrong(
                &format!("{path}.name"),
                "is no plugin that exists here",
            ));
        };
        let default = PLUGINS
            .iter()
            .find(|e| e.plugin == known)
            .map_or(0, |e| e.weight);
        turn(
            profile,
            point,
            known,
            Some(weight.unwrap_or(default.max(1))),
        );
        plugin.done()?;
    }
    set.done()
}

// On with a weight, or off.
fn turn(profile: &mut Profile, point: &str, plugin: Plugin, weight: Option<i64>) {
    let scores = PLUGINS.iter().any(|e| e.plugin == plugin && e.weight > 0);
    if matches!(point, "multiPoint" | "filter" | "postFilter") {
        profile.set_filter(plugin, weight.is_some());
    }
    if matches!(point, "multiPoint" | "score") && scores {
        profile.set_weight(plugin, weight.unwrap_or(0));
    }
}

fn arguments(profile: &mut Profile, plugin: &str, mut args: Fields<'_>, path: &str) -> Read<()> {
    args.ignore("apiVersion");
    args.ignore("kind");
    match Plugin::named(plugin) {
        Some(Plugin::NodeResourcesFit) => fit(profile, &mut args)?,
        Some(Plugin::NodeResourcesBalancedAllocation) => {
            if let Some(resources) = resources(&mut args)? {
                profile.balanced = resources.into_iter().map(|(name, _)| name).collect();
            }
        }
        Some(Plugin::InterPodAffinity) => {
            if let Some(weight) = args.number("hardPodAffinityWeight")? {
                if !(0..=100).contains(&weight) {
                    return Err(args.wrong("hardPodAffinityWeight", "not in valid range [0-100]"));
                }
                profile.hard_affinity_weight = weight;
            }
            let ignores = args.flag("ignorePreferredTermsOfExistingPods")?;
            profile.ignores_others_wishes = ignores.unwrap_or_default();
        }
        Some(Plugin::PodTopologySpread) => spread(profile, &mut args)?,
        Some(Plugin::NodeAffinity) => profile.added_affinity = typed(&mut args, "addedAffinity")?,
        Some(Plugin::DefaultPreemption) => {
            for (field, count) in [
                (
                    "minCandidateNodesPercentage",
                    &mut profile.candidates_percent,
                ),
                ("minCandidateNodesAbsolute", &mut profile.candidates_least),
            ] {
                if let Some(number) = args.number(field)? {
                    *count = usize::try_from(number)
                        .map_err(|_| args.wrong(field, "must not be negative"))?;
                }
            }
        }
        Some(Plugin::VolumeBinding) => {
            args.ignore("bindTimeoutSeconds");
            args.ignore("shape");
        }
        _ => {
            return Err(wrong(
                &format!("{path}.name"),
                "is no plugin with arguments",
            ));
        }
    }
    args.done()
}

fn fit(profile: &mut Profile, args: &mut Fields<'_>) -> Read<()> {
    profile.ignored_resources = typed(args, "ignoredResources")?.unwrap_or_default();
    profile.ignored_groups = typed(args, "ignoredResourceGroups")?.unwrap_or_default();
    let Some(mut strategy) = args.object("scoringStrategy")? else {
        return Ok(());
    };
    let kind = strategy.text("type")?;
    if let Some(resources) = resources(&mut strategy)? {
        profile.resources = resources;
    }
    let mut shape = Vec::new();
    if let Some(mut ratio) = strategy.object("requestedToCapacityRatio")? {
        for (point, path) in ratio.list("shape")?.unwrap_or_default() {
            let mut point = Fields::of(point, &path)?;
            let used = point.number("utilization")?.unwrap_or_default();
            shape.push((used, point.number("score")?.unwrap_or_default()));
            point.done()?;
        }
        ratio.done()?;
    }
    profile.strategy = match kind.as_deref() {
        None | Some("LeastAllocated") => Strategy::LeastAllocated,
        Some("MostAllocated") => Strategy::MostAllocated,
        Some("RequestedToCapacityRatio") => {
            let rises = shape.windows(2).all(|pair| pair[0].0 < pair[1].0);
            if shape.is_empty() || !rises {
                let cause = "needs points of rising utilization";
                return Err(strategy.wrong("requestedToCapacityRatio.shape", cause));
            }
            Strategy::RequestedToCapacityRatio(shape)
        }
        Some(_) => {
            let cause = "must be LeastAllocated, MostAllocated or RequestedToCapacityRatio";
            return Err(strategy.wrong("type", cause));
        }
    };
    strategy.done()
}

fn resources(fields: &mut Fields<'_>) -> Read<Option<Vec<(String, i64)>>> {
    let Some(list) = fields.list("resources")? else {
        return Ok(None);
    };
    let mut resources = Vec::new();
    for (value, path) in list {
        let mut resource = Fields::of(value, &path)?;
        let name = resource.text("name")?.unwrap_or_default();
        let weight = resource.number("weight")?.unwrap_or(1);
        if !(1..=100).contains(&weight) {
            return Err(resource.wrong("weight", "not in valid range [1-100]"));
        }
        resource.done()?;
        resources.push((name, weight));
    }
    Ok(Some(resources))
}

fn spread(profile: &mut Profile, args: &mut Fields<'_>) -> Read<()> {
    let constraints: Option<Vec<_>> = typed(args, "defaultConstraints")?;
    let kind = args.text("defaultingType")?;
    profile.default_spread = match kind.as_deref() {
        None | Some("System") => {
            if constraints.is_some_and(|all| !all.is_empty()) {
                let cause = "when .defaultingType is System, it must be empty";
                return Err(args.wrong("defaultConstraints", cause));
            }
            None
        }
        Some("List") => Some(constraints.unwrap_or_default()),
        Some(_) => return Err(args.wrong("defaultingType", "must be System or List")),
    };
    Ok(())
}

fn typed<T: DeserializeOwned>(fields: &mut Fields<'_>, field: &'static str) -> Read<Option<T>> {
    let Some(value) = fields.get(field) else {
        return Ok(None);
    };
    let typed = serde_json::from_value(value.clone());
    typed
        .map(Some)
        .map_err(|e| fields.wrong(field, &e.to_string()))
}
