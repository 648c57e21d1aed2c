//! The command line of `kyanite flex-node`, which is also that of `aks-flex-node`. Names and aliases are upstream's.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Subcommand, ValueEnum};

/// Whether a program called so is the Flex Node agent.
#[allow(clippy::ptr_arg, reason = "as an iterator of arguments gives it")]
pub(super) fn is_its_name(program: &OsString) -> bool {
    Path::new(program).file_name() == Some("aks-flex-node".as_ref())
}

#[derive(Debug, Subcommand)]
pub(crate) enum FlexNode {
    /// Make this machine a node of the cluster that the configuration names
    #[command(visible_alias = "start")]
    Bootstrap {
        #[command(flatten)]
        config: Config,
        /// Take everything that would be fetched from a bundle: nothing is asked of the network but the cluster
        #[arg(long, value_name = "FILE")]
        offline_bundle: Option<PathBuf>,
    },
    /// Take this machine out of its cluster, and back to what it was before
    #[command(visible_alias = "reset")]
    Unbootstrap {
        /// Somebody who may delete the node; a node may not delete itself
        #[arg(long, value_name = "FILE")]
        kubeconfig: Option<PathBuf>,
        /// Upstream's; what is needed was kept by the bootstrap
        #[arg(long, value_name = "FILE", hide = true)]
        config: Option<PathBuf>,
    },
    /// Keep this machine a node: look at it every minute, and mend it with the least that helps
    #[command(visible_alias = "daemon")]
    Agent {
        #[command(flatten)]
        config: Config,
        /// Look so often, and end
        #[arg(long, value_name = "COUNT", hide = true)]
        looks: Option<u32>,
    },
    /// Bring other versions to this node: fetched first, its pods evicted, and back to what worked unless it comes back Ready
    Upgrade(Upgrade),
    /// What a bootstrap would change on this machine, without changing any of it
    Plan {
        #[command(flatten)]
        config: Config,
    },
    /// Everything that can be wrong before the first change, with what mends it
    Preflight {
        #[command(flatten)]
        config: Config,
        /// Checks whose findings do not count
        #[arg(long, value_delimiter = ',', value_name = "CHECKS")]
        ignore_preflight_errors: Vec<String>,
        /// Warnings count as well
        #[arg(long)]
        fail_on_warnings: bool,
    },
    /// Everything that can be wrong with a node, with what mends it
    Doctor {
        #[command(flatten)]
        config: Config,
    },
    /// How the node is, and how the last bootstrap went
    Status,
    /// Print a token of this machine's identity, as kubectl and kubelets ask exec plugins for it
    Token(Token),
    /// Bundles for machines without a way to the places where programs come from
    #[command(subcommand)]
    Bundle(Bundle),
    /// Print the version
    Version,
    /// What the machine is in Azure
    #[command(hide = true)]
    Azure {
        /// Which part
        #[arg(value_enum)]
        what: Azure,
        /// Whether it is so, make it so, take it back
        #[arg(value_enum)]
        verb: Verb,
        #[command(flatten)]
        config: Config,
    },
    /// Serve the identity of this machine, as Azure's agent of Arc does where it is installed
    #[command(hide = true)]
    Himds {
        #[command(flatten)]
        config: Config,
    },
    /// The node's object at the cluster
    #[command(subcommand, hide = true)]
    Node(Node),
    /// The node's pods at its runtime
    #[command(subcommand, hide = true)]
    Pods(Pods),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Config {
    /// The configuration, as upstream has it
    #[arg(long = "config", value_name = "FILE", default_value = flex_node::paths::CONFIG)]
    pub(crate) file: PathBuf,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Upgrade {
    #[command(flatten)]
    pub(crate) config: Config,
    /// The kubelet, from Kubernetes' releases or a mirror of them
    #[arg(long, value_name = "VERSION")]
    pub(crate) kubernetes: Option<String>,
    /// containerd
    #[arg(long, value_name = "VERSION")]
    pub(crate) containerd: Option<String>,
    /// runc
    #[arg(long, value_name = "VERSION")]
    pub(crate) runc: Option<String>,
    /// This program itself: another build of it
    #[arg(long, value_name = "FILE")]
    pub(crate) agent: Option<PathBuf>,
    /// Take everything that would be fetched from a bundle
    #[arg(long, value_name = "FILE")]
    pub(crate) offline_bundle: Option<PathBuf>,
    /// How many seconds pods may take to go
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub(crate) drain_timeout: u64,
    /// How many seconds the node may take to be Ready again before it goes back
    #[arg(long, default_value_t = 300, value_name = "SECONDS")]
    pub(crate) timeout: u64,
    /// Go on when pods do not go in time
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Token {
    /// Upstream's word for it; changes nothing
    #[arg(value_parser = ["kubelogin"], hide = true)]
    pub(crate) kubelogin: Option<String>,
    #[command(flatten)]
    pub(crate) config: Config,
    /// Whom the token is for
    #[arg(long, value_name = "ID", default_value = flex_node::token::SERVER_ID)]
    pub(crate) server_id: String,
    /// Say whether there is one, and print none
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Azure {
    /// The machine's resource.
    Arc,
    /// The role of its identity.
    Role,
    /// What the cluster is.
    Cluster,
    /// What the identity may do in the cluster.
    Access,
    /// What the kubelet serves with.
    Serving,
    /// Whether the cluster can have such a node.
    Conditions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Verb {
    /// Fails unless it is so.
    Check,
    /// Makes it so.
    Make,
    /// Takes it back.
    Remove,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Node {
    /// Wait until it is Ready
    Wait {
        #[arg(long)]
        name: String,
        /// Seconds; 0 looks once
        #[arg(long, default_value_t = 0)]
        timeout: u64,
        /// It must have said so since then, in seconds since 1970
        #[arg(long)]
        since: Option<i64>,
    },
    /// Let it take no pods
    Cordon {
        #[arg(long)]
        name: String,
    },
    /// Let it take pods again
    Uncordon {
        #[arg(long)]
        name: String,
    },
    /// Evict its pods, and wait until they are gone
    Drain {
        #[arg(long)]
        name: String,
        /// Seconds
        #[arg(long)]
        timeout: u64,
    },
    /// Delete it
    Remove {
        #[arg(long)]
        name: String,
        #[arg(long)]
        kubeconfig: Option<PathBuf>,
        /// Whom to ask for somebody who may
        #[arg(long, conflicts_with = "kubeconfig")]
        config: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Pods {
    /// End them all
    Stop,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Bundle {
    /// Fetch and verify everything that a bootstrap with this configuration would fetch, into one file
    Create {
        #[command(flatten)]
        config: Config,
        /// The bundle
        #[arg(long, value_name = "FILE")]
        output: PathBuf,
        /// Archives of images to bring along, such as that of pods' sandboxes
        #[arg(long, value_name = "FILE")]
        image: Vec<PathBuf>,
    },
    /// What is in a bundle, verified
    Show {
        /// The bundle
        file: PathBuf,
    },
}
