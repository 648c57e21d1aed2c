//! Tests that mount do it where nobody sees it.
#![allow(clippy::unwrap_used, reason = "tests")]
#![allow(clippy::print_stderr, reason = "tests say why they are skipped")]

/// Runs in a mount namespace of its own; threads that tokio starts there are in it as well.
pub(crate) fn in_own_mounts<F: Future<Output = ()>>(work: impl FnOnce() -> F + Send) {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: mounting needs root");
        return;
    }
    std::thread::scope(|scope| {
        scope.spawn(|| {
            nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
            let private = rustix::mount::MountPropagationFlags::PRIVATE
                | rustix::mount::MountPropagationFlags::REC;
            rustix::mount::mount_change("/", private).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build();
            runtime.unwrap().block_on(work());
        });
    });
}
