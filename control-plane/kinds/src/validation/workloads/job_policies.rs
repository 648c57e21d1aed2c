//! The policies of a job: which failures count, when it has succeeded, when pods are replaced.

use std::collections::HashSet;

use serde_json::Value;

use crate::field::{Errors, Path};
use crate::validation::names;
use crate::validation::reading::{at, has, int, items, some_int, text};
use crate::validation::rules::{complain, non_negative};
use crate::validation::values::invalid_unshown;

const RULES_MAX: usize = 20;
const PATTERNS_MAX: usize = 20;
const EXIT_CODES_MAX: usize = 255;
const INDEXES_MAX: usize = 64 * 1024;
const ACTIONS: [&str; 4] = ["Count", "FailIndex", "FailJob", "Ignore"];
const OPERATORS: [&str; 2] = ["In", "NotIn"];
const STATUSES: [&str; 3] = ["False", "True", "Unknown"];

/// The pod failure policy of a job spec.
pub(crate) fn failure(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    let path = path.child("rules");
    let rules = items(at(spec, "podFailurePolicy"), "rules");
    if rules.len() > RULES_MAX {
        errors.too_many(&path, rules.len(), RULES_MAX);
    }
    for (i, rule) in rules.iter().enumerate() {
        failure_rule(errors, &path.index(i), rule, spec);
    }
}

fn failure_rule(errors: &mut Errors, path: &Path<'_>, rule: &Value, spec: &Value) {
    let action = text(rule, "action");
    let action_path = path.child("action");
    if action == "FailIndex" && !has(spec, "backoffLimitPerIndex") {
        let detail = "requires the backoffLimitPerIndex to be set";
        errors.invalid(&action_path, &action.into(), detail);
    }
    listed(errors, &action_path, action, &ACTIONS);
    let patterns = items(rule, "onPodConditions");
    if has(rule, "onExitCodes") {
        exit_codes(
            errors,
            &path.child("onExitCodes"),
            at(rule, "onExitCodes"),
            spec,
        );
    }
    if patterns.len() > PATTERNS_MAX {
        errors.too_many(&path.child("onPodConditions"), patterns.len(), PATTERNS_MAX);
    }
    let patterns_path = path.child("onPodConditions");
    for (i, pattern) in patterns.iter().enumerate() {
        let path = patterns_path.index(i);
        let ty = text(pattern, "type");
        complain(errors, &path.child("type"), ty, names::qualified_name(ty));
        listed(
            errors,
            &path.child("status"),
            text(pattern, "status"),
            &STATUSES,
        );
    }
    let detail = match (has(rule, "onExitCodes"), !patterns.is_empty()) {
        (true, true) => "specifying both OnExitCodes and OnPodConditions is not supported",
        (false, false) => "specifying one of OnExitCodes and OnPodConditions is required",
        _ => return,
    };
    invalid_unshown(errors, path, detail);
}

// A choice whose complaint about nothing lists the choices.
fn listed(errors: &mut Errors, path: &Path<'_>, value: &str, allowed: &[&str]) {
    if value.is_empty() {
        let choices: Vec<String> = allowed.iter().map(|choice| format!("{choice:?}")).collect();
        errors.required(path, &format!("valid values: [{}]", choices.join(" ")));
    } else if !allowed.contains(&value) {
        errors.not_supported(path, &value.into(), allowed);
    }
}

fn exit_codes(errors: &mut Errors, path: &Path<'_>, requirement: &Value, spec: &Value) {
    let operator = text(requirement, "operator");
    listed(errors, &path.child("operator"), operator, &OPERATORS);
    let pod = at(at(spec, "template"), "spec");
    let mut names = ["containers", "initContainers"]
        .into_iter()
        .flat_map(|list| items(pod, list))
        .map(|container| text(container, "name"));
    let container = text(requirement, "containerName");
    if has(requirement, "containerName") && !names.any(|name| name == container) {
        let detail = "must be one of the container or initContainer names in the pod template";
        errors.invalid(&path.child("containerName"), &container.into(), detail);
    }
    codes(
        errors,
        &path.child("values"),
        at(requirement, "values"),
        operator,
    );
}

fn codes(errors: &mut Errors, path: &Path<'_>, list: &Value, operator: &str) {
    let codes: Vec<i64> = list
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_i64)
        .collect();
    if codes.is_empty() {
        errors.invalid(path, list, "at least one value is required");
    } else if codes.len() > EXIT_CODES_MAX {
        errors.too_many(path, codes.len(), EXIT_CODES_MAX);
    }
    let mut seen = HashSet::new();
    for (i, code) in codes.iter().enumerate() {
        if operator == "In" && *code == 0 {
            errors.invalid(
                &path.index(i),
                &0.into(),
                "must not be 0 for the In operator",
            );
        }
        if !seen.insert(code) {
            errors.duplicate(&path.index(i), &(*code).into());
        }
    }
    if !codes.is_sorted() {
        errors.invalid(path, list, "must be ordered");
    }
}

/// When pods are replaced; with a failure policy only once they have failed.
pub(crate) fn replacement(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    let field = "podReplacementPolicy";
    if !has(spec, field) {
        return;
    }
    let allowed: &[&str] = match has(spec, "podFailurePolicy") {
        true => &["Failed"],
        false => &["Failed", "TerminatingOrFailed"],
    };
    let policy = text(spec, field);
    if !allowed.contains(&policy) {
        errors.not_supported(path, &policy.into(), allowed);
    }
}

/// The success policy of an indexed job.
pub(crate) fn success(errors: &mut Errors, path: &Path<'_>, spec: &Value) {
    let path = path.child("rules");
    let rules = items(at(spec, "successPolicy"), "rules");
    if rules.is_empty() {
        let detail = "at least one rules must be specified when the successPolicy is specified";
        errors.required(&path, detail);
    }
    if rules.len() > RULES_MAX {
        errors.too_many(&path, rules.len(), RULES_MAX);
    }
    for (i, rule) in rules.iter().enumerate() {
        success_rule(errors, &path.index(i), rule, int(spec, "completions"));
    }
}

fn success_rule(errors: &mut Errors, path: &Path<'_>, rule: &Value, completions: i64) {
    let has_indexes = has(rule, "succeededIndexes");
    if !has(rule, "succeededCount") && !has_indexes {
        let detail = "at least one of succeededCount or succeededIndexes must be specified";
        errors.required(path, detail);
    }
    let mut total = 0;
    if has_indexes {
        let path = path.child("succeededIndexes");
        let list = text(rule, "succeededIndexes");
        if list.len() > INDEXES_MAX {
            errors.too_long(&path, INDEXES_MAX);
        }
        match indexes(list, completions) {
            Ok(count) => total = count,
            Err(reason) => {
                let detail = format!("error parsing succeededIndexes: {reason}");
                errors.invalid(&path, &list.into(), &detail);
            }
        }
    }
    let Some(count) = some_int(rule, "succeededCount") else {
        return;
    };
    non_negative(errors, path, rule, "succeededCount");
    let path = path.child("succeededCount");
    if count > completions {
        let detail = format!(
            "must be less than or equal to {completions} (the number of specified completions)"
        );
        errors.invalid(&path, &count.into(), &detail);
    }
    if has_indexes && count > total {
        let detail = format!(
            "must be less than or equal to {total} (the number of indexes in the specified succeededIndexes field)"
        );
        errors.invalid(&path, &count.into(), &detail);
    }
}

/// Reads a list of indexes such as `1,3-5` and counts them.
pub(crate) fn indexes(list: &str, completions: i64) -> Result<i64, String> {
    let (mut total, mut last) = (0, None);
    for part in list.split(',').filter(|_| !list.is_empty()) {
        let (first, end) = interval(part, completions)?;
        if let Some(previous) = last.filter(|last| *last >= first) {
            return Err(format!(
                "non-increasing order, previous: {previous}, current: {first}"
            ));
        }
        total += end - first + 1;
        last = Some(end);
    }
    Ok(total)
}

/// Reads one part of a list of indexes.
pub(crate) fn interval(part: &str, completions: i64) -> Result<(i64, i64), String> {
    let ends: Vec<&str> = part.split('-').collect();
    if ends.len() > 2 {
        return Err(format!(
            "the fragment {part:?} violates the requirement that an index interval can have at most two parts separated by '-'"
        ));
    }
    let index = |text: &str| {
        let index: i64 = text
            .parse()
            .map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
        if index >= completions {
            Err(format!("too large index: {text:?}"))
        } else {
            Ok(index)
        }
    };
    let first = index(ends[0])?;
    let Some(last) = ends.get(1) else {
        return Ok((first, first));
    };
    let last = index(last)?;
    if first >= last {
        return Err(format!(
            "non-increasing order, previous: {first}, current: {last}"
        ));
    }
    Ok((first, last))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::validation::cases::told;

    #[test]
    fn failure_policies_are_checked() {
        let check = |rule: Value| {
            let spec = json!({
                "podFailurePolicy": {"rules": [rule]},
                "template": {"spec": {"containers": [{"name": "app"}]}}
            });
            told(|e| failure(e, &Path::root("p"), &spec)).join("|")
        };
        let codes = |codes: Value| json!({"action": "FailJob", "onExitCodes": codes});
        let cases = [
            (
                codes(json!({"operator": "In", "values": [1, 2], "containerName": "app"})),
                "",
            ),
            (
                json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}),
                "",
            ),
            (
                json!({"action": "Ignore"}),
                "p.rules[0]: Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
            ),
            (
                json!({"onPodConditions": [{"type": "A", "status": "True"}]}),
                "p.rules[0].action: Required value: valid values: [\"Count\" \"FailIndex\" \"FailJob\" \"Ignore\"]",
            ),
            (
                json!({"action": "FailIndex", "onPodConditions": [{"type": "A", "status": "True"}]}),
                "p.rules[0].action: Invalid value: \"FailIndex\": requires the backoffLimitPerIndex to be set",
            ),
            (
                codes(json!({"operator": "In", "values": [0]})),
                "p.rules[0].onExitCodes.values[0]: Invalid value: 0: must not be 0 for the In operator",
            ),
            (
                codes(json!({"operator": "NotIn", "values": [2, 1]})),
                "p.rules[0].onExitCodes.values: Invalid value: [2,1]: must be ordered",
            ),
            (
                codes(json!({"operator": "NotIn", "values": [1, 1]})),
                "p.rules[0].onExitCodes.values[1]: Duplicate value: 1",
            ),
            (
                codes(json!({"operator": "In", "values": [1], "containerName": "x"})),
                "p.rules[0].onExitCodes.containerName: Invalid value: \"x\": must be one of the container or initContainer names in the pod template",
            ),
        ];
        for (rule, expected) in cases {
            assert_eq!(check(rule.clone()), expected, "{rule}");
        }
    }

    #[test]
    fn success_policies_are_checked() {
        let check = |rules: Value| {
            let spec = json!({"completions": 5, "successPolicy": {"rules": rules}});
            told(|e| success(e, &Path::root("p"), &spec)).join("|")
        };
        let cases = [
            (
                json!([{"succeededIndexes": "0,2-4", "succeededCount": 3}]),
                "",
            ),
            (
                json!([]),
                "p.rules: Required value: at least one rules must be specified when the successPolicy is specified",
            ),
            (
                json!([{}]),
                "p.rules[0]: Required value: at least one of succeededCount or succeededIndexes must be specified",
            ),
            (
                json!([{"succeededCount": 6}]),
                "p.rules[0].succeededCount: Invalid value: 6: must be less than or equal to 5 (the number of specified completions)",
            ),
            (
                json!([{"succeededIndexes": "0-1", "succeededCount": 3}]),
                "p.rules[0].succeededCount: Invalid value: 3: must be less than or equal to 2 (the number of indexes in the specified succeededIndexes field)",
            ),
            (
                json!([{"succeededIndexes": "0-5"}]),
                "p.rules[0].succeededIndexes: Invalid value: \"0-5\": error parsing succeededIndexes: too large index: \"5\"",
            ),
        ];
        for (rules, expected) in cases {
            assert_eq!(check(rules.clone()), expected, "{rules}");
        }
    }

    #[test]
    fn lists_of_indexes_are_checked() {
        assert_eq!(indexes("", 5), Ok(0));
        assert_eq!(indexes("0,2-4", 5), Ok(4));
        for bad in ["1,1", "3-2", "1-2-3", "x", "5"] {
            assert!(indexes(bad, 5).is_err(), "{bad}");
        }
    }

    #[test]
    fn replacement_policies_are_checked() {
        let check = |spec: Value| told(|e| replacement(e, &Path::root("p"), &spec)).join("|");
        assert_eq!(
            check(json!({"podReplacementPolicy": "TerminatingOrFailed"})),
            ""
        );
        assert_eq!(
            check(json!({"podReplacementPolicy": "TerminatingOrFailed", "podFailurePolicy": {}})),
            "p: Unsupported value: \"TerminatingOrFailed\": supported values: \"Failed\""
        );
    }
}
