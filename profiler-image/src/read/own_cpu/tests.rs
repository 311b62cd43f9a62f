//! Which step a reader takes when.

use super::*;

const WAKES: WakeTimes = WakeTimes {
    due: 1_000_000,
    next: 2_000_000,
};

#[test]
fn reader_sleeps_until_the_turn_and_reads() {
    let step = |stage: Stage, now: u64| stage.step(WAKES, now);
    assert_eq!(step(Stage::Empty, 0), Step::Wait);
    assert_eq!(step(Stage::Armed, 999_999), Step::SleepUntil(1_000_000));
    assert_eq!(step(Stage::Armed, 1_000_000), Step::Read);
    assert_eq!(
        step(Stage::Done(1_000_020), 1_000_020),
        Step::SleepUntil(2_000_000)
    );
    // Nobody has armed it for the next turn.
    assert_eq!(step(Stage::Done(1_000_020), 2_000_000), Step::Wait);
    assert_eq!(step(Stage::Over, 0), Step::End);
}
