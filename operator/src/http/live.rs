//! What the samplers of live requests send each second, for those who read it now. It is in memory
//! only.
//!
//! The replica that leads holds it. The others refuse samplers and readers, which open new
//! connections until they reach the leader. The data is not trusted: it is decoded within bounds
//! before it is held.
//!
//! Any grant of the relay may bring seconds, also one of a run that nobody watches.
//!
//! Invariant: it holds at most [`ROOM`], the newest seconds of each sampler. Seconds that nobody
//! asks for take no room from those that somebody reads. If nobody reads a sampler's seconds, the
//! sampler learns this and stops.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use jiff::{SignedDuration, Timestamp};
use phpprof_profile::{DecodeLimits as Bounds, Packed};
use tokio::sync::Semaphore;

use crate::lease::Role;
use crate::storage::ours;

/// Bytes of a sampler's second, compressed.
pub(crate) const LARGEST: usize = 256 << 10;
/// Bytes of all seconds together.
pub(crate) const ROOM: usize = 4 << 20;
/// The most seconds of one sampler.
const NEWEST: usize = 4;
/// A sampler continues for this long although nobody reads.
const NOBODY: SignedDuration = SignedDuration::from_secs(10);
/// A stream is dropped if its sampler has sent nothing for this long.
const OVER: SignedDuration = SignedDuration::from_secs(30);

/// The answer to a sampler that sends a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Brought {
    /// It is held until somebody reads it.
    Taken,
    /// Nobody has read for a while, so the sampler has to stop.
    NobodyLooks,
    /// Other samplers use all the room.
    Full,
}

/// A sampler's second.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SamplerSecond {
    /// Larger than the numbers of all earlier seconds.
    pub number: i64,
    /// A gzip-compressed pprof, as the sampler sent it.
    pub profile: Bytes,
}

struct Stream {
    newest: VecDeque<SamplerSecond>,
    /// When somebody last read it, or when it began.
    read_at: Timestamp,
    /// Whether somebody has asked for it.
    is_read: bool,
    brought_at: Timestamp,
}

impl Stream {
    fn begins(now: Timestamp) -> Self {
        Stream {
            newest: VecDeque::new(),
            read_at: now,
            is_read: false,
            brought_at: now,
        }
    }
}

#[derive(Default)]
struct LiveState {
    /// By the key of the sampler's object.
    streams: HashMap<String, Stream>,
    bytes: usize,
    last_number: i64,
}

/// All live requests' seconds.
pub struct Live {
    role: Arc<Role>,
    state: Mutex<LiveState>,
    /// Limits how many profiles are opened at a time, together with uploads.
    desk: Arc<Semaphore>,
}

impl Live {
    /// No second yet. `desk` bounds how many profiles are opened at a time.
    #[must_use]
    pub fn new(role: Arc<Role>, desk: Arc<Semaphore>) -> Self {
        Live {
            role,
            state: Mutex::default(),
            desk,
        }
    }

    /// Whether this replica holds the seconds.
    #[must_use]
    pub fn is_here(&self) -> bool {
        self.role.leads()
    }

    /// Whether this is a profile of phpprof, and no larger than a second may be.
    ///
    /// # Errors
    /// The error says why it is not.
    pub async fn check(&self, profile: Bytes) -> Result<(), String> {
        // This always gives a permit, because the semaphore is never closed.
        let turn = self.desk.clone().acquire_owned().await;
        let checked = tokio::task::spawn_blocking(move || {
            // The caller may be gone before this ends, so this task keeps the permit.
            let _turn = turn;
            let opened = Packed::open(profile, &bounds()).map_err(|error| error.to_string())?;
            ours::check(&opened)
        });
        checked
            .await
            .unwrap_or_else(|_| Err("it could not be read".to_owned()))
    }

    /// Holds a second of the sampler with this key. For a sampler that is read, seconds that nobody
    /// asks for make room.
    pub fn bring(&self, key: &str, profile: Bytes, now: Timestamp) -> Brought {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.forget(now);
        let is_watched = |stream: &Stream| now.duration_since(stream.read_at) <= NOBODY;
        if state.streams.get(key).is_some_and(|it| !is_watched(it)) {
            state.remove(key);
            return Brought::NobodyLooks;
        }
        let stream = state.streams.get(key);
        let oldest = stream.filter(|stream| stream.newest.len() >= NEWEST);
        let freed = oldest
            .and_then(|it| it.newest.front())
            .map_or(0, |second| second.profile.len());
        let most = (ROOM + freed).saturating_sub(profile.len());
        if stream.is_some_and(|stream| stream.is_read) {
            state.drop_unread(most);
        }
        if state.bytes > most {
            return Brought::Full;
        }
        state.bytes = state.bytes - freed + profile.len();
        let number = now.as_millisecond().max(state.last_number + 1);
        state.last_number = number;
        let stream = state.streams.entry(key.to_owned());
        let stream = stream.or_insert_with(|| Stream::begins(now));
        stream.brought_at = now;
        if stream.newest.len() >= NEWEST {
            stream.newest.pop_front();
        }
        stream.newest.push_back(SamplerSecond { number, profile });
        Brought::Taken
    }

    /// The seconds of these keys after this number, oldest first, each with its key's index in the
    /// list. It returns at most this many bytes, but at least one second.
    pub fn read(
        &self,
        keys: &[&str],
        after: i64,
        most: usize,
        now: Timestamp,
    ) -> Vec<(usize, SamplerSecond)> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.forget(now);
        let mut found = BTreeMap::new();
        for (place, key) in keys.iter().enumerate() {
            // Also a sampler that has sent nothing yet is read, so its first second finds room.
            let stream = state.streams.entry((*key).to_owned());
            let stream = stream.or_insert_with(|| Stream::begins(now));
            stream.read_at = now;
            stream.is_read = true;
            let newer = stream.newest.iter().filter(|it| it.number > after);
            found.extend(newer.map(|it| (it.number, (place, it.clone()))));
        }
        let mut bytes = 0;
        let fits = |(_, second): &(usize, SamplerSecond)| {
            let is_first = bytes == 0;
            bytes += second.profile.len();
            is_first || bytes <= most
        };
        found.into_values().take_while(fits).collect()
    }
}

impl LiveState {
    fn remove(&mut self, key: &str) {
        let gone = self.streams.remove(key);
        let seconds = gone.iter().flat_map(|stream| &stream.newest);
        self.bytes -= seconds.map(|second| second.profile.len()).sum::<usize>();
    }

    /// Drops seconds that nobody has asked for, until at most this many bytes are held or there are
    /// no more of them.
    fn drop_unread(&mut self, most: usize) {
        let unread = self.streams.values_mut().filter(|it| !it.is_read);
        for stream in unread {
            while self.bytes > most
                && let Some(second) = stream.newest.pop_front()
            {
                self.bytes -= second.profile.len();
            }
        }
    }

    fn forget(&mut self, now: Timestamp) {
        let is_over = |stream: &Stream| now.duration_since(stream.brought_at) > OVER;
        let streams = self.streams.iter().filter(|(_, stream)| is_over(stream));
        let over: Vec<_> = streams.map(|(key, _)| key.clone()).collect();
        over.iter().for_each(|key| self.remove(key));
    }
}

fn bounds() -> Bounds {
    Bounds {
        compressed_bytes: LARGEST,
        decompressed_bytes: 4 << 20,
        memory_bytes: 4 << 20,
        samples: 20_000,
        ..Bounds::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::at;
    use phpprof_profile::{Builder, FrameRef, SampleTag, Settings, encode_gzip};

    fn live() -> Live {
        Live::new(Arc::new(Role::new(true)), Arc::new(Semaphore::new(1)))
    }

    fn bytes(count: usize) -> Bytes {
        vec![7; count].into()
    }

    fn numbers(read: &[(usize, SamplerSecond)]) -> Vec<(usize, usize)> {
        let of = |(place, second): &(usize, SamplerSecond)| (*place, second.profile.len());
        read.iter().map(of).collect()
    }

    #[test]
    fn a_reader_gets_each_second_once_in_order() {
        let live = live();
        for (key, count) in [("a", 1), ("b", 2), ("c", 9), ("a", 3)] {
            assert_eq!(live.bring(key, bytes(count), at(0)), Brought::Taken);
        }
        let read = live.read(&["a", "b", "none"], 0, ROOM, at(1));
        assert_eq!(numbers(&read), [(0, 1), (1, 2), (0, 3)]);
        let after = read[1].1.number;
        let rest = live.read(&["a", "b"], after, ROOM, at(1));
        assert_eq!(numbers(&rest), [(0, 3)]);
        // A large answer is cut. The next one continues after it.
        let cut = live.read(&["a", "b"], 0, 2, at(1));
        assert_eq!(numbers(&cut), [(0, 1)]);
    }

    #[test]
    fn only_watched_samplers_are_told_to_go_on() {
        let live = live();
        for second in 0..=10 {
            assert_eq!(live.bring("a", bytes(1), at(second)), Brought::Taken);
            assert_eq!(live.bring("b", bytes(1), at(second)), Brought::Taken);
            live.read(&["b"], 0, ROOM, at(second));
        }
        assert_eq!(live.bring("a", bytes(1), at(11)), Brought::NobodyLooks);
        assert_eq!(live.bring("b", bytes(1), at(11)), Brought::Taken);
        assert!(live.read(&["a"], 0, ROOM, at(11)).is_empty());
    }

    #[test]
    fn held_seconds_are_bounded_and_forgotten_when_over() {
        let live = live();
        let held = |live: &Live| live.state.lock().unwrap().bytes;
        for _ in 0..100 {
            live.bring("a", bytes(LARGEST), at(0));
        }
        assert_eq!(held(&live), NEWEST * LARGEST);
        let brought: Vec<_> = (0..100)
            .map(|number| live.bring(&format!("{number}"), bytes(LARGEST), at(0)))
            .collect();
        assert_eq!(held(&live), ROOM);
        let full = brought.iter().filter(|it| **it == Brought::Full).count();
        assert_eq!(full, 100 - (ROOM / LARGEST - NEWEST));
        // A stream that has room keeps it.
        assert_eq!(live.bring("a", bytes(LARGEST), at(1)), Brought::Taken);
        live.read(&["a"], 0, ROOM, at(35));
        assert_eq!(held(&live), 0);
        assert_eq!(live.bring("z", bytes(1), at(35)), Brought::Taken);
    }

    #[test]
    fn unread_seconds_take_no_room_from_read_ones() {
        let live = live();
        let fill = |second| {
            for number in 0..6 * NEWEST {
                let key = format!("checkpoint-{}", number % 6);
                live.bring(&key, bytes(LARGEST), at(second));
            }
            let held = live.state.lock().unwrap().bytes;
            let is_full = ROOM - LARGEST < held && held <= ROOM;
            assert!(is_full, "{held}");
        };
        fill(0);
        // Somebody reads before the sampler has sent anything.
        assert!(live.read(&["web"], 0, ROOM, at(1)).is_empty());
        assert_eq!(live.bring("web", bytes(1), at(1)), Brought::Taken);
        assert_eq!(numbers(&live.read(&["web"], 0, ROOM, at(2))), [(0, 1)]);
        // What was told to stop may begin again, and takes only what is free.
        for second in 11..20 {
            fill(second);
            live.read(&["web"], 0, ROOM, at(second));
            let brought = live.bring("web", bytes(LARGEST), at(second));
            assert_eq!(brought, Brought::Taken);
        }
    }

    fn profile(label: &str) -> Bytes {
        let mut builder = Builder::new(Settings::default());
        builder.add(
            &[FrameRef::default()],
            &[1, 2, 3],
            &[SampleTag::Str(label, "x")],
        );
        encode_gzip(&builder.finish()).into()
    }

    #[tokio::test]
    async fn what_is_no_profile_of_ours_is_refused() {
        let live = live();
        assert_eq!(live.check(profile("route")).await, Ok(()));
        let foreign = live.check(profile("password")).await;
        assert!(foreign.is_err_and(|why| why.contains("password")));
        assert!(live.check(bytes(10)).await.is_err());
        assert!(live.check(bytes(LARGEST + 1)).await.is_err());
    }
}
