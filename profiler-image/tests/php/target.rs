//! A process that a test starts, and that ends with it.

use std::process::Child;

/// A process that is killed when its test is done with it, whatever comes of the test.
pub struct Target(pub Child);

impl Target {
    /// Its number.
    pub fn pid(&self) -> i32 {
        // The kernel's numbers are at most 2^22 (`PID_MAX_LIMIT`).
        i32::try_from(self.0.id()).unwrap_or(i32::MAX)
    }
}

impl Drop for Target {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
