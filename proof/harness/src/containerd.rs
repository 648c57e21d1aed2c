//! A containerd of a test's own.

use std::path::Path;

/// Its configuration, for everything below `dir`; plugins and configurations of networks are in `dir/cni`.
///
/// Snapshots are plain copies: an overlay cannot always lie on the file system of a temporary directory. Not every root
/// may make a process safer from the kernel's memory killer than itself.
pub fn containerd_configuration(dir: &Path, sandbox_image: &str) -> String {
    let dir = dir.display();
    format!(
        r#"version = 2
root = "{dir}/root"
state = "{dir}/state"
[grpc]
  address = "{dir}/containerd.sock"
[plugins."io.containerd.internal.v1.opt"]
  path = "{dir}/opt"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{sandbox_image}"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "native"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{dir}/cni"
    conf_dir = "{dir}/cni"
"#
    )
}
