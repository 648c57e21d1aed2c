//! `kyanite store`: backups of the embedded store.

mod keys;

use std::path::Path;

use ::store::Embedded;
use ::store::embedded::Options as EmbeddedOptions;
use serde_json::{Value, json};

use crate::admin;
use crate::cli::{Place, StoreCommand};
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};
use crate::printer::Printer;
use keys::{Keys, Trust};

/// Runs a store command.
pub(super) fn run(command: StoreCommand, printer: &Printer) -> Result<()> {
    match command {
        StoreCommand::Backup { place, file, keys } => backup(&place, &file, keys, printer),
        StoreCommand::Restore { place, file } => restore(&place, &file, printer),
        StoreCommand::Check { place, file } => check(&place, file.as_deref(), printer),
    }
}

// A running server makes the backup itself: only it knows what is committed.
fn backup(place: &Place, file: &Path, keys: bool, printer: &Printer) -> Result<()> {
    let dir = DataDir::find(place)?;
    let file = std::path::absolute(file).map_err(|e| Failure::file("use", file, &e))?;
    let mut made: Value = match dir.running()? {
        Some(_) => admin::ask(&dir.socket(), &json!({"ask": "backup", "file": file}))?,
        None => {
            must_exist(&dir)?;
            let store = Embedded::open(dir.store(), EmbeddedOptions::default())?;
            let made = super::runtime()?.block_on(store.backup(&file))?;
            json!({"revision": made.revision, "keys": made.keys, "bytes": made.bytes})
        }
    };
    let mut text = format!(
        "{} keys at revision {} are in {} ({} bytes)",
        made["keys"],
        made["revision"],
        file.display(),
        made["bytes"]
    );
    if keys {
        let beside = keys::beside(&file);
        Keys::of(&dir.pki())?.write(&beside)?;
        text.push_str(&format!(
            "\nthe cluster's own keys are in {}: whoever has them is the cluster",
            beside.display()
        ));
        made["keysFile"] = beside.display().to_string().into();
    }
    printer.result(&text, &made);
    Ok(())
}

fn must_exist(dir: &DataDir) -> Result<()> {
    if dir.store().exists() {
        return Ok(());
    }
    Err(Failure::new(
        Code::NotFound,
        format!("there is no store in {}", dir.path().display()),
    )
    .hint("name its data directory with --data-dir"))
}

fn restore(place: &Place, file: &Path, printer: &Printer) -> Result<()> {
    let dir = DataDir::find(place)?;
    if dir.running()?.is_some() {
        return Err(Failure::new(
            Code::Conflict,
            "the server of this data directory is running",
        )
        .hint("stop it with `kyanite down`, and move its store away"));
    }
    dir.prepare()?;
    let saved = Keys::read(&keys::beside(file))?;
    let trust = Trust::of(saved.as_ref(), &Keys::of(&dir.pki())?)?;
    let made = ::store::maintenance::restore(file, dir.store())?;
    if let (Trust::Restored, Some(saved)) = (trust, saved) {
        saved.put_into(&dir.pki())?;
    }
    let text = format!(
        "{} keys at revision {} are back in {}\n{}",
        made.keys,
        made.revision,
        dir.path().display(),
        trust.explain()
    );
    printer.result(
        &text,
        &json!({"revision": made.revision, "keys": made.keys, "trust": trust.name()}),
    );
    Ok(())
}

fn check(place: &Place, file: Option<&Path>, printer: &Printer) -> Result<()> {
    let path = match file {
        Some(file) => file.to_owned(),
        None => {
            let dir = DataDir::find(place)?;
            must_exist(&dir)?;
            dir.store()
        }
    };
    let report = ::store::maintenance::check(&path)?;
    let mut text = format!(
        "{} is sound: {} keys, revision {}, {} bytes on disk",
        path.display(),
        report.keys,
        report.revision,
        report.disk_bytes
    );
    if let Some(torn) = &report.torn_tail {
        text.push_str(&format!(
            "\nan unfinished write at its end will be dropped: {torn}"
        ));
    }
    let value = json!({"keys": report.keys, "revision": report.revision, "compacted": report.compacted,
        "segments": report.segments, "diskBytes": report.disk_bytes, "tornTail": report.torn_tail});
    printer.result(&text, &value);
    Ok(())
}
