//! `kyanite image` and `kyanite registry`.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Logging, Place};

#[derive(Debug, Subcommand)]
pub(crate) enum ImageCommand {
    /// Make an image from programs and directories, and write it to a file
    Build(Box<ImageBuild>),
    /// Load an image's file into containerd: that of machines, or of this host
    Load {
        /// The file, as `kyanite image build`, `docker save` or others make it
        file: PathBuf,
        #[command(flatten)]
        node: ContainerdOf,
    },
    /// List the images in a file, or in containerd
    List {
        /// The file
        file: Option<PathBuf>,
        #[command(flatten)]
        node: ContainerdOf,
    },
}

#[derive(Debug, Clone, Args)]
pub(crate) struct ImageBuild {
    /// Its names, such as web:1 or registry.example/team/web:1
    #[arg(required_unless_present_any = ["pause", "demo"], value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// Where the image goes
    #[arg(long, value_name = "FILE")]
    pub(crate) to: PathBuf,
    /// A program, with the libraries it needs; `FILE:/PATH` says where it goes. The first one is the entrypoint
    #[arg(long = "program", value_name = "FILE[:/PATH]")]
    pub(crate) programs: Vec<String>,
    /// A directory whose content goes to the root, or with `DIR:/PATH` to that path
    #[arg(long = "directory", value_name = "DIR[:/PATH]")]
    pub(crate) directories: Vec<String>,
    /// The program to start, and its first arguments
    #[arg(long, value_name = "WORD", allow_hyphen_values = true)]
    pub(crate) entrypoint: Vec<String>,
    /// Arguments that a pod may replace
    #[arg(long = "arg", value_name = "WORD", allow_hyphen_values = true)]
    pub(crate) arguments: Vec<String>,
    /// A variable
    #[arg(long = "env", value_name = "NAME=VALUE")]
    pub(crate) environment: Vec<String>,
    /// Who it runs as, such as 1000 or 1000:1000
    #[arg(
        long,
        default_value = "",
        hide_default_value = true,
        value_name = "USER"
    )]
    pub(crate) user: String,
    /// Where it starts
    #[arg(long, default_value = "/", value_name = "DIR")]
    pub(crate) working_directory: String,
    /// A port it listens on, such as 8080 or 53/udp
    #[arg(long = "port", value_name = "PORT")]
    pub(crate) ports: Vec<String>,
    /// Make our image of what holds a pod's namespaces, under all the names it is asked for
    #[arg(long, conflicts_with_all = ["programs", "directories", "demo"])]
    pub(crate) pause: bool,
    /// Make our demo's image, in version 1 or 2
    #[arg(long, value_parser = clap::value_parser!(u8).range(1..=2), conflicts_with_all = ["programs", "directories"], value_name = "VERSION")]
    pub(crate) demo: Option<u8>,
}

/// Whose containerd.
#[derive(Debug, Clone, Args)]
pub(crate) struct ContainerdOf {
    #[command(flatten)]
    pub(crate) place: Place,
    /// A machine [default: every machine that runs]
    #[arg(long = "machine", value_name = "NAME", conflicts_with = "address")]
    pub(crate) machines: Vec<String>,
    /// The socket of a containerd on this host, instead of machines
    #[arg(long, value_name = "SOCKET")]
    pub(crate) address: Option<PathBuf>,
    /// containerd's client, where its containerd runs
    #[arg(long, default_value = "ctr", value_name = "PROGRAM")]
    pub(crate) ctr: String,
    /// containerd's namespace; Kubernetes' is this one
    #[arg(long, default_value = "k8s.io", value_name = "NAME")]
    pub(crate) namespace: String,
}

#[derive(Debug, Clone, Args)]
pub(crate) struct RegistryCommand {
    #[command(flatten)]
    pub(crate) place: Place,
    /// Address to listen on
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), value_name = "IP")]
    pub(crate) bind_address: IpAddr,
    /// Port to listen on; 0 takes any free one
    #[arg(long, default_value_t = 5000)]
    pub(crate) port: u16,
    /// A file with the token that clients must know, as the password of any user; without it everybody is let in
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) logging: Logging,
}
