//! Says when something happens in a directory.

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify;
use tokio::io::unix::AsyncFd;

/// What happens to the files of one directory.
#[derive(Debug)]
pub(crate) struct Changes(AsyncFd<OwnedFd>);

impl Changes {
    /// None where the kernel has no watch left for us, or there is no such directory: look now and then instead.
    pub(crate) fn of(directory: &Path) -> Option<Changes> {
        let flags = inotify::CreateFlags::NONBLOCK | inotify::CreateFlags::CLOEXEC;
        let fd = inotify::init(flags).ok()?;
        let what = inotify::WatchFlags::MODIFY
            | inotify::WatchFlags::CREATE
            | inotify::WatchFlags::DELETE
            | inotify::WatchFlags::MOVED_TO
            | inotify::WatchFlags::MOVED_FROM;
        inotify::add_watch(&fd, directory, what).ok()?;
        #[expect(
            deprecated,
            reason = "its successor is unsafe for types that may lie about their descriptor; this one owns it"
        )]
        let fd = AsyncFd::new(fd);
        fd.ok().map(Changes)
    }

    /// Waits until something has happened since the last time.
    pub(crate) async fn next(&self) {
        let Ok(mut ready) = self.0.readable().await else {
            return std::future::pending().await;
        };
        let mut buffer = [0; 4096];
        while rustix::io::read(&self.0, &mut buffer).is_ok_and(|count| count > 0) {}
        ready.clear_ready();
    }
}
