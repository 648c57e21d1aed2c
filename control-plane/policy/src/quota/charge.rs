//! One write against the quotas of its namespace.

use jiff::Timestamp;
use kinds::pod_resources::Amounts;
use kube_kit::quantity::Quantity;
use serde_json::Value;

use super::{Measure, Quota, add};

/// A write that may cost something.
#[derive(Debug, Clone, Copy)]
pub struct Write<'a> {
    /// The subresource written to; empty for the object itself.
    pub subresource: &'a str,
    /// The object as it shall be.
    pub new: &'a Value,
    /// The object as it is; `None` when it is created.
    pub old: Option<&'a Value>,
    /// The time, which decides whether a dying pod still counts.
    pub now: Timestamp,
}

/// Whether a write fits all quotas: the usage that each quota would then have, by its index, for those
/// that change; or why not, in upstream's words.
pub fn charge(
    quotas: &[Quota],
    measure: &Measure,
    write: &Write<'_>,
) -> Result<Vec<(usize, Amounts)>, String> {
    let old = write.old.unwrap_or(&Value::Null);
    if !measure.concerns(write.old.is_none(), write.subresource, write.new, old) {
        return Ok(Vec::new());
    }
    let mut concerned = Vec::new();
    for (index, quota) in quotas.iter().enumerate() {
        if matches(quota, measure, write.new) {
            check_ready(quota, measure, write.new)?;
            concerned.push(index);
        }
    }
    if concerned.is_empty() {
        return Ok(Vec::new());
    }
    let usage = measure.usage(write.new, write.now);
    refuse_negative(&usage)?;
    let mut changed = Vec::new();
    for index in concerned {
        let quota = &quotas[index];
        let delta = match write.old {
            Some(old) if matches(quota, measure, old) => {
                increase(&usage, &measure.usage(old, write.now))
            }
            _ => usage.clone(),
        };
        if let Some(used) = fit(quota, delta, write.subresource != "status")? {
            changed.push((index, used));
        }
    }
    Ok(changed)
}

fn tracked<'q>(quota: &'q Quota, measure: &Measure) -> Vec<&'q str> {
    let names = quota.hard.keys().map(String::as_str);
    names.filter(|name| measure.tracks(name)).collect()
}

fn matches(quota: &Quota, measure: &Measure, object: &Value) -> bool {
    !tracked(quota, measure).is_empty() && measure.in_scopes(&quota.scopes, object)
}

// The object must say what the quota counts, and the controller must have counted it once.
fn check_ready(quota: &Quota, measure: &Measure, object: &Value) -> Result<(), String> {
    let names = tracked(quota, measure);
    if let Some(unsaid) = measure.unsaid(&names, object) {
        return Err(format!("failed quota: {}: {unsaid}", quota.name));
    }
    if names.iter().any(|name| !quota.used.contains_key(*name)) {
        return Err(format!(
            "status unknown for quota: {}, resources: {}",
            quota.name,
            names.join(",")
        ));
    }
    Ok(())
}

fn refuse_negative(usage: &Amounts) -> Result<(), String> {
    let negative: Vec<&str> = usage
        .iter()
        .filter(|(_, amount)| amount.signum() < 0)
        .map(|(name, _)| name.as_str())
        .collect();
    match negative.is_empty() {
        true => Ok(()),
        false => Err(format!(
            "quota usage is negative for resource(s): {}",
            negative.join(",")
        )),
    }
}

// What is given back is the controller's to notice.
fn increase(new: &Amounts, old: &Amounts) -> Amounts {
    let mut delta = new.clone();
    for (name, amount) in &mut delta {
        if let Some(before) = old.get(name) {
            *amount -= before;
        }
        if amount.signum() < 0 {
            *amount = Quantity::ZERO;
        }
    }
    delta
}

// Only names whose usage grows are held against the bound, so a quota that was lowered below its use
// still lets through what asks for something else.
fn fit(quota: &Quota, mut delta: Amounts, enforce: bool) -> Result<Option<Amounts>, String> {
    delta.retain(|name, amount| !amount.is_zero() && quota.hard.contains_key(name));
    if delta.is_empty() {
        return Ok(None);
    }
    let mut used = quota.used.clone();
    add(&mut used, &delta);
    let exceeded: Vec<&str> = delta
        .keys()
        .filter(|name| used[*name] > quota.hard[*name])
        .map(String::as_str)
        .collect();
    if !enforce || exceeded.is_empty() {
        return Ok(Some(used));
    }
    Err(format!(
        "exceeded quota: {}, requested: {}, used: {}, limited: {}",
        quota.name,
        listed(&delta, &exceeded),
        listed(&quota.used, &exceeded),
        listed(&quota.hard, &exceeded)
    ))
}

fn listed(amounts: &Amounts, names: &[&str]) -> String {
    let parts: Vec<String> = names
        .iter()
        .filter_map(|name| Some(format!("{name}={}", amounts.get(*name)?)))
        .collect();
    parts.join(",")
}
