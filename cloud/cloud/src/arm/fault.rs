//! Refusals in ARM's words.

use serde_json::{Value, json};

use super::id::Id;
use crate::exchange::Reply;

/// Why a request is refused: what a client reads in the body, and where the refusal came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub(crate) status: u16,
    pub(crate) code: String,
    pub(crate) message: String,
    /// Boxed, because results carry faults around everywhere.
    more: Box<More>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct More {
    target: Option<String>,
    details: Vec<(String, String)>,
    /// AKS answers without the `error` around it.
    flat: bool,
    by_gateway: bool,
    header: Option<(&'static str, String)>,
}

impl Fault {
    pub(crate) fn new(status: u16, code: &str, message: impl Into<String>) -> Fault {
        Fault {
            status,
            code: code.to_owned(),
            message: message.into(),
            more: Box::default(),
        }
    }

    pub(crate) fn bad(code: &str, message: impl Into<String>) -> Fault {
        Fault::new(400, code, message)
    }

    pub(crate) fn conflict(code: &str, message: impl Into<String>) -> Fault {
        Fault::new(409, code, message)
    }

    /// Made by ARM itself, before any provider was asked.
    pub(crate) fn gateway(mut self) -> Fault {
        self.more.by_gateway = true;
        self
    }

    pub(crate) fn flat(mut self) -> Fault {
        self.more.flat = true;
        self
    }

    pub(crate) fn target(mut self, target: &str) -> Fault {
        self.more.target = Some(target.to_owned());
        self
    }

    pub(crate) fn detail(mut self, code: &str, message: impl Into<String>) -> Fault {
        self.more.details.push((code.to_owned(), message.into()));
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: String) -> Fault {
        self.more.header = Some((name, value));
        self
    }

    /// The error alone, as operations and deployments carry it.
    pub(crate) fn error(&self) -> Value {
        let mut error = json!({"code": self.code, "message": self.message});
        if let Some(target) = &self.more.target {
            error["target"] = json!(target);
        }
        let details = self.more.details.iter();
        let details: Vec<Value> = details
            .map(|(code, text)| json!({"code": code, "message": text}))
            .collect();
        if !details.is_empty() {
            error["details"] = json!(details);
        }
        error
    }

    pub(crate) fn reply(&self) -> Reply {
        let body = match self.more.flat {
            true => {
                let mut flat = self.error();
                if flat["details"].is_null() {
                    flat["details"] = Value::Null;
                }
                flat["subcode"] = json!("");
                flat
            }
            false => json!({"error": self.error()}),
        };
        let cause = if self.more.by_gateway {
            "gateway"
        } else {
            "service"
        };
        let reply = Reply::json(self.status, body).with("x-ms-failure-cause", cause);
        match &self.more.header {
            Some((name, value)) => reply.with(name, value),
            None => reply,
        }
    }
}

/// No such group.
pub(crate) fn no_group(group: &str) -> Fault {
    let message = format!("Resource group '{group}' could not be found.");
    Fault::new(404, "ResourceGroupNotFound", message).gateway()
}

/// No such resource: what the gateway says of those it keeps itself.
pub(crate) fn no_resource(id: &Id) -> Fault {
    let group = match &id.group {
        Some(group) => format!(" under resource group '{group}'"),
        None => String::new(),
    };
    let message = format!(
        "The Resource '{}'{group} was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix",
        id.type_and_name()
    );
    Fault::new(404, "ResourceNotFound", message).gateway()
}

/// A child of something that is not there.
pub(crate) fn no_parent(id: &Id, verb: &str, parent: &str) -> Fault {
    let message = format!(
        "Failed to perform '{verb}' on resource(s) of type '{}', because the parent resource '{parent}' could not be \
         found.",
        id.types.join("/")
    );
    Fault::new(404, "ParentResourceNotFound", message).gateway()
}
