//! Samples of a worker whose stack is on several pages, such as those of fibers.

use phpprof_zend::testing::{BLOCK, NewOp};
use phpprof_zend::unwind::Frame;

use super::super::*;
use super::{DO_UCALL, Scene, names};

/// Samples are repeated until no read of one was held up, but not longer.
const MOST: usize = 1000;

/// A scene in which the top frame of the first page has called `inner` on a second one.
struct Pages {
    scene: Scene,
    /// Each page and the top frame on it.
    pages: [(u64, u64); 2],
}

impl Pages {
    fn new() -> Self {
        let mut scene = Scene::calling();
        let image = &mut scene.image;
        let (page, caller) = (image.page, image.top);
        let other = image.block();
        let inner = image.user(Some("inner"), &[NewOp::from(DO_UCALL)]);
        let address = other + image.layout.vm_stack_header;
        image.put_frame(&Frame {
            address,
            func: inner.func,
            opline: inner.op(0),
            prev: caller,
            call_info: image.layout.call_info.top,
            ..Frame::default()
        });
        Self {
            scene,
            pages: [(page, caller), (other, address)],
        }
    }

    /// Makes the top frame of a page the running one.
    fn run(&mut self, index: usize) {
        let (page, frame) = self.pages[index];
        self.set(page, frame);
    }

    fn set(&mut self, page: u64, frame: u64) {
        let image = &mut self.scene.image;
        let (globals, row) = (image.executor_globals, &image.layout.executor_globals);
        for (offset, word) in [
            (row.current_execute_data, frame),
            (row.vm_stack, page),
            (row.vm_stack_top, frame + BLOCK / 2),
            (row.vm_stack_end, page + 2 * BLOCK),
        ] {
            image.put_word(globals, offset, word);
        }
    }

    /// Samples this page, and the page that the sampler then had a copy of.
    fn sample(&self, sampler: &mut StackSampler, worker: &mut Worker) -> (Vec<String>, u64) {
        let TurnOutcome::Sample(SampledStack { stack, .. }) = sampler.sample(worker, 1) else {
            panic!("no sample")
        };
        assert_eq!(
            stack.ending,
            Ending::Whole,
            "{:?}",
            names(sampler, stack.path)
        );
        (names(sampler, stack.path), sampler.copy.base)
    }
}

/// `{main}` and `found` are fetched after the looks the first time, so that the stack could be of
/// two moments. The next read takes them along.
#[test]
fn late_frames_are_read_again() {
    let mut pages = Pages::new();
    let (mut sampler, mut worker) = (StackSampler::new(), pages.scene.worker());
    pages.run(1);
    assert_eq!(
        pages.sample(&mut sampler, &mut worker).0,
        ["{main}", "found", "inner"]
    );
    assert!(sampler.copy.late().is_empty());
}

#[test]
fn other_page_is_sampled_with_its_looks() {
    let mut pages = Pages::new();
    let (mut sampler, mut worker) = (StackSampler::new(), pages.scene.worker());
    let other = pages.pages[1].0;
    let is_of_other_page = (0..MOST).any(|_| {
        pages.run(1);
        pages.sample(&mut sampler, &mut worker);
        pages.run(0);
        let (names, page) = pages.sample(&mut sampler, &mut worker);
        assert_eq!(names, ["{main}", "found"]);
        page == other
    });
    assert!(is_of_other_page);
}

/// Callers stand while fibers come and go, so later moments would favour them.
#[test]
fn later_word_of_another_page_is_not_followed() {
    let mut pages = Pages::new();
    let (mut sampler, mut worker) = (StackSampler::new(), pages.scene.worker());
    pages.run(0);
    pages.sample(&mut sampler, &mut worker);
    let Ok(Reading::Busy { mut tops, .. }) = worker.reader.read() else {
        panic!("no frame")
    };
    // Nothing is mapped there.
    tops[0].current_execute_data = 8;
    let (mut trace, mut climb) = (Trace::default(), Climb::default());
    let mut is_whole = |tops: &[Globals]| {
        let (followed, _) = sampler.follow(&mut worker, tops, &mut trace, &mut climb, 2);
        matches!(followed, Followed::Whole)
    };
    assert!(is_whole(&tops));
    tops[0].page = pages.pages[1].0;
    assert!(!is_whole(&tops));
}

/// The engine enters a fiber word by word: the page can be gone while there still is a frame.
#[test]
fn busy_worker_without_page_is_a_sample() {
    let mut pages = Pages::new();
    let (mut sampler, mut worker) = (StackSampler::new(), pages.scene.worker());
    pages.run(0);
    pages.sample(&mut sampler, &mut worker);
    let frame = pages.pages[0].1;
    pages.set(0, frame);
    let TurnOutcome::Sample(SampledStack { stack, .. }) = sampler.sample(&mut worker, 2) else {
        panic!("no sample")
    };
    assert_eq!((stack.ending, stack.path), (Ending::Cut, PathId::NONE));
}
