//! The board must notice what a broken elector or register would do.

use super::*;

fn board(fence: bool) -> Board {
    let (sender, _) = mpsc::unbounded_channel();
    let mut board = Board::new(&Timing::default(), 1, fence, sender);
    (0..PODS.len()).for_each(|pod| board.set_life(pod, Life::Running));
    board
}

fn ms(at: u64) -> Duration {
    Duration::from_millis(at)
}

/// An answer computed and received at one moment.
fn says(epoch: Option<u64>, at: u64) -> Said {
    Said {
        leader: epoch.is_some(),
        state: if epoch.is_some() { "leading" } else { "following" }.into(),
        reason: "acquired".into(),
        epoch,
        valid_until: ms(at + 1_000),
        computed_after: ms(at),
        received: ms(at),
    }
}

#[test]
fn invariant_s1_a_term_within_another_is_noticed() {
    let mut board = board(true);
    board.hear(0, says(Some(7), 100));
    board.strike(Kind::CutOff, 0, 7, ms(150));
    board.hear(1, says(Some(8), 200));
    board.hear(1, says(Some(8), 400));
    assert_eq!((board.overlaps, board.summarize().kept_all_promises()), (0, true));
    // The first one says so again, when the second surely leads.
    board.hear(0, says(Some(7), 300));
    assert_eq!(board.overlaps, 1);
    assert!(!board.summarize().kept_all_promises());
}

#[test]
fn an_answer_that_only_came_late_is_no_overlap() {
    let mut board = board(true);
    board.hear(0, says(Some(7), 100));
    board.strike(Kind::Pause, 0, 7, ms(150));
    board.hear(1, says(Some(8), 200));
    board.hear(0, Said { computed_after: ms(140), received: ms(500), ..says(Some(7), 140) });
    assert_eq!(board.overlaps, 0, "{:?}", board.failures);
}

#[test]
fn invariant_s2_an_epoch_that_does_not_grow_is_noticed() {
    let mut board = board(true);
    board.hear(0, says(Some(7), 100));
    board.hear(0, says(None, 200));
    board.strike(Kind::Release, 0, 7, ms(190));
    board.hear(1, says(Some(6), 300));
    assert!(board.failures.iter().any(|why| why.contains("epoch 6 after epoch 7")));
}

#[test]
fn a_change_that_nobody_asked_for_is_counted_and_breaks_no_promise() {
    let mut board = board(true);
    board.hear(0, says(Some(7), 100));
    board.hear(0, says(None, 200));
    board.hear(1, says(Some(8), 300));
    let summary = board.summarize();
    assert_eq!(summary.to_json()["unasked"], 1);
    assert!(summary.kept_all_promises());
}

#[test]
fn a_change_counts_from_what_was_done_and_from_the_last_validity() {
    let mut board = board(true);
    board.hear(0, says(Some(7), 100));
    board.strike(Kind::Pause, 0, 7, ms(400));
    board.hear(1, says(Some(8), 2_000));
    let change = board.changes.last().unwrap();
    // Valid until 1100.
    assert_eq!((change.took, change.leaderless), (ms(1_600), ms(900)));
    board.strike(Kind::Release, 1, 8, ms(2_500));
    board.hear(1, says(None, 2_501));
    board.hear(2, says(Some(9), 2_510));
    let change = board.changes.last().unwrap();
    assert_eq!((change.took, change.leaderless), (ms(10), ms(9)));
}

#[test]
fn the_fence_refuses_old_epochs_at_reads_and_at_writes() {
    let mut board = board(true);
    assert_eq!(board.begin_write(7), Ok(0));
    assert_eq!(board.write_is_open(0, 7), None);
    board.send_write("pod-a", 7);
    assert_eq!(board.write_is_open(0, 7), Some(()));
    // The new leader only reads: from here on the old one's write is late.
    assert_eq!(board.begin_write(8), Ok(0));
    assert_eq!(board.commit_write("pod-a", 7, 1), Err(8));
    assert_eq!(board.commit_write("pod-b", 8, 1), Ok(()));
    assert_eq!(board.begin_write(7), Err(8));
    let register = &board.register;
    assert_eq!((register.accepted, register.refused, register.lost()), (1, 2, 0));
}

#[test]
fn without_a_fence_the_damage_is_counted_whoever_writes_last() {
    let mut board = board(false);
    assert_eq!(board.begin_write(7), Ok(0));
    for value in 1..=5 {
        assert_eq!(board.begin_write(8), Ok(value - 1));
        assert_eq!(board.commit_write("pod-b", 8, value), Ok(()));
    }
    assert_eq!(board.commit_write("pod-a", 7, 1), Ok(()));
    let register = &board.register;
    assert_eq!((register.stale_accepted, register.value, register.lost()), (1, 1, 5));
}
