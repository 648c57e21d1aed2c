//! The command line. Only types and help; what a command does is in `commands`.

pub(crate) mod access;
pub(crate) mod addon;
pub(crate) mod audit;
pub(crate) mod cloud;
pub(crate) mod cloud_controllers;
pub(crate) mod controller_manager;
pub(crate) mod dns;
pub(crate) mod doctor;
pub(crate) mod fault;
pub(crate) mod flex_node;
pub(crate) mod image;
pub(crate) mod konnectivity;
pub(crate) mod kube_proxy;
pub(crate) mod kubelet;
pub(crate) mod machine;
pub(crate) mod network;
pub(crate) mod node_controller;
pub(crate) mod node_controllers;
pub(crate) mod policy;
pub(crate) mod ranges;
pub(crate) mod scheduler;
mod upstream_flags;

use std::ffi::OsString;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{ArgAction, Args, Parser, Subcommand, ValueEnum};
use kube_kit::duration::go;

use crate::exit;
use crate::printer::Printer;
pub(crate) use ranges::Ranges;

/// AKS on one machine: Kubernetes clusters with nodes of their own, the Azure around them, and what makes any machine a node
#[derive(Debug, Parser)]
#[command(version, about, after_help = exit::HELP)]
pub(crate) struct Cli {
    /// How results are printed.
    #[arg(short, long, global = true, value_enum, default_value_t = Output::Text)]
    pub(crate) output: Output,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Reads the command line. Called by the name of a program that it stands in for, it is that program, and wrong
/// usage ends with that program's code. An error is the code to end with; what is wrong has been said.
pub(crate) fn parse(args: impl Iterator<Item = OsString>) -> Result<Cli, ExitCode> {
    let mut args: Vec<OsString> = args.collect();
    let stands_in = args.first().is_some_and(node_controller::is_its_name);
    if stands_in {
        args.insert(1, "node-controller".into());
    } else if args.first().is_some_and(kubelet::is_its_name) {
        args.insert(1, "kubelet".into());
    } else if args.first().is_some_and(flex_node::is_its_name) {
        args.insert(1, "flex-node".into());
    }
    let output = wanted_output(&args);
    let printer = Printer::new(output);
    let sifted = upstream_flags::sift(args).map_err(|cause| {
        printer.failure(&exit::Failure::new(exit::Code::Usage, cause));
        ExitCode::from(exit::Code::Usage)
    })?;
    for warning in &sifted.warnings {
        printer.note(&format!("warning: {warning}"));
    }
    Cli::try_parse_from(sifted.args).map_err(|error| {
        let code = match error.exit_code() {
            2 if stands_in => exit::Code::Failure,
            2 => exit::Code::Usage,
            _ => {
                // Help and version. A terminal that has gone away is no reason to fail.
                let _ = error.print();
                return ExitCode::SUCCESS;
            }
        };
        match output {
            Output::Text => {
                let _ = error.print();
            }
            Output::Json => printer.failure(&usage(code, &error)),
        }
        code.into()
    })
}

/// How results are to be printed, of a command line that may be wrong otherwise.
fn wanted_output(args: &[OsString]) -> Output {
    let words: Vec<_> = args.iter().map(|word| word.to_string_lossy()).collect();
    let pair = |pair: &[std::borrow::Cow<'_, str>]| {
        ["-o", "--output"].contains(&&*pair[0]) && pair[1] == "json"
    };
    let single = |word: &str| ["-ojson", "-o=json", "--output=json"].contains(&word);
    match words.windows(2).any(pair) || words.iter().any(|word| single(word)) {
        true => Output::Json,
        false => Output::Text,
    }
}

/// What clap says of a wrong command line, as every other failure is said: the first line, and the rest as the hint.
fn usage(code: exit::Code, error: &clap::Error) -> exit::Failure {
    let text = error.to_string();
    let (first, rest) = text.trim().split_once('\n').unwrap_or((text.trim(), ""));
    let first = first.strip_prefix("error: ").unwrap_or(first);
    let lines = rest.lines().map(str::trim).filter(|line| !line.is_empty());
    exit::Failure::new(code, first).hint(lines.collect::<Vec<_>>().join("; "))
}

/// Who reads the results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// People.
    Text,
    /// Machines.
    Json,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Start a cluster in the background, its control plane and its nodes, and add it to your kubeconfig
    Up(Up),
    /// Stop it and take it out of your kubeconfig
    Down(Down),
    /// Say whether it runs, where, and how it is
    Status(Place),
    /// Show what a cluster does, with an application of its own, step by step
    Demo(doctor::Demo),
    /// Find what is wrong with nodes and pods, and say the next step
    Doctor(doctor::Doctor),
    /// Say beforehand what would stop something that is to be done with a cluster
    #[command(subcommand)]
    Rehearse(doctor::RehearseCommand),
    /// List, enable and disable what a cluster runs by itself
    #[command(subcommand)]
    Addon(addon::AddonCommand),
    /// Run the API server alone, with upstream's flags
    Apiserver(Box<Apiserver>),
    /// Run the controllers alone, with upstream's flags
    #[command(after_long_help = controller_manager::table())]
    ControllerManager(controller_manager::ControllerManager),
    /// Run the controllers that follow Azure: nodes, routes and load balancers, with upstream's flags
    #[command(after_long_help = cloud_controllers::table())]
    CloudControllerManager(Box<cloud_controllers::CloudControllerManager>),
    /// Tell this node's cluster what machine it is, with upstream's flags
    CloudNodeManager(Box<cloud_controllers::CloudNodeManager>),
    /// Run the scheduler alone, with upstream's flags
    Scheduler(Box<scheduler::Scheduler>),
    /// Make this machine a node, as aks-node-controller does
    #[command(subcommand)]
    NodeController(node_controller::NodeController),
    /// Make a machine outside of Azure a node, keep it one, and take it out again, as aks-flex-node does
    #[command(subcommand, after_long_help = ::flex_node::codes::table())]
    FlexNode(flex_node::FlexNode),
    /// Run this machine's pods, with upstream's flags
    Kubelet(kubelet::Kubelet),
    /// Run the end of the nodes' tunnels that API servers use, with upstream's flags
    KonnectivityServer(Box<konnectivity::KonnectivityServer>),
    /// Run the nodes' end of the tunnels, with upstream's flags
    KonnectivityAgent(Box<konnectivity::KonnectivityAgent>),
    /// Run the cloud's front door: Entra ID and Azure Resource Manager for az and the SDKs
    Cloud(cloud::Cloud),
    /// Print the lines that make az use the cloud: eval "$(kyanite az-env)"
    AzEnv(Place),
    /// Make Services reachable from this node, with upstream's flags (needs root)
    KubeProxy(Box<kube_proxy::KubeProxy>),
    /// Serve the cluster's names, as CoreDNS does in AKS
    Dns(dns::Dns),
    /// Keep network policies on this node, or say what they mean for a connection
    #[command(subcommand)]
    Policy(policy::PolicyCommand),
    /// Back up, restore and check the embedded store
    #[command(subcommand)]
    Store(StoreCommand),
    /// List and renew the cluster's certificates and keys
    #[command(subcommand)]
    Certs(CertsCommand),
    /// Make, list and remove the tokens that nodes join with
    #[command(subcommand)]
    Token(TokenCommand),
    /// Boot, enter and power off machines of namespaces on this host (needs root)
    #[command(subcommand)]
    Machine(machine::MachineCommand),
    /// Break things on purpose, and mend them again (needs root)
    #[command(subcommand)]
    Fault(fault::FaultCommand),
    /// Make images from programs and directories, and load them into nodes
    #[command(subcommand)]
    Image(image::ImageCommand),
    /// Serve a registry of images from a directory
    Registry(image::RegistryCommand),
    /// Print the version, and that of Kubernetes it speaks
    Version,
    /// Print the completions for a shell: source <(kyanite completion bash)
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual's pages, one per command, into a directory
    Man {
        /// Where, such as /usr/local/share/man/man1; made if it is not there
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// What starts a machine and watches it
    #[command(hide = true)]
    MachineLauncher {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

/// Where everything lives.
#[derive(Debug, Clone, Args)]
pub(crate) struct Place {
    /// Directory of certificates, store, log and kubeconfig; made private (0700)
    #[arg(long, env = "KYANITE_DATA_DIR", value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// The cluster's name: of its context, its user and, unless one is given, its data directory [default: kyanite]
    #[arg(long = "name", id = "cluster_name", env = "KYANITE_NAME", value_parser = cluster_name, value_name = "NAME")]
    pub(crate) name: Option<String>,
}

// AKS' rule for names of clusters, in the small letters that contexts and directories like.
fn cluster_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let ends_well = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    match !text.is_empty()
        && text.len() <= 63
        && text.chars().all(is_plain)
        && text.starts_with(ends_well)
        && text.ends_with(ends_well)
    {
        true => Ok(text.to_owned()),
        false => Err(
            "1 to 63 small letters, digits and hyphens, with no hyphen at either end".to_owned(),
        ),
    }
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Up {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Port of the API server; 0 takes any free one [default: 6443; any free one for a cluster with a --name]
    #[arg(long)]
    pub(crate) port: Option<u16>,
    /// Address to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "IP")]
    pub(crate) bind_address: IpAddr,
    /// Stay in the foreground and log to standard error
    #[arg(long)]
    pub(crate) foreground: bool,
    /// The kubeconfig that gets the cluster's context [default: $KUBECONFIG or ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Controllers to run: `*` for all, `name` for one, `-name` for all but one; an empty list runs none
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "*",
        allow_hyphen_values = true,
        value_name = "NAMES"
    )]
    pub(crate) controllers: Vec<String>,
    /// Whether pods are given nodes; without it another scheduler may run beside
    #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true", require_equals = true, value_name = "BOOL")]
    pub(crate) scheduler: bool,
    #[command(flatten)]
    pub(crate) node_controllers: node_controllers::NodeControllers,
    #[command(flatten)]
    pub(crate) hollow: node_controllers::Hollow,
    #[command(flatten)]
    pub(crate) nodes: Nodes,
    #[command(flatten)]
    pub(crate) way_to_nodes: network::WayToNodes,
    #[command(flatten)]
    pub(crate) beside: cloud::Beside,
    #[command(flatten)]
    pub(crate) serving: Serving,
    /// Tell the parent process about stages on standard output
    #[arg(long, hide = true)]
    pub(crate) report: bool,
}

/// The nodes of `kyanite up`.
#[derive(Debug, Clone, Args)]
pub(crate) struct Nodes {
    /// How many machines boot and join as nodes; 0 is the control plane alone [default: 2; on paper where this host cannot run machines]
    #[arg(long, env = "KYANITE_NODES", value_name = "COUNT")]
    pub(crate) nodes: Option<u16>,
    /// The availability zones that nodes are spread over
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "1,2,3",
        value_name = "ZONES"
    )]
    pub(crate) zones: Vec<String>,
    /// What nodes say they are
    #[arg(long, default_value = "Standard_D2s_v5", value_name = "SIZE")]
    pub(crate) vm_size: String,
}

impl Nodes {
    /// The same as flags, for the process that does the work.
    pub(crate) fn flags(&self) -> Vec<String> {
        let mut flags = vec![
            format!("--zones={}", self.zones.join(",")),
            format!("--vm-size={}", self.vm_size),
        ];
        flags.extend(self.nodes.map(|count| format!("--nodes={count}")));
        flags
    }
}

/// What every way of serving can be told; upstream's names.
#[derive(Debug, Clone, Args)]
pub(crate) struct Serving {
    /// Virtual IPs of services: a range, or one of each family; the first is that of services that do not say
    #[arg(long, default_value = "10.0.0.0/16", value_parser = ranges::parse, value_name = "CIDRS")]
    pub(crate) service_cluster_ip_range: Ranges,
    /// How long events are kept, such as 1h or 90s
    #[arg(long, default_value = "1h", value_parser = duration, value_name = "DURATION")]
    pub(crate) event_ttl: std::time::Duration,
    /// How much history is kept for watches and pages: between one and two of this
    #[arg(long, default_value = "5m", value_parser = duration, value_name = "DURATION", alias = "compaction-interval")]
    pub(crate) etcd_compaction_interval: std::time::Duration,
    #[command(flatten)]
    pub(crate) front_door: network::FrontDoor,
    #[command(flatten)]
    pub(crate) audit: audit::Audit,
    #[command(flatten)]
    pub(crate) logging: Logging,
}

/// Where a role that runs alone tells about itself; upstream's names.
#[derive(Debug, Clone, Args)]
pub(crate) struct SecurePort {
    /// Address of the port for health and metrics
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED), value_name = "IP")]
    pub(crate) bind_address: IpAddr,
    /// Port for health and metrics, over TLS; 0 opens none [default: 10257; that of a scheduler: 10259]
    #[arg(long, value_name = "PORT")]
    pub(crate) secure_port: Option<u16>,
    /// Certificate of that port, PEM; without one it is self-signed
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// Key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub(crate) tls_private_key_file: Option<PathBuf>,
    /// Where a self-signed certificate is kept
    #[arg(long, value_name = "DIR")]
    pub(crate) cert_dir: Option<PathBuf>,
    /// Authority of clients that show a certificate, PEM [default: what the API server says in
    /// kube-system/extension-apiserver-authentication]
    #[arg(long, value_name = "FILE")]
    pub(crate) client_ca_file: Option<PathBuf>,
    /// How the API server is asked who shows a token [default: that of --kubeconfig]
    #[arg(long, value_name = "FILE")]
    pub(crate) authentication_kubeconfig: Option<PathBuf>,
}

/// What every role logs.
#[derive(Debug, Clone, Args)]
pub(crate) struct Logging {
    /// What is logged: error, warn, info, debug, trace, or per module as in `info,apiserver=debug`
    #[arg(
        long,
        env = "KYANITE_LOG",
        default_value = "info",
        value_name = "FILTER"
    )]
    pub(crate) log_level: String,
    /// How it is logged
    #[arg(long, value_enum, default_value_t = LogFormat::Text)]
    pub(crate) logging_format: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum LogFormat {
    /// Lines for people.
    Text,
    /// One JSON object per line.
    Json,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Down {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Remove the data directory as well: every object is lost
    #[arg(long)]
    pub(crate) purge: bool,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Apiserver {
    /// etcd to use instead of the embedded store, comma-separated URLs
    #[arg(long, value_delimiter = ',', value_name = "URL")]
    pub(crate) etcd_servers: Vec<String>,
    /// CA of etcd's certificates
    #[arg(long, value_name = "FILE", requires = "etcd_servers")]
    pub(crate) etcd_cafile: Option<PathBuf>,
    /// Client certificate for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_keyfile")]
    pub(crate) etcd_certfile: Option<PathBuf>,
    /// Key of the client certificate for etcd
    #[arg(long, value_name = "FILE", requires = "etcd_certfile")]
    pub(crate) etcd_keyfile: Option<PathBuf>,
    /// Directory of the embedded store, when no etcd is named
    #[arg(long, value_name = "DIR", conflicts_with = "etcd_servers")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Serving certificate, PEM; with its chain
    #[arg(long, value_name = "FILE", requires = "tls_private_key_file")]
    pub(crate) tls_cert_file: Option<PathBuf>,
    /// Key of the serving certificate
    #[arg(long, value_name = "FILE", requires = "tls_cert_file")]
    pub(crate) tls_private_key_file: Option<PathBuf>,
    /// Where a self-signed serving certificate is kept when none is named
    #[arg(long, value_name = "DIR", default_value = "/var/run/kubernetes")]
    pub(crate) cert_dir: PathBuf,
    #[command(flatten)]
    pub(crate) encryption: audit::Encryption,
    #[command(flatten)]
    pub(crate) access: access::Access,
    #[command(flatten)]
    pub(crate) nodes: network::Nodes,
    /// Address to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::UNSPECIFIED), value_name = "IP")]
    pub(crate) bind_address: IpAddr,
    /// Address that clients are told [default: the bind address, or this machine's where that is every address]
    #[arg(long, value_name = "IP")]
    pub(crate) advertise_address: Option<IpAddr>,
    /// Port to listen on
    #[arg(long, default_value_t = 6443)]
    pub(crate) secure_port: u16,
    #[command(flatten)]
    pub(crate) serving: Serving,
}

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Write a consistent copy of the store to a file, while the server runs or not
    Backup {
        #[command(flatten)]
        place: Place,
        /// The file to write
        file: PathBuf,
        /// Copy the cluster's keys as well, to FILE.keys, readable by the owner only: what a restore elsewhere needs
        /// to be trusted by the nodes, tokens and kubeconfigs there are
        #[arg(long)]
        keys: bool,
    },
    /// Make a data directory's store from a backup, and its keys if they are beside it; the store must be empty
    Restore {
        #[command(flatten)]
        place: Place,
        /// The backup
        file: PathBuf,
    },
    /// Read a store or a backup completely and say what is in it, or where it is damaged
    Check {
        #[command(flatten)]
        place: Place,
        /// A backup; without it the data directory's store
        file: Option<PathBuf>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum CertsCommand {
    /// Every certificate: for whom, by whom, until when
    List(Place),
    /// Make certificates and keys anew; a running server uses them at once
    Rotate(Rotate),
}

#[derive(Debug, Clone, Args)]
pub(crate) struct Rotate {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Replace the CAs and all certificates; the old CAs stay trusted until --finish, or until they expire
    #[arg(long, conflicts_with = "names")]
    pub(crate) ca: bool,
    /// End the overlap: with --ca forget the old CAs, with `service-account` the old keys
    #[arg(long)]
    pub(crate) finish: bool,
    /// What to renew, as `certs list` calls it, or `service-account` [default: all certificates but the CAs]
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TokenCommand {
    /// Make a bootstrap token and print it
    Create(TokenCreate),
    /// List bootstrap tokens, without their secret halves
    List(Place),
    /// Remove a bootstrap token
    Delete {
        #[command(flatten)]
        place: Place,
        /// The token or its id, the part before the dot
        token: String,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct TokenCreate {
    #[command(flatten)]
    pub(crate) place: Place,
    /// How long it can be used; 0 for ever
    #[arg(long, default_value = "24h", value_parser = go::flag, value_name = "DURATION")]
    pub(crate) ttl: std::time::Duration,
    /// Groups its users get besides system:bootstrappers; each starts with `system:bootstrappers:`
    #[arg(long, value_delimiter = ',', default_value = crate::join_tokens::NODE_GROUP, value_name = "GROUPS")]
    pub(crate) groups: Vec<String>,
    /// What it is for
    #[arg(long, default_value = "", value_name = "TEXT")]
    pub(crate) description: String,
    /// Print a kubeconfig for a kubelet's --bootstrap-kubeconfig instead of the token
    #[arg(long)]
    pub(crate) print_kubeconfig: bool,
}

/// A duration in Go's notation, as upstream's flags take it, that is more than nothing.
fn duration(text: &str) -> Result<std::time::Duration, String> {
    match go::flag(text)? {
        std::time::Duration::ZERO => Err("must be more than zero".into()),
        some => Ok(some),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }

    #[test]
    fn durations_read_as_in_go() {
        assert_eq!(duration("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        for bad in ["", "5", "x", "0s", "5d"] {
            assert!(duration(bad).is_err(), "{bad}");
        }
    }

    fn words(line: &str) -> Vec<OsString> {
        line.split(' ').map(OsString::from).collect()
    }

    #[test]
    fn whoever_asks_for_json_gets_wrong_usage_as_json() {
        for line in [
            "kyanite x -o json",
            "kyanite -ojson up --nope",
            "kyanite --output=json",
        ] {
            assert_eq!(wanted_output(&words(line)), Output::Json, "{line}");
        }
        for line in ["kyanite x", "kyanite -o text", "kyanite json"] {
            assert_eq!(wanted_output(&words(line)), Output::Text, "{line}");
        }
        let error = Cli::try_parse_from(words("kyanite up --nope")).expect_err("no such flag");
        let failure = usage(exit::Code::Usage, &error);
        assert_eq!(failure.message, "unexpected argument '--nope' found");
        assert!(failure.hint.is_some_and(|hint| hint.contains("--help")));
    }

    #[test]
    fn help_and_version_are_commands_too() {
        for line in [
            "kyanite help",
            "kyanite help up",
            "kyanite store help check",
        ] {
            let shown = Cli::try_parse_from(words(line)).expect_err("help is shown");
            assert_eq!(shown.exit_code(), 0, "{line}");
        }
        assert!(Cli::try_parse_from(words("kyanite version")).is_ok());
    }
}
