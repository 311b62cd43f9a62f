use super::*;
use crate::sample::tests::Scene;

/// The addresses of the pieces with this many looks: the pointer is at 1, the looks at 2, the part
/// below at 3, and a frame beside the page at 4.
fn addresses(count: usize) -> Vec<u64> {
    let (mut looks, mut tops) = (vec![vec![0; 8]; count], vec![[0_u8; 8]; count - 1]);
    let tops = tops.iter_mut().map(|bytes| Piece { address: 1, bytes });
    let mut below = [0; 8];
    let below = Piece {
        address: 3,
        bytes: &mut below,
    };
    let mut beside = [[0; 8]; 3];
    let beside = beside.each_mut();
    let beside = beside.map(|bytes| std::iter::once(Piece { address: 4, bytes }));
    let mut pieces = Pieces::new();
    add_looks(&mut pieces, tops, 2, &mut looks, Some(below), beside);
    pieces.iter().map(|piece| piece.address).collect()
}

#[test]
fn pointer_is_read_before_looks_and_rest() {
    assert_eq!(addresses(2), [1, 4, 2, 4, 3, 2, 4]);
    assert_eq!(addresses(4), [1, 4, 2, 4, 2, 3, 1, 2, 1, 2, 4]);
}

#[test]
fn top_is_asked_if_aged_and_moving() {
    let scene = Scene::cut();
    let mut reader = Reader::new(&scene.process());
    assert!(!reader.asks_first(), "nothing is expected");
    let read = |reader: &mut Reader| matches!(reader.read(), Ok(Reading::Busy { .. }));
    assert!(read(&mut reader) && !reader.asks_first());
    let aged = Instant::now().checked_sub(AGED);
    reader.last_read = aged;
    assert!(!reader.asks_first(), "it has not moved");
    (0..1000).for_each(|_| reader.window.moved(1 << 20, false));
    assert!(reader.asks_first());
    assert!(
        read(&mut reader) && !reader.asks_first(),
        "it has been read"
    );
    reader.last_read = aged;
    (0..1000).for_each(|_| reader.window.moved(0, true));
    assert!(!reader.asks_first());
}

#[test]
fn unreadable_frame_beside_is_read_no_more() {
    let scene = Scene::cut();
    let mut reader = Reader::new(&scene.process());
    let read = |reader: &mut Reader| matches!(reader.read(), Ok(Reading::Busy { .. }));
    assert!(read(&mut reader));
    // Nothing is mapped there.
    reader.beside.add(8, 256);
    assert!(read(&mut reader));
    assert_eq!(reader.beside.parts().count(), 0);
}

#[test]
fn parts_beside_the_stack_are_few() {
    let scene = Scene::cut();
    let mut reader = Reader::new(&scene.process());
    let takes = |part: usize| reader.expect_beside(0x10_0000 * (part as u64 + 1), 24);
    let taken: Vec<_> = (0..FEW_BESIDE + 1).map(takes).collect();
    assert_eq!(taken.iter().filter(|&&taken| taken).count(), FEW_BESIDE);
    assert_eq!(taken.last(), Some(&false));
}
