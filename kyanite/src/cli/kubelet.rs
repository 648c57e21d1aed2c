//! The command line of `kyanite kubelet`, which is also that of a program named `kubelet`.

use std::ffi::OsString;
use std::path::Path;

use clap::Args;

/// Whether a program called so is the kubelet.
#[allow(clippy::ptr_arg, reason = "as an iterator of arguments gives it")]
pub(super) fn is_its_name(program: &OsString) -> bool {
    Path::new(program).file_name() == Some("kubelet".as_ref())
}

/// Upstream's flags are read by the kubelet itself: lists of them outlive kubelets, and one that means nothing any more
/// must not keep a node from starting.
#[derive(Debug, Clone, Args)]
pub(crate) struct Kubelet {
    /// Upstream's flags: --config, --kubeconfig, --bootstrap-kubeconfig, --node-labels, --max-pods and so on
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "FLAGS"
    )]
    pub(crate) flags: Vec<String>,
}
