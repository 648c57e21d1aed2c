//! StorageVersionMigration: objects are written anew, in the version and with the key that are the first now
//! (upstream's storage-version-migrator).
//!
//! Upstream's controller sends an empty apply for every object, and the server writes where what is stored is stale. Here
//! the server knows which objects those are, and writes them itself: nothing else about them changes, and whoever
//! has changed one meanwhile has done the same.

use std::sync::Arc;
use std::time::Duration;

use http::Method;
use jiff::Timestamp;
use kinds::resources::{self, Resource};
use serde_json::{Value, json};
use store::{Change, Expect};

use crate::api::Api;
use crate::reading::topics::Topic;
use crate::status::Result;
use crate::writing::{definitions, own};

/// How soon something that failed is tried again, and how long a resource may be unknown.
const RETRY: Duration = Duration::from_secs(1);
const UNKNOWN: i64 = 60;
const NEEDED: [&str; 4] = ["create", "update", "get", "list"];

/// What is to be done for a migration.
#[derive(Debug, PartialEq, Eq)]
enum Next {
    Nothing,
    /// Say that it runs, and up to which revision.
    Begin,
    Migrate(u64),
}

fn next(migration: &Value) -> Next {
    let status = &migration["status"];
    let is = |ty: &str| {
        let mut all = status["conditions"].as_array().into_iter().flatten();
        all.any(|c| c["type"] == ty && c["status"] == "True")
    };
    if is("Succeeded") || is("Failed") {
        return Next::Nothing;
    }
    let revision = status["resourceVersion"].as_str().unwrap_or_default();
    match revision.parse().ok().filter(|_| is("Running")) {
        Some(revision) => Next::Migrate(revision),
        None => Next::Begin,
    }
}

fn conclude(migration: &mut Value, ty: &str, reason: &str, message: &str, now: &str) {
    let condition = json!({"type": ty, "status": "True", "reason": reason, "message": message,
        "lastTransitionTime": now});
    match migration["status"]["conditions"].as_array_mut() {
        Some(all) => all.push(condition),
        None => migration["status"]["conditions"] = json!([condition]),
    }
}

fn resource() -> &'static Arc<Resource> {
    let found = resources::find(
        "storagemigration.k8s.io",
        "v1beta1",
        "storageversionmigrations",
    );
    found.expect("in the table")
}

/// Follows migrations until the task is ended.
pub(crate) async fn run(api: Arc<Api>) {
    let Ok(collection) = api.collection(resource()) else {
        return;
    };
    loop {
        let (listed, mut changes) = collection.snapshot("", Topic::All);
        let mut wait = Duration::MAX;
        for (name, migration) in &listed.objects {
            match step(&api, migration.value()).await {
                Ok(true) => {}
                Ok(false) => wait = RETRY,
                Err(error) => {
                    tracing::info!(migration = %name, why = error.message, "to be tried again");
                    wait = RETRY;
                }
            }
        }
        tokio::select! {
            () = changes.changed() => {}
            () = tokio::time::sleep(wait) => {}
        }
    }
}

// Whether there is nothing to do until the migration changes.
async fn step(api: &Api, mut migration: Value) -> Result<bool> {
    let next = next(&migration);
    if next == Next::Nothing {
        return Ok(true);
    }
    let now = api.clock.seconds();
    let wanted = &migration["spec"]["resource"];
    let part = |name: &str| wanted[name].as_str().unwrap_or_default().to_owned();
    let (group, plural) = (part("group"), part("resource"));
    let live = api.registry.live();
    let mut all = live.resources().iter();
    let found = all.find(|r| (r.gv.group, r.plural) == (group.as_str(), plural.as_str()));
    match (next, found) {
        (_, None) if is_young(&migration, api.clock.now()) => return Ok(false),
        (_, None) => fail(&mut migration, "resource does not exist in discovery", &now),
        (_, Some(found)) if !NEEDED.iter().all(|verb| found.verbs.contains(verb)) => {
            let (gv, plural) = (found.gv, found.plural);
            let why = format!(
                "resource \"{gv}, Resource={plural}\" does not support discovery operations: {NEEDED:?}"
            );
            fail(&mut migration, &why, &now);
        }
        (Next::Begin, Some(_)) => {
            let message = "The migration is running";
            conclude(&mut migration, "Running", "MigrationRunning", message, &now);
            let revision = api.store.revision().await?;
            migration["status"]["resourceVersion"] = revision.to_string().into();
        }
        (Next::Migrate(revision), Some(found)) => match rewrite(api, found, revision).await {
            Ok(()) => {
                let reason = "StorageVersionMigrationSucceeded";
                conclude(&mut migration, "Succeeded", reason, "", &now);
            }
            // Those that pass by themselves are waited for.
            Err(error) if error.code == 429 || error.code.is_server_error() => return Err(error),
            Err(error) => fail(&mut migration, &error.message, &now),
        },
        (Next::Nothing, _) => return Ok(true),
    }
    own::write(api, resource(), Method::PUT, "status", &migration).await?;
    Ok(true)
}

fn fail(migration: &mut Value, why: &str, now: &str) {
    let message = format!("migration encountered unhandled error: {why}");
    let reason = "StorageVersionMigrationFailed";
    conclude(migration, "Failed", reason, &message, now);
}

fn is_young(migration: &Value, now: Timestamp) -> bool {
    let created = migration["metadata"]["creationTimestamp"].as_str();
    let created = created.and_then(|text| text.parse::<Timestamp>().ok());
    created.is_some_and(|created| now.as_second() - created.as_second() < UNKNOWN)
}

async fn rewrite(api: &Api, resource: &Resource, until: u64) -> Result<()> {
    let collection = api.collection(resource)?;
    api.cache.reach(until).await?;
    let before = definition(api, resource).await;
    for (key, stored) in collection.objects("", None).objects {
        if stored.revision > until {
            continue;
        }
        let key = format!("{}{key}", collection.prefix());
        let is_current = !stored.differs() && stored.is_of(resource.stored);
        if is_current && !api.store.is_stale(&key).await? {
            continue;
        }
        let value = api.in_stored_version(resource, &collection, &stored);
        let value = value.await?;
        // Whoever was quicker has written it anew as well.
        let expect = Expect::Modified(stored.revision);
        let change = Change::Put { value, ttl: None };
        api.commit(&collection, &key, expect, change).await?;
    }
    match before {
        Some(before) => finish_definition(api, resource, &before).await,
        None => Ok(()),
    }
}

async fn definition(api: &Api, resource: &Resource) -> Option<Value> {
    resource.ty.defined()?;
    let name = format!("{}.{}", resource.plural, resource.gv.group);
    let stored = api.must_fetch(definitions::resource(), "", &name).await;
    stored.ok().map(|stored| stored.value())
}

// Nothing is stored in other versions any more, unless the definition has changed since.
async fn finish_definition(api: &Api, resource: &Resource, before: &Value) -> Result<()> {
    let Some(mut definition) = definition(api, resource).await else {
        return Ok(());
    };
    let same = definition["metadata"]["generation"] == before["metadata"]["generation"];
    let stored = json!([resource.stored.version]);
    if !same || definition["status"]["storedVersions"] == stored {
        return Ok(());
    }
    definition["status"]["storedVersions"] = stored;
    let message = "The migration has succeeded and the stored versions have been updated";
    extensions::names::set(
        &mut definition,
        &api.clock.seconds(),
        "StorageMigrating",
        "False",
        "MigrationSucceeded",
        message,
    );
    own::write(
        api,
        definitions::resource(),
        Method::PUT,
        "status",
        &definition,
    )
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_migration_begins_runs_and_ends_once() {
        let mut migration = json!({"spec": {"resource": {"resource": "secrets"}}});
        assert_eq!(next(&migration), Next::Begin);
        conclude(&mut migration, "Running", "MigrationRunning", "", "t");
        assert_eq!(next(&migration), Next::Begin, "nobody said up to where");
        migration["status"]["resourceVersion"] = "7".into();
        assert_eq!(next(&migration), Next::Migrate(7));
        let mut failed = migration.clone();
        fail(&mut failed, "why", "t");
        assert_eq!(next(&failed), Next::Nothing);
        let said = &failed["status"]["conditions"][1];
        assert_eq!(
            said["message"],
            "migration encountered unhandled error: why"
        );
        conclude(&mut migration, "Succeeded", "r", "", "t");
        assert_eq!(next(&migration), Next::Nothing);
    }
}
