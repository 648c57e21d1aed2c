//! What a machine's agent does: extensions and commands that are kept. Whatever stands behind the machine runs them;
//! what came of it is kept with the resource, as `view`, and shown by instance views.

use serde_json::{Value, json};

use super::power_of;
use crate::arm::document;
use crate::arm::fault::Fault;
use crate::arm::kind::Draft;
use crate::turn::Turn;

/// An extension: its protected settings are for the machine alone.
pub(super) fn decide_extension(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    check_running(
        turn,
        draft,
        "Cannot modify extensions in the VM when the VM is not running.",
    )?;
    keep_secret(draft, "protectedSettings");
    document::fill(
        draft.properties(),
        &json!({"autoUpgradeMinorVersion": true}),
    );
    Ok(())
}

/// A command: so are its protected parameters.
pub(super) fn decide_command(turn: &mut Turn<'_>, draft: &mut Draft<'_>) -> Result<(), Fault> {
    check_running(
        turn,
        draft,
        "The operation requires the VM to be running (or set to run).",
    )?;
    keep_secret(draft, "protectedParameters");
    let defaults = json!({"asyncExecution": false, "timeoutInSeconds": 0});
    document::fill(draft.properties(), &defaults);
    Ok(())
}

fn check_running(turn: &Turn<'_>, draft: &Draft<'_>, otherwise: &str) -> Result<(), Fault> {
    let machine = draft.id.parent();
    let machine = machine.and_then(|id| document::get(turn, &id.to_string()));
    match machine.is_none_or(|machine| power_of(&machine) == "running") {
        true => Ok(()),
        false => Err(Fault::conflict("OperationNotAllowed", otherwise)),
    }
}

fn keep_secret(draft: &mut Draft<'_>, field: &str) {
    let secret = document::take(draft.properties(), &format!("/{field}"));
    document::take(draft.properties(), "/status");
    document::object(&mut draft.hidden);
    draft.hidden[field] = secret.unwrap_or(Value::Null);
}
