//! `kyanite fault`: things that break on purpose. What is broken is written down in `faults.json` before it is done, so
//! that `clear` can undo it whatever happened meanwhile.

use std::path::PathBuf;

use machines::{Driver as _, Launcher, Namespaces, PowerOff, State};
use rustix::fs::FlockOperation;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::machine::LAUNCHER;
use super::up::site;
use crate::cli::fault::{FaultCommand, NewFault};
use crate::datadir::{DataDir, write_private};
use crate::exit::{Code, Failure, Result};
use crate::pools::Pools;
use crate::printer::{Printer, table};

/// A fault that is there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Fault {
    id: u32,
    kind: Kind,
    /// The zone, or the machine.
    target: String,
    since: String,
    machines: Vec<Machine>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    ZoneDown,
    Crash,
    Freeze,
    Cut,
}

/// A machine, and the directory of whoever has it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Machine {
    directory: PathBuf,
    name: String,
}

impl Machine {
    fn driver(&self) -> Result<Namespaces> {
        let launcher = Launcher::this_program(&[LAUNCHER]);
        Ok(Namespaces::new(&self.directory, launcher)?)
    }

    fn suffer(&self, kind: Kind) -> Result<()> {
        let driver = self.driver()?;
        match kind {
            Kind::Freeze => driver.freeze(&self.name, true)?,
            Kind::Cut => driver.cut(&self.name, true)?,
            Kind::Crash | Kind::ZoneDown => driver.power_off(&self.name, PowerOff::Plug)?,
        }
        Ok(())
    }

    // Somebody may have removed, stopped or started it meanwhile: that undoes the fault as well.
    fn recover(&self, kind: Kind) -> Result<()> {
        if !self.directory.exists() {
            return Ok(());
        }
        let driver = self.driver()?;
        let state = match driver.state(&self.name) {
            Err(machines::Error::NotFound(_)) => return Ok(()),
            state => state?,
        };
        match (kind, state) {
            (Kind::Freeze, State::Running | State::Orphaned) => driver.freeze(&self.name, false)?,
            (Kind::Cut, State::Running | State::Orphaned) => driver.cut(&self.name, false)?,
            (Kind::Crash | Kind::ZoneDown, State::Off) => driver.boot(&driver.plan(&self.name)?)?,
            _ => {}
        }
        Ok(())
    }
}

impl Fault {
    fn names(&self) -> String {
        let names: Vec<&str> = self.machines.iter().map(|m| m.name.as_str()).collect();
        names.join(", ")
    }

    // All of them, also when the first does not.
    fn recover(&self) -> Result<()> {
        let all: Vec<Result<()>> = self.machines.iter().map(|m| m.recover(self.kind)).collect();
        all.into_iter().collect()
    }
}

/// Runs a fault command.
pub(super) async fn run(command: FaultCommand, printer: &Printer) -> Result<()> {
    match command {
        FaultCommand::ZoneDown(new) => begin(&new, Kind::ZoneDown, printer).await,
        FaultCommand::Crash(new) => begin(&new, Kind::Crash, printer).await,
        FaultCommand::Freeze(new) => begin(&new, Kind::Freeze, printer).await,
        FaultCommand::Cut(new) => begin(&new, Kind::Cut, printer).await,
        FaultCommand::ZoneUp { place, zone } => {
            let its = |fault: &Fault| fault.kind == Kind::ZoneDown && fault.target == zone;
            end(&DataDir::find(&place)?, its, printer)
        }
        FaultCommand::Clear(place) => end(&DataDir::find(&place)?, |_| true, printer),
        FaultCommand::List(place) => list(&read(&DataDir::find(&place)?)?, printer),
    }
}

async fn begin(new: &NewFault, kind: Kind, printer: &Printer) -> Result<()> {
    let dir = DataDir::find(&new.place)?;
    let machines = match kind {
        Kind::ZoneDown => in_zone(&dir, &new.target)?,
        _ => vec![find(&dir, &new.target)?],
    };
    let fault = Fault {
        id: rand::random(),
        kind,
        target: new.target.clone(),
        since: jiff::Timestamp::now()
            .strftime("%Y-%m-%dT%H:%M:%SZ")
            .to_string(),
        machines,
    };
    change(&dir, |faults| faults.push(fault.clone()))?;
    let suffered: Result<()> = fault.machines.iter().try_for_each(|m| m.suffer(kind));
    if let Err(failure) = suffered {
        fault.recover()?;
        change(&dir, |faults| faults.retain(|known| known.id != fault.id))?;
        return Err(failure);
    }
    let Some(lasts) = new.lasts else {
        let text = format!(
            "suffering: {}; `kyanite fault clear` undoes it",
            fault.names()
        );
        printer.result(&text, &json!(fault));
        return Ok(());
    };
    printer.note(&format!("suffering: {}", fault.names()));
    tokio::select! {
        () = tokio::time::sleep(lasts) => {}
        () = super::serve::told_to_stop() => {}
    }
    end(&dir, |known| known.id == fault.id, printer)
}

// What cannot be undone stays written down.
fn end(dir: &DataDir, which: impl Fn(&Fault) -> bool, printer: &Printer) -> Result<()> {
    let chosen: Vec<Fault> = read(dir)?.into_iter().filter(which).collect();
    let mut undone = Vec::new();
    let mut failure = None;
    for fault in &chosen {
        match fault.recover() {
            Ok(()) => undone.push(fault.id),
            Err(error) => failure = Some(error),
        }
    }
    let left = change(dir, |faults| {
        faults.retain(|known| !undone.contains(&known.id));
        faults.len()
    })?;
    if let Some(failure) = failure {
        return Err(failure);
    }
    let text = format!("{} faults undone, {left} left", undone.len());
    printer.result(&text, &json!({"undone": undone.len(), "left": left}));
    Ok(())
}

fn list(faults: &[Fault], printer: &Printer) -> Result<()> {
    let row = |fault: &Fault| {
        let kind = json!(fault.kind);
        vec![
            kind.as_str().unwrap_or_default().to_owned(),
            fault.target.clone(),
            fault.since.clone(),
            fault.names(),
        ]
    };
    let header = ["FAULT", "TARGET", "SINCE", "MACHINES"];
    printer.result(&table(&header, faults.iter().map(row)), &json!(faults));
    Ok(())
}

/// Every cluster of a data directory: its own, and those that its cloud made.
fn clusters(dir: &DataDir) -> Vec<DataDir> {
    dir.clusters().into_iter().chain([dir.clone()]).collect()
}

fn find(dir: &DataDir, name: &str) -> Result<Machine> {
    for cluster in clusters(dir) {
        for (directory, driver) in site::drivers(&cluster)? {
            if driver.list()?.iter().any(|machine| machine.name == name) {
                let name = name.to_owned();
                return Ok(Machine { directory, name });
            }
        }
    }
    Err(machines::Error::NotFound(name.to_owned()).into())
}

fn in_zone(dir: &DataDir, zone: &str) -> Result<Vec<Machine>> {
    let mut found = Vec::new();
    for cluster in clusters(dir) {
        let Some(pools) = Pools::read(&cluster)? else {
            continue;
        };
        let its = pools
            .machines()
            .filter(|(pool, m)| pool.zone(m.number) == Some(zone));
        found.extend(its.map(|(pool, machine)| Machine {
            directory: cluster.path().join("machines"),
            name: pool.node_name(machine.number),
        }));
    }
    match found.is_empty() {
        true => Err(
            Failure::new(Code::NotFound, format!("no node is in zone {zone}"))
                .hint("`kubectl get nodes -L topology.kubernetes.io/zone` says where they are"),
        ),
        false => Ok(found),
    }
}

fn file(dir: &DataDir) -> PathBuf {
    dir.path().join("faults.json")
}

fn read(dir: &DataDir) -> Result<Vec<Fault>> {
    let path = file(dir);
    let Ok(text) = std::fs::read_to_string(&path) else {
        return Ok(Vec::new());
    };
    serde_json::from_str(&text).map_err(|e| {
        let what = format!("`{}` cannot be read: {e}", path.display());
        Failure::new(Code::Failure, what)
    })
}

// Several may come and go at once.
fn change<T>(dir: &DataDir, change: impl FnOnce(&mut Vec<Fault>) -> T) -> Result<T> {
    let path = dir.path().join("faults.lock");
    let failed = |e: &std::io::Error| Failure::file("lock", &path, e);
    let lock = std::fs::File::create(&path).map_err(|e| failed(&e))?;
    rustix::fs::flock(&lock, FlockOperation::LockExclusive).map_err(|e| failed(&e.into()))?;
    let mut faults = read(dir)?;
    let done = change(&mut faults);
    let text = serde_json::to_string_pretty(&faults).expect("faults are plain data");
    write_private(&file(dir), text.as_bytes())?;
    Ok(done)
}
