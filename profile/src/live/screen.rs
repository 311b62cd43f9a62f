//! Shows the table on a terminal: a thin layer around [`LiveTop`] and [`draw`](super::draw::draw).
//!
//! Invariant: the terminal is restored at the end, even after a panic, for which a hook exists.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError, channel};
use std::thread::Builder;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event as Input, KeyEventKind};

use super::draw::{Theme, draw};
use super::top::{Action, LiveTop};
use crate::proto::Profile;

/// Keys are handled at once, and ticks at most this late.
const POLL: Duration = Duration::from_millis(50);
/// File names that are tried when saving.
const TRIES: u32 = 100;

/// A message from the sampling side.
#[derive(Debug)]
pub enum Update {
    /// The samples since the previous tick, and its length.
    Tick(Vec<Profile>, Duration),
    /// A note for the user.
    Message(String),
}

/// Whether there is a terminal to draw on and to type on.
#[must_use]
pub fn is_there() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// Shows updates until `q`, Ctrl-C, or the end of the updates or the terminal. Returns the saved
/// files. `refresh` asks for the next update at once.
///
/// # Errors
/// The terminal is gone, or cannot be drawn on.
pub fn run(
    top: &mut LiveTop,
    updates: &Receiver<Update>,
    refresh: &dyn Fn(),
) -> io::Result<Vec<PathBuf>> {
    let mut terminal = ratatui::try_init()?;
    let ended = keys().and_then(|keys| shown(top, updates, refresh, &keys, &mut terminal));
    let cursor = terminal.show_cursor();
    // Dropping it would write to the standard error of a closed terminal, and that would end the
    // process.
    std::mem::forget(terminal);
    let restored = ratatui::try_restore().and(cursor);
    let saved = ended?;
    restored.map(|()| saved)
}

/// Typed keys, and changes of the terminal's size.
///
/// A thread waits for them until the process ends, because crossterm 0.29 never returns from a
/// closed terminal.
fn keys() -> io::Result<Receiver<Input>> {
    let (give, keys) = channel();
    let reader = Builder::new().name("keys".to_owned());
    reader.spawn(move || {
        while let Ok(input) = event::read() {
            if give.send(input).is_err() {
                return;
            }
        }
    })?;
    Ok(keys)
}

fn shown(
    top: &mut LiveTop,
    updates: &Receiver<Update>,
    refresh: &dyn Fn(),
    keys: &Receiver<Input>,
    terminal: &mut DefaultTerminal,
) -> io::Result<Vec<PathBuf>> {
    let (theme, mut saved) = (Theme::of_environment(), Vec::new());
    let mut is_new = true;
    loop {
        loop {
            match updates.try_recv() {
                Ok(update) => take(top, update),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return Ok(saved),
            }
            is_new = true;
        }
        if std::mem::take(&mut is_new) {
            terminal.draw(|frame| draw(top, theme, frame))?;
        }
        let key = match keys.recv_timeout(POLL) {
            Ok(Input::Key(key)) if key.kind != KeyEventKind::Release => key,
            Ok(_) => {
                is_new = true;
                continue;
            }
            Err(RecvTimeoutError::Timeout) if is_there() => continue,
            Err(_) => return Err(io::Error::other("it is gone")),
        };
        is_new = true;
        match top.key(key) {
            Action::Quit => return Ok(saved),
            Action::Save => top.said = save(top, &mut saved),
            Action::Refresh => {
                refresh();
                // Also what another program has written over the table.
                terminal.clear()?;
            }
            Action::None => {}
        }
    }
}

fn take(top: &mut LiveTop, update: Update) {
    match update {
        Update::Tick(profiles, span) => {
            if let Err(error) = top.add(profiles, span) {
                top.said = format!("a profile is missing: {error}");
            }
        }
        Update::Message(text) => top.said = text,
    }
}

/// Saves the samples, and returns where.
fn save(top: &LiveTop, saved: &mut Vec<PathBuf>) -> String {
    let file = match top.file() {
        Ok(file) => file,
        Err(_) => return "no samples yet".to_owned(),
    };
    match written(&file) {
        Ok(path) => {
            let words = format!("saved {}", path.display());
            saved.push(path);
            words
        }
        Err(error) => format!("saving failed: {error}"),
    }
}

/// Writes a new file in the current folder.
fn written(bytes: &[u8]) -> io::Result<PathBuf> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    let seconds = since.unwrap_or_default().as_secs() % 86_400;
    let [hours, minutes, seconds] = [seconds / 3600, seconds / 60 % 60, seconds % 60];
    let stem = format!("phpprof-top-{hours:02}{minutes:02}{seconds:02}");
    let mut taken = None;
    for number in 0..TRIES {
        let path = match number {
            0 => PathBuf::from(format!("{stem}.pb.gz")),
            number => PathBuf::from(format!("{stem}-{number}.pb.gz")),
        };
        match std::fs::File::create_new(&path) {
            Ok(mut file) => return file.write_all(bytes).map(|()| path),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => taken = Some(error),
            Err(error) => return Err(error),
        }
    }
    Err(taken.unwrap_or_else(|| io::ErrorKind::AlreadyExists.into()))
}
