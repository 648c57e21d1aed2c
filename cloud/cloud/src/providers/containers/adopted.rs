//! A cluster that runs already: it becomes known as if it had been asked for here.

use serde_json::Value;

use super::cluster;
use crate::arm::document;
use crate::arm::fault::Fault;
use crate::arm::id::{self, Id};
use crate::arm::{group, operation, resource};
use crate::turn::Turn;

/// What is to be known of a cluster that runs already.
#[derive(Debug, Clone)]
pub struct Adopted {
    /// Its resource group; made where it is missing.
    pub group: String,
    /// Its name.
    pub name: String,
    /// As a client would write it: location, tags, properties.
    pub body: Value,
    /// How it is reached (`access`), and the digits in the names of its scale sets (`sets`, by pool).
    pub hidden: Value,
}

/// Makes the cluster known, or brings what is known up to date; gives its resource id.
pub(crate) fn adopt(turn: &mut Turn<'_>, adopted: &Adopted) -> Result<String, Fault> {
    let subscription = turn.settings.subscription.clone();
    let home = id::group(&subscription, &adopted.group);
    if document::get(turn, &home).is_none() {
        let location = adopted.body["location"].as_str().unwrap_or_default();
        group::made(
            turn,
            None,
            &subscription,
            &adopted.group,
            location,
            &Value::Null,
        );
    }
    let id = format!(
        "{home}/providers/Microsoft.ContainerService/managedClusters/{}",
        adopted.name
    );
    let id =
        Id::parse(&id).ok_or_else(|| Fault::bad("InvalidParameter", "no name for a cluster"))?;
    let mut before = document::get(turn, &id.to_string());
    // What an earlier run of this program began with it ended with that run.
    if let Some(before) = &mut before {
        operation::supersede(turn, before);
        before.operation = None;
    }
    let kind = resource::kind_of(&id.namespace, &id.types)?;
    let body = || adopted.body.clone();
    let stored = match resource::store(turn, &id, kind, before.clone(), body(), true) {
        // What runs now cannot have become of what was known: another cluster has its name.
        Err(fault) => {
            let Some(before) = before else {
                return Err(fault);
            };
            resource::remove(turn, &before)?;
            resource::store(turn, &id, kind, None, body(), true)?
        }
        Ok(stored) => stored,
    };
    let mut document = stored.document;
    document::overlay(&mut document.hidden, &adopted.hidden);
    document.hidden["adopted"] = true.into();
    document::put(turn, &document);
    match &stored.operation {
        Some(operation) => operation::complete(turn, operation),
        // What is known is what is asked for, but machines may have gone since.
        None => {
            cluster::finish(turn, &mut document);
            document::put(turn, &document);
        }
    }
    Ok(document.id().to_owned())
}
