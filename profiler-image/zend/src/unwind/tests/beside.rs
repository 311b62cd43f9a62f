use super::*;

/// A fiber's frame on the page, and two callers beside it on another stack, in the three reads of
/// those: each read has the opline of the lower caller.
fn fiber(oplines: [u64; 3]) -> Copy {
    let layout = of_8_2();
    let (main, resume, bottom) = (BASE + 0x10_0020, BASE + 0x10_00d0, BASE + 0x20);
    let frames = [
        (main, 1, 0, TOP),
        (resume, 2, main, 0),
        (bottom, 3, resume, TOP),
    ];
    let mut page = image(layout, &frames);
    page.room(BASE, 4096);
    let mut copy = page.copy(BASE, 4096);
    copy.beside
        .make_room([(main, 0x100), (resume, 0x60)].into_iter());
    for (pieces, opline) in copy.beside.pieces().into_iter().zip(oplines) {
        page.put_word(main, layout.execute_data.opline, opline);
        for piece in pieces {
            page.read(piece.address, piece.bytes).unwrap();
        }
    }
    copy
}

/// Whether the callers of a fiber are those of its look, and the opline of the lower one; on the
/// top frame's page it may have gone on.
fn resumed(oplines: [u64; 3], look: usize) -> (bool, u64) {
    let mut copy = fiber(oplines);
    copy.take_look(look);
    let mut frames = Vec::new();
    let end = unwind(
        &Recorded::default(),
        of_8_2(),
        &mut copy,
        BASE + 0x20,
        &mut frames,
    );
    assert_eq!(
        (end, frames.len(), copy.late().len()),
        (UnwindEnd::Root, 3, 0)
    );
    let lower = frames[2].address;
    assert!(copy.stood_beside(of_8_2(), &frames, &(lower..lower + 1)));
    (
        copy.stood_beside(of_8_2(), &frames, &(0..0)),
        frames[2].opline,
    )
}

#[test]
fn fibers_callers_stood_around_the_look() {
    assert_eq!(resumed([8, 8, 8], 0), (true, 8));
    assert_eq!(resumed([8, 8, 9], 0), (true, 8));
    assert_eq!(resumed([7, 8, 8], 0), (false, 7));
    assert_eq!(resumed([8, 8, 8], 1), (true, 8));
    // Later looks are nearer to the last read.
    assert_eq!(resumed([8, 8, 9], 1), (false, 9));
}

#[test]
fn frames_beside_the_page_need_no_read() {
    let mut copy = fiber([8, 8, 8]);
    assert!(!copy.beside.used().any(|is_used| is_used));
    let (_, end) = functions(&EngineImage::new(of_8_2()), &mut copy, BASE + 0x20);
    assert_eq!((end, copy.fetches()), (UnwindEnd::Root, 0));
    assert_eq!(copy.beside.used().collect::<Vec<_>>(), [true, true]);
}

#[test]
fn frame_with_its_own_read_is_late() {
    let frames = [(BASE, 1, 0, TOP), (BASE + 0x1000, 2, BASE, 0)];
    let image = image(of_8_2(), &frames);
    let (mut copy, mut stack) = (Copy::default(), Vec::new());
    assert_eq!(
        unwind(&image, of_8_2(), &mut copy, BASE, &mut stack),
        UnwindEnd::Root
    );
    assert!(copy.is_late(&stack) && !copy.is_late(&[]));
    let header = of_8_2().execute_data.sizeof;
    let [late] = copy.late() else {
        panic!("{:?}", copy.late())
    };
    assert!(late.address == BASE && [header, 256].contains(&late.length));
    copy.forget();
    assert!(!copy.is_late(&stack));
}

#[test]
fn late_frame_needs_a_root_or_generator() {
    let layout = of_8_2();
    let generator = layout.call_info.generator;
    // With a caller that is not a frame, the chain is torn.
    for (call_info, caller, expected) in [
        (0, BASE + 4, false),
        (generator, BASE + 4, true),
        (TOP, 0, true),
    ] {
        let image = image(layout, &[(BASE, 1, caller, call_info)]);
        let (mut copy, mut stack) = (Copy::default(), Vec::new());
        unwind(&image, layout, &mut copy, BASE, &mut stack);
        let is_of_stack: Vec<_> = copy.late().iter().map(|late| late.is_of_stack).collect();
        assert_eq!(is_of_stack, [expected], "{call_info:x} {caller:x}");
    }
}

/// The engine allocates it as one. Many that delegate need no place beside the page: they stand
/// while the one that runs does.
#[test]
fn running_generator_is_read_with_its_frame() {
    let check = |count: u64, parts_at_least: usize, needs_more: bool| {
        let scene = delegates::Delegating::new(of_8_2(), count);
        let mut copy = Copy::default();
        let found = functions(&scene.image, &mut copy, scene.start());
        assert_eq!(found.1, UnwindEnd::Root);
        let late = copy.late().to_vec();
        assert!(late.len() >= parts_at_least, "{late:?}");
        copy.forget();
        let parts = late.iter().map(|late| (late.address, late.length));
        copy.beside.make_room(parts);
        for piece in copy.beside.pieces().into_iter().flatten() {
            scene.image.read(piece.address, piece.bytes).unwrap();
        }
        let nothing = EngineImage::new(of_8_2());
        let again = functions(&nothing, &mut copy, scene.start());
        assert_eq!(again == found, !needs_more);
        assert_eq!(functions(&scene.image, &mut copy, scene.start()), found);
        let late = copy.late().len();
        assert!(late == 0 || needs_more, "{late}");
    };
    check(3, 6, false);
    check(27, 3, true);
}
