use super::*;

/// Generators in a row, each of which delegates to the next one; the last one runs, and the first
/// one was resumed by the frame at [`BASE`].
pub(super) struct Delegating {
    pub image: EngineImage,
    /// The addresses of the generators.
    pub generators: Vec<u64>,
}

/// The frame of a generator.
fn body(generator: u64) -> u64 {
    generator + 0x1000
}

impl Delegating {
    /// The functions are numbered from 10 on, from the outermost generator.
    pub fn new(layout: &'static Layout, count: u64) -> Self {
        let generators: Vec<u64> = (1..=count).map(|at| BASE + at * 0x1_0000).collect();
        let (outermost, row) = (generators[0], &layout.generator);
        let fake = outermost + row.execute_fake as u64;
        let info = layout.call_info.top | layout.call_info.generator;
        let root = (BASE, 1, 0, layout.call_info.top);
        let bodies = generators.iter().zip(10..);
        let bodies = bodies.map(|(&generator, number)| (body(generator), number, fake, info));
        let mut image = image(
            layout,
            &[root].into_iter().chain(bodies).collect::<Vec<_>>(),
        );
        let parents = generators.iter().skip(1).copied().chain([0]);
        for (&generator, parent) in generators.iter().zip(parents) {
            let return_value = layout.execute_data.return_value;
            image.put_word(body(generator), return_value, generator);
            image.room(generator, 0x400);
            image.put_word(generator, row.execute_data, body(generator));
            image.put_word(generator, row.node_parent, parent);
            image.put_word(generator, row.flags, u64::from(parent == 0));
        }
        if count > 1 {
            image.put_frame(&Frame {
                address: fake,
                this: outermost,
                prev: BASE,
                ..Frame::default()
            });
        } else {
            image.put_word(body(outermost), layout.execute_data.prev_execute_data, BASE);
        }
        Self { image, generators }
    }

    /// The address of the frame that runs.
    pub fn start(&self) -> u64 {
        body(*self.generators.last().unwrap())
    }

    fn fake(&self) -> u64 {
        self.generators[0] + self.image.layout.generator.execute_fake as u64
    }

    /// What is unwound in a copy without bytes.
    fn found(&self) -> (Vec<u64>, UnwindEnd) {
        functions(&self.image, &mut Copy::default(), self.start())
    }

    /// The functions from the innermost generator to the root.
    fn whole(&self) -> (Vec<u64>, UnwindEnd) {
        let last = 9 + self.generators.len() as u64;
        ((10..=last).rev().chain([1]).collect(), UnwindEnd::Root)
    }
}

#[test]
fn delegating_generators_stand_in_each_version() {
    for layout in ROWS {
        for count in [1, 2, 3, 27, 101] {
            let scene = Delegating::new(layout, count);
            assert_eq!(scene.found(), scene.whole(), "{count}");
        }
    }
}

/// The same as [`Delegating`] with this many generators, without their bytes.
struct GeneratorRow {
    layout: &'static Layout,
    count: u64,
}

impl GeneratorRow {
    fn word(&self, address: u64) -> u64 {
        let (header, row) = (&self.layout.execute_data, &self.layout.generator);
        let (index, offset) = ((address - BASE) / 0x1_0000, (address - BASE) % 0x1_0000);
        let generator = BASE + index * 0x1_0000;
        let fake = BASE + 0x1_0000 + row.execute_fake as u64;
        let at_body = offset.wrapping_sub(if index == 0 { 0 } else { 0x1000 });
        let is_at = |field: usize, from: u64| from == field as u64 & !7;
        let info = u64::from(self.layout.call_info.top | self.layout.call_info.generator);
        if at_body < header.sizeof as u64 && is_at(header.func, at_body) {
            FUNCTIONS + index
        } else if is_at(header.this_type_info, at_body) {
            info
        } else if index == 0 {
            0
        } else if is_at(header.prev_execute_data, at_body) {
            fake
        } else if is_at(header.return_value, at_body) {
            generator
        } else if is_at(row.execute_data, offset) {
            body(generator)
        } else if is_at(row.node_parent, offset) && index < self.count {
            generator + 0x1_0000
        } else if is_at(row.flags, offset) {
            u64::from(index == self.count)
        } else if address == fake + header.this as u64 {
            generator
        } else if address == fake + header.prev_execute_data as u64 {
            BASE
        } else {
            0
        }
    }
}

impl Memory for GeneratorRow {
    fn read(&self, address: u64, bytes: &mut [u8]) -> Result<(), crate::memory::MemoryFault> {
        for (byte, address) in bytes.iter_mut().zip(address..) {
            *byte = self.word(address & !7).to_le_bytes()[(address & 7) as usize];
        }
        Ok(())
    }
}

#[test]
fn generators_end_at_the_frame_bound() {
    let check = |count: u64, expected: (usize, UnwindEnd)| {
        let row = GeneratorRow {
            layout: of_8_2(),
            count,
        };
        let (mut copy, mut frames) = (Copy::default(), Vec::new());
        let start = body(BASE + count * 0x1_0000);
        let end = unwind(&row, row.layout, &mut copy, start, &mut frames);
        assert_eq!((frames.len(), end), expected, "{count}");
        assert_eq!(frames[0].func, FUNCTIONS + count);
    };
    let most = MAX_FRAMES as u64;
    check(65, (66, UnwindEnd::Root));
    check(most - 1, (MAX_FRAMES, UnwindEnd::Root));
    check(most, (MAX_FRAMES, UnwindEnd::TooDeep));
    // The innermost ones are known only once all were followed.
    check(2 * most, (1, UnwindEnd::TooDeep));
}

#[test]
fn resumed_generator_tells_its_delegators_apart() {
    let mut scene = Delegating::new(of_8_2(), 3);
    let row = &of_8_2().generator;
    let other = BASE + 0x100_0000;
    let fake = other + row.execute_fake as u64;
    scene.image.room(other, 0x400);
    scene.image.put_word(other, row.execute_data, body(other));
    scene
        .image
        .put_word(other, row.node_parent, scene.generators[1]);
    let frame = Frame {
        address: body(other),
        func: FUNCTIONS + 20,
        call_info: of_8_2().call_info.generator | TOP,
        ..Frame::default()
    };
    scene.image.put_frame(&frame);
    scene.image.put_frame(&Frame {
        address: fake,
        this: other,
        prev: BASE,
        ..Frame::default()
    });
    assert_eq!(scene.found(), scene.whole());
    let prev = of_8_2().execute_data.prev_execute_data;
    scene.image.put_word(scene.start(), prev, fake);
    assert_eq!(scene.found(), (vec![12, 11, 20, 1], UnwindEnd::Root));
}

/// What is in the copy has been read before the generators.
#[test]
fn generators_of_another_moment_are_refused() {
    let row = &of_8_2().generator;
    let header = &of_8_2().execute_data;
    let check = |change: &dyn Fn(&mut Delegating), expected: UnwindEnd| {
        let mut scene = Delegating::new(of_8_2(), 6);
        let mut copy = Copy::default();
        let running = scene.generators[5];
        let parts = [
            (running, 0x200),
            (scene.start(), 0x100),
            (scene.fake(), 0x60),
            (BASE, 0x100),
        ];
        copy.beside.make_room(parts.into_iter());
        for piece in copy.beside.pieces().into_iter().flatten() {
            scene.image.read(piece.address, piece.bytes).unwrap();
        }
        change(&mut scene);
        let found = functions(&scene.image, &mut copy, scene.start());
        assert_eq!(found.1, expected);
        assert!(copy.late().is_empty());
    };
    check(&|_| {}, UnwindEnd::Root);
    let moved_on = |scene: &mut Delegating| scene.image.put_word(scene.start(), header.opline, 8);
    check(&moved_on, UnwindEnd::Root);
    let put = |at: fn(&Delegating) -> u64, offset: usize, value: u64| {
        move |scene: &mut Delegating| scene.image.put_word(at(scene), offset, value)
    };
    check(
        &put(Delegating::start, header.func, 0x7000),
        UnwindEnd::Torn,
    );
    check(
        &put(Delegating::fake, header.prev_execute_data, BASE + 8),
        UnwindEnd::Torn,
    );
    check(&put(|_| BASE, header.opline, 0x7000), UnwindEnd::Torn);
    let inner = |scene: &Delegating| scene.generators[5];
    check(&put(inner, row.execute_data, BASE), UnwindEnd::Torn);
    let middle = |scene: &Delegating| scene.generators[1];
    check(&put(middle, row.execute_data, 0), UnwindEnd::Torn);
    // They lead in a circle.
    check(
        &put(middle, row.node_parent, BASE + 0x1_0000),
        UnwindEnd::TooDeep,
    );
}

#[test]
fn the_tree_tells_which_generator_delegates_to_which() {
    let scene = Delegating::new(of_8_2(), 5);
    let (mut copy, mut frames) = (Copy::default(), Vec::new());
    unwind(
        &scene.image,
        of_8_2(),
        &mut copy,
        scene.start(),
        &mut frames,
    );
    let is_delegating: Vec<_> = frames.iter().map(|frame| frame.is_delegating).collect();
    assert_eq!(is_delegating, [false, true, true, true, true, false]);
    let delegates = |caller: usize, callee: usize| copy.delegates(&frames[caller], &frames[callee]);
    assert!(delegates(1, 0) && delegates(2, 1));
    assert!(!delegates(2, 0) && !delegates(5, 4) && !delegates(1, 2));
    let own = of_8_2().execute_data.return_value;
    let generator = copy.at(frames[4].address).map(|bytes| word_at(bytes, own));
    assert_eq!(generator, Some(scene.generators[0]));
}

/// Each moment of a read is unwound, in one copy.
#[test]
fn generators_are_looked_up_once_in_one_copy() {
    let scene = Delegating::new(of_8_2(), 40);
    let mut copy = Copy::default();
    for _ in 0..200 {
        let found = functions(&scene.image, &mut copy, scene.start());
        assert_eq!(found, scene.whole());
    }
    assert_eq!((copy.chain_reads, copy.chains.len()), (1, 1));
    // The next read expects the same generators.
    copy.forget();
    let found = functions(&scene.image, &mut copy, scene.start());
    assert_eq!((found, copy.nodes), (scene.whole(), 200 - 199));
}
