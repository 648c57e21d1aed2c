//! The cloud controllers of a cluster, as a role: they follow the cloud that an azure.json names, and begin anew when it
//! says something else.
//!
//! Only nodes are followed that say that they are of a cloud: whoever joins with a token of his own stays.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ::cloud_controllers::{Config, Connection, Error};
use azure::{Arm, CloudConfig};
use futures::FutureExt as _;
use ipnet::Ipv4Net;
use serde_json::Value;

use super::super::cloud_controllers as command;
use super::roles::Role;
use crate::datadir::{DataDir, make_private, write_private};
use crate::exit::{Failure, Result};

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Where the cloud beside a cluster, or the one that a cluster is in, leaves an azure.json for it.
pub(crate) fn file(dir: &DataDir) -> PathBuf {
    dir.path().join("azure").join("azure.json")
}

/// Who signed the certificate of an azure.json's cloud: a file beside it, or one that the host trusts.
fn authority(file: &Path) -> PathBuf {
    file.with_file_name("authority.crt")
}

/// Tells a cluster's controllers which cloud they follow.
pub(crate) fn tell(dir: &DataDir, config: &Value, signed_by: &Path) -> Result<()> {
    let file = file(dir);
    let place = file.parent().unwrap_or(dir.path());
    make_private(place)?;
    let pem = std::fs::read(signed_by).map_err(|e| Failure::file("read", signed_by, &e))?;
    write_private(&authority(&file), &pem)?;
    write_private(&file, config.to_string().as_bytes())
}

/// What a cluster was told is void: whoever told it says it again.
pub(crate) fn untell(dir: &DataDir) {
    let _ = std::fs::remove_file(file(dir));
}

/// The role; it waits for its azure.json. `pods` is where addresses of pods come from.
pub(super) fn role(file: PathBuf, connection: Connection, pods: Ipv4Net) -> Role {
    Role::new(
        "cloud-controller-manager",
        (file, connection),
        move |(file, connection), until| async move {
            let until = until.shared();
            loop {
                let text = tokio::select! {
                    text = appears(&file) => text,
                    () = until.clone() => return Ok(()),
                };
                let changed = changes(&file, &text);
                let ends = async {
                    tokio::select! {
                        () = until.clone() => {}
                        () = changed => tracing::info!("the cloud is another one"),
                    }
                };
                follow(&text, &file, (connection.clone(), pods), ends).await?;
            }
        },
    )
}

async fn follow(
    text: &str,
    file: &Path,
    (connection, pods): (Connection, Ipv4Net),
    until: impl Future<Output = ()> + Send,
) -> std::result::Result<(), Error> {
    let broken = |cause: String| Error::Broken(format!("`{}`: {cause}", file.display()));
    let cloud = CloudConfig::parse(text, |_| None).map_err(|e| broken(e.to_string()))?;
    let authority = std::fs::read(authority(file)).ok();
    let client = command::client(authority.as_deref()).map_err(|e| broken(e.message))?;
    let arm = Arm::connect(&cloud, client, |_| None).await;
    let arm = arm.map_err(|e| broken(e.to_string()))?;
    let mut config = Config::new(connection, cloud, arm);
    config.cluster_cidrs = vec![pods.into()];
    config.follows_strangers = false;
    // This cloud is on the same machine: asking it costs little, and a machine that is gone is missed at once.
    config.asks_about_well = true;
    ::cloud_controllers::run(config, until).await
}

async fn appears(file: &Path) -> String {
    loop {
        match std::fs::read_to_string(file) {
            Ok(text) => return text,
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

async fn changes(file: &Path, text: &str) {
    // One that is gone says nothing else: its cloud is starting, and writes it again.
    while std::fs::read_to_string(file).map_or(true, |now| now == text) {
        tokio::time::sleep(LOOK_EVERY).await;
    }
}
