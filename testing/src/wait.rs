//! Waiting for what another process does: in short steps, and not for ever.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

/// Longer than most things take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(10);

/// Waits until there is something.
///
/// # Errors
/// Those of `look`, and that there is nothing after a minute.
pub fn wait_for<T>(what: &str, look: impl FnMut() -> Result<Option<T>>) -> Result<T> {
    wait_within(PATIENCE, what, look)
}

/// The same with another patience.
///
/// # Errors
/// As [`wait_for`].
pub fn wait_within<T>(
    patience: Duration,
    what: &str,
    mut look: impl FnMut() -> Result<Option<T>>,
) -> Result<T> {
    let began = Instant::now();
    loop {
        if let Some(found) = look()? {
            return Ok(found);
        }
        if began.elapsed() > patience {
            bail!("there is still no {what}");
        }
        std::thread::sleep(STEP);
    }
}

/// Waits until this holds.
///
/// # Errors
/// As [`wait_for`].
pub fn wait_until(what: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
    wait_for(what, || Ok(holds()?.then_some(())))
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn wait_for_returns_what_comes_later() {
        let mut looks = 0;
        let found = wait_for("third look", || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(found.ok(), Some(3));
    }

    #[test]
    fn wait_within_ends_without_patience() {
        let found = wait_within(Duration::ZERO, "snow", || Ok(None::<u8>));
        let said = found.map_err(|error| error.to_string());
        assert_eq!(said, Err("there is still no snow".to_owned()));
    }

    #[test]
    fn wait_until_ends_at_an_error() {
        let ended = wait_until("end", || Err(anyhow!("gone")));
        assert_eq!(
            ended.map_err(|error| error.to_string()),
            Err("gone".to_owned())
        );
    }
}
