//! How provisions fail: the exit code, the cause, and what to do.
