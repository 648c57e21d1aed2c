//! What a validating policy makes of a write.

use std::cell::RefCell;

use cel::{Bindings, Budget, Lazy, Meter, Value as Cel};
use http::StatusCode;
use serde_json::{Value, json};

use super::compile::{Binding, Compiled, Policy, Validation};
use super::{Scene, Subject, conditions, params};
use crate::api::Api;
use crate::status::{ApiError, Result};
use crate::writing::admission::Attributes;
use crate::writing::admission::expressions::{Asker, Input, Verdict};

/// The longest message that an expression may make.
const LONGEST_MESSAGE: usize = 5 * 1024;

/// The longest value that an audit annotation of a policy has.
const LONGEST_ANNOTATION: usize = 10 * 1024;

/// One rule that is not kept.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    message: String,
    reason: String,
    /// Whether the rule said no; otherwise something went wrong, which only counts if the policy fails closed.
    refused: bool,
}

/// The second phase: every policy with every binding and every parameter.
pub(super) async fn validate(
    api: &Api,
    attributes: &Attributes<'_>,
    object: Option<&Value>,
) -> Result<()> {
    let state = api.policies.validating.0.load_full();
    if state.is_idle() {
        return Ok(());
    }
    let mut subject = Subject::new(api, attributes);
    let mut denial = None;
    let mut recorded = Vec::new();
    for (policy, binding) in state.pairs() {
        let Some(matched) = subject.invoked((policy, binding), object).await? else {
            continue;
        };
        let scene = Scene::new(api, attributes, matched, object).await?;
        let found = match params::of(api, attributes, policy, binding).await {
            Ok(found) => found,
            Err(why) if policy.fails_closed => {
                let why = format!("failed to configure binding: {why}");
                denial = denial.or(Some(refusal(attributes, object, policy, binding, &why, "")));
                continue;
            }
            Err(_) => continue,
        };
        let namespace = subject.namespace(object).await?.clone();
        let asker = Asker::new(&api.authorizer, attributes);
        for params in &found {
            let input = scene.input(attributes, object, &namespace, &asker);
            let judgement = judge(policy, &input, params);
            for (key, value) in &judgement.annotations {
                attributes.annotate(&format!("{}/{key}", policy.name), value);
            }
            for (index, failure) in judgement.failures {
                let refused = act(attributes, object, policy, binding, &failure);
                denial = denial.or(refused);
                if failure.refused && binding.actions.iter().any(|action| action == "Audit") {
                    recorded.push(json!({"message": failure.message, "policy": policy.name, "binding": binding.name,
                        "expressionIndex": index, "validationActions": binding.actions}));
                }
            }
        }
    }
    if !recorded.is_empty() {
        let key = "validation.policy.admission.k8s.io/validation_failure";
        attributes.annotate(key, &Value::Array(recorded).to_string());
    }
    denial.map_or(Ok(()), Err)
}

/// What each action of a binding asks for: a warning now, a refusal at the end.
fn act(
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    policy: &Policy,
    binding: &Binding,
    failure: &Failure,
) -> Option<ApiError> {
    let asks = |action: &str| binding.actions.iter().any(|a| a == action);
    let (policy_name, binding_name) = (&policy.name, &binding.name);
    if failure.refused && asks("Warn") {
        attributes.warn(format!(
            "Validation failed for ValidatingAdmissionPolicy '{policy_name}' with binding '{binding_name}': {}",
            failure.message
        ));
    }
    // An expression that fails is a refusal, whatever the actions are.
    (asks("Deny") || !failure.refused).then(|| {
        refusal(
            attributes,
            object,
            policy,
            binding,
            &failure.message,
            &failure.reason,
        )
    })
}

fn refusal(
    attributes: &Attributes<'_>,
    object: Option<&Value>,
    policy: &Policy,
    binding: &Binding,
    message: &str,
    reason: &str,
) -> ApiError {
    let why = format!(
        "ValidatingAdmissionPolicy '{}' with binding '{}' denied request: {message}",
        policy.name, binding.name
    );
    let mut error = attributes.forbid(object, &why).cause("", why, "");
    (error.code, error.reason) = match reason {
        "Forbidden" => (StatusCode::FORBIDDEN, "Forbidden"),
        "Unauthorized" => (StatusCode::UNAUTHORIZED, "Unauthorized"),
        "RequestEntityTooLarge" => (StatusCode::PAYLOAD_TOO_LARGE, "RequestEntityTooLarge"),
        _ => (StatusCode::UNPROCESSABLE_ENTITY, "Invalid"),
    };
    error
}

/// What a policy has to say about a write.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Judgement {
    /// Rules that are not kept, with their places.
    failures: Vec<(usize, Failure)>,
    /// What is to be recorded.
    annotations: Vec<(String, String)>,
}

/// The rules of a policy over one write and one parameter.
pub(super) fn judge(policy: &Policy, input: &Input<'_>, params: &Value) -> Judgement {
    let failed = |message: String| {
        let failure = Failure {
            message,
            reason: String::new(),
            refused: false,
        };
        policy.fails_closed.then_some((0, failure))
    };
    let mut judgement = Judgement::default();
    match conditions(policy, input, params) {
        Verdict::Met => {}
        Verdict::NotMet => return judgement,
        Verdict::Failed(why) => {
            judgement.failures.extend(failed(why));
            return judgement;
        }
    }
    let variables = Variables::new(policy, input, params);
    let values = variables.values();
    let mut budget = Budget::new(cel::PER_OBJECT);
    let failures = &mut judgement.failures;
    for (index, validation) in policy.validations.iter().enumerate() {
        match outcome(&validation.program, &values, &mut budget) {
            Ok(Cel::Bool(true)) => {}
            Ok(_) => {
                let failure = Failure {
                    message: message(validation, &values, &mut budget),
                    reason: validation.reason.clone(),
                    refused: true,
                };
                failures.push((index, failure));
            }
            Err(why) => {
                let expression = &validation.expression;
                failures.extend(failed(format!(
                    "expression '{expression}' resulted in error: {why}"
                )));
            }
        }
    }
    let mut budget = Budget::new(cel::PER_OBJECT);
    for (key, program) in &policy.annotations {
        match outcome(program, &values, &mut budget) {
            // Nothing to say is not an annotation.
            Ok(value) => {
                let text = value.as_str().unwrap_or_default().trim();
                if !text.is_empty() {
                    let text = text.chars().take(LONGEST_ANNOTATION).collect();
                    judgement.annotations.push((key.clone(), text));
                }
            }
            Err(why) => failures.extend(failed(format!(
                "expression '{key}' resulted in error: {why}"
            ))),
        }
    }
    judgement
}

/// What a compiled expression yields.
pub(super) fn outcome<'a>(
    program: &'a Compiled,
    values: &Bindings<'a>,
    budget: &mut Budget,
) -> Result<Cel<'a>, String> {
    match program {
        Ok(program) => program.evaluate(values, budget).map_err(|e| e.message),
        Err(why) => Err(why.clone()),
    }
}

// What the rule's own expression says, if that is usable; what it has in store otherwise.
fn message<'a>(validation: &'a Validation, values: &Bindings<'a>, budget: &mut Budget) -> String {
    let made = validation.message_program.as_ref();
    let made = made.and_then(|program| outcome(program, values, budget).ok());
    let made = made.as_ref().and_then(Cel::as_str).map(str::trim);
    let usable = |text: &&str| {
        !text.is_empty() && text.len() <= LONGEST_MESSAGE && !text.contains(['\n', '\r'])
    };
    match made.filter(usable) {
        Some(text) => text.to_owned(),
        None if !validation.message.is_empty() => validation.message.clone(),
        None => format!("failed expression: {}", validation.expression),
    }
}

/// The variables of a policy: each is worked out when it is first asked for.
pub(super) struct Variables<'a> {
    policy: &'a Policy,
    base: Bindings<'a>,
    found: RefCell<Vec<Option<cel::Result<Cel<'a>>>>>,
}

impl<'a> Variables<'a> {
    pub(super) fn new(policy: &'a Policy, input: &Input<'a>, params: &'a Value) -> Variables<'a> {
        Variables {
            policy,
            base: input
                .bindings(&policy.env)
                .set(&policy.env, "params", Cel::json(params)),
            found: RefCell::new(vec![None; policy.variables.len()]),
        }
    }

    pub(super) fn values(&'a self) -> Bindings<'a> {
        let variables = Cel::Lazy(self);
        self.base
            .clone()
            .set(&self.policy.env, "variables", variables)
    }
}

impl<'a> Lazy<'a> for Variables<'a> {
    fn field(&'a self, name: &str, meter: &mut Meter) -> Option<cel::Result<Cel<'a>>> {
        let index = self
            .policy
            .variables
            .iter()
            .position(|(known, _)| known == name)?;
        if let Some(found) = &self.found.borrow()[index] {
            return Some(found.clone());
        }
        let value = match &self.policy.variables[index].1 {
            Ok(program) => program
                .run(&self.values(), meter)
                .map_err(|error| cel::Error {
                    message: format!(
                        "composited variable {name:?} fails to evaluate: {}",
                        error.message
                    ),
                    too_costly: error.too_costly,
                }),
            Err(why) => Err(cel::Error::new(format!(
                "composited variable {name:?} fails to compile: {why}"
            ))),
        };
        self.found.borrow_mut()[index] = Some(value.clone());
        Some(value)
    }
}

#[cfg(test)]
mod tests;
