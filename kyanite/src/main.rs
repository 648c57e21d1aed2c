//! `kyanite`: every role in one binary.

mod addons;
mod admin;
mod cli;
mod client;
mod commands;
mod datadir;
mod doctor;
mod exit;
mod join_tokens;
mod kubeconfig;
mod logging;
mod manifest;
mod pki;
mod pools;
mod printer;
mod stages;

// Returns memory after bursts, which the system allocator keeps.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::process::ExitCode {
    let cli = match cli::parse(std::env::args_os()) {
        Ok(cli) => cli,
        Err(code) => return code,
    };
    let printer = printer::Printer::new(cli.output);
    match commands::run(cli, &printer) {
        Ok(code) => code,
        Err(failure) => {
            printer.failure(&failure);
            failure.code.into()
        }
    }
}
