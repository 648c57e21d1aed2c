//! `kyanite certs`: the cluster's certificates and keys.

use std::time::SystemTime;

use serde_json::{Value, json};

use crate::cli::{CertsCommand, Place, Rotate};
use crate::datadir::{DataDir, State};
use crate::exit::{Code, Failure, Result};
use crate::pki::rotate::SERVICE_ACCOUNT;
use crate::pki::{Pki, inspect};
use crate::printer::{Printer, table};
use crate::{admin, kubeconfig};

/// Runs a certificate command.
pub(super) fn run(command: CertsCommand, printer: &Printer) -> Result<()> {
    match command {
        CertsCommand::List(place) => list(&place, printer),
        CertsCommand::Rotate(rotate) => renew(&rotate, printer),
    }
}

/// Every certificate with its end, for machines; the soonest to end first.
pub(super) fn report(pki: &Pki, now: jiff::Timestamp) -> Result<Vec<Value>> {
    let mut rows = Vec::new();
    for (name, file) in pki.certificates() {
        // A leaf is followed by what connects it to its CA; a CA by the one it replaces.
        let shown = if name.ends_with("ca") { usize::MAX } else { 1 };
        for (position, cert) in inspect::all(&file)?.into_iter().enumerate().take(shown) {
            let name = match position {
                0 => name.to_owned(),
                _ => format!("{name} (being replaced)"),
            };
            rows.push(
                json!({"name": name, "subject": cert.subject, "names": cert.names,
                "issuer": cert.issuer, "expires": cert.expires.to_string(),
                "daysLeft": cert.days_left(now), "file": file}),
            );
        }
    }
    rows.sort_by_key(|row| row["daysLeft"].as_i64());
    Ok(rows)
}

fn list(place: &Place, printer: &Printer) -> Result<()> {
    let dir = DataDir::find(place)?;
    let pki = existing(&dir)?;
    let rows = report(&pki, jiff::Timestamp::now())?;
    let keys = pki.service_account_keys();
    let cells = rows.iter().map(|row| {
        let text = |field: &str| row[field].as_str().unwrap_or_default().to_owned();
        let names = row["names"].as_array().into_iter().flatten();
        let names: Vec<_> = names.filter_map(Value::as_str).collect();
        let names = match names.is_empty() {
            true => "-".to_owned(),
            false => names.join(","),
        };
        vec![
            text("name"),
            text("subject"),
            text("issuer"),
            text("expires"),
            row["daysLeft"].to_string(),
            names,
        ]
    });
    let header = ["NAME", "SUBJECT", "ISSUER", "EXPIRES", "DAYS LEFT", "NAMES"];
    let text = format!(
        "{}\nservice account tokens are believed with {keys} key{}",
        table(&header, cells),
        if keys == 1 { "" } else { "s" }
    );
    printer.result(
        &text,
        &json!({"certificates": rows, "serviceAccountKeys": keys}),
    );
    Ok(())
}

fn existing(dir: &DataDir) -> Result<Pki> {
    if !dir.pki().join("ca.crt").exists() {
        let text = format!("there are no certificates in {}", dir.path().display());
        return Err(Failure::new(Code::NotFound, text)
            .hint("`kyanite up` makes them; name its data directory with --data-dir"));
    }
    Ok(Pki::at(dir.pki(), SystemTime::now()))
}

fn renew(rotate: &Rotate, printer: &Printer) -> Result<()> {
    let dir = DataDir::find(&rotate.place)?;
    let pki = existing(&dir)?;
    // Held so that no server starts in the middle; when one runs, it holds it.
    let lock = dir.lock()?;
    let running = match lock {
        Some(_) => None,
        None => dir.running()?,
    };
    let renewed = change(rotate, &pki)?;
    let state = running.clone().or_else(|| dir.left_behind());
    refresh_kubeconfigs(&dir, &pki, state.as_ref())?;
    if running.is_some() {
        admin::ask(&dir.socket(), &json!({"ask": "reload"}))?;
    }
    let mut text = format!("made anew: {}", renewed.join(", "));
    if let Some(note) = overlap_note(rotate) {
        text.push_str(note);
    }
    let value = json!({"rotated": renewed, "reloaded": running.is_some()});
    printer.result(&text, &value);
    Ok(())
}

fn overlap_note(rotate: &Rotate) -> Option<&'static str> {
    if rotate.finish {
        return None;
    }
    if rotate.ca {
        return Some(
            "\nthe old CAs stay trusted; once nodes and other clients have new certificates and know the new CA, \
             end that with `kyanite certs rotate --ca --finish`",
        );
    }
    let keys = rotate.names.iter().any(|name| name == SERVICE_ACCOUNT);
    keys.then_some(
        "\ntokens of the old service account key stay valid until \
         `kyanite certs rotate service-account --finish`",
    )
}

fn change(rotate: &Rotate, pki: &Pki) -> Result<Vec<&'static str>> {
    let (keys, leaves): (Vec<String>, Vec<String>) =
        (rotate.names.iter().cloned()).partition(|name| name == SERVICE_ACCOUNT);
    match (rotate.ca, rotate.finish) {
        (true, false) => pki.rotate_authorities(),
        (true, true) => pki.finish_authorities(),
        (false, true) if !keys.is_empty() && leaves.is_empty() => {
            pki.finish_service_account()?;
            Ok(vec![SERVICE_ACCOUNT])
        }
        (false, true) => Err(Failure::new(
            Code::Usage,
            "--finish goes with --ca or with `service-account`",
        )),
        (false, false) => {
            let mut renewed = Vec::new();
            if keys.is_empty() || !leaves.is_empty() {
                renewed.extend(pki.rotate_leaves(&leaves)?);
            }
            if !keys.is_empty() {
                pki.rotate_service_account()?;
                renewed.push(SERVICE_ACCOUNT);
            }
            Ok(renewed)
        }
    }
}

// Every kubeconfig of ours holds copies of what has just changed.
fn refresh_kubeconfigs(dir: &DataDir, pki: &Pki, state: Option<&State>) -> Result<()> {
    if !dir.kubeconfig().exists() {
        return Ok(());
    }
    let server = kubeconfig::server_of(&dir.kubeconfig())?;
    let admin = kubeconfig::write_all(dir, &server, pki)?;
    match state {
        Some(state) => kubeconfig::refresh(&state.kubeconfig, &admin),
        None => Ok(()),
    }
}
