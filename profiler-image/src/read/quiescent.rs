//! The quiescent reader: a second thread that makes quiescent reads, which prove every edge of a
//! stack.
//!
//! A thread cannot run on a CPU while another runs there. The quiescent reader sleeps; its affinity
//! is set to the worker's CPU while it sleeps, and then it is woken: when the kernel runs it there,
//! the worker does not run. A read is quiescent if the worker was not put on any CPU between two
//! reads of `schedstat`, and in between was either asleep or bound to the CPU on which the reader
//! itself ran. Its reads are proofs, not samples, and nothing waits for them.
//!
//! Invariant: the order of the checks. A CPU that was looked up before the window proves nothing.

use std::ops::Range;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread::{Builder, JoinHandle};

use nix::sched::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use nix::unistd::{Pid, gettid};
use phpprof_zend::Layout;
use phpprof_zend::function::{FunctionKey, HEAD, NamedFunction};
use phpprof_zend::memory::{Memory, Piece, is_in};
use phpprof_zend::opcache::Restarts;
use phpprof_zend::unwind::{Copy, Frame, UnwindEnd, unwind};
use smallvec::SmallVec;

use super::globals::newest;
use super::reader::{Reader, Reading};
use super::worker::Worker;
use crate::target::process::stat::Watch;

/// How many names of closures and other short-lived functions are read inside the window. Each
/// costs the worker some microseconds.
const MAX_NAMES: usize = 16;

/// A stack that was true at one moment, leaf first.
#[derive(Debug, Default)]
pub struct Observation {
    /// The worker's thread.
    pub tid: i32,
    /// Leaf first.
    pub frames: Vec<Frame>,
    /// For each frame; `None` if the function is inconsistent.
    pub keys: Vec<Option<FunctionKey>>,
    /// Names of functions that may not outlive the window.
    pub functions: Vec<NamedFunction>,
    /// The last frame lies on the newest page of the VM stack.
    pub root_is_on_page: bool,
    /// opcache's restarts until then.
    pub restarts: Restarts,
    /// [`Reader::is_interpreted`] by then.
    pub is_interpreted: bool,
    /// The worker slept. Such a read needs no CPU of the worker's.
    pub was_asleep: bool,
    /// The stack was cut at the most frames.
    pub is_cut: bool,
}

struct QuiescentRequest {
    watch: Arc<Watch>,
    tid: i32,
    reader: Reader,
    layout: &'static Layout,
    shared_ranges: Arc<[Range<u64>]>,
    /// The last answer, whose memory is reused.
    spare: Observation,
}

/// The beginnings of functions; reused memory.
pub type Heads = Vec<[u8; HEAD]>;

/// Memory that the thread reuses between its reads.
#[derive(Default)]
struct Buffers {
    copy: Copy,
    heads: Heads,
}

/// The thread, and the read in progress.
#[derive(Debug)]
pub struct QuiescentReader {
    requests: SyncSender<QuiescentRequest>,
    answers: Receiver<(bool, Observation)>,
    last: Observation,
    thread: Pid,
    busy: bool,
    /// CPUs that the quiescent reader may use.
    allowed: CpuSet,
    _handle: JoinHandle<()>,
}

impl QuiescentReader {
    /// Starts the thread. `allowed` restricts its CPUs, as an exclusive cpuset would.
    ///
    /// # Errors
    /// If no thread can be started.
    pub fn start(allowed: Option<CpuSet>) -> std::io::Result<Self> {
        let (requests, inbox) = sync_channel::<QuiescentRequest>(1);
        let (outbox, answers) = sync_channel(1);
        let (tell, told) = sync_channel(1);
        let handle = Builder::new()
            .name("quiescent".into())
            .stack_size(256 << 10)
            .spawn(move || {
                // When the sampler ends, both channels close, and the thread ends.
                let _ = tell.send(gettid());
                let mut buffers = Buffers::default();
                while let Ok(mut request) = inbox.recv() {
                    let is_quiescent = answer(&mut request, &mut buffers);
                    if outbox.send((is_quiescent, request.spare)).is_err() {
                        break;
                    }
                }
            })?;
        let thread = told.recv().map_err(std::io::Error::other)?;
        let allowed = match allowed {
            Some(allowed) => allowed,
            None => sched_getaffinity(thread)?,
        };
        sched_setaffinity(thread, &allowed)?;
        Ok(Self {
            requests,
            answers,
            last: Observation::default(),
            thread,
            busy: false,
            allowed,
            _handle: handle,
        })
    }

    /// Asks for a quiescent read of a process, if none is under way. Returns whether one is under
    /// way now.
    pub fn ask(&mut self, worker: &mut Worker) -> bool {
        if self.busy {
            return true;
        }
        let Some(watch) = worker.watch() else {
            return false;
        };
        let Some((_, cpu)) = watch.state() else {
            return false;
        };
        let process = &worker.process;
        let mut set = CpuSet::new();
        // If this process may not use the worker's CPU, only a sleeping worker can be read
        // quiescently.
        let reachable = self.allowed.is_set(cpu).unwrap_or(false) && set.set(cpu).is_ok();
        let _ = sched_setaffinity(self.thread, if reachable { &set } else { &self.allowed });
        let request = QuiescentRequest {
            watch,
            tid: process.tid,
            reader: worker.reader.another(process),
            layout: process.engine.layout,
            shared_ranges: Arc::clone(&process.shared_ranges),
            spare: std::mem::take(&mut self.last),
        };
        self.busy = self.requests.try_send(request).is_ok();
        self.busy
    }

    /// Whether a read is in progress.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.busy
    }

    /// The answer, once there is one: a stack if the read was quiescent.
    pub fn answer(&mut self) -> Option<Option<&mut Observation>> {
        if !self.busy {
            return None;
        }
        match self.answers.try_recv() {
            Ok((is_quiescent, observation)) => {
                self.busy = false;
                self.last = observation;
                Some(is_quiescent.then_some(&mut self.last))
            }
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => Some(None),
        }
    }
}

/// Reads into the request's observation; returns whether the read was quiescent.
fn answer(request: &mut QuiescentRequest, buffers: &mut Buffers) -> bool {
    let watch = Arc::clone(&request.watch);
    std::mem::swap(&mut request.reader.copy, &mut buffers.copy);
    let place = quiescently(&watch, || {
        observe(
            &mut request.reader,
            request.layout,
            &request.shared_ranges,
            &mut request.spare,
            &mut buffers.heads,
        )
    });
    request.spare.tid = request.tid;
    std::mem::swap(&mut request.reader.copy, &mut buffers.copy);
    request.spare.was_asleep = place == Some(ThreadPlace::Asleep);
    place.is_some()
}

/// Where a thread is that does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadPlace {
    Asleep,
    /// It waits for this CPU, on which the reader runs.
    Cpu(usize),
}

/// Runs `read`, and returns where the thread of `watch` was, if it did not run meanwhile and there
/// was something to read.
fn quiescently(watch: &Watch, read: impl FnOnce() -> Option<()>) -> Option<ThreadPlace> {
    let still = || match watch.state()? {
        ('S' | 'D' | 'T' | 't', _) => Some(ThreadPlace::Asleep),
        (_, cpu) => (sched_getcpu().ok()? == cpu).then_some(ThreadPlace::Cpu(cpu)),
    };
    let slices = watch.timeslices()?;
    let place = still()?;
    read()?;
    (still()? == place && watch.timeslices()? == slices).then_some(place)
}

/// Reads the functions of frames, in one call, and replaces `keys` by theirs: `None` where one is
/// inconsistent. The result is `None` if one cannot be read.
pub fn read_keys<M: Memory + ?Sized>(
    memory: &M,
    layout: &Layout,
    frames: &[Frame],
    heads: &mut Heads,
    keys: &mut Vec<Option<FunctionKey>>,
) -> Option<()> {
    heads.resize(frames.len(), [0; HEAD]);
    let pieces = frames.iter().zip(heads.iter_mut());
    let mut pieces: SmallVec<[Piece<'_>; 64]> = pieces
        .map(|(frame, head)| Piece {
            address: frame.func,
            bytes: head,
        })
        .collect();
    memory.gather(&mut pieces).ok()?;
    drop(pieces);
    keys.clear();
    keys.extend(heads.iter().map(|head| FunctionKey::parse(layout, head)));
    Some(())
}

/// Reads the stack, the functions of its frames, and the names that may not outlive the read.
/// `None` if there is none, or it is torn.
pub fn observe(
    reader: &mut Reader,
    layout: &'static Layout,
    shared_ranges: &[Range<u64>],
    observation: &mut Observation,
    heads: &mut Heads,
) -> Option<()> {
    let Ok(Reading::Busy { tops, last }) = reader.read() else {
        return None;
    };
    // The look after the last read of the pointer.
    reader
        .copy
        .take_look(reader.copy.looks.len().saturating_sub(1));
    let memory = reader.memory.clone();
    let top = newest(&tops).current_execute_data;
    let frames = &mut observation.frames;
    let end = unwind(&memory, layout, &mut reader.copy, top, frames);
    reader.note_beside(&tops);
    if last.current_execute_data != top {
        return None;
    }
    if end == UnwindEnd::Torn {
        return None;
    }
    let frames = &observation.frames;
    read_keys(&memory, layout, frames, heads, &mut observation.keys)?;
    let is_shared = |address| is_in(shared_ranges, address);
    let passing = observation
        .keys
        .iter()
        .flatten()
        .filter(|key| key.passing || key.name == 0)
        // Code of a file that opcache shares outlives the window.
        .filter(|key| key.name != 0 || !is_shared(key.code) || !is_shared(key.filename));
    observation.functions.clear();
    let functions = passing
        .take(MAX_NAMES)
        .filter_map(|key| NamedFunction::resolve(&memory, layout, *key));
    observation.functions.extend(functions);
    let root = frames.last();
    observation.root_is_on_page = root.is_some_and(|root| reader.copy.inside(root.address));
    observation.is_interpreted = reader.is_interpreted();
    observation.is_cut = end == UnwindEnd::TooDeep;
    observation.restarts = memory.restarts();
    Some(())
}
