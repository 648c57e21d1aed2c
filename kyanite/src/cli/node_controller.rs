//! The command line of `kyanite node-controller`, which is also that of `aks-node-controller`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

/// Whether a program called so is the node controller.
#[allow(clippy::ptr_arg, reason = "as an iterator of arguments gives it")]
pub(super) fn is_its_name(program: &OsString) -> bool {
    Path::new(program).file_name() == Some("aks-node-controller".as_ref())
}

#[derive(Debug, Subcommand)]
pub(crate) enum NodeController {
    /// Make this machine the node that the configuration describes
    Provision(Provision),
    /// Wait until a provision has ended, print its result, and exit 0 or 1
    ProvisionWait(ProvisionWait),
    /// What a provision would change on this machine
    Plan {
        #[command(flatten)]
        config: ConfigFile,
        #[command(flatten)]
        root: Root,
    },
    /// How the provision that is under way is doing, or how the last one went
    Status {
        /// Go on until it has ended
        #[arg(long)]
        follow: bool,
        #[command(flatten)]
        root: Root,
    },
    /// Take back what provisions have changed on this machine
    Undo {
        #[command(flatten)]
        root: Root,
    },
    /// Print the version
    Version,
    /// Say that there are no hotfixes: those of upstream's program are not for this one
    CheckHotfix {
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        ignored: Vec<OsString>,
    },
    /// The same, and download nothing
    DownloadHotfix,
    /// Every problem of a node configuration at once, with what to do about it
    Validate {
        #[command(flatten)]
        config: ConfigFile,
    },
    /// What an exit code of a provision means and what to check
    Explain {
        /// The code, such as 51, or its name, such as ERR_K8S_API_SERVER_CONN_FAIL
        #[arg(value_name = "CODE")]
        code: String,
    },
    /// The custom data that brings a node configuration to a machine, in base64; it holds the secrets
    CustomData(CustomData),
    /// The environment that the provisioning scripts read, for nodes that still carry them
    Env(Env),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ConfigFile {
    /// The node configuration; `-` for standard input
    #[arg(value_name = "FILE", default_value = node_controller::custom_data::CONFIG_PATH)]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Provision {
    /// The node configuration
    #[arg(long, value_name = "FILE")]
    pub(crate) provision_config: Option<PathBuf>,
    /// A script that does all of it instead, as newer services send it; run with bash
    #[arg(long, value_name = "FILE")]
    pub(crate) nbc_cmd: Option<PathBuf>,
    /// Run the provisioning scripts that the node image carries, with the environment they read
    #[arg(long, requires = "provision_config", conflicts_with = "nbc_cmd")]
    pub(crate) env: bool,
    /// Log what would be done, and do nothing
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) root: Root,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ProvisionWait {
    /// How long to wait
    #[arg(long, value_name = "SECONDS", default_value_t = 90 * 60)]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) root: Root,
}

/// For tests: a machine that is only files.
#[derive(Debug, Clone, Args)]
pub(crate) struct Root {
    /// Work on the files in this directory; commands and the network are simulated
    #[arg(long = "root", value_name = "DIR", hide = true)]
    pub(crate) directory: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct CustomData {
    #[command(flatten)]
    pub(crate) config: ConfigFile,
    /// How the machine reads it
    #[arg(long, value_enum, default_value_t = Form::Boothook)]
    pub(crate) form: Form,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Form {
    /// cloud-init writes the configuration and starts the node controller at once.
    Boothook,
    /// cloud-init writes the configuration; the node controller's unit starts later.
    WriteFiles,
    /// Flatcar and Azure Container Linux.
    Ignition,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Env {
    #[command(flatten)]
    pub(crate) config: ConfigFile,
    /// Print tokens, keys and passwords instead of `[redacted]`
    #[arg(long)]
    pub(crate) show_secrets: bool,
    /// Which scripts the node carries; decides the command
    #[arg(long, value_enum, default_value_t = Scripts::Current)]
    pub(crate) scripts: Scripts,
    /// What `containerd --version` prints on the node [default: what it prints here]
    #[arg(long, value_name = "TEXT")]
    pub(crate) containerd_version: Option<String>,
    /// The node image's list of components, for GPU drivers; may be missing
    #[arg(
        long,
        value_name = "FILE",
        default_value = "/opt/azure/components.json"
    )]
    pub(crate) components: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Scripts {
    /// Until spring 2026: started after cloud-init.
    Waiting,
    /// Started while cloud-init runs.
    Early,
    /// Summer 2026: told where they are.
    Located,
    /// Since.
    Current,
}
