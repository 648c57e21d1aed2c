//! The console: a terminal pair whose one end is the machine's `/dev/console` and whose other end is a file.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;

use super::disks::Disks;
use crate::Error;

/// Our end of the terminal.
pub(crate) struct Console {
    terminal: OwnedFd,
    log: fs::File,
    /// The machine's end, a file of the host.
    pub(crate) machine_end: PathBuf,
}

impl Console {
    /// A terminal whose output is appended to `log`.
    pub(crate) fn open(log: &Path) -> Result<Console, Error> {
        let terminal =
            rustix::pty::openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)
                .map_err(Error::kernel("open a terminal for the console"))?;
        rustix::pty::grantpt(&terminal).map_err(Error::kernel("take the console's terminal"))?;
        rustix::pty::unlockpt(&terminal).map_err(Error::kernel("unlock the console's terminal"))?;
        // Wide enough for what systemd says; it would shorten it to 80 columns.
        let size = Winsize {
            ws_row: 50,
            ws_col: 200,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        rustix::termios::tcsetwinsize(&terminal, size)
            .map_err(Error::kernel("set the size of the console's terminal"))?;
        let name = rustix::pty::ptsname(&terminal, Vec::new())
            .map_err(Error::kernel("find the console's terminal"))?;
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(log)
            .map_err(Error::file("open", log))?;
        Ok(Console {
            terminal,
            log,
            machine_end: PathBuf::from(OsStr::from_bytes(name.as_bytes())),
        })
    }

    /// Writes what the machine says until `process` has ended; follows changes of its disks meanwhile.
    pub(crate) fn copy_until_end(
        &mut self,
        process: &OwnedFd,
        disks: &mut Disks,
        mut follow: impl FnMut(&mut Disks) -> Result<(), Error>,
    ) -> Result<(), Error> {
        // Held open, or our end would hang up whenever nobody in the machine has the console open. It must not
        // become our controlling terminal: systemd hangs it up, and that would end this process.
        let held = fs::OpenOptions::new()
            .read(true)
            .custom_flags(OFlags::NOCTTY.bits().cast_signed())
            .open(&self.machine_end)
            .map_err(Error::file("open", &self.machine_end))?;
        loop {
            let mut waiting = [
                PollFd::from_borrowed_fd(process.as_fd(), PollFlags::IN),
                PollFd::from_borrowed_fd(self.terminal.as_fd(), PollFlags::IN),
                disks.news(),
            ];
            match poll(&mut waiting, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(Error::kernel("wait for the machine")(error)),
            }
            let [ended, speaks, changed] = [0, 1, 2].map(|i| !waiting[i].revents().is_empty());
            if speaks {
                self.copy_some()?;
            } else if changed && !ended {
                follow(disks)?;
            } else if ended {
                drop(held);
                return Ok(());
            }
        }
    }

    fn copy_some(&mut self) -> Result<(), Error> {
        let mut buffer = [0; 4096];
        match rustix::io::read(&self.terminal, &mut buffer) {
            // A full disk must not stop the machine: what cannot be kept is lost.
            Ok(read) => drop(self.log.write_all(&buffer[..read])),
            Err(Errno::INTR | Errno::IO) => {}
            Err(error) => return Err(Error::kernel("read the console")(error)),
        }
        Ok(())
    }
}
