//! One file per command; each takes plain settings and a printer.

mod access;
mod addon;
mod apiserver;
mod certs;
mod cloud;
mod cloud_controllers;
mod controller_manager;
mod demo;
mod dns;
mod doctor;
mod down;
mod drain;
mod fault;
mod flex_node;
mod image;
mod konnectivity;
mod kube_proxy;
mod kubelet;
mod machine;
mod manual;
mod node_controller;
mod own_pages;
mod policy;
mod region;
mod registry;
mod rehearse;
mod scheduler;
mod serve;
mod status;
mod store;
mod token;
mod up;

use std::process::ExitCode;

use crate::cli::{Cli, Command};
use crate::exit::{Code, Failure, Result};
use crate::printer::Printer;
pub(crate) use up::{Wanted, Wish};

/// Runs the command that was asked for. A provision and a program in a machine have exit codes of their own;
/// every other command is done or has failed.
pub(crate) fn run(cli: Cli, printer: &Printer) -> Result<ExitCode> {
    match cli.command {
        // Before any thread is started: the launcher changes namespaces of this process.
        Command::MachineLauncher { arguments } => return Ok(machine::launcher(&arguments)),
        Command::Machine(command) => return machine::run(command, printer),
        Command::NodeController(command) => return node_controller::run(command, printer),
        Command::FlexNode(command) => return flex_node::run(command, printer),
        Command::Version => manual::version(printer),
        Command::Completion { shell } => manual::completion(shell),
        Command::Man { directory } => manual::pages(&directory, printer),
        Command::Up(up) if up.foreground => runtime()?.block_on(up::foreground(up, *printer)),
        Command::Up(up) => up::background(&up, printer),
        Command::Down(down) => down::run(&down, printer),
        Command::Status(place) => status::run(&place, printer),
        Command::Demo(command) => runtime()?.block_on(demo::run(command, *printer)),
        Command::Doctor(command) => runtime()?.block_on(doctor::run(command, printer)),
        Command::Rehearse(command) => runtime()?.block_on(rehearse::run(command, printer)),
        Command::Addon(command) => runtime()?.block_on(addon::run(command, printer)),
        Command::Apiserver(flags) => runtime()?.block_on(apiserver::run(*flags)),
        Command::ControllerManager(flags) => runtime()?.block_on(controller_manager::run(flags)),
        Command::CloudControllerManager(flags) => {
            runtime()?.block_on(cloud_controllers::manager(*flags))
        }
        Command::CloudNodeManager(flags) => {
            small_runtime()?.block_on(cloud_controllers::node_manager(*flags))
        }
        Command::Scheduler(flags) => runtime()?.block_on(scheduler::run(*flags)),
        Command::Kubelet(flags) => small_runtime()?.block_on(kubelet::run(flags, printer)),
        Command::KonnectivityServer(flags) => {
            small_runtime()?.block_on(konnectivity::server(*flags))
        }
        Command::KonnectivityAgent(flags) => small_runtime()?.block_on(konnectivity::agent(*flags)),
        Command::Fault(command) => runtime()?.block_on(fault::run(command, printer)),
        Command::Image(command) => image::run(command, printer),
        Command::Registry(command) => runtime()?.block_on(registry::run(command, *printer)),
        Command::Cloud(flags) => runtime()?.block_on(cloud::run(flags)),
        Command::AzEnv(place) => cloud::az_env(&place, printer),
        Command::KubeProxy(flags) => small_runtime()?.block_on(kube_proxy::run(*flags)),
        Command::Dns(flags) => small_runtime()?.block_on(dns::run(flags)),
        Command::Policy(command) => small_runtime()?.block_on(policy::run(command, printer)),
        Command::Store(command) => store::run(command, printer),
        Command::Certs(command) => certs::run(command, printer),
        Command::Token(command) => runtime()?.block_on(token::run(command, printer)),
    }?;
    Ok(ExitCode::SUCCESS)
}

fn runtime() -> Result<tokio::runtime::Runtime> {
    started(tokio::runtime::Builder::new_multi_thread().enable_all())
}

// Tunnels hand bytes from socket to socket: on one thread that needs no wake-ups between threads.
fn small_runtime() -> Result<tokio::runtime::Runtime> {
    started(tokio::runtime::Builder::new_current_thread().enable_all())
}

fn started(builder: &mut tokio::runtime::Builder) -> Result<tokio::runtime::Runtime> {
    builder
        .build()
        .map_err(|e| Failure::new(Code::Failure, format!("the runtime cannot start: {e}")))
}
