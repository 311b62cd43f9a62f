//! The outermost frames of a deep stack: what is found, how long it holds, and what is refused.

use super::*;

/// Where the pages begin, the newest first, and the size of each frame.
const PAGES: [u64; 3] = [BASE + (2 << 20), BASE + (4 << 20), BASE];
const FRAME: u64 = 256;
/// Frames of a page.
const PER_PAGE: u64 = 80;

/// The page of a frame by its depth: the root has 1.
fn page_of(depth: u64) -> u64 {
    PAGES[2 - usize::try_from((depth - 1) / PER_PAGE).unwrap()]
}

/// The address of a frame.
fn at(depth: u64) -> u64 {
    page_of(depth) + 32 + (depth - 1) % PER_PAGE * FRAME
}

fn frame(depth: u64) -> Frame {
    Frame {
        address: at(depth),
        func: FUNCTIONS + depth,
        prev: if depth > 1 { at(depth - 1) } else { 0 },
        call_info: if depth > 1 { 0 } else { TOP },
        ..Frame::default()
    }
}

/// A stack of so many frames.
fn deep(depth: u64) -> EngineImage {
    let mut image = EngineImage::new(of_8_2());
    for (index, page) in PAGES.into_iter().enumerate() {
        image.room(page, 32 + (PER_PAGE + 1) * FRAME);
        let older = PAGES.get(index + 1).copied().unwrap_or(0);
        image.put_word(page, of_8_2().vm_stack_prev, older);
    }
    (1..=depth).for_each(|depth| image.put_frame(&frame(depth)));
    image
}

fn find(image: &EngineImage, from: u64) -> Option<Outermost> {
    Outermost::find(image, of_8_2(), page_of(from), &frame(from))
}

fn are_of(found: &Outermost, image: &EngineImage, from: u64) -> bool {
    found.are_of(image, of_8_2(), page_of(from), &frame(from))
}

#[test]
fn outermost_frames_are_found_across_pages() {
    let image = deep(200);
    for from in [2, 65, 66, 100, 161, 200] {
        let found = find(&image, from).unwrap();
        let depths = found.frames().iter().map(|frame| frame.func - FUNCTIONS);
        let kept = (from - 1).min(OUTERMOST as u64);
        assert!(depths.eq((1..=kept).rev()), "{from}");
        assert_eq!(found.left_out() as u64, from - 1 - kept, "{from}");
    }
}

#[test]
fn outermost_frames_hold_for_deeper_stacks() {
    let mut image = deep(200);
    let found = find(&image, 150).unwrap();
    for (from, expected) in [
        (150, true),
        (151, true),
        (200, true),
        (149, false),
        (70, false),
    ] {
        assert_eq!(are_of(&found, &image, from), expected, "{from}");
    }
    // Another call of the same depth.
    let other = Frame {
        opline: 8,
        ..frame(3)
    };
    image.put_frame(&other);
    assert!(!are_of(&found, &image, 150));
    // Another stack.
    assert!(!found.are_of(&image, of_8_2(), PAGES[2], &frame(10)));
}

#[test]
fn inconsistent_chain_has_no_outermost_frames() {
    let changes: [fn(&mut Frame); 6] = [
        |root| root.call_info = 0,
        |root| root.func = 0,
        |root| root.func = 9,
        |root| root.this_type = 0xa0,
        |root| root.prev = at(40),
        |root| root.prev = 0x1000,
    ];
    for change in changes {
        let mut image = deep(100);
        let mut root = frame(1);
        change(&mut root);
        image.put_frame(&root);
        assert!(find(&image, 100).is_none());
    }
    assert!(Outermost::find(&deep(100), of_8_2(), PAGES[2], &frame(100)).is_none());
}

proptest! {
    #[test]
    fn search_ends_on_plausible_words(words in proptest::collection::vec(0_u64..2048, 64..256), from in 0_u64..2048) {
        let mut image = EngineImage::new(of_8_2());
        image.room(BASE, 4096);
        for (index, word) in words.iter().enumerate() {
            image.put_word(BASE, index * 8, BASE + word * 2);
        }
        let from = Frame { address: BASE + from, prev: BASE + from / 2, ..Frame::default() };
        let found = Outermost::find(&image, of_8_2(), BASE, &from);
        prop_assert!(found.is_none_or(|found| found.frames().len() <= OUTERMOST));
    }
}
