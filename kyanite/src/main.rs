//! `kyanite`: every role in one binary.

mod admin;
mod bootstrap;
mod cli;
mod client;
mod commands;
mod datadir;
mod exit;
mod kubeconfig;
mod logging;
mod pki;
mod printer;
mod stages;

use clap::Parser as _;

// Returns memory after bursts, which the system allocator keeps.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    let cli = cli::Cli::parse();
    let printer = printer::Printer::new(cli.output);
    match commands::run(cli, &printer) {
        Ok(code) => code,
        Err(failure) => {
            printer.failure(&failure);
            failure.code.into()
        }
    }
}
