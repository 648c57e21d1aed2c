//! `kyanite addon`: which add-ons a cluster has. The running server does the rest.

use serde_json::json;

use crate::addons::choice::Choice;
use crate::addons::{self, ADDONS, readiness};
use crate::cli::Place;
use crate::cli::addon::AddonCommand;
use crate::client::Client;
use crate::datadir::{DataDir, State};
use crate::exit::{Code, Failure, Result};
use crate::printer::{Printer, table};

/// Runs an add-on command.
pub(super) async fn run(command: AddonCommand, printer: &Printer) -> Result<()> {
    match command {
        AddonCommand::List(place) => list(&place, printer).await,
        AddonCommand::Enable { place, addon } => turn(&place, &addon, true, printer).await,
        AddonCommand::Disable { place, addon } => turn(&place, &addon, false, printer).await,
    }
}

fn running(dir: &DataDir) -> Result<State> {
    dir.running()?.ok_or_else(|| {
        Failure::new(Code::Unavailable, "kyanite is not running").hint("start it with `kyanite up`")
    })
}

async fn list(place: &Place, printer: &Printer) -> Result<()> {
    let dir = DataDir::find(place)?;
    let running = running(&dir)?;
    let (has_tunnels, has_machines) = (running.konnectivity.is_some(), running.machines > 0);
    let client = Client::of_running(&dir).await?;
    let said = Choice::read(&client).await?;
    let (mut rows, mut values) = (Vec::new(), Vec::new());
    for addon in &ADDONS {
        let enabled = said.has(addon, has_tunnels);
        let state = match (enabled, has_machines) {
            (true, true) => "enabled",
            // Nothing of it is made: nodes on paper run no containers.
            (true, false) => "needs machines",
            (false, _) => "disabled",
        };
        let found = readiness::of(&client, addon).await?;
        let ready = match found.wanted {
            0 => "-".to_owned(),
            wanted => format!("{}/{wanted}", found.ready),
        };
        rows.push(vec![
            addon.name.to_owned(),
            state.to_owned(),
            ready,
            addon.about.to_owned(),
        ]);
        values.push(
            json!({"name": addon.name, "enabled": enabled, "ready": found.ready,
            "wanted": found.wanted, "about": addon.about}),
        );
    }
    printer.result(
        &table(&["ADD-ON", "STATE", "READY", "ABOUT"], rows),
        &json!(values),
    );
    Ok(())
}

async fn turn(place: &Place, name: &str, on: bool, printer: &Printer) -> Result<()> {
    let addon = addons::find(name)?;
    if addon.follows_tunnels {
        let what =
            format!("`{name}` is there exactly when the API server reaches nodes through tunnels");
        return Err(Failure::new(Code::Usage, what)
            .hint("`kyanite up --enable-apiserver-vnet-integration` is the way without"));
    }
    let dir = DataDir::find(place)?;
    let client = Client::of_running(&dir).await?;
    let said = Choice::read(&client).await?.with(addon, on);
    said.write(&client).await?;
    let done = if on { "enabled" } else { "disabled" };
    let text = format!("the add-on {name} is {done}; `kyanite addon list` shows how far it is");
    printer.result(&text, &json!({"name": name, "enabled": on}));
    Ok(())
}
