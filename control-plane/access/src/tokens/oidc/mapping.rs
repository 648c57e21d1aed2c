//! From claims to a user.

use serde_json::{Value, json};

use super::{Expression, Mapping, Rule, Trust};
use crate::User;
use crate::tokens::{CREDENTIAL_ID, Invalid, service_account};

impl Trust {
    /// The user verified claims describe, if every rule holds.
    pub(super) fn user(&self, claims: &Value) -> Result<User, Invalid> {
        refuse_distributed(self.groups.as_ref(), claims)?;
        let mut user = User {
            name: self.name(claims)?,
            ..User::default()
        };
        if let Some(groups) = &self.groups {
            user.groups = group_names(groups, claims)?;
        }
        if let Some(uid) = &self.uid {
            user.uid = one_text("uid", uid, claims)?;
        }
        if let Some(id) = claims["jti"].as_str().filter(|id| !id.is_empty()) {
            user.extra.insert(
                CREDENTIAL_ID.into(),
                vec![service_account::credential_id(id)],
            );
        }
        for (key, expression) in &self.extra {
            let values = texts(evaluated("extra", expression, claims)?)
                .map_err(|why| failed("extra", &why))?;
            if !values.is_empty() {
                user.extra.insert(key.clone(), values);
            }
        }
        self.claim_rules
            .iter()
            .try_for_each(|rule| check(rule, "claim validation expression", claims))?;
        let about = user_value(&user);
        self.user_rules
            .iter()
            .try_for_each(|rule| check(rule, "user info validation rule", &about))?;
        Ok(user)
    }

    fn name(&self, claims: &Value) -> Result<String, Invalid> {
        if let Mapping::Claim { claim, .. } = &self.username {
            verified_email(claim, claims)?;
        }
        let name = one_text("username", &self.username, claims)?;
        if name.is_empty() {
            return Err(Invalid::new("oidc: empty username is not allowed"));
        }
        Ok(name)
    }
}

/// A mail address is a name only if the provider does not say it is unverified.
fn verified_email(claim: &str, claims: &Value) -> Result<(), Invalid> {
    match claims.get("email_verified") {
        Some(Value::Bool(false)) if claim == "email" => {
            Err(Invalid::new("oidc: email not verified"))
        }
        Some(Value::Bool(_)) | None => Ok(()),
        Some(_) if claim == "email" => Err(Invalid::new(
            "oidc: parse 'email_verified' claim: not a boolean",
        )),
        Some(_) => Ok(()),
    }
}

/// Claims that stand elsewhere would have to be fetched. A user without their groups could pass where one with
/// them would not, so the token is refused, as upstream does when it cannot fetch them.
fn refuse_distributed(groups: Option<&Mapping>, claims: &Value) -> Result<(), Invalid> {
    let Some(Mapping::Claim { claim, .. }) = groups else {
        return Ok(());
    };
    if claims.get(claim).is_none() && claims["_claim_names"].get(claim).is_some() {
        let why = format!(
            "oidc: could not expand distributed claims: claim {claim:?} is not in the token itself"
        );
        return Err(Invalid(why));
    }
    Ok(())
}

fn failed(what: &str, why: &str) -> Invalid {
    Invalid(format!(
        "oidc: error evaluating {what} claim expression: {why}"
    ))
}

fn evaluated(what: &str, expression: &Expression, claims: &Value) -> Result<Value, Invalid> {
    expression.value(claims).map_err(|why| failed(what, &why))
}

fn one_text(what: &str, mapping: &Mapping, claims: &Value) -> Result<String, Invalid> {
    match mapping {
        Mapping::Claim { claim, prefix } => match claims.get(claim) {
            Some(Value::String(text)) if text.is_empty() => Ok(String::new()),
            Some(Value::String(text)) => Ok(format!("{prefix}{text}")),
            Some(_) => Err(Invalid(format!(
                "oidc: parse {what} claims {claim:?}: not a string"
            ))),
            None => Err(Invalid(format!(
                "oidc: parse {what} claims {claim:?}: claim not present"
            ))),
        },
        Mapping::Expression(expression) => match evaluated(what, expression, claims)? {
            Value::String(text) => Ok(text),
            _ => Err(failed(
                what,
                &format!("{what} claim expression must return a string"),
            )),
        },
    }
}

/// Groups as one string or a list; a token without the claim has none.
fn group_names(mapping: &Mapping, claims: &Value) -> Result<Vec<String>, Invalid> {
    match mapping {
        Mapping::Expression(expression) => {
            texts(evaluated("group", expression, claims)?).map_err(|why| failed("group", &why))
        }
        Mapping::Claim { claim, prefix } => {
            let prefixed = |text: &Value| text.as_str().map(|text| format!("{prefix}{text}"));
            let names = match claims.get(claim) {
                None => Some(Vec::new()),
                Some(Value::Array(list)) => list.iter().map(prefixed).collect(),
                Some(one) => prefixed(one).map(|name| vec![name]),
            };
            names.ok_or_else(|| {
                Invalid(format!(
                    "oidc: parse groups claim {claim:?}: neither string nor list of strings"
                ))
            })
        }
    }
}

/// A text or a list of texts; empty ones are left out.
fn texts(value: Value) -> Result<Vec<String>, String> {
    let list = match value {
        Value::Array(list) => list,
        one => vec![one],
    };
    let text = |value: Value| match value {
        Value::String(text) => Ok(text),
        _ => Err("expression must return a string or a list of strings".to_owned()),
    };
    let texts: Vec<String> = list.into_iter().map(text).collect::<Result<_, _>>()?;
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
}

fn check(rule: &Rule, what: &str, value: &Value) -> Result<(), Invalid> {
    match rule {
        Rule::Required {
            claim,
            value: wanted,
        } => required(claim, wanted, value),
        Rule::Holds {
            expression,
            message,
        } => {
            let failed = |why: &str| Invalid(format!("oidc: error evaluating {what}: {why}"));
            match expression.value(value).map_err(|why| failed(&why))? {
                Value::Bool(true) => Ok(()),
                Value::Bool(false) => Err(failed(&format!(
                    "validation expression '{}' failed: {message}",
                    expression.text()
                ))),
                _ => Err(failed("validation expression must return a boolean")),
            }
        }
    }
}

fn required(claim: &str, wanted: &str, claims: &Value) -> Result<(), Invalid> {
    match claims.get(claim) {
        Some(Value::String(found)) if found == wanted => Ok(()),
        Some(Value::String(found)) => Err(Invalid(format!(
            "oidc: required claim {claim} value does not match. Got = {found}, want = {wanted}"
        ))),
        Some(_) => Err(Invalid(format!("oidc: parse claim {claim}: not a string"))),
        None => Err(Invalid(format!(
            "oidc: required claim {claim} not present in ID token"
        ))),
    }
}

/// The user as rules see them, with the field names of UserInfo.
fn user_value(user: &User) -> Value {
    json!({"username": user.name, "uid": user.uid, "groups": user.groups, "extra": user.extra})
}
