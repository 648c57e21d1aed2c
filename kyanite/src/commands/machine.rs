//! `kyanite machine`: machines of namespaces on this host.

use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitCode;

use machines::{Attachment, Driver as _, Error, Launcher, Machine, Namespaces, PowerOff, Spec};
use serde_json::json;

use crate::cli::Place;
use crate::cli::machine::{MachineBoot, MachineCommand};
use crate::datadir::DataDir;
use crate::exit::{Code, Failure, Result};
use crate::printer::{Printer, table};

/// The hidden command that leads to the launcher.
pub(super) const LAUNCHER: &str = "machine-launcher";

/// Runs a machine command; `exec` ends as its program does.
pub(super) fn run(command: MachineCommand, printer: &Printer) -> Result<ExitCode> {
    match command {
        MachineCommand::Boot(boot) => start(&boot, printer)?,
        MachineCommand::List(place) => {
            let machines = driver(&place)?.list()?;
            printer.result(&shown(&machines), &json!(machines));
        }
        MachineCommand::Exec {
            place,
            name,
            program,
        } => return exec(&place, &name, program),
        MachineCommand::Console { place, name } => {
            let log = driver(&place)?.console_log(&name)?;
            let text = fs::read(&log).map_err(|e| Failure::file("read", &log, &e))?;
            let text = String::from_utf8_lossy(&text);
            printer.result(text.trim_end(), &json!(text));
        }
        MachineCommand::Off {
            place,
            name,
            grace,
            now,
            remove,
        } => {
            let driver = driver(&place)?;
            let how = if now {
                PowerOff::Plug
            } else {
                PowerOff::Button(grace)
            };
            driver.power_off(&name, how)?;
            if remove {
                driver.remove(&name)?;
            }
            printer.result(
                &format!("{name} is off"),
                &json!({"name": name, "removed": remove}),
            );
        }
        MachineCommand::Sweep(place) => {
            let swept = driver(&place)?.sweep()?;
            let count = |what: &[String]| what.len();
            let text = format!(
                "{} machines ended, {} networks removed",
                count(&swept.machines),
                count(&swept.networks)
            );
            printer.result(&text, &json!(swept));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Is the launcher, with the arguments it was given.
pub(super) fn launcher(arguments: &[OsString]) -> ExitCode {
    machines::launcher::run(&Launcher::this_program(&[LAUNCHER]), arguments)
}

/// The machines of a data directory.
pub(super) fn driver(place: &Place) -> Result<Namespaces> {
    let dir = DataDir::find(place)?.path().join("machines");
    Ok(Namespaces::new(&dir, Launcher::this_program(&[LAUNCHER]))?)
}

fn start(boot: &MachineBoot, printer: &Printer) -> Result<()> {
    let driver = driver(&boot.place)?;
    match driver.missing() {
        missing if missing.is_empty() => {}
        missing => return Err(Error::Host(missing).into()),
    }
    let custom_data = match &boot.custom_data {
        Some(file) => fs::read(file).map_err(|e| Failure::file("read", file, &e))?,
        None => Vec::new(),
    };
    let attachment = boot
        .address
        .map(|address| attachment(boot, &driver, address))
        .transpose()?;
    let spec = Spec {
        name: boot.name.clone(),
        attachment,
        custom_data,
        units: boot.units.clone(),
        ..Spec::default()
    };
    driver.boot(&spec)?;
    let text = format!(
        "{} has started; enter it with `kyanite machine exec {} bash`",
        spec.name, spec.name
    );
    printer.result(&text, &json!({"name": spec.name}));
    Ok(())
}

fn attachment(
    boot: &MachineBoot,
    driver: &Namespaces,
    address: std::net::Ipv4Addr,
) -> Result<Attachment> {
    let network = match driver.network(&boot.network) {
        Err(Error::NoNetwork(_)) => driver.create_network(&boot.network, boot.subnet)?,
        found => found?,
    };
    if !network.subnet.contains(&address) || address == network.gateway() {
        let message = format!(
            "{address} is no address for a machine in the network {}",
            network.subnet
        );
        return Err(Failure::new(Code::Usage, message)
            .hint("name another --address, or another --network with its --subnet"));
    }
    Ok(Attachment {
        network: boot.network.clone(),
        address,
        name_servers: Vec::new(),
    })
}

fn exec(place: &Place, name: &str, program: Vec<OsString>) -> Result<ExitCode> {
    let status = driver(place)?.command(name, program)?.status();
    let status = status
        .map_err(|e| Failure::new(Code::Failure, format!("the launcher cannot be run: {e}")))?;
    let code = status
        .code()
        .or(status.signal().map(|signal| 128 + signal))
        .unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}

fn shown(machines: &[Machine]) -> String {
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rows = machines.iter().map(|machine| {
        vec![
            machine.name.clone(),
            format!("{:?}", machine.state).to_lowercase(),
            or_dash(machine.address.map(|a| a.to_string())),
            or_dash(machine.pid.map(|p| p.to_string())),
        ]
    });
    table(&["NAME", "STATE", "ADDRESS", "PID"], rows)
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        let (code, hint) = match &error {
            Error::Name(_) | Error::CustomData(_) => (Code::Usage, None),
            Error::NotFound(_) | Error::NoNetwork(_) => (
                Code::NotFound,
                Some("`kyanite machine list` shows what there is"),
            ),
            Error::Running(_) => (
                Code::Conflict,
                Some("shut it down with `kyanite machine off`"),
            ),
            Error::Off(_) => (
                Code::Unavailable,
                Some("start it with `kyanite machine boot`"),
            ),
            Error::Host(_) => (Code::Unavailable, None),
            Error::File { source, .. } if source.kind() == std::io::ErrorKind::PermissionDenied => {
                (Code::Permission, Some("machines need root"))
            }
            _ => (Code::Failure, None),
        };
        let failure = Failure::new(code, error.to_string());
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}
