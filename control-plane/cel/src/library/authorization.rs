//! Questions to the authorizer, put together step by step. Who answers them is the caller's business.

use super::{Opaque, Table, opaque, text};
use crate::error::{Error, Result};
use crate::value::Value;

/// Somebody who knows what a user may do.
pub trait Authorizer {
    /// Whether the user of the request, or the named service account, may do this.
    fn decide(&self, question: &Question) -> Decision;
}

/// What is asked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Question {
    /// A service account (namespace and name) instead of the user of the request.
    pub service_account: Option<(String, String)>,
    /// The verb.
    pub verb: String,
    /// A path that is no resource; everything below is empty then.
    pub path: String,
    /// The group.
    pub group: String,
    /// The resource.
    pub resource: String,
    /// What is below it.
    pub subresource: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
    /// A field selector, as written.
    pub field_selector: String,
    /// A label selector, as written.
    pub label_selector: String,
}

/// What was answered.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Decision {
    /// Whether it is allowed.
    pub allowed: bool,
    /// Why.
    pub reason: String,
    /// What went wrong, if something did.
    pub error: Option<String>,
}

/// An authorizer, and for whom it is asked.
#[derive(Clone)]
pub struct Asker<'a> {
    authorizer: &'a dyn Authorizer,
    account: Option<(String, String)>,
}

pub(super) const TABLE: Table = &[
    ("path", path),
    ("group", group),
    ("serviceAccount", service_account),
    ("resource", resource),
    ("subresource", |args| {
        changed(args, |q, text| q.subresource = text)
    }),
    ("namespace", |args| {
        changed(args, |q, text| q.namespace = text)
    }),
    ("name", |args| changed(args, |q, text| q.name = text)),
    ("fieldSelector", |args| {
        changed(args, |q, text| q.field_selector = text)
    }),
    ("labelSelector", |args| {
        changed(args, |q, text| q.label_selector = text)
    }),
    ("check", check),
    ("allowed", |args| Ok(Value::Bool(decision(args)?.allowed))),
    ("reason", |args| {
        Ok(Value::string(decision(args)?.reason.clone()))
    }),
    ("errored", |args| {
        Ok(Value::Bool(decision(args)?.error.is_some()))
    }),
    ("error", |args| {
        Ok(Value::string(
            decision(args)?.error.clone().unwrap_or_default(),
        ))
    }),
];

impl<'a> Value<'a> {
    /// The variable `authorizer`.
    pub fn authorizer(authorizer: &'a dyn Authorizer) -> Value<'a> {
        Value::opaque(Opaque::Authorizer(Asker {
            authorizer,
            account: None,
        }))
    }

    /// The variable `authorizer.requestResource`: a question that is already about the request's resource.
    pub fn resource_check(authorizer: &'a dyn Authorizer, question: Question) -> Value<'a> {
        let asker = Asker {
            authorizer,
            account: None,
        };
        Value::opaque(Opaque::ResourceCheck(asker, question))
    }
}

fn path<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    match opaque(args, 0)? {
        Opaque::Authorizer(asker) => {
            let path = text(args, 1)?.to_owned();
            Ok(Value::opaque(Opaque::PathCheck(asker.clone(), path)))
        }
        _ => Err(Error::no_overload()),
    }
}

fn group<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    match opaque(args, 0)? {
        Opaque::Authorizer(asker) => {
            let group = text(args, 1)?.to_owned();
            Ok(Value::opaque(Opaque::GroupCheck(asker.clone(), group)))
        }
        _ => Err(Error::no_overload()),
    }
}

fn service_account<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    match opaque(args, 0)? {
        Opaque::Authorizer(asker) => Ok(Value::opaque(Opaque::Authorizer(Asker {
            authorizer: asker.authorizer,
            account: Some((text(args, 1)?.to_owned(), text(args, 2)?.to_owned())),
        }))),
        _ => Err(Error::no_overload()),
    }
}

fn resource<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    match opaque(args, 0)? {
        Opaque::GroupCheck(asker, group) => {
            let question = Question {
                group: group.clone(),
                resource: text(args, 1)?.to_owned(),
                ..Question::default()
            };
            Ok(Value::opaque(Opaque::ResourceCheck(
                asker.clone(),
                question,
            )))
        }
        _ => Err(Error::no_overload()),
    }
}

fn changed<'a>(args: &mut [Value<'a>], change: fn(&mut Question, String)) -> Result<Value<'a>> {
    match opaque(args, 0)? {
        Opaque::ResourceCheck(asker, question) => {
            let mut question = question.clone();
            change(&mut question, text(args, 1)?.to_owned());
            Ok(Value::opaque(Opaque::ResourceCheck(
                asker.clone(),
                question,
            )))
        }
        _ => Err(Error::no_overload()),
    }
}

fn check<'a>(args: &mut [Value<'a>]) -> Result<Value<'a>> {
    let (asker, mut question) = match opaque(args, 0)? {
        Opaque::PathCheck(asker, path) => {
            let path = path.clone();
            let question = Question {
                path,
                ..Question::default()
            };
            (asker, question)
        }
        Opaque::ResourceCheck(asker, question) => (asker, question.clone()),
        _ => return Err(Error::no_overload()),
    };
    question.verb = text(args, 1)?.to_owned();
    question.service_account.clone_from(&asker.account);
    let decision = asker.authorizer.decide(&question);
    Ok(Value::opaque(Opaque::Decision(decision)))
}

fn decision<'v>(args: &'v [Value<'_>]) -> Result<&'v Decision> {
    match opaque(args, 0)? {
        Opaque::Decision(decision) => Ok(decision),
        _ => Err(Error::no_overload()),
    }
}
